"""Workers as pods of a Kubernetes cluster that runs the dask operator."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from distkern.errors import ClusterError

from .clients import required
from .worker_settings import WorkerSize, hold_memory, inherited_settings


def cluster_resource(
    size: WorkerSize, image: str, name: str, *, env: Mapping[str, str] | None = None, claims: Mapping[str, str] | None
) -> dict[str, Any]:
    """Return the ``DaskCluster`` that the operator is asked for: a scheduler and workers of the size given.

    Parameters
    ----------
    size : WorkerSize
        Workers, and what each may take; the memory limit of their pods holds the process that starts them too.
    image : str
        Container image with distkern, for the scheduler as well.
    name : str
        Of the resource.
    env : mapping, optional
        Environment variables of all pods.
    claims : mapping, optional
        Persistent volume claims, and where the workers mount them.
    """
    operator = required("dask_kubernetes.operator", kind="kubernetes", extra="kubernetes")
    command = ["dask", "worker", "--nthreads", str(size.threads), "--memory-limit", str(size.limit)]
    resource: dict[str, Any] = operator.make_cluster_spec(
        name=name,
        image=image,
        n_workers=size.workers,
        env={**(env or {}), **inherited_settings()},
        resources={},
        worker_command=command,
    )
    pod = resource["spec"]["worker"]["spec"]
    memory = str(size.together(1))
    asked = {"cpu": str(size.threads), "memory": memory}
    pod["containers"][0]["resources"] = {"requests": asked, "limits": {"memory": memory}}
    if claims:
        pod["containers"][0]["volumeMounts"] = [
            {"name": claim, "mountPath": path} for claim, path in sorted(claims.items())
        ]
        pod["volumes"] = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in sorted(claims)]
    return resource


@contextmanager
def kubernetes_client(
    size: WorkerSize,
    image: str,
    *,
    namespace: str | None = None,
    name: str | None = None,
    env: Mapping[str, str] | None = None,
    claims: Mapping[str, str] | None = None,
) -> Iterator[Any]:
    """Have the dask operator start scheduler and workers, and delete them when the context ends.

    Parameters
    ----------
    size : WorkerSize
        Workers, and what each may take.
    image : str
        Container image with distkern and what the data needs.
    namespace : str, optional
        Where; that of the current context.
    name : str, optional
        Of the cluster; one of its own by default.
    env : mapping, optional
        Environment variables of all pods.
    claims : mapping, optional
        Persistent volume claims, and where the workers mount them.

    Yields
    ------
    distributed.Client

    Raises
    ------
    ClusterError
        dask-kubernetes is missing, no Kubernetes cluster answers, or the operator does not start the scheduler.
    """
    operator = required("dask_kubernetes.operator", kind="kubernetes", extra="kubernetes")
    from distributed import Client

    name = name or f"distkern-{uuid.uuid4().hex[:8]}"
    resource = cluster_resource(size, image, name, env=env, claims=claims)
    try:
        # Asked first: dask-kubernetes tries to delete at exit what it never could create.
        required("kr8s", kind="kubernetes", extra="kubernetes").api(namespace=namespace).version()
        cluster = operator.KubeCluster(
            custom_cluster_spec=resource,
            namespace=namespace,
            create_mode=operator.kubecluster.kubecluster.CreateMode.CREATE_ONLY,
            quiet=True,
        )
    except Exception as error:  # of the web client, of Kubernetes, of dask-kubernetes: they share no class
        raise ClusterError(
            f"the dask operator did not start the cluster {name}: {type(error).__name__}: {error}; look at the current "
            "context of kubectl, that the operator is installed there, and at [cluster.kubernetes]",
            kind="no-kubernetes",
        ) from error
    with cluster, Client(cluster, set_as_default=False) as client:
        hold_memory(client, size.memory)
        yield client

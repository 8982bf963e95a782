"""Workers as pods of a Kubernetes cluster that runs the dask operator.

Covers neither images nor the installation of the operator, see ``docs/clusters.md``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from distkern.errors import ClusterError

from .clients import new_client, required
from .worker_settings import WorkerSize, hold_memory, inherited_settings


def cluster_resource(
    size: WorkerSize, image: str, name: str, *, env: Mapping[str, str] | None = None, claims: Mapping[str, str] | None
) -> dict[str, Any]:
    """Return the ``DaskCluster`` resource for the operator: a scheduler, and workers of the given size.

    Parameters
    ----------
    size : WorkerSize
        Workers, and their memory; the memory limit of a pod includes the process that starts its worker.
    image : str
        Container image with distkern, for scheduler and workers.
    name : str
        Name of the resource.
    env : mapping, optional
        Environment variables of all pods; none by default.
    claims : mapping, optional
        Persistent volume claims to the paths at which the workers mount them; none by default.
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
    """Start scheduler and workers through the dask operator, and delete them when the context ends.

    Parameters
    ----------
    size : WorkerSize
        Workers, and their threads and memory.
    image : str
        Container image with distkern and the packages that the data needs.
    namespace : str, optional
        Namespace; by default that of kubectl's current context.
    name : str, optional
        Name of the cluster; a unique one by default.
    env : mapping, optional
        Environment variables of all pods; none by default.
    claims : mapping, optional
        Persistent volume claims to the paths at which the workers mount them; none by default.

    Yields
    ------
    distributed.Client

    Raises
    ------
    ClusterError
        dask-kubernetes is missing, no Kubernetes cluster answers, or the operator does not start the scheduler.
    """
    operator = required("dask_kubernetes.operator", kind="kubernetes", extra="kubernetes")

    name = name or f"distkern-{uuid.uuid4().hex[:8]}"
    resource = cluster_resource(size, image, name, env=env, claims=claims)
    try:
        # Checked first: at exit, dask-kubernetes would try to delete a cluster that it could not create.
        required("kr8s", kind="kubernetes", extra="kubernetes").api(namespace=namespace).version()
        cluster = operator.KubeCluster(
            custom_cluster_spec=resource,
            namespace=namespace,
            create_mode=operator.kubecluster.kubecluster.CreateMode.CREATE_ONLY,
            quiet=True,
        )
    except Exception as error:  # errors of the web client, Kubernetes and dask-kubernetes share no class
        raise ClusterError(
            f"the dask operator did not start the cluster {name}: {type(error).__name__}: {error}; look at the current "
            "context of kubectl, that the operator is installed there, and at [cluster.kubernetes]",
            kind="no-kubernetes",
        ) from error
    with cluster, new_client(cluster, set_as_default=False) as client:
        hold_memory(client, size.memory)
        yield client

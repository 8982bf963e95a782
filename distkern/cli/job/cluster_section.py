"""``[cluster]`` of a job file: the number of workers, what starts them, and the memory of each.

This module starts no cluster and imports no cluster library: ``distkern plan`` reads jobs for other machines too.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import ByteSize, Field, PositiveInt, model_validator

from ...estimators.base.parameter_checks import MEMORY, one_of, whole
from .section import PATH, TEXT, Section, constrained

QUEUES = ("slurm", "pbs", "sge", "lsf", "oar", "moab")
"""Batch queues that worker jobs can be submitted to."""

KINDS = ("local", *QUEUES, "ssh", "kubernetes")
"""Kinds of clusters that start workers."""

_LINES = "a list of texts between quotes"

Words = list[Annotated[str, Field(min_length=1)]]


class SecuritySection(Section):
    """``[cluster.security]``: certificates for a cluster with TLS."""

    ca: str = Field(min_length=1, description=PATH)
    cert: str = Field(min_length=1, description=PATH)
    key: str = Field(min_length=1, description=PATH)


class JobsSection(Section):
    """``[cluster.job]``: the batch jobs that run the workers; dask's ``jobqueue.yaml`` has the values of absent keys.

    `workers_per_job` is the number of worker processes of a job, `setup` are lines of shell that run before them,
    `directives` lines for the queue beside those from the other keys.
    """

    workers_per_job: Annotated[int, constrained(whole(1))] = 1
    walltime: str | None = Field(
        default=None, pattern=r"^\d[\d:-]*$", description='a time limit between quotes such as "04:00:00"'
    )
    queue: str | None = Field(default=None, min_length=1, description='the name of a queue such as "batch"')
    account: str | None = Field(default=None, min_length=1, description="the name of an account or project")
    directives: Words | None = Field(default=None, description='a list of texts such as ["--constraint=rome"]')
    setup: Words | None = Field(default=None, description='a list of shell lines such as ["module load python"]')
    python: str | None = Field(default=None, min_length=1, description="the Python of the workers between quotes")
    interface: str | None = Field(default=None, min_length=1, description='a network interface such as "ib0"')
    local_directory: str | None = Field(default=None, min_length=1, description='a path such as "$TMPDIR"')
    log_directory: str | None = Field(default=None, min_length=1, description=PATH)


class SshSection(Section):
    """``[cluster.ssh]``: the machines that run the workers, and the login."""

    hosts: Words = Field(min_length=1, description='a list of machines such as ["node1", "node2"]')
    user: str | None = Field(default=None, min_length=1, description="a user name between quotes")
    port: Annotated[PositiveInt, Field(lt=1 << 16)] | None = Field(default=None, description="a port such as 22")
    key: str | None = Field(default=None, min_length=1, description=PATH)
    known_hosts: str | None = Field(default=None, min_length=1, description=PATH)
    python: str | None = Field(default=None, min_length=1, description="the Python of the workers between quotes")
    local_directory: str | None = Field(default=None, min_length=1, description=PATH)


class KubernetesSection(Section):
    """``[cluster.kubernetes]``: the pods that run scheduler and workers; needs a dask operator in Kubernetes."""

    image: str = Field(min_length=1, description="a container image between quotes that holds distkern")
    namespace: str | None = Field(default=None, min_length=1, description=TEXT)
    name: str | None = Field(
        default=None, pattern=r"^[a-z]([a-z0-9-]{0,30}[a-z0-9])?$", description="a name of small letters, digits and -"
    )
    env: dict[str, str] | None = Field(default=None, description='a table of texts, { NAME = "value" }')
    claims: dict[str, str] | None = Field(
        default=None, description='a table of volume claims and where they are mounted, { data = "/data" }'
    )


class ClusterSection(Section):
    """``[cluster]``: workers to start, a running scheduler, or neither for training in this process.

    Training starts with `min_workers` of the `workers`, with all of them by default; later ones join. `memory` is the
    memory limit of each process that holds rows, without the interpreter, `cores` its number of threads. `host` is the
    address that the scheduler listens on, `wait` the seconds to wait for a worker when none is usable.
    """

    kind: Annotated[str | None, constrained(one_of(*KINDS))] = None
    workers: Annotated[int | None, constrained(whole(1))] = None
    min_workers: Annotated[int | None, constrained(whole(1))] = None
    memory: Annotated[ByteSize, Field(gt=0)] | None = Field(default=None, description=MEMORY.wanted)
    cores: Annotated[int | None, constrained(whole(1))] = None
    scheduler: str | None = Field(default=None, min_length=1, description='an address such as "tcp://host:8786"')
    scheduler_file: str | None = Field(default=None, min_length=1, description=PATH)
    host: str | None = Field(default=None, min_length=1, description='an address of this machine such as "0.0.0.0"')
    wait: float | None = Field(default=None, ge=0, allow_inf_nan=False, description="a number of seconds")
    security: SecuritySection | None = Field(
        default=None, description='a table, { ca = "ca.pem", cert = "cert.pem", key = "key.pem" }'
    )
    job: JobsSection | None = Field(default=None, description="a table, [cluster.job]")
    ssh: SshSection | None = Field(default=None, description="a table, [cluster.ssh]")
    kubernetes: KubernetesSection | None = Field(default=None, description="a table, [cluster.kubernetes]")

    @property
    def where(self) -> str | None:
        """Kind of the cluster, or "scheduler" for a running one; None for training in this process."""
        if self.kind is not None:
            return str(self.kind)
        if self.scheduler is not None or self.scheduler_file is not None:
            return "scheduler"
        return None if self.workers is None else "local"

    @property
    def n_workers(self) -> int | None:
        """Number of workers to start; None for a running cluster, and for training in this process."""
        if self.workers is None and self.where == "ssh" and self.ssh is not None:
            return len(self.ssh.hosts)
        return self.workers

    @property
    def least_workers(self) -> int | None:
        """Number of workers at the start of a training; its plan must fit on them."""
        return self.min_workers or self.n_workers

    @property
    def starts_workers(self) -> bool:
        """Whether the command starts workers."""
        return self.where not in (None, "scheduler")

    @model_validator(mode="after")
    def _one_cluster(self) -> Self:
        where = self.where
        if self.host is not None and self.workers is None and where in (None, "scheduler"):
            raise ValueError("host needs workers: it is the address of a scheduler that is started here")
        if where == "scheduler":
            self._refuse_workers_of_another()
        elif self.scheduler is not None or self.scheduler_file is not None:
            raise ValueError(f'kind = "{where}" starts a scheduler of its own: leave out scheduler and scheduler_file')
        elif where is None:
            for name in ("min_workers", "cores"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} needs workers, or a kind that starts them")
        else:
            self._require_keys_of_kind(where)
        self._refuse_foreign_tables(where)
        return self

    def _refuse_workers_of_another(self) -> None:
        if self.scheduler is not None and self.scheduler_file is not None:
            raise ValueError("scheduler and scheduler_file exclude each other")
        for name in ("workers", "cores"):
            if getattr(self, name) is not None:
                given = "scheduler" if self.scheduler is not None else "scheduler_file"
                raise ValueError(
                    f"{given} and {name} exclude each other: a running cluster has its own workers "
                    "(min_workers is the number of them to wait for)"
                )

    def _require_keys_of_kind(self, where: str) -> None:
        if where == "ssh" and self.ssh is None:
            raise ValueError('kind = "ssh" needs hosts, as in ssh = { hosts = ["node1", "node2"] }')
        if where == "kubernetes" and self.kubernetes is None:
            raise ValueError('kind = "kubernetes" needs an image, as in kubernetes = { image = "registry/distkern" }')
        if where == "kubernetes" and (self.host is not None or self.security is not None):
            raise ValueError('kind = "kubernetes" has its scheduler in a pod: leave out host and security')
        if self.n_workers is None:
            raise ValueError(f'kind = "{where}" needs workers, the number of processes to start')
        if where != "local" and self.memory is None:
            raise ValueError(f'kind = "{where}" needs memory, the limit of each worker process, as in memory = "4GiB"')
        if self.min_workers is not None and self.min_workers > self.n_workers:
            raise ValueError(f"min_workers = {self.min_workers} is more than workers = {self.n_workers}")
        if self.job is not None and self.n_workers % self.job.workers_per_job:
            raise ValueError(
                f"workers = {self.n_workers} is no multiple of workers_per_job = {self.job.workers_per_job}"
            )

    def _refuse_foreign_tables(self, where: str | None) -> None:
        for name, kinds in (("job", QUEUES), ("ssh", ("ssh",)), ("kubernetes", ("kubernetes",))):
            if getattr(self, name) is not None and where not in kinds:
                allowed = " or ".join(f'"{kind}"' for kind in kinds)
                raise ValueError(f"{name} is for kind = {allowed}")

"""dask clients: one that is there, one to connect to, one on a cluster that distkern starts and closes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from distkern.errors import ClusterError, JobError
from distkern.scheduler.memory import BASELINE

LOOPBACK = "127.0.0.1"
"""Where clusters that are started here listen unless told otherwise."""

GIVE_UP_KEY = "distributed.deploy.lost-worker-timeout"
GIVE_UP_DEFAULT = "15s"
NEVER_GIVE_UP = "1h"

WORKER_WAIT_SECONDS = 60.0
"""How long a run waits for a worker when there is none."""

WORKER_WAIT_KEY = "distkern.worker-wait"
"""Where dask's configuration says otherwise: seconds, or "5 minutes"."""


def default_worker_wait() -> float:
    """Return how many seconds a run waits for a worker when there is none."""
    import dask

    return float(dask.utils.parse_timedelta(dask.config.get(WORKER_WAIT_KEY, WORKER_WAIT_SECONDS)))


def current_client() -> Any | None:
    """Return the dask client that is current in this process, None if there is none; never imports dask."""
    module = sys.modules.get("distributed")
    if module is None:
        return None
    try:
        return module.default_client()
    except ValueError:
        return None


def dashboard_address(client: Any) -> str | None:
    """Return where a browser finds the dashboard of a client's cluster; None where that cannot be told.

    Parameters
    ----------
    client : distributed.Client
        Any.
    """
    try:
        link = client.dashboard_link
    except Exception:  # a deployment may ask its manager, and a training must not fail for that
        return None
    return str(link) if link else None


@dataclass(frozen=True)
class TlsFiles:
    """What proves to the other processes of a cluster that this one belongs to it, and encrypts what they say."""

    ca: str
    """PEM file of the authority that signed all certificates."""
    cert: str
    """PEM file of this process's certificate."""
    key: str
    """PEM file of its private key."""

    def security(self) -> Any:
        """Make dask's form of it.

        Raises
        ------
        JobError
            ``security``: a file is missing, or is no certificate or key.
        """
        from distributed.security import Security

        for name, path in vars(self).items():
            if not os.path.isfile(path):
                raise JobError(
                    f"the file {path} of {name} in [cluster] security does not exist: name a PEM file", kind="security"
                )
        roles = {
            f"tls_{role}_{part}": path
            for role in ("client", "scheduler", "worker")
            for part, path in (("cert", self.cert), ("key", self.key))
        }
        security = Security(tls_ca_file=self.ca, require_encryption=True, **roles)
        try:
            security.get_connection_args("client")
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise JobError(
                f"[cluster] security does not hold a certificate, its key and its authority: {error}; "
                f"look at ca {self.ca}, cert {self.cert} and key {self.key}",
                kind="security",
            ) from None
        return security


@contextmanager
def worker_wait(seconds: float | None) -> Iterator[None]:
    """Have everything that needs workers wait this long for one; None leaves what is configured."""
    if seconds is None:
        yield
        return
    import dask

    with dask.config.set({WORKER_WAIT_KEY: seconds}):
        yield


def keep_local_workers(client: Any) -> None:
    """Have a `LocalCluster` restart its workers whatever happens.

    15 s after a worker was lost, dask looks for one of its name and gives it up for good where there is none at that
    moment, also if it has been back and is just being restarted again. That time is set to an hour in this process,
    unless it was changed already; on a cluster of jobs it would be harmful, since there a lost job must be replaced.
    """
    import dask
    from distributed import LocalCluster

    if isinstance(client.cluster, LocalCluster) and dask.config.get(GIVE_UP_KEY, None) == GIVE_UP_DEFAULT:
        dask.config.set({GIVE_UP_KEY: NEVER_GIVE_UP})


@contextmanager
def connect(address: str, timeout: float = 5.0, tls: TlsFiles | None = None) -> Iterator[Any]:
    """Connect to a scheduler that is already running; it stays when the context ends.

    Parameters
    ----------
    address : str
        For example ``tcp://host:8786``.
    timeout : float
        Seconds to wait.
    tls : TlsFiles, optional
        Certificates, for a scheduler that asks for them.

    Yields
    ------
    distributed.Client

    Raises
    ------
    ClusterError
        Nothing answers there.
    """
    from distributed import Client

    security = None if tls is None else tls.security()
    try:
        client = Client(address, timeout=timeout, set_as_default=False, security=security)
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        raise ClusterError(
            f"no dask scheduler answers at {address} within {timeout:g} s: {error}; "
            "check the address, that the scheduler is running, and the certificates if it asks for any "
            "([cluster] security, an address that begins with tls://)",
            kind="no-scheduler",
        ) from None
    with client:
        yield client


@contextmanager
def local_client(
    workers: int, memory: int | None = None, *, host: str = LOOPBACK, tls: TlsFiles | None = None
) -> Iterator[Any]:
    """Start worker processes on this machine, one thread each, and close them when the context ends.

    distkern holds its own memory budget, so dask's spilling, pausing and killing are switched off on a
    cluster it starts: state above dask's thresholds would otherwise pause a worker for ever.

    Parameters
    ----------
    workers : int
        Worker processes.
    memory : int, optional
        Bytes that trainings may take of each worker's memory beside the interpreter's own, held by the operating
        system where it can; dask's share of this machine if not given.
    host : str
        Address of this machine that scheduler, workers and dashboard listen on; by default none but this machine
        can reach them.
    tls : TlsFiles, optional
        Certificates: all of them then talk encrypted, to holders of certificates only.

    Yields
    ------
    distributed.Client

    Raises
    ------
    ClusterError
        The workers do not start.
    """
    import dask
    from distributed import Client, LocalCluster

    from distkern.scheduler.limits import HoldMemory

    settings: dict[str, Any] = {
        f"distributed.worker.memory.{name}": False for name in ("target", "spill", "pause", "terminate")
    }
    settings["distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_"] = None
    settings[GIVE_UP_KEY] = NEVER_GIVE_UP
    security = None if tls is None else tls.security()
    with dask.config.set(settings):
        try:
            cluster = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                memory_limit="auto" if memory is None else BASELINE + memory,
                host=host,
                dashboard_address=f"{host}:0",
                worker_dashboard_address=f"{host}:0",
                security=security,
            )
        except (OSError, ValueError, TimeoutError, RuntimeError) as error:
            raise ClusterError(
                f"{workers} local workers did not start on {host}: {error}", kind="no-workers"
            ) from error
        with cluster, Client(cluster, set_as_default=False) as client:
            if memory is not None:
                client.register_plugin(HoldMemory(memory))
            yield client

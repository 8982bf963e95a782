"""dask clients: one that is there, one to connect to, one on a cluster that distkern starts and closes."""

from __future__ import annotations

import importlib
import json
import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from types import ModuleType
from typing import Any

from distkern.errors import ClusterError, JobError

from .worker_queries import hush_workers, workers_of
from .worker_settings import WorkerSize, hold_memory, worker_settings

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
"""Where clusters that are started here listen unless told otherwise."""

GIVE_UP_KEY = "distributed.deploy.lost-worker-timeout"
GIVE_UP_DEFAULT = "15s"
NEVER_GIVE_UP = "1h"

ARRIVAL_SECONDS = 0.25
"""How often workers, or the file of a scheduler, are looked for."""

ROLES = ("client", "scheduler", "worker")
"""Processes of a cluster, as dask tells them apart."""

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
        security = Security(tls_ca_file=self.ca, require_encryption=True, **self._roles("tls_{}_{}"))
        try:
            security.get_connection_args("client")
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise JobError(
                f"[cluster] security does not hold a certificate, its key and its authority: {error}; "
                f"look at ca {self.ca}, cert {self.cert} and key {self.key}",
                kind="security",
            ) from None
        return security

    def settings(self) -> dict[str, Any]:
        """Return the same as settings of dask's, for processes that read theirs."""
        roles = self._roles("distributed.comm.tls.{}.{}")
        return {"distributed.comm.tls.ca-file": self.ca, "distributed.comm.require-encryption": True, **roles}

    def _roles(self, name: str) -> dict[str, str]:
        """Return certificate and key of every role under dask's names."""
        files = {"cert": self.cert, "key": self.key}
        return {name.format(role, part): path for role in ROLES for part, path in files.items()}


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


def connect_by_file(path: str, timeout: float = 5.0, tls: TlsFiles | None = None) -> AbstractContextManager[Any]:
    """Connect to the scheduler that writes a file, as ``dask scheduler --scheduler-file`` does.

    Parameters
    ----------
    path : str
        The file; it is waited for as workers are, since the scheduler may just be starting.
    timeout : float
        Seconds to wait for the scheduler itself.
    tls : TlsFiles, optional
        Certificates, for a scheduler that asks for them.

    Raises
    ------
    ClusterError
        There is no such file, or it tells of no scheduler; nothing answers there.
    """
    begun, wait, told = monotonic(), default_worker_wait(), False
    while True:
        try:
            address = str(json.loads(Path(path).read_text())["address"])
        except (OSError, ValueError, TypeError, KeyError) as error:
            if monotonic() - begun > wait:
                raise ClusterError(
                    f"{path} tells of no dask scheduler within {wait:g} s ({type(error).__name__}: {error}): look at "
                    "scheduler_file under [cluster], and that the scheduler which writes it is running",
                    kind="no-scheduler",
                ) from None
            if not told and monotonic() - begun > 1:
                told = True
                logger.warning("waiting up to %g s for the scheduler file %s", wait, path)
            sleep(ARRIVAL_SECONDS)
        else:
            return connect(address, timeout, tls)


def await_workers(client: Any, least: int, seconds: float | None = None) -> None:
    """Wait until a cluster has as many workers as a command begins with.

    Parameters
    ----------
    client : distributed.Client
        Of the cluster.
    least : int
        Workers to wait for.
    seconds : float, optional
        How long; what is configured (``distkern.worker-wait``) if not given.

    Raises
    ------
    ClusterError
        ``no-workers``: fewer came.
    """
    seconds = default_worker_wait() if seconds is None else seconds
    begun, told = monotonic(), False
    while (here := len(workers_of(client))) < least:
        if monotonic() - begun > seconds:
            raise ClusterError(
                f"{here} of {least} workers came within {seconds:g} s: look at what the others print, raise wait "
                "under [cluster], or begin with fewer (min_workers under [cluster])",
                kind="no-workers",
            )
        if not told and monotonic() - begun > 1:
            told = True
            logger.warning("waiting up to %g s for %d workers, %d are here", seconds, least, here)
        sleep(ARRIVAL_SECONDS)


def required(module: str, *, kind: str, extra: str) -> ModuleType:
    """Import a package that a kind of cluster needs.

    Parameters
    ----------
    module : str
        What to import.
    kind : str
        What needs it.
    extra : str
        Extra of distkern that installs it.

    Raises
    ------
    ClusterError
        ``missing-package``: names the extra.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ClusterError(
            f'[cluster] kind = "{kind}" needs a package that is not installed ({error}): '
            f"pip install 'distkern[{extra}]'",
            kind="missing-package",
        ) from error


def require_address(host: str | None) -> None:
    """Check that a scheduler can listen on an address, since dask leaves sockets open where it cannot.

    Raises
    ------
    ClusterError
        It is none of this machine's.
    """
    if host is None:
        return
    try:
        family = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][0]
        with socket.create_server((host, 0), family=family):
            pass
    except OSError as error:
        raise ClusterError(
            f"nothing can listen on {host} here: {error}; give host under [cluster] an address of this machine",
            kind="no-scheduler",
        ) from None


@contextmanager
def local_client(
    workers: int,
    memory: int | None = None,
    *,
    threads: int = 1,
    host: str = LOOPBACK,
    tls: TlsFiles | None = None,
) -> Iterator[Any]:
    """Start worker processes on this machine and close them when the context ends.

    distkern holds its own memory budget, so dask's spilling, pausing and killing are switched off on a
    cluster it starts: state above dask's thresholds would otherwise pause a worker for ever.

    Parameters
    ----------
    workers : int
        Worker processes.
    memory : int, optional
        Bytes that trainings may take of each worker's memory beside the interpreter's own, held by the operating
        system where it can; dask's share of this machine if not given.
    threads : int
        Threads of each.
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

    security = None if tls is None else tls.security()
    with dask.config.set({**worker_settings(), GIVE_UP_KEY: NEVER_GIVE_UP}):
        try:
            cluster = LocalCluster(
                n_workers=workers,
                threads_per_worker=threads,
                processes=True,
                memory_limit=WorkerSize(workers, memory).limit,
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
            hold_memory(client, memory)
            try:
                yield client
            finally:
                hush_workers(client)

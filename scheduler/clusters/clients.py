"""dask clients: the current one, one of a running cluster, or one of a local cluster that distkern starts and closes.

Workers in batch jobs, pods and on other machines are started in `batch_queue`, `kubernetes` and `ssh`.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from types import ModuleType
from typing import Any

from distkern.errors import ClusterError, JobError

from .worker_queries import silence_worker_logs, workers_of
from .worker_settings import WorkerSize, hold_memory, provide_user_folder, worker_settings

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
"""Default address on which clusters that distkern starts listen."""

GIVE_UP_KEY = "distributed.deploy.lost-worker-timeout"
GIVE_UP_DEFAULT = "15s"
NEVER_GIVE_UP = "1h"

ARRIVAL_SECONDS = 0.25
"""Time between two looks for workers, or for the file of a scheduler."""

ROLES = ("client", "scheduler", "worker")
"""Roles of processes in dask's settings of certificates."""

WORKER_WAIT_SECONDS = 60.0
"""Default time that a run waits for a worker when there is none."""

WORKER_WAIT_KEY = "distkern.worker-wait"
"""Key of dask's configuration with another time: seconds, or "5 minutes"."""


def default_worker_wait() -> float:
    """Return how many seconds a run waits for a worker when there is none."""
    import dask

    return float(dask.utils.parse_timedelta(dask.config.get(WORKER_WAIT_KEY, WORKER_WAIT_SECONDS)))


def dashboard_address(client: Any) -> str | None:
    """Return the address of the dashboard of a client's cluster; None where it has none or it is unknown.

    Parameters
    ----------
    client : distributed.Client
        The client.
    """
    try:
        link = client.dashboard_link
    except Exception:  # a deployment may query its manager, and an error there must not end a training
        return None
    return str(link) if link else None


@dataclass(frozen=True)
class TlsFiles:
    """Files of the certificates by which processes of a cluster authenticate and encrypt."""

    ca: str
    """PEM file of the authority that signed all certificates."""
    cert: str
    """PEM file of this process's certificate."""
    key: str
    """PEM file of its private key."""

    def security(self) -> Any:
        """Return dask's security object.

        Raises
        ------
        JobError
            ``security``: a file is missing, or holds no certificate or key.
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
        """Return the files as settings of dask, for processes that read the settings."""
        roles = self._roles("distributed.comm.tls.{}.{}")
        return {"distributed.comm.tls.ca-file": self.ca, "distributed.comm.require-encryption": True, **roles}

    def _roles(self, name: str) -> dict[str, str]:
        """Return certificate and key of every role under dask's names."""
        files = {"cert": self.cert, "key": self.key}
        return {name.format(role, part): path for role in ROLES for part, path in files.items()}


@contextmanager
def worker_wait(seconds: float | None) -> Iterator[None]:
    """Set the time to wait for a worker within the context; None keeps the configured time."""
    if seconds is None:
        yield
        return
    import dask

    with dask.config.set({WORKER_WAIT_KEY: seconds}):
        yield


def keep_local_workers(client: Any) -> None:
    """Let a `LocalCluster` restart its workers without end.

    dask looks for a lost worker 15 s later and removes it for ever if it is absent at that moment, even if it has been
    back and is being restarted again. This function sets that time to an hour in this process, unless the user changed
    it. On a cluster of jobs this would be wrong, since dask must replace a lost job there.
    """
    import dask
    from distributed import LocalCluster

    if isinstance(client.cluster, LocalCluster) and dask.config.get(GIVE_UP_KEY, None) == GIVE_UP_DEFAULT:
        dask.config.set({GIVE_UP_KEY: NEVER_GIVE_UP})


@contextmanager
def connect(address: str, timeout: float = 5.0, tls: TlsFiles | None = None) -> Iterator[Any]:
    """Connect to a running scheduler, which keeps running when the context ends.

    Parameters
    ----------
    address : str
        For example ``tcp://host:8786``.
    timeout : float
        Seconds to wait; 5 by default.
    tls : TlsFiles, optional
        Certificates, for a scheduler that needs them; none by default.

    Yields
    ------
    distributed.Client

    Raises
    ------
    ClusterError
        No scheduler answers there.
    """
    security = None if tls is None else tls.security()
    try:
        client = new_client(address, timeout=timeout, set_as_default=False, security=security)
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        raise ClusterError(
            f"no dask scheduler answers at {address} within {timeout:g} s: {error}; "
            "check the address, that the scheduler is running, and the certificates if it asks for any "
            "([cluster] security, an address that begins with tls://)",
            kind="no-scheduler",
        ) from None
    with client:
        yield client


def new_client(address: Any, **settings: Any) -> Any:
    """Return a client of an address or a cluster; where its constructor fails, close it and end its event loop.

    dask closes such a client when it is collected. This may be in the middle of the start of another one, in the same
    thread, which then waits for a lock that it holds itself.
    """
    from distributed import Client

    client: Any = Client.__new__(Client)
    try:
        client.__init__(address, **settings)
    except BaseException:
        # The first errors of the constructor leave a client without some of its attributes.
        with suppress(Exception):
            client.close()
        with suppress(Exception):
            client._loop_runner.stop()
        raise
    return client


def connect_by_file(path: str, timeout: float = 5.0, tls: TlsFiles | None = None) -> AbstractContextManager[Any]:
    """Connect to the scheduler of a scheduler file, as ``dask scheduler --scheduler-file`` writes it.

    Parameters
    ----------
    path : str
        The file. The driver waits for it as for workers, since the scheduler may be starting.
    timeout : float
        Seconds to wait for the scheduler itself; 5 by default.
    tls : TlsFiles, optional
        Certificates, for a scheduler that needs them; none by default.

    Raises
    ------
    ClusterError
        There is no such file, it contains no scheduler address, or no scheduler answers there.
    """
    begun, wait, warned = monotonic(), default_worker_wait(), False
    while True:
        try:
            address = str(json.loads(Path(path).read_text())["address"])
        except (OSError, ValueError, TypeError, KeyError) as error:
            if monotonic() - begun > wait:
                raise ClusterError(
                    f"{path} contains no scheduler address after {wait:g} s ({type(error).__name__}: {error}): see "
                    "scheduler_file under [cluster], and check that the scheduler which writes it is running",
                    kind="no-scheduler",
                ) from None
            if not warned and monotonic() - begun > 1:
                warned = True
                logger.warning("waiting up to %g s for the scheduler file %s", wait, path)
            sleep(ARRIVAL_SECONDS)
        else:
            return connect(address, timeout, tls)


def await_workers(client: Any, least: int, seconds: float | None = None) -> None:
    """Wait until a cluster has a number of workers.

    Parameters
    ----------
    client : distributed.Client
        Client of the cluster.
    least : int
        Number of workers.
    seconds : float, optional
        Most seconds to wait; ``distkern.worker-wait`` of dask's configuration by default.

    Raises
    ------
    ClusterError
        ``no-workers``: fewer joined in time.
    """
    seconds = default_worker_wait() if seconds is None else seconds
    begun, warned = monotonic(), False
    while (here := len(workers_of(client))) < least:
        if monotonic() - begun > seconds:
            raise ClusterError(
                f"{here} of {least} workers came within {seconds:g} s: look at what the others print, raise wait "
                "under [cluster], or begin with fewer (min_workers under [cluster])",
                kind="no-workers",
            )
        if not warned and monotonic() - begun > 1:
            warned = True
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
    """Check that a scheduler can listen on an address: where it cannot, dask would leave sockets open.

    Raises
    ------
    ClusterError
        The address does not belong to this machine.
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

    distkern keeps its own memory budget. So dask's spilling, pausing and killing are switched off: state above dask's
    thresholds would pause a worker for ever.

    Parameters
    ----------
    workers : int
        Number of worker processes.
    memory : int, optional
        Bytes that trainings may take in each worker beside the interpreter, enforced by the operating system where it
        can; by default dask's share of this machine.
    threads : int
        Threads of each worker; 1 by default.
    host : str
        Address of this machine on which scheduler, workers and dashboard listen; by default only this machine can reach
        them.
    tls : TlsFiles, optional
        Certificates: connections are then encrypted, and accepted from holders of certificates only; none by default.

    Yields
    ------
    distributed.Client

    Raises
    ------
    ClusterError
        The workers do not start.
    """
    import dask
    from distributed import LocalCluster

    provide_user_folder()
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
        with cluster, new_client(cluster, set_as_default=False) as client:
            hold_memory(client, memory)
            try:
                yield client
            finally:
                silence_worker_logs(client)

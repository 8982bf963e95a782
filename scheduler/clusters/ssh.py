"""Workers on other machines, started by ssh. Covers no copying of data or environments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Any

from distkern.errors import ClusterError

from .clients import TlsFiles, new_client, require_address, required
from .worker_settings import WorkerSize, hold_memory, provide_user_folder, worker_settings


@contextmanager
def ssh_client(
    size: WorkerSize,
    hosts: list[str],
    *,
    user: str | None = None,
    port: int | None = None,
    key: str | None = None,
    known_hosts: str | None = None,
    python: str | None = None,
    local_directory: str | None = None,
    host: str | None = None,
    tls: TlsFiles | None = None,
) -> Iterator[Any]:
    """Start workers on other machines, and end them with the context; the scheduler runs in this process.

    Parameters
    ----------
    size : WorkerSize
        Number of worker processes, spread evenly over the machines, and the threads and memory of each.
    hosts : list of str
        Names or addresses of the machines.
    user, port, key, known_hosts : optional
        Login; by default as in ``~/.ssh/config``. Passwords are not supported.
    python : str, optional
        Python of the workers; by default the path of this process's Python.
    local_directory : str, optional
        Folder of the workers' scratch files; chosen by dask by default.
    host : str, optional
        Address of this machine for the workers; chosen by dask by default.
    tls : TlsFiles, optional
        Certificates, which must be at the same paths for workers; none by default.

    Yields
    ------
    distributed.Client

    Raises
    ------
    ClusterError
        asyncssh is missing, a machine refuses the login, or its worker does not start.
    """
    asyncssh = required("asyncssh", kind="ssh", extra="ssh")
    require_address(host)
    provide_user_folder()
    import dask
    from distributed import Scheduler, SpecCluster
    from distributed.deploy.ssh import Worker

    login = {"username": user, "port": port, "client_keys": key, "known_hosts": known_hosts}
    protocol: dict[str, Any] = {} if tls is None else {"protocol": "tls://"}
    process = {"nthreads": size.threads, "memory_limit": size.limit, **protocol}
    if local_directory is not None:
        process["local_directory"] = local_directory
    workers = {
        number: {
            "cls": Worker,
            "options": {
                "address": machine,
                "connect_options": {name: value for name, value in login.items() if value is not None},
                "kwargs": {**process, "name": f"{machine}-{number}"},
                "remote_python": python,
            },
        }
        for number, machine in zip(range(size.workers), cycle(hosts), strict=False)
    }
    security = None if tls is None else tls.security()
    listen = {} if host is None else {"host": host}
    scheduler = {
        "cls": Scheduler,
        "options": {**listen, **protocol, "dashboard_address": f"{host or ''}:0", "security": security},
    }
    # Workers get the whole configuration of this process, with the paths of certificates.
    with dask.config.set({**worker_settings(), **({} if tls is None else tls.settings())}):
        try:
            cluster = SpecCluster(workers, scheduler, security=security, name="ssh")
        except (OSError, asyncssh.Error, RuntimeError, ValueError) as error:
            raise _not_started(hosts, error) from error
        except Exception as error:
            # dask raises a plain Exception for a worker that does not start.
            if type(error) is not Exception:
                raise
            raise _not_started(hosts, error) from error
        with cluster, new_client(cluster, set_as_default=False) as client:
            hold_memory(client, size.memory)
            yield client


def _not_started(hosts: list[str], error: Exception) -> ClusterError:
    return ClusterError(
        f"workers did not start on {', '.join(hosts)}: {type(error).__name__}: {error}; try to log in with ssh, run "
        "python there, and look at user, port, key, known_hosts and python under [cluster.ssh]",
        kind="no-workers",
    )

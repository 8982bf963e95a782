"""Processes of a simulated cluster, each in the network namespace of a host, forked from one that has imported all.

Run as a program it reads a line of JSON for each process from standard input and prints its process number. When its
input ends, it and all of them end. A fork takes milliseconds and shares the memory of the imported packages, so dozens
of workers fit into one machine.
"""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import importlib
import json
import os
import pkgutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.cluster.clock import step_on_signals
from benchmarks.command import ROOT

NEW_NETWORK = 0x40000000
DIE_WITH_PARENT = 1


class Processes:
    """Starts processes on hosts, and ends them."""

    def __init__(self) -> None:
        self._forker = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.cluster.processes"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, role: str, namespace: str, log: Path, **settings: Any) -> int:
        """Start a process of a role; return its number."""
        assert self._forker.stdin is not None
        assert self._forker.stdout is not None
        self._forker.stdin.write(
            json.dumps({"role": role, "namespace": namespace, "log": str(log), "settings": settings}) + "\n"
        )
        self._forker.stdin.flush()
        return int(self._forker.stdout.readline())

    def close(self) -> None:
        """End all processes: the system ends those that were forked with the one that forked them."""
        self._forker.kill()
        self._forker.wait()
        for stream in (self._forker.stdin, self._forker.stdout):
            with suppress(OSError):
                if stream is not None:
                    stream.close()


def running(pid: int) -> bool:
    """Return whether a process still runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _scheduler(host: str, port: int, steps: bool = False) -> None:
    from distributed import Scheduler

    if steps:
        step_on_signals()

    async def serve() -> None:
        async with Scheduler(host=host, port=port, dashboard=False) as scheduler:
            await scheduler.finished()

    asyncio.run(serve())


def _worker(
    scheduler: str, host: str, port: int, contact: str, folder: str, slow_reads: float = 0.0, steps: bool = False
) -> None:
    from distributed import Worker

    if steps:
        step_on_signals()

    if slow_reads:
        from zarr.storage import LocalStore

        get = LocalStore.get

        async def slow_get(*arguments: Any, **options: Any) -> Any:
            await asyncio.sleep(slow_reads)
            return await get(*arguments, **options)

        LocalStore.get = slow_get  # type: ignore[method-assign]

    async def serve() -> None:
        async with Worker(
            scheduler,
            nthreads=1,
            host=host,
            port=port,
            contact_address=contact,
            local_directory=folder,
            memory_limit=0,
            dashboard=False,
        ) as worker:
            await worker.finished()

    asyncio.run(serve())


def _driver(**settings: Any) -> None:
    from benchmarks.cluster.driver import drive

    drive(**settings)


def _faults(**settings: Any) -> None:
    from benchmarks.faults.driver import drive

    drive(**settings)


def _soak(**settings: Any) -> None:
    from benchmarks.faults.driver import train_on_and_on

    train_on_and_on(**settings)


def _network(**settings: Any) -> None:
    from benchmarks.cluster.forwarding import forward

    asyncio.run(forward(**settings))


ROLES: dict[str, Callable[..., None]] = {
    "scheduler": _scheduler,
    "worker": _worker,
    "driver": _driver,
    "faults-driver": _faults,
    "soak-driver": _soak,
    "network": _network,
}


def enter(namespace: str) -> None:
    """Let the calling thread make its sockets in a namespace from now on."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/var/run/netns", namespace).open() as file:
        if libc.setns(file.fileno(), NEW_NETWORK):
            raise OSError(ctypes.get_errno(), f"cannot enter namespace {namespace}")


def _fork(order: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
        os.setsid()  # the kernel shares processors out among sessions: hosts count alike
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for old, new in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(old, new)
        faulthandler.enable()  # an abort writes the stacks of all threads to the log
        if order["namespace"]:
            enter(order["namespace"])
        ROLES[order["role"]](**order["settings"])
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _serve() -> None:
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended processes leave nothing behind
    import dask

    from distkern.scheduler.clusters.worker_settings import worker_settings
    from distkern.scheduler.runtime.environment import process_facts

    dask.config.set({**worker_settings(), "distributed.comm.timeouts.connect": "10s"})

    # What is imported here takes neither time nor memory of its own in the processes.
    for package in ("distkern.scheduler", "distkern.estimators", "distkern.storage"):
        found = importlib.import_module(package)
        for module in pkgutil.walk_packages(found.__path__, f"{package}."):
            with suppress(ImportError):
                importlib.import_module(module.name)
    for name in ("benchmarks.cluster.driver", "benchmarks.faults.driver", "benchmarks.cluster.forwarding"):
        importlib.import_module(name)
    process_facts()
    pids = []
    for line in sys.stdin:
        pids.append(_fork(json.loads(line)))
        print(pids[-1], flush=True)
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    _serve()

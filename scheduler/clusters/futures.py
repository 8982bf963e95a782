"""Tasks of a dask client: submission under unique keys, alone or as a graph, and waiting while there are workers.

Covers single tasks; a bounded number in flight is kept by `..runtime.submission_window`.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

import distkern
from distkern.errors import BudgetError, ClusterError

from .held_messages import LongWait
from .versions import checked_call, require_one_version
from .worker_queries import workers_of

if TYPE_CHECKING:
    from dask.task_spec import Task, TaskRef

POLL_SECONDS = 1.0
"""Time between two looks at the list of workers during a wait for a result."""

MAX_MEMORY_ERRORS = 3
"""Memory errors of a task before they end the run: at first another task may have used the memory."""

KEY = re.compile(r".+-[0-9a-f]{32}")
"""Keys of tasks, as `submit` and `TaskGraph` make them."""

IN_FLIGHT_PER_THREAD = 2
"""Tasks in flight for each thread of the workers: one that runs, one that waits."""


def submit(
    client: Any,
    name: str,
    function: Callable[..., Any],
    *arguments: Any,
    worker: str | None = None,
    key: str | None = None,
) -> Any:
    """Submit a task that the dashboard shows as `name`, under a key of its own unless it has one.

    With an address it is for that worker only, whose version the caller has compared.
    """
    import dask  # the client has already imported it; training in one process does not

    pinned = {} if worker is None else {"workers": [worker], "allow_other_workers": False}
    # A message or a block of rows has some MB; dask's warning about large graphs does not apply.
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
        key = key or f"{name}-{uuid.uuid4().hex}"
        if worker is None:
            function, arguments = checked_call, (distkern.__version__, function, *arguments)
        return client.submit(function, *arguments, key=key, pure=False, **pinned)


class TaskGraph:
    """Tasks that are submitted together, each for one worker; a task may use the results of others.

    One graph of n tasks costs the driver much less than n submissions, and only results that it wants have futures.
    """

    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}
        self._workers: dict[str, str] = {}

    def add(self, name: str, worker: str, function: Callable[..., Any], *arguments: Any) -> str:
        """Add a task that the dashboard shows as `name`; return its key.

        Parameters
        ----------
        name : str
            Beginning of the key.
        worker : str
            Address of the only worker that may run it.
        function : callable
            The task.
        *arguments
            Its arguments; those made by `result` are replaced by results of other tasks, all others are sent as they
            are.
        """
        from dask.task_spec import Task

        key = f"{name}-{uuid.uuid4().hex}"
        self._tasks[key] = Task(key, function, *arguments)
        self._workers[key] = worker
        return key

    @staticmethod
    def result(key: str) -> TaskRef:
        """Return an argument that stands for the result of a task of this graph."""
        from dask.task_spec import TaskRef

        return TaskRef(key)

    def submit(self, client: Any, keys: list[str]) -> list[Any]:
        """Submit the graph; return futures of some tasks, and let dask drop all other results once they are used."""
        import dask
        from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

        workers = {key: [worker] for key, worker in self._workers.items()}
        # dask would hash the arguments of a graph without layers.
        layer = MaterializedLayer(self._tasks, annotations={"workers": workers.__getitem__})
        graph = HighLevelGraph({"tasks": layer}, {"tasks": set()})
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
            futures: list[Any] = client.get(graph, keys, sync=False, fifo_timeout="100 ms")
        return futures


def most_in_flight(client: Any) -> int:
    """Return the most tasks to have in flight on a cluster."""
    threads = sum(int(facts["nthreads"]) for facts in workers_of(client).values())
    return IN_FLIGHT_PER_THREAD * max(1, threads)


def wait_for(client: Any, future: Any, worker_wait: float) -> None:
    """Wait until a future has finished or failed.

    Parameters
    ----------
    client : distributed.Client
        The cluster.
    future : distributed.Future
        Task of a pure function, which dask itself repeats if a worker fails.
    worker_wait : float
        Seconds to wait for a worker when there is none.

    Raises
    ------
    ClusterError
        ``no-workers``: no worker joined in time. ``no-scheduler``: the scheduler does not answer.
    """
    done = threading.Event()
    future.add_done_callback(lambda _: done.set())
    deadline, long_wait = monotonic() + worker_wait, LongWait(client)
    while not done.wait(POLL_SECONDS):
        long_wait.look()
        if workers_of(client):
            deadline = monotonic() + worker_wait
        elif monotonic() > deadline:
            raise _deserted(worker_wait)


def fetch(client: Any, future: Any, worker_wait: float, what: str) -> Any:
    """Wait for a future and fetch its result.

    Parameters
    ----------
    client, future, worker_wait
        As for `wait_for`.
    what : str
        Purpose of the task, after "could not" in a message.

    Raises
    ------
    ClusterError
        ``no-workers``: no worker joined in time. ``workers-dying``: dask abandoned the task. ``version-mismatch``: a
        process of the cluster has another version of distkern.
    BudgetError
        ``out-of-memory``: the task ran out of memory `MAX_MEMORY_ERRORS` times and once more.
    """
    memory_errors = 0
    wait_for(client, future, worker_wait)
    while True:
        try:
            return future.result(timeout=worker_wait)
        except TimeoutError:
            if future.status == "error":  # the task's own
                raise
            if not workers_of(client):
                raise _deserted(worker_wait) from None
        except Exception as error:
            if ran_out_of_memory(error):
                memory_errors += 1
                if memory_errors > MAX_MEMORY_ERRORS:
                    raise BudgetError(
                        f"a worker ran out of memory {memory_errors} times and could not {what}: other processes may "
                        "hold its memory; free it, give workers more memory, or run fewer threads on each",
                        kind="out-of-memory",
                    ) from error
                if future.status == "error":
                    future.retry()
                wait_for(client, future, worker_wait)
                continue
            # An error of dask is one of the cluster; an error of the task itself is raised as it is.
            require_one_version(client, error)
            if is_of_dask(error) or future.status in ("cancelled", "lost"):
                raise ClusterError(
                    f"the cluster could not {what}: {error}; look at the workers' logs, often their memory limit is "
                    "too low",
                    kind="workers-dying",
                ) from error
            raise


def ran_out_of_memory(error: BaseException) -> bool:
    """Return whether a task failed for want of memory, in its function or while a worker sent its result.

    dask replaces an error of the second kind by a TypeError that has the traceback as text.
    """
    return isinstance(error, MemoryError) or (
        isinstance(error, TypeError) and "Could not serialize" in str(error) and "MemoryError" in str(error)
    )


def is_of_dask(error: BaseException) -> bool:
    """Return whether an error is one of dask, and not one of a task itself.

    A worker that ran out of memory while it received a result may have it in its state but not in its memory; dask then
    raises a KeyError with the key of the result in each task that uses it.
    """
    lost_result = isinstance(error, KeyError) and KEY.fullmatch(str(error.args[0] if error.args else ""))
    return type(error).__module__.startswith("distributed") or bool(lost_result)


def _deserted(worker_wait: float) -> ClusterError:
    return ClusterError(
        f"no worker was on the cluster for {worker_wait:g} s: start workers and try again", kind="no-workers"
    )

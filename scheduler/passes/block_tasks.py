"""Tasks of methods by passes: pure functions of blocks, on threads of this process or on dask workers.

Workers keep no state but results that later tasks need, so dask itself repeats the tasks of a failed worker. Sums are
added in the fixed tree of `..runtime.tree_reducer`, so they have the same bits in both places and for any number of
workers. Covers no method; the engine, whose blocks keep state, is in `..execution`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self, TypeVar

from distkern.storage.arrays.source import BlockSource

from ..clusters.futures import fetch, most_in_flight, submit, wait_for
from ..rows.block_reading import BlockRows, read_block
from ..runtime.read_ahead import is_remote, step_aside
from ..runtime.submission_window import in_order
from ..runtime.threads import available_cores, follow_worker, single_threaded_blas
from ..runtime.tree_reducer import TreeReducer

T = TypeVar("T")

Handle = Any
"""A result that may not exist yet; an argument of later tasks, and of `result`."""


class BlockTasks(ABC):
    """Runs functions of blocks; a context manager.

    Parameters
    ----------
    source : BlockSource
        Rows.
    classification : bool
        Whether targets are labels.
    """

    def __init__(self, source: BlockSource, classification: bool) -> None:
        self.source = source
        self.classification = classification
        self.n_blocks = len(source.boundaries) - 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    @abstractmethod
    def in_flight(self) -> int:
        """Most blocks in flight at a time."""

    @abstractmethod
    def read(self, block: int) -> Handle:
        """Read one block; the result is a `BlockRows`, which stays in the process that read it."""

    @abstractmethod
    def submit(self, name: str, function: Callable[..., T], *arguments: Any) -> Handle:
        """Call ``function(*arguments)``; handles among the arguments stand for their results.

        Parameters
        ----------
        name : str
            Name of the task on the dashboard.
        function : callable
            A function that workers can import. It is pure: it may be called again, and must not change its arguments.
        *arguments
            Handles, and values that can be pickled.
        """

    @abstractmethod
    def hold(self, value: T) -> Handle:
        """Send a value once to where tasks run, instead of with every task that needs it."""

    @abstractmethod
    def wait(self, handle: Handle) -> None:
        """Wait until a result exists, without fetching it."""

    @abstractmethod
    def result(self, handle: Handle) -> Any:
        """Wait for a result and fetch it.

        Raises
        ------
        ClusterError
            No worker joins in time, or workers fail repeatedly.
        """

    @abstractmethod
    def close(self) -> None:
        """Cancel the tasks in flight."""

    def each(
        self, name: str, function: Callable[..., T], *arguments: Any, blocks: Iterable[int] | None = None
    ) -> Iterator[T]:
        """Yield ``function(rows, *arguments)`` of every block, in order, a bounded number of blocks ahead.

        Parameters
        ----------
        name, function
            As for `submit`; `function` takes a `BlockRows` first.
        *arguments
            Handles, and values that can be pickled.
        blocks : iterable of int, optional
            Block numbers; all by default.
        """
        numbers = range(self.n_blocks) if blocks is None else blocks
        return self.in_order(numbers, lambda block: self.submit(name, function, self.read(block), *arguments))

    def in_order(
        self, items: Iterable[int], start: Callable[[int], Handle], take: Callable[[Handle], Any] | None = None
    ) -> Iterator[Any]:
        """Start a task for every item, a bounded number ahead; yield the results, or what `take` returns, in order."""
        return in_order(items, start, take or self.result, lambda: self.in_flight)

    def reduce(self, name: str, function: Callable[..., T], *arguments: Any, merge: Callable[[T, T], T]) -> T:
        """Merge ``function(rows, *arguments)`` of all blocks by the fixed tree.

        Parameters
        ----------
        name, function
            As for `submit`; `function` takes a `BlockRows` first.
        *arguments
            Handles, and values that can be pickled.
        merge : callable
            ``merge(left, right)``, a pure function.
        """
        return self.reduce_leaves(name, lambda block: self.submit(name, function, self.read(block), *arguments), merge)

    def reduce_leaves(self, name: str, start: Callable[[int], Handle], merge: Callable[[T, T], T]) -> T:
        """Merge the results of the tasks that `start` submits, one for each block, by the fixed tree."""
        merged: TreeReducer[Handle] = TreeReducer(
            self.n_blocks, lambda left, right: self.submit(f"sum-{name}", merge, left, right)
        )

        def start_leaf(block: int) -> Handle:
            leaf = start(block)
            merged.add(leaf, block)
            return leaf

        for _ in self.in_order(range(self.n_blocks), start_leaf, self.wait):
            pass
        found: T = self.result(merged.root())
        return found


def block_tasks(source: BlockSource, *, classification: bool, client: Any = None) -> BlockTasks:
    """Return the runner of tasks: the workers of `client`, or by default the threads of this process."""
    if client is None:
        return LocalTasks(source, classification)
    return WorkerTasks(source, classification, client)


class LocalTasks(BlockTasks):
    """Runs tasks on threads of this process, in the order of submission."""

    def __init__(self, source: BlockSource, classification: bool) -> None:
        super().__init__(source, classification)
        self._threads = available_cores()
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="distkern-block")
        # Reads that wait on a network have their own threads.
        self._readers = self._pool
        if is_remote(source):
            self._readers = ThreadPoolExecutor(self.in_flight, thread_name_prefix="distkern-read")

    @property
    def in_flight(self) -> int:
        """Most blocks in flight at a time."""
        return 2 * self._threads

    def read(self, block: int) -> Handle:
        """Read one block on a thread."""
        return self._readers.submit(_call, read_block, (self.source, block, self.classification))

    def submit(self, name: str, function: Callable[..., T], *arguments: Any) -> Handle:
        """Call a function on a thread; the tasks of its arguments began earlier, so the wait for them ends."""
        return self._pool.submit(_call, function, arguments)

    def hold(self, value: T) -> Handle:
        """Return the value, which is in this process."""
        return value

    def wait(self, handle: Handle) -> None:
        """Wait until a result exists."""
        handle.exception()

    def result(self, handle: Handle) -> Any:
        """Wait for a result."""
        return handle.result() if isinstance(handle, Future) else handle

    def close(self) -> None:
        """Cancel the tasks in flight, and end the threads."""
        self._readers.shutdown(cancel_futures=True)
        self._pool.shutdown(cancel_futures=True)


def _call(function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
    values = [value.result() if isinstance(value, Future) else value for value in arguments]
    with single_threaded_blas():
        return function(*values)


class WorkerTasks(BlockTasks):
    """Runs tasks on the workers of a dask client, which read their blocks themselves where they can."""

    def __init__(
        self, source: BlockSource, classification: bool, client: Any, worker_wait: float | None = None
    ) -> None:
        from ..clusters.clients import default_worker_wait
        from ..clusters.versions import compare_versions

        super().__init__(source, classification)
        compare_versions(client)
        self._client = client
        self._wait = default_worker_wait() if worker_wait is None else worker_wait
        self._held = None if source.inline else self.submit("hold-source", _same, source)

    @property
    def in_flight(self) -> int:
        """Most blocks in flight at a time."""
        return most_in_flight(self._client)

    def read(self, block: int) -> Handle:
        """Read one block on a worker; rows of this process are sent."""
        if self._held is None:
            return self.submit("send-block", _same, read_block(self.source, block, self.classification))
        read = read_aside if is_remote(self.source) else read_block
        return self.submit("read-block", read, self._held, block, self.classification)

    def submit(self, name: str, function: Callable[..., T], *arguments: Any) -> Handle:
        """Call a function on a worker."""
        return submit(self._client, name, _call_on_worker, function, *arguments)

    def hold(self, value: T) -> Handle:
        """Send a value to a worker as a result that dask can compute again."""
        return self.submit("hold", _same, value)

    def wait(self, handle: Handle) -> None:
        """Wait until a result exists, while there are workers."""
        wait_for(self._client, handle, self._wait)

    def result(self, handle: Handle) -> Any:
        """Wait for a result and fetch it."""
        return fetch(self._client, handle, self._wait, "finish a task")

    def close(self) -> None:
        """Release the source on the workers."""
        self._held = None


def read_aside(source: BlockSource, block: int, classification: bool) -> BlockRows:
    """Read one block in a dask task that releases its thread to other tasks."""
    step_aside()
    return read_block(source, block, classification)


def _same(value: T) -> T:
    return value


def _call_on_worker(function: Callable[..., T], *arguments: Any) -> T:
    follow_worker()
    with single_threaded_blas():
        return function(*arguments)


__all__ = ["BlockRows", "BlockTasks", "Handle", "LocalTasks", "WorkerTasks", "block_tasks"]

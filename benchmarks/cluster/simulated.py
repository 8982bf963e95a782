"""The driver's own time and memory for an exchange with many workers, simulated in one process.

The driver is the real one: the selection, the dask executor with its graphs, trees and signals, dask's serialisation of
graphs, and the unpickling and summing of answers. The client is simulated. A few blocks of real rows compute answers;
all other blocks repeat them, as other rows that are never among the best candidates. What workers and tasks compute
does not count as the driver's time.
"""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from statistics import median
from time import process_time
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
from distributed.protocol import serialize, to_serialize

import distkern
from distkern.monitoring.events import EventBus
from distkern.numerics.row_draws import Shortlist
from distkern.scheduler.blocks import block_registry as memo
from distkern.scheduler.blocks.block_registry import Fence
from distkern.scheduler.execution.answer_gathering import Summed
from distkern.scheduler.execution.dask_executor import DaskExecutor
from distkern.scheduler.planning.limits import WorkerFacts
from distkern.scheduler.planning.workload import Workload
from distkern.scheduler.protocol.answer_checks import AnswerChecks
from distkern.scheduler.protocol.answers import Answer
from distkern.scheduler.protocol.messages import message_name
from distkern.scheduler.runtime.tree_reducer import Node, TreeReducer
from distkern.scheduler.training.driver_loop import train
from distkern.scheduler.training.run import plan_job
from distkern.storage import ArraySource

REAL_BLOCKS = 64
"""Blocks that compute: a power of two, so that equal subtrees of the blocks have equal sums."""

BLOCK_ROWS = 512
"""Rows of a block of the simulation; a block of a table has more, which changes no size of an answer."""

WORSE = 1e3
"""Factor on the keys of repeated rows, by which they never are among the best."""


class RepeatedRows(ArraySource):
    """Few rows, as a source of many blocks of them."""

    inline = False

    def __init__(self, n_blocks: int, n_features: int) -> None:
        rng = np.random.default_rng(0)
        X = rng.standard_normal((REAL_BLOCKS * BLOCK_ROWS, n_features))
        y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(len(X))
        super().__init__(X, y, boundaries=tuple(range(0, len(X) + 1, BLOCK_ROWS)))
        self.boundaries = tuple(range(0, n_blocks * BLOCK_ROWS + 1, BLOCK_ROWS))
        self.n_rows = n_blocks * BLOCK_ROWS


@dataclass
class Clock:
    """Processor time of the driver: that of the process without what is simulated."""

    seconds: float = 0.0
    since: float = field(default_factory=process_time)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count the time within the context."""
        self.seconds += process_time() - self.since
        try:
            yield
        finally:
            self.since = process_time()

    def lap(self) -> float:
        """Return the seconds since the last call."""
        with self.paused():
            seconds, self.seconds = self.seconds, 0.0
        return seconds


@dataclass(eq=False)
class Finished:
    """The future of a task that has finished."""

    result: bytes
    status: str = "finished"

    def add_done_callback(self, function: Callable[[Any], None]) -> None:
        """Call the function now."""
        function(self)

    def release(self) -> None:
        """Do nothing."""

    cancel = release


class RepeatedAnswers(AnswerChecks):
    """Checks of answers that name the rows of the blocks that were computed, whichever blocks they stand for."""

    def _require_blocks(self, numbers: Collection[int], blocks: Collection[int]) -> None:
        pass

    def _require_rows(self, rows: Any, blocks: Collection[int], what: str, *, selecting: bool = False) -> None:
        pass


class SimulatedClient:
    """A dask client of workers that are not there; their blocks repeat those of `REAL_BLOCKS`.

    Parameters
    ----------
    n_workers : int
        Number of workers.
    source : RepeatedRows
        The rows.
    """

    status = "running"
    asynchronous = False
    cluster = None

    def __init__(self, n_workers: int, source: RepeatedRows) -> None:
        self.clock = Clock()
        self.sent = self.received = self.tasks = 0
        self._event_handlers: dict[str, Any] = {}
        self._source = source
        self._n_blocks = len(source.boundaries) - 1
        self._names = [f"tcp://10.0.{n // 250}.{n % 250}:40000" for n in range(n_workers)]
        self._fence = Fence("simulated", "blocks", (1, 0), tuple(range(REAL_BLOCKS)), REAL_BLOCKS)
        self._sums: dict[tuple[int, int], Answer] = {}
        self._placed = False
        self.loop = SimpleNamespace(asyncio_loop=asyncio.new_event_loop())
        self.scheduler = self
        self._thread = threading.Thread(target=self.loop.asyncio_loop.run_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the event loop, and drop the blocks."""
        self.loop.asyncio_loop.call_soon_threadsafe(self.loop.asyncio_loop.stop)
        self._thread.join()
        self.loop.asyncio_loop.close()
        memo.drop_run(self._fence.worker, self._fence.run_id)

    def subscribe_topic(self, topic: str, handler: Any) -> None:
        """Nothing happens to these workers."""
        self._event_handlers[topic] = handler

    def unsubscribe_topic(self, topic: str) -> None:
        """Do nothing."""

    async def identity(self, n_workers: int = -1) -> dict[str, Any]:
        """Return the workers, all of them alive."""
        facts = {"status": "running", "nthreads": 1, "memory_limit": 0, "last_seen": process_time()}
        return {"workers": {name: dict(facts) for name in self._names}}

    async def run(self, function: Callable[[], Any], *, workers: list[str], **_: Any) -> dict[str, Any]:
        """Answer for workers."""
        return dict.fromkeys(workers, function())

    def submit(self, function: Callable[..., Any], *arguments: Any, key: str, **_: Any) -> Finished:
        """Pretend to run a single task."""
        self.tasks += 1
        return Finished(pickle.dumps(None))

    def get(self, graph: Any, keys: list[str], **_: Any) -> list[Finished]:
        """Serialise a graph as a client of dask does, and simulate its tasks."""
        from dask._expr import HLGExpr

        header, frames = serialize(to_serialize(HLGExpr(graph)), on_error="raise")
        self.sent += len(pickle.dumps(header)) + sum(memoryview(frame).nbytes for frame in frames)
        with self.clock.paused():
            (layer,) = graph.layers.values()
            self.tasks += len(layer)
            futures = []
            for key in keys:
                calls = list(_messages_below(layer, key))
                nodes = self._answer(calls, layer)
                result = pickle.dumps(nodes if len(calls) == 1 else Summed(nodes, {}), protocol=5)
                self.received += len(result)
                futures.append(Finished(result))
        return futures

    async def gather(self, future: Finished, asynchronous: bool = True) -> Any:
        """Unpickle a result; its arrays are not aligned, as those of dask."""
        return pickle.loads(future.result)

    def _answer(self, calls: list[Any], layer: Any) -> dict[Node, Answer]:
        """Return the complete subtrees of the blocks of some message tasks."""
        _, _, version, previous, message = calls[0].args
        message = getattr(message, "key", message)
        while isinstance(message, str):
            (message,) = layer[message].args
            message = getattr(message, "key", message)
        self._compute(version, previous, message)
        blocks = [block for call in calls for block in call.args[1]]
        shape: TreeReducer[list[int]] = TreeReducer(self._n_blocks, lambda left, right: left + right)
        for block in blocks:
            shape.add([block], block)
        return {node: self._repeated(leaves) for node, leaves in shape.nodes().items()}

    def _compute(self, version: int, previous: bytes, message: Any) -> None:
        """Apply a message to the real blocks, once."""
        if not self._placed:
            memo.place_blocks(self._fence, self._source, range(REAL_BLOCKS))
            self._placed = True
        if getattr(self, "_computed", -1) == version:
            return
        self._computed = version
        self._sums = {}
        for block in range(REAL_BLOCKS):
            answer = memo.run_message(self._fence, (block,), version, previous, message)
            if not isinstance(answer, dict):
                raise RuntimeError(f"{message_name(message)} was refused: {answer}")
            (self._sums[0, block],) = answer.values()

    def _repeated(self, leaves: list[int]) -> Answer:
        """Return the sum of a subtree; draws have each row once, other rows than the real ones last."""
        first, real = leaves[0] % REAL_BLOCKS, sum(leaf < REAL_BLOCKS for leaf in leaves)
        answer = self._sum(first, len(leaves))
        if real == len(leaves):
            return answer
        answer = _with_draws(answer, self._sum(first, real or min(len(leaves), REAL_BLOCKS)))
        return answer if real else _of_other_rows(answer, leaves[0] // REAL_BLOCKS * REAL_BLOCKS * BLOCK_ROWS)

    def _sum(self, first: int, count: int) -> Answer:
        """Return the sum of the blocks from `first` on, which repeat."""
        if count == 1:
            return self._sums[0, first]
        known = self._sums.get((count, first))
        if known is None:
            half = 1 << ((count - 1).bit_length() - 1)
            left = self._sum(first, half).copy()
            known = self._sums[count, first] = left.merge(self._sum((first + half) % REAL_BLOCKS, count - half))
        return known


def _messages_below(layer: Any, key: str) -> Iterator[Any]:
    """Yield the message tasks whose answers a task sums, in order."""
    task = layer[key]
    if task.func is memo.run_message:
        yield task
        return
    for argument in task.args[3:]:
        yield from _messages_below(layer, argument.key)


def _with_draws(answer: Answer, other: Answer) -> Answer:
    """Return an answer with the drawn rows of another one."""
    answer = answer.copy()
    for problem, drawing in zip(answer.problems, other.problems, strict=True):
        problem.drawn = drawing.drawn
    if answer.load is not None and answer.load.sample is not None:
        assert other.load is not None
        answer.load = replace(answer.load, sample=other.load.sample)
    return answer


def _of_other_rows(answer: Answer, offset: int) -> Answer:
    """Return an answer whose drawn rows have higher numbers and lose against all of the real blocks."""

    def moved(shortlist: Shortlist) -> Shortlist:
        keys = np.where(shortlist.keys < 0, shortlist.keys / WORSE, shortlist.keys * WORSE)
        return Shortlist(keys, shortlist.rows + offset, shortlist.residuals)

    answer = answer.copy()
    for problem in answer.problems:
        if problem.drawn is not None:
            drawn = problem.drawn
            problem.drawn = replace(
                drawn, top=moved(drawn.top), race=moved(drawn.race), rows=drawn.rows + offset, largest=0.0
            )
    if answer.load is not None and answer.load.sample is not None:
        sample = replace(answer.load.sample, shortlist=moved(answer.load.sample.shortlist))
        answer.load = replace(answer.load, sample=sample)
    return answer


def run(workers: int, rows: int, features: int, centers: int) -> list[dict[str, Any]]:
    """Select centres, and report the driver's time and memory for a round, over the last quarter of the path.

    Parameters
    ----------
    workers : int
        Number of workers.
    rows : int
        Rows of the table, which decide the number of blocks.
    features : int
        Columns of the table.
    centers : int
        Centres to select.
    """
    table = Workload.imagined(rows, features, 4, 1)
    n_blocks = max(table.n_blocks, workers, REAL_BLOCKS)
    job = distkern.OROLSRegressor(
        sigma=float(np.sqrt(features)), max_centers=centers, stop=None, selection_rows=None
    ).training_job()
    source = RepeatedRows(n_blocks, features)
    client = SimulatedClient(workers, source)
    resident = psutil.Process().memory_info().rss
    laps: list[float] = []
    sizes: list[tuple[int, int]] = []
    executor = DaskExecutor(client, source, EventBus())
    executor._checks = RepeatedAnswers(source)
    exchange = executor.exchange

    def timed(message: Any) -> Answer:
        before = client.sent, client.received
        answer = exchange(message)
        laps.append(client.clock.lap())
        sizes.append((client.sent - before[0], client.received - before[1]))
        return answer

    executor.exchange = timed  # type: ignore[method-assign]
    try:
        client.clock.lap()
        result = train(job, source, executor, EventBus())
        taken = psutil.Process().memory_info().rss - resident
    finally:
        executor.close()
        client.close()
    plan = plan_job(
        job,
        replace(table, n_blocks=n_blocks),
        WorkerFacts(workers, 1, None, False),
        factors="workers",
        memory_limit=1 << 40,
    )
    late = laps[-(len(laps) // 4) :]
    return [
        {
            "workers": workers,
            "rows": rows,
            "blocks": n_blocks,
            "centers": len(result.history),
            "exchanges": len(laps),
            "first exchange ms": 1e3 * laps[0],
            "driver ms an exchange, median": 1e3 * median(late),
            "largest": 1e3 * max(late),
            "MB sent": max(sent for sent, _ in sizes) / 1e6,
            "MB received": max(received for _, received in sizes) / 1e6,
            "driver MiB": taken / (1 << 20),
            "planned MiB": plan.driver_peak / (1 << 20),
        }
    ]

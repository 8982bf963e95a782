"""The dask executor: one hard-pinned task a worker and exchange, and what happens when a worker is gone.

A round is a set of task chains. A chain takes some blocks of one worker through tasks (place, replay, message) in
order; a refusal starts it again from the state that the worker reports. When a worker leaves, its chains are
cancelled, its blocks get new homes, the placement epoch rises and new chains start. Nothing here changes a number: a
block rebuilt from the log is the block that was lost.

Out of scope: which workers can be used and what they look after (`worker_pool`), what messages do (`blocks.block`,
`blocks.pool_tiles`), how workers remember (`blocks.block_registry`).
"""

from __future__ import annotations

import asyncio
import logging
import queue
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import CancelledError, wait
from dataclasses import dataclass, field
from itertools import chain
from time import monotonic
from typing import Any

import numpy as np

from distkern.errors import ClusterError
from distkern.monitoring.events import BlocksReplayed, EventBus
from distkern.storage.arrays.source import BlockSource

from ..blocks import block_registry as memo
from ..blocks.block_registry import Fence, Refusal
from ..clusters.clients import default_worker_wait
from ..clusters.futures import submit
from ..clusters.placement import blocks_of
from ..clusters.worker_queries import peak_of_workers
from ..planning.limits import FAN_IN
from ..protocol.answers import Answer
from ..protocol.messages import Message, Query, canonical, message_name
from ..protocol.run_log import SLICE_BYTES, RunLog
from ..runtime.environment import AskFacts, process_facts
from ..runtime.threads import tile_pool
from ..runtime.tree_reducer import Node
from .answer_gathering import Carried, Gatherer, SumTask, TaskChain, sum_answers
from .executor import Executor, total
from .shipping import shipments
from .worker_pool import Workforce

WORKERS_SECONDS = 1.0
"""How often the list of workers is asked for while nothing else is heard."""

MAX_REFUSALS = 200
"""Refusals in one round before something is wrong with the protocol itself."""

MAX_MEMORY_ERRORS = 3
"""Times in one round that a worker may run out of memory before the run ends: another task may have had it."""

ANSWER_SECONDS = 5.0
"""How long to wait for workers' answers that a training can do without."""

logger = logging.getLogger(__name__)

Make = Callable[[Fence, tuple[int, ...]], tuple[Any, ...]]
"""Function and arguments of the last step's task, for some blocks."""


@dataclass
class _Round:
    """What one task a worker is being run for, and how far that is."""

    make: Make
    name: str
    version: int
    """Messages that a block must have seen before."""
    todo: set[int]
    """Blocks that have not answered."""
    gatherer: Gatherer
    summed: bool
    """Whether answers may be summed by tasks before they are fetched."""
    pending: dict[Any, TaskChain | SumTask] = field(default_factory=dict)
    unassigned: bool = True
    """Whether some blocks may have nothing under way for them."""
    carried: Carried | None = None
    """The message, where it was put on the cluster once."""
    memory_errors: int = 0
    """Tasks that ran out of memory."""

    def idle(self) -> set[int]:
        """Blocks that have not answered and that nothing is under way for."""
        busy = {block for task in self.pending.values() for block in task.blocks}
        return self.todo - busy - self.gatherer.blocks


class DaskExecutor(Executor):
    """Blocks on the workers of a dask cluster.

    Parameters
    ----------
    client : distributed.Client
        The cluster.
    source : BlockSource
        Training rows; an inline source is sent to the workers block by block.
    events : EventBus
        Told of lost workers and replays.
    with_factors : bool
        Whether blocks hold Q and E, or only answer queries for kernel columns.
    worker_wait : float, optional
        Seconds to wait for a worker when none can be used; ``distkern.worker-wait`` of dask's configuration, or a
        minute, if not given.
    room : int, optional
        Bytes of row matrices that each worker may keep in memory.
    read_ahead : int, optional
        Blocks that its reads run ahead.
    fan_in : int
        With more workers than this, answers are summed by tasks before they are fetched.
    ask_facts : callable
        What driver and workers must have in common, found on each.
    run_id : str, optional
        Name of the run; a new one by default.
    incarnation : int
        Which driver of the run this is; workers refuse one that is older than another they have heard.

    Raises
    ------
    ClusterError
        No worker comes in time, workers differ from this process, or a block's workers keep dying.
    """

    exchanges = 0

    def __init__(
        self,
        client: Any,
        source: BlockSource,
        events: EventBus,
        *,
        with_factors: bool = True,
        worker_wait: float | None = None,
        room: int | None = None,
        read_ahead: int | None = None,
        fan_in: int = FAN_IN,
        ask_facts: AskFacts = process_facts,
        run_id: str | None = None,
        incarnation: int = 1,
    ) -> None:
        self._client = client
        self._source = source
        self._events = events
        self._with_factors = with_factors
        self._memory = room, read_ahead
        self._fan_in = fan_in
        self._run_id = run_id or uuid.uuid4().hex
        self._incarnation = incarnation
        self._log = RunLog()
        self._n_blocks = len(source.boundaries) - 1
        self._refusals = 0
        self._polled = 0.0
        self._checksums: dict[int, int] = {}
        self._staff = Workforce(
            client,
            events,
            self._run_id,
            incarnation,
            self._n_blocks,
            worker_wait=default_worker_wait() if worker_wait is None else worker_wait,
            ask_facts=ask_facts,
        )
        try:
            self._staff.start()
        except BaseException:
            self.close()
            raise

    @property
    def n_workers(self) -> int:
        """Workers that hold blocks now."""
        return len(self._staff.busy)

    @property
    def n_threads(self) -> int:
        """Threads of the workers that hold blocks; those of this process share one pool."""
        return tile_pool()[1] if self.in_process else self._staff.n_threads

    @property
    def in_process(self) -> bool:
        """Whether all workers are threads of this process."""
        return all(worker.startswith("inproc://") for worker in self._staff.busy)

    def exchange(self, message: Message) -> Answer:
        """Send the next message of the log and return the sum of the answers."""
        self.exchanges += 1
        message = canonical(message)
        version = len(self._log)
        previous = self._log.hashes[-1]
        self._log.append(message)

        self._staff.rebalance()
        carried = None
        if self.n_workers > self._fan_in:
            carried = Carried(self._client, message, self._staff.usable)

        def make(fence: Fence, blocks: tuple[int, ...]) -> tuple[Any, ...]:
            return memo.run_message, fence, blocks, version, previous, carried.argument if carried else message

        nodes: dict[Node, Answer] = {}
        for part in self._round(make, message_name(message), version, summed=True, carried=carried):
            nodes.update(canonical_answers(part))
        answer = total(nodes, self._n_blocks)
        if answer.load is not None:
            self.expect(answer.load.checksums)
        return answer

    def expect(self, checksums: Mapping[int, int]) -> None:
        """Have blocks refused that read other than these checksums say, wherever they are loaded from now on."""
        self._checksums.update(checksums)

    def skip(self, message: Message, answer: Answer | None) -> None:
        """Add a message to the log; workers that are behind are brought up to it."""
        self._log.append(canonical(message))
        if answer is not None and answer.load is not None:
            self.expect(answer.load.checksums)

    def query(self, query: Query) -> Answer:
        """Ask without changing anything."""
        self.exchanges += 1
        query = canonical(query)
        version, at = len(self._log), self._log.hashes[-1]

        def make(fence: Fence, blocks: tuple[int, ...]) -> tuple[Any, ...]:
            return memo.answer_query, fence, blocks, version, at, query

        self._staff.rebalance()
        answer = Answer()
        for part in self._round(make, message_name(query), version):
            answer.merge(part)
        return answer

    def finish(self) -> None:
        """Do nothing."""

    def peak_rss(self) -> int:
        """Largest resident set of any worker process so far, in bytes; 0 for workers in this process."""
        return peak_of_workers(self._client, self._staff.usable())

    def close(self) -> None:
        """Free the run's memory on every worker."""
        if self._client.status == "running":
            self._drop_run()
        self._staff.close()

    def _drop_run(self) -> None:
        """Free the memory on every worker that can be used; one that does not answer soon is left out."""
        try:
            self._staff.look()
        except ClusterError:
            return
        futures = [
            submit(
                self._client, "distkern-drop-run", memo.drop_run, worker, self._run_id, self._incarnation, worker=worker
            )
            for worker in self._staff.usable()
        ]
        deadline = monotonic() + ANSWER_SECONDS
        for future in futures:
            try:
                future.result(timeout=max(0.0, deadline - monotonic()))
            except Exception:
                logger.info("a worker did not free the memory of its run", exc_info=True)
                future.cancel()

    def _round(
        self, make: Make, name: str, version: int, *, summed: bool = False, carried: Carried | None = None
    ) -> Iterator[Any]:
        """Run the task that `make` builds once for every block; yield the answers as they come."""
        self._refusals = 0
        gatherer = Gatherer(self._staff.homes, self._fan_in)
        round_ = _Round(
            make, name, version, set(range(self._n_blocks)), gatherer, summed and gatherer.active, carried=carried
        )
        try:
            self._start_chains(round_)
            while round_.pending:
                kind, value = self._next_signal()
                if kind == "done" and value in round_.pending:
                    yield from self._finished(value, round_)
                elif kind == "remove-worker":
                    self._staff.look()
                    self._lose({value}, round_)
                elif kind == "poll":
                    self._lose(self._staff.look(), round_)
                    self._polled = monotonic()
                self._start_chains(round_)
                if self._staff.signals.empty():
                    self._sum_groups(round_)
        finally:
            for future in round_.pending:
                future.cancel()

    def _finished(self, future: Any, round_: _Round) -> Iterator[Any]:
        """Take a finished task's result; yield what it answers."""
        task = round_.pending.pop(future)
        if round_.summed and isinstance(task, TaskChain) and task.last and future.status == "finished":
            round_.gatherer.hold(future, task)
            return
        try:
            outcome = self._fetch(future, task)
        except MemoryError:
            # What it tore is dropped, and rebuilt; the memory may have been another task's.
            round_.unassigned = True
            round_.memory_errors += 1
            if round_.memory_errors > MAX_MEMORY_ERRORS:
                raise
            logger.warning("worker %s ran out of memory in %s; it tries again", task.worker, round_.name)
            return
        if outcome is _GONE:
            self._staff.look()
            self._lose(task.workers, round_)
        elif isinstance(task, SumTask):
            nodes, refusals = outcome
            for number, (part, member) in enumerate(task.parts):
                part.release()
                if self._advance(member, refusals.get(number), round_):
                    round_.todo -= set(member.blocks)
            yield nodes
        elif self._advance(task, outcome, round_):
            round_.todo -= set(task.blocks)
            yield outcome

    def _start_chains(self, round_: _Round) -> None:
        if not round_.unassigned:
            return
        round_.unassigned = False
        idle, homes = round_.idle(), self._staff.homes
        for worker in sorted({homes[block] for block in idle}):
            blocks = tuple(sorted(block for block in idle if homes[block] == worker))
            self._submit(TaskChain(worker, blocks), round_.name, round_.make(self._fence(worker), blocks), round_)

    def _sum_groups(self, round_: _Round) -> None:
        """Have the answers of complete groups summed by one of their workers."""
        round_.gatherer.homes = self._staff.homes
        chains = [task for task in round_.pending.values() if isinstance(task, TaskChain)]
        for summing in round_.gatherer.complete(chains):
            answers = [future for future, _ in summing.parts]
            self._submit(summing, "sum-answers", (sum_answers, self._n_blocks, answers), round_)

    def _advance(self, task: TaskChain, outcome: Any, round_: _Round) -> bool:
        """Take the result of a task; return whether it was the answer."""
        version = round_.version
        if isinstance(outcome, Refusal):
            self._refusals += 1
            if self._refusals > MAX_REFUSALS * max(1, self.n_workers):
                raise ClusterError(
                    f"workers refused {self._refusals} tasks in one round, the last {task.blocks} on "
                    f"{task.worker} ({outcome}); another driver may be using run {self._run_id}",
                    kind="refused",
                )
            round_.unassigned = True
            # Blocks in different states go separate ways; those that are well wait for the next message task.
            groups: dict[int, list[int]] = {}
            for block in task.blocks:
                state = outcome.versions.get(block, version if not outcome.stale else None)
                if state is not None:
                    groups.setdefault(state if state <= version else -1, []).append(block)
            for state, blocks in groups.items():
                part = TaskChain(task.worker, tuple(blocks))
                message = (round_.name, round_.make(self._fence(part.worker), part.blocks))
                part.steps = chain(self._catch_up(part, state, version), [message])
                self._submit(part, *next(part.steps), round_)
            return False
        step = next(task.steps, None)
        if step is not None:
            if step[0] == round_.name:
                task.caught_up = monotonic()
            self._submit(task, *step, round_)
            return False
        if task.replayed:
            self._events.emit(
                BlocksReplayed(
                    worker=task.worker,
                    blocks=task.blocks,
                    messages=task.replayed,
                    seconds=task.caught_up - task.began,
                )
            )
        return True

    def _catch_up(self, task: TaskChain, state: int, version: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Steps that bring blocks from `state` (-1: absent) to `version`."""
        task.began = task.caught_up = monotonic()
        fence = self._fence(task.worker)
        if state < 0:
            for blocks, source in shipments(self._source, task.blocks, SLICE_BYTES):
                known = {block: self._checksums[block] for block in blocks if block in self._checksums}
                call = (memo.place_blocks, fence, source, blocks, self._with_factors, *self._memory, known)
                yield "place-blocks", call
            state = 0
        task.replayed = version - state
        for first, last in self._log.slices(state, version):
            messages = tuple(self._log.messages[first:last])
            yield (
                "replay-log",
                (memo.replay_messages, fence, task.blocks, first, self._log.hashes[first], messages),
            )

    def _submit(self, task: TaskChain | SumTask, name: str, call: tuple[Any, ...], round_: _Round) -> None:
        function, first, *arguments = call
        # The epoch may have risen since the call was made.
        first = self._fence(task.worker) if isinstance(first, Fence) else first
        task.last = name == round_.name
        future = submit(self._client, name, function, first, *arguments, worker=task.worker)
        round_.pending[future] = task
        future.add_done_callback(lambda done: self._staff.signals.put(("done", done)))

    def _fence(self, worker: str) -> Fence:
        return Fence(
            run_id=self._run_id,
            worker=worker,
            token=(self._incarnation, self._staff.epoch),
            keep=blocks_of(self._staff.homes, worker),
            n_blocks=self._n_blocks,
        )

    def _fetch(self, future: Any, task: TaskChain | SumTask) -> Any:
        """Fetch a finished task's result, unless its worker leaves meanwhile."""
        # A timeout of dask's own would cancel the transfer, and a large reply would never arrive.
        transfer = asyncio.run_coroutine_threadsafe(
            self._client.gather(future, asynchronous=True), self._client.loop.asyncio_loop
        )
        while not wait([transfer], timeout=WORKERS_SECONDS).done:
            self._staff.look()
            if any(self._staff.trouble(worker) for worker in task.workers):
                transfer.cancel()
                return _GONE
        try:
            outcome = transfer.result()
        except CancelledError:
            return _GONE
        except Exception as error:
            # dask's own trouble with a task names a lost worker; a task's own error is the user's.
            if type(error).__module__.startswith("distributed") or future.status in ("cancelled", "lost"):
                return _GONE
            raise
        future.release()
        return outcome

    def _lose(self, workers: Collection[str], round_: _Round) -> None:
        """Cancel the tasks of workers that may be lost, and give the blocks of those that are new homes.

        A worker that lost a result and is well otherwise is simply sent the task again.
        """
        if not workers:
            return
        round_.unassigned = True
        dropped = [future for future, task in round_.pending.items() if not task.workers.isdisjoint(workers)]
        if round_.carried is not None:
            # Any task may be waiting for a worker that has the message and does not hand it on.
            round_.carried.forget()
            dropped = list(round_.pending)
        for future in dropped:
            del round_.pending[future]
            future.cancel()
        for worker in workers:
            round_.gatherer.forget(worker)
            self._staff.lose(worker)

    def _next_signal(self) -> tuple[str, Any]:
        """Return what happens next, and a poll when one is due whatever happens."""
        due = self._polled + WORKERS_SECONDS - monotonic()
        try:
            if due > 0:
                return self._staff.signals.get(timeout=due)
        except queue.Empty:
            pass
        return "poll", None


_GONE = object()


def canonical_answers(nodes: dict[Node, Answer]) -> dict[Node, Answer]:
    """Make the arrays of received answers aligned, contiguous and writable."""
    for answer in nodes.values():
        for problem in answer.problems:
            for name, array in problem.sums.items():
                problem.sums[name] = np.require(array, requirements=["C", "A", "W"])
    return nodes

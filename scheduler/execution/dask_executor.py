"""The dask executor: one task on each worker in an exchange, and recovery after the failure of a worker.

A round is a set of task chains. A chain runs tasks (place, replay, message) for some blocks of one worker in order, all
pinned to that worker. After a refusal it starts again from the state that the worker reports. When a worker fails, its
chains are cancelled, its blocks are reassigned, the placement epoch rises and new chains start. Nothing here changes a
number: a block that is rebuilt from the log has the same bits.

Covers neither the choice of workers and owners, see `worker_pool`, nor the state on workers, see
`..blocks.block_registry`, nor the effects of messages, see `..blocks.block`.
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
"""Time between two looks at the list of workers while no other signal arrives."""

MAX_REFUSALS = 200
"""Refusals in one round, for each worker, before the run ends: the protocol itself is violated."""

MAX_MEMORY_ERRORS = 3
"""Memory errors of tasks in one round before the run ends: at first another task may have used the memory."""

ANSWER_SECONDS = 5.0
"""Most time to wait for answers of workers that a training does not need."""

logger = logging.getLogger(__name__)

Make = Callable[[Fence, tuple[int, ...]], tuple[Any, ...]]
"""Function and arguments of the last step's task, for some blocks."""


@dataclass
class _Round:
    """State of one round: the task to run for every block, and the blocks that have not answered."""

    make: Make
    name: str
    version: int
    """Number of messages that a block must have applied before."""
    todo: set[int]
    """Blocks that have not answered."""
    gatherer: Gatherer
    summed: bool
    """Whether answers may be summed by tasks before they are fetched."""
    pending: dict[Any, TaskChain | SumTask] = field(default_factory=dict)
    unassigned: bool = True
    """Whether some blocks may have no task."""
    carried: Carried | None = None
    """The message, where it is on the cluster once."""
    memory_errors: int = 0
    """Tasks that ran out of memory."""

    def idle(self) -> set[int]:
        """Return the blocks that have not answered and have no task."""
        busy = {block for task in self.pending.values() for block in task.blocks}
        return self.todo - busy - self.gatherer.blocks


class DaskExecutor(Executor):
    """Executor with blocks on the workers of a dask cluster.

    Parameters
    ----------
    client : distributed.Client
        The cluster.
    source : BlockSource
        Training rows; an inline source is sent to the workers block by block.
    events : EventBus
        Receives events of failed workers and replays.
    with_factors : bool
        Whether blocks hold Q and E (default), or only answer queries of kernel columns.
    worker_wait : float, optional
        Seconds to wait for a worker when none is usable; by default ``distkern.worker-wait`` of dask's configuration,
        or 60 s.
    room : int, optional
        Bytes of row matrices that each worker may keep in memory; unlimited by default.
    read_ahead : int, optional
        Blocks that the reads of a worker run ahead; by default as many as the size of the blocks allows.
    fan_in : int
        With more workers than this, tasks sum answers before the driver fetches them.
    ask_facts : callable
        Returns the facts that driver and workers must share; the versions of a process by default.
    run_id : str, optional
        Name of the run; a unique one by default.
    incarnation : int
        Number of this driver of the run, 1 by default; workers refuse a driver with a lower number than another.

    Raises
    ------
    ClusterError
        No worker joins in time, workers differ from this process, or the workers of a block fail repeatedly.
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
        """Number of workers that own blocks now."""
        return len(self._staff.busy)

    @property
    def n_threads(self) -> int:
        """Threads of the workers that own blocks; workers of this process share one pool."""
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
        """Set the checksums that blocks must read from now on, on every worker."""
        self._checksums.update(checksums)

    def skip(self, message: Message, answer: Answer | None) -> None:
        """Add a message to the log; blocks apply it in their next catch-up."""
        self._log.append(canonical(message))
        if answer is not None and answer.load is not None:
            self.expect(answer.load.checksums)

    def query(self, query: Query) -> Answer:
        """Return the answers to a query, which changes no state."""
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
        """Return the largest resident set of the worker processes so far, in bytes; 0 for workers in this process."""
        return peak_of_workers(self._client, self._staff.usable())

    def close(self) -> None:
        """Free the run's memory on every worker."""
        if self._client.status == "running":
            self._drop_run()
        self._staff.close()

    def _drop_run(self) -> None:
        """Free the memory on every usable worker that answers within `ANSWER_SECONDS`."""
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
        """Run the task that `make` builds once for every block; yield the answers in any order."""
        self._refusals = 0
        gatherer = Gatherer(self._staff.owners, self._fan_in)
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
                    self._reassign({value}, round_)
                elif kind == "poll":
                    self._reassign(self._staff.look(), round_)
                    self._polled = monotonic()
                self._start_chains(round_)
                if self._staff.signals.empty():
                    self._sum_groups(round_)
        finally:
            for future in round_.pending:
                future.cancel()

    def _finished(self, future: Any, round_: _Round) -> Iterator[Any]:
        """Process the result of a finished task; yield its answer."""
        task = round_.pending.pop(future)
        if round_.summed and isinstance(task, TaskChain) and task.last and future.status == "finished":
            round_.gatherer.hold(future, task)
            return
        try:
            outcome = self._fetch(future, task)
        except MemoryError:
            # The worker drops half-changed blocks, which are rebuilt; another task may have used the memory.
            round_.unassigned = True
            round_.memory_errors += 1
            if round_.memory_errors > MAX_MEMORY_ERRORS:
                raise
            logger.warning("worker %s ran out of memory in %s; the task runs again", task.worker, round_.name)
            return
        if outcome is _LOST:
            self._staff.look()
            self._reassign(task.workers, round_)
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
        idle, owners = round_.idle(), self._staff.owners
        for worker in sorted({owners[block] for block in idle}):
            blocks = tuple(sorted(block for block in idle if owners[block] == worker))
            self._submit(TaskChain(worker, blocks), round_.name, round_.make(self._fence(worker), blocks), round_)

    def _sum_groups(self, round_: _Round) -> None:
        """Submit a task for each complete group that sums its answers on one of its workers."""
        round_.gatherer.owners = self._staff.owners
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
            # Blocks in different states get separate chains; blocks at the right version get the next message task.
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
        """Yield the steps that bring blocks from `state` (-1: absent) to `version`."""
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
        # The epoch may have risen since the call was built.
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
            keep=blocks_of(self._staff.owners, worker),
            n_blocks=self._n_blocks,
        )

    def _fetch(self, future: Any, task: TaskChain | SumTask) -> Any:
        """Fetch the result of a finished task; `_LOST` if its worker fails meanwhile."""
        # A timeout of dask would cancel the transfer, and a large reply would never arrive.
        transfer = asyncio.run_coroutine_threadsafe(
            self._client.gather(future, asynchronous=True), self._client.loop.asyncio_loop
        )
        while not wait([transfer], timeout=WORKERS_SECONDS).done:
            self._staff.look()
            if any(self._staff.trouble(worker) for worker in task.workers):
                transfer.cancel()
                return _LOST
        try:
            outcome = transfer.result()
        except CancelledError:
            return _LOST
        except Exception as error:
            # An error of dask means that a worker failed; an error of the task itself is raised as it is.
            if type(error).__module__.startswith("distributed") or future.status in ("cancelled", "lost"):
                return _LOST
            raise
        future.release()
        return outcome

    def _reassign(self, workers: Collection[str], round_: _Round) -> None:
        """Cancel the tasks of workers that may have failed, and reassign the blocks of those that did.

        A usable worker that lost a result gets the task again.
        """
        if not workers:
            return
        round_.unassigned = True
        dropped = [future for future, task in round_.pending.items() if not task.workers.isdisjoint(workers)]
        if round_.carried is not None:
            # Any task may wait for the message from a worker that does not answer.
            round_.carried.forget()
            dropped = list(round_.pending)
        for future in dropped:
            del round_.pending[future]
            future.cancel()
        for worker in workers:
            round_.gatherer.forget(worker)
            self._staff.reassign(worker)

    def _next_signal(self) -> tuple[str, Any]:
        """Return the next signal; a poll when the time for one has come, even if there are others."""
        due = self._polled + WORKERS_SECONDS - monotonic()
        try:
            if due > 0:
                return self._staff.signals.get(timeout=due)
        except queue.Empty:
            pass
        return "poll", None


_LOST = object()


def canonical_answers(nodes: dict[Node, Answer]) -> dict[Node, Answer]:
    """Make the arrays of received answers aligned, contiguous and writable."""
    for answer in nodes.values():
        for problem in answer.problems:
            for name, array in problem.sums.items():
                problem.sums[name] = np.require(array, requirements=["C", "A", "W"])
    return nodes

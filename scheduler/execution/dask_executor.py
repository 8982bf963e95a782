"""The dask executor: one task on each worker in an exchange, and recovery after the failure of a worker.

A round sends a message to all blocks, as one graph of tasks that are pinned to their workers. Blocks that refuse it are
brought up to date by chains of tasks (place, replay), and get the message again. When a worker fails, the tasks that
need it are cancelled, its blocks are reassigned, the placement epoch rises and they get the message again. Nothing here
changes a number: a block that is rebuilt from the log has the same bits.

Covers neither the choice of workers and owners, see `worker_pool`, nor the trees of tasks, see `answer_gathering`, nor
the state on workers, see `..blocks.block_registry`, nor the effects of messages, see `..blocks.block`.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import CancelledError, wait
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import numpy as np

from distkern.errors import ClusterError
from distkern.monitoring.events import BlocksReplayed, EventBus
from distkern.storage.arrays.source import BlockSource

from ..blocks import block_registry as memo
from ..blocks.block_registry import Fence, Refusal
from ..clusters.clients import default_worker_wait
from ..clusters.futures import MAX_MEMORY_ERRORS, is_of_dask, ran_out_of_memory, submit
from ..clusters.step_watch import ASK_SECONDS
from ..clusters.versions import require_one_version
from ..clusters.worker_queries import peak_of_workers
from ..planning.limits import FAN_IN
from ..protocol.answer_checks import AnswerChecks
from ..protocol.answers import Answer
from ..protocol.messages import Message, Query, canonical, message_name
from ..protocol.run_log import SLICE_BYTES, RunLog
from ..runtime.environment import AskFacts, process_facts
from ..runtime.garbage_collection import end_exemption, exempt_present_objects
from ..runtime.threads import tile_pool
from ..runtime.tree_reducer import Node
from .answer_fit import require_fit, whole_answer
from .answer_gathering import Asked, CatchUp, MessageGraph, Summed, trees
from .executor import Executor
from .shipping import shipments
from .worker_pool import Workforce

WORKERS_SECONDS = 1.0
"""Time between two looks at the list of workers while no other signal arrives."""

MAX_REFUSALS = 200
"""Refusals in one round, for each worker, before the run ends: the protocol itself is violated."""

ANSWER_SECONDS = 5.0
"""Most time to wait for answers of workers that a training does not need."""

logger = logging.getLogger(__name__)


@dataclass
class _Round:
    """State of one round: the task to run for every block, and the blocks that have not answered."""

    function: Callable[..., Any]
    """Called with fence, blocks, `version`, `at` and `message`."""
    name: str
    message: Message | Query
    version: int
    """Number of messages that a block must have applied before."""
    at: bytes
    """Hash that names the state after them."""
    todo: set[int]
    """Blocks that have not answered."""
    summed: bool
    """Whether answers may be summed by tasks before they are fetched."""
    pending: dict[Any, CatchUp | Asked] = field(default_factory=dict)
    unassigned: bool = True
    """Whether some blocks may have no task."""
    memory_errors: int = 0
    """Tasks that ran out of memory."""
    began: float = field(default_factory=monotonic)
    """Time of its beginning."""

    def idle(self) -> set[int]:
        """Return the blocks that have not answered and have no task."""
        return self.todo.difference(*(task.blocks for task in self.pending.values()))

    def busy(self) -> set[str]:
        """Return the workers that are catching up."""
        return {task.worker for task in self.pending.values() if isinstance(task, CatchUp)}


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
        With more workers than this, messages and sums of answers pass through trees of workers.
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
        self._checks = AnswerChecks(source, with_factors=with_factors)
        self._n_blocks = len(source.boundaries) - 1
        self._refusals = 0
        self._polled = 0.0
        self._checksums: dict[int, int] = {}
        self._exempting = False
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
            self._exempting = self.n_workers > fan_in and exempt_present_objects()
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
        self._checks.note(message)

        self._staff.rebalance()
        nodes: dict[Node, Answer] = {}
        for part in self._round(memo.run_message, message, version, previous, summed=True):
            nodes.update(canonical_answers(part))
        answer = whole_answer(nodes, message, self._checks, self._n_blocks)
        if answer.load is not None:
            self.expect(answer.load.checksums)
        return answer

    def expect(self, checksums: Mapping[int, int]) -> None:
        """Set the checksums that blocks must read from now on, on every worker."""
        self._checksums.update(checksums)

    def skip(self, message: Message, answer: Answer | None) -> None:
        """Add a message to the log; blocks apply it in their next catch-up."""
        message = canonical(message)
        self._log.append(message)
        self._checks.note(message)
        if answer is not None:
            self._checks.take(answer)
            if answer.load is not None:
                self.expect(answer.load.checksums)

    def query(self, query: Query) -> Answer:
        """Return the answers to a query, which changes no state."""
        self.exchanges += 1
        query = canonical(query)
        self._staff.rebalance()
        answer = Answer()
        for part in self._round(memo.answer_query, query, len(self._log), self._log.hashes[-1]):
            answer.merge(part)
        return answer

    def finish(self) -> None:
        """Do nothing."""

    def peak_rss(self) -> int:
        """Return the largest resident set of the worker processes so far, in bytes; 0 for workers in this process."""
        return peak_of_workers(self._client, self._staff.usable())

    def close(self) -> None:
        """Free the run's memory on every worker."""
        if self._exempting:
            self._exempting = False
            end_exemption()
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
        self,
        function: Callable[..., Any],
        message: Message | Query,
        version: int,
        at: bytes,
        *,
        summed: bool = False,
    ) -> Iterator[Any]:
        """Run the task of a message once for every block; yield the answers in any order."""
        self._refusals = 0
        summed = summed and self.n_workers > self._fan_in
        todo = set(range(self._n_blocks))
        round_ = _Round(function, message_name(message), message, version, at, todo, summed)
        try:
            self._ask(round_)
            while round_.pending or round_.unassigned:
                kind, value = self._next_signal()
                if kind == "done" and value in round_.pending:
                    yield from self._finished(value, round_)
                elif kind == "remove-worker":
                    self._staff.look()
                    self._reassign({value}, round_)
                elif kind == "poll":
                    if monotonic() - round_.began > ASK_SECONDS:
                        self._staff.attend()
                    self._reassign(self._staff.look(), round_)
                    self._polled = monotonic()
                if self._staff.signals.empty():
                    # Blocks of signals that arrived together share a graph.
                    self._ask(round_)
        finally:
            for future in round_.pending:
                future.cancel()

    def _finished(self, future: Any, round_: _Round) -> Iterator[Any]:
        """Process the result of a finished task; yield its answer."""
        task = round_.pending.pop(future)
        try:
            outcome = self._fetch(future, task)
        except MemoryError:
            # The worker drops half-changed blocks, which are rebuilt; another task may have used the memory.
            round_.unassigned = True
            round_.memory_errors += 1
            if round_.memory_errors > MAX_MEMORY_ERRORS:
                raise
            names = ", ".join(sorted(task.workers))
            logger.warning("worker %s ran out of memory in %s; the task runs again", names, round_.name)
            return
        if outcome is _LOST:
            self._staff.look()
            self._reassign(task.workers, round_)
        elif isinstance(task, CatchUp):
            if isinstance(outcome, Refusal):
                self._refused(task.worker, task.blocks, outcome, round_)
            else:
                self._next_step(task, round_)
        else:
            refusals = require_fit(outcome, task, round_.message, self._checks, self._n_blocks)
            for position, (worker, blocks) in enumerate(task.members):
                if position in refusals:
                    self._refused(worker, blocks, refusals[position], round_)
                else:
                    round_.todo.difference_update(blocks)
            if not isinstance(outcome, Refusal):
                yield outcome.nodes if isinstance(outcome, Summed) else outcome

    def _ask(self, round_: _Round) -> None:
        """Send the message to all blocks that have not answered and have no task."""
        if not round_.unassigned:
            return
        round_.unassigned = False
        idle, busy, owned = round_.idle(), round_.busy(), self._staff.owned
        if not idle:
            return

        def call(worker: str, blocks: tuple[int, ...]) -> tuple[Any, ...]:
            return round_.function, self._fence(worker), blocks, round_.version, round_.at

        graph = MessageGraph(round_.name, round_.message, self._n_blocks, self._fan_in, call)
        for tree in trees(list(owned), self._fan_in) if round_.summed else [[worker] for worker in owned]:
            # A tree waits for those of its workers that catch up.
            if busy.isdisjoint(tree):
                parts = [(worker, tuple(block for block in owned[worker] if block in idle)) for worker in tree]
                members = [part for part in parts if part[1]]
                if members:
                    graph.ask(members)
        for future, asked in graph.submit(self._client).items():
            self._expect_result(future, asked, round_)

    def _refused(self, worker: str, blocks: tuple[int, ...], refusal: Refusal, round_: _Round) -> None:
        """Bring blocks up to date that refused a task; those that need nothing get the message again."""
        round_.unassigned = True
        self._refusals += 1
        if self._refusals > MAX_REFUSALS * max(1, self.n_workers):
            raise ClusterError(
                f"workers refused {self._refusals} tasks in one round, the last {blocks} on {worker} ({refusal}); "
                f"another driver may be using run {self._run_id}",
                kind="refused",
            )
        # Blocks in different states get separate chains.
        groups: dict[int, list[int]] = {}
        for block in blocks:
            state = refusal.versions.get(block)
            if state is not None and state != round_.version:
                groups.setdefault(state if state < round_.version else -1, []).append(block)
        for state, behind in groups.items():
            task = CatchUp(worker, tuple(behind), replayed=round_.version - max(state, 0), began=monotonic())
            task.steps = self._catch_up(task, state, round_.version)
            self._next_step(task, round_)

    def _catch_up(self, task: CatchUp, state: int, version: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Yield the steps that bring blocks from `state` (-1: absent) to `version`."""
        fence = self._fence(task.worker)
        if state < 0:
            for blocks, source in shipments(self._source, task.blocks, SLICE_BYTES):
                known = {block: self._checksums[block] for block in blocks if block in self._checksums}
                call = (memo.place_blocks, fence, source, blocks, self._with_factors, *self._memory, known)
                yield "place-blocks", call
            state = 0
        for first, last in self._log.slices(state, version):
            messages = tuple(self._log.messages[first:last])
            yield (
                "replay-log",
                (memo.replay_messages, fence, task.blocks, first, self._log.hashes[first], messages),
            )

    def _next_step(self, task: CatchUp, round_: _Round) -> None:
        """Submit the next task of a chain; blocks at its end get the message with the next graph."""
        step = next(task.steps, None)
        if step is None:
            round_.unassigned = True
            if task.replayed:
                self._events.emit(
                    BlocksReplayed(
                        worker=task.worker,
                        blocks=task.blocks,
                        messages=task.replayed,
                        seconds=monotonic() - task.began,
                    )
                )
            return
        name, (function, _, *arguments) = step
        # The epoch may have risen since the call was built.
        fence = self._fence(task.worker)
        future = submit(self._client, name, function, fence, *arguments, worker=task.worker)
        self._expect_result(future, task, round_)

    def _expect_result(self, future: Any, task: CatchUp | Asked, round_: _Round) -> None:
        round_.pending[future] = task
        future.add_done_callback(lambda done: self._staff.signals.put(("done", done)))

    def _fence(self, worker: str) -> Fence:
        return Fence(
            run_id=self._run_id,
            worker=worker,
            token=(self._incarnation, self._staff.epoch),
            keep=self._staff.owned.get(worker, ()),
            n_blocks=self._n_blocks,
        )

    def _fetch(self, future: Any, task: CatchUp | Asked) -> Any:
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
            if ran_out_of_memory(error):
                raise MemoryError(str(error)) from error
            # An error of dask means that a worker failed; an error of the task itself is raised as it is.
            if is_of_dask(error) or future.status in ("cancelled", "lost"):
                return _LOST
            require_one_version(self._client, error)
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
        for future in [future for future, task in round_.pending.items() if not task.workers.isdisjoint(workers)]:
            del round_.pending[future]
            future.cancel()
        for worker in workers:
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

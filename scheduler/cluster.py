"""The dask executor: one hard-pinned task a worker and exchange, and what happens when a worker is gone.

A round is a set of errands. An errand takes some blocks of one worker through steps (place, replay, message) in order;
a refusal starts it again from what the worker said it has. When a worker leaves, its errands are cancelled, its
blocks get new homes, the placement epoch rises and new errands start. Nothing here changes a number: a block
rebuilt from the log is the block that was lost.

Out of scope: what messages do (`block`, `tiles`), how workers remember (`memo`).
"""

from __future__ import annotations

import asyncio
import logging
import queue
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, wait
from dataclasses import dataclass, field
from itertools import chain
from time import monotonic
from typing import Any

import dask
import numpy as np

from distkern.errors import ClusterError
from distkern.events import BlocksReplayed, EventBus, WorkerLost
from distkern.scheduler import memo, tasks
from distkern.scheduler.answers import Answer
from distkern.scheduler.errands import Errand
from distkern.scheduler.executors import total
from distkern.scheduler.gathering import FAN_IN, Carried, Gatherer, SumErrand
from distkern.scheduler.inline import shipments
from distkern.scheduler.log import SLICE_BYTES, RunLog
from distkern.scheduler.memo import Fence, Refusal
from distkern.scheduler.messages import Message, Query, canonical, message_name
from distkern.scheduler.placement import blocks_of, place, rehome
from distkern.scheduler.reduction import Node
from distkern.scheduler.watch import WorkerWatch
from distkern.scheduler.workers import in_process
from distkern.storage.source import BlockSource

POLL_SECONDS = 1.0
"""How often the list of workers is asked for while nothing else is heard."""

WORKER_WAIT_SECONDS = 60.0
"""How long a run waits for a worker when there is none."""

MAX_DEATHS = 3
"""Worker deaths a block may see before the run ends, lest it kill a cluster."""

MAX_REFUSALS = 200
"""Refusals in one round before something is wrong with the protocol itself."""

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
    pending: dict[Any, Errand | SumErrand] = field(default_factory=dict)
    unassigned: bool = True
    """Whether some blocks may have nothing under way for them."""

    def idle(self) -> set[int]:
        """Blocks that have not answered and that nothing is under way for."""
        busy = {block for errand in self.pending.values() for block in errand.blocks}
        return self.todo - busy - self.gatherer.blocks


class DaskExecutor:
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
    worker_wait : float
        Seconds to wait for a worker when there is none.
    room : int, optional
        Bytes of row matrices that each worker may keep in memory.
    fan_in : int
        With more workers than this, answers are summed by tasks before they are fetched.
    run_id : str, optional
        Name of the run; a new one by default.
    incarnation : int
        Which driver of the run this is; workers refuse one that is older than another they have heard.

    Raises
    ------
    ClusterError
        No worker comes in time, or a block's workers keep dying.
    """

    def __init__(
        self,
        client: Any,
        source: BlockSource,
        events: EventBus,
        *,
        with_factors: bool = True,
        worker_wait: float = WORKER_WAIT_SECONDS,
        room: int | None = None,
        fan_in: int = FAN_IN,
        run_id: str | None = None,
        incarnation: int = 1,
    ) -> None:
        self._client = client
        self._source = source
        self._events = events
        self._with_factors = with_factors
        self._worker_wait = worker_wait
        self._room = room
        self._fan_in = fan_in
        self._run_id = run_id or uuid.uuid4().hex
        self._incarnation = incarnation
        self._log = RunLog()
        self._n_blocks = len(source.boundaries) - 1
        self._epoch = 0
        self._refusals = 0
        self._deaths = dict.fromkeys(range(self._n_blocks), 0)
        self._signals: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._joined = False
        self._leases: dict[str, Any] = {}
        self._homes: dict[int, str] = {}
        self._checksums: dict[int, int] = {}
        WorkerWatch.listen(client, self._on_worker)
        try:
            self._homes = place(self._n_blocks, self._wait_for_workers())
            self._take_leases()
        except BaseException:
            self.close()
            raise

    @property
    def n_workers(self) -> int:
        """Workers that hold blocks now."""
        return len(set(self._homes.values()))

    def exchange(self, message: Message) -> Answer:
        """Send the next message of the log and return the sum of the answers."""
        message = canonical(message)
        version = len(self._log)
        previous = self._log.hashes[-1]
        self._log.append(message)

        carried = Carried(self._client, message) if self.n_workers > self._fan_in else None

        def make(fence: Fence, blocks: tuple[int, ...]) -> tuple[Any, ...]:
            return tasks.run_message, fence, blocks, version, previous, carried.argument if carried else message

        nodes: dict[Node, Answer] = {}
        for part in self._round(make, message_name(message), version, summed=True):
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
        query = canonical(query)
        version, at = len(self._log), self._log.hashes[-1]

        def make(fence: Fence, blocks: tuple[int, ...]) -> tuple[Any, ...]:
            return tasks.answer_query, fence, blocks, version, at, query

        answer = Answer()
        for part in self._round(make, message_name(query), version):
            answer.merge(part)
        return answer

    def peak_rss(self) -> int:
        """Largest resident set of any worker process so far, in bytes; 0 for workers in this process."""
        if in_process(self._client):
            return 0
        return max(self._ask_workers(tasks.peak_rss), default=0)

    def close(self) -> None:
        """Free the run's memory on every worker."""
        WorkerWatch.stop(self._client, self._on_worker)
        leases, self._leases = self._leases, {}
        for worker in leases:
            memo.drop_run(worker, self._run_id)  # workers that are threads of this process, gone or not
        if self._client.status != "running":
            return
        self._ask_workers(tasks.drop_run, self._run_id)
        for lease in leases.values():
            lease.release()

    def _ask_workers(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Call a function on every live worker; a worker that does not answer soon is left out."""
        futures = [
            self._client.submit(
                function,
                *arguments,
                key=f"distkern-{function.__name__}-{uuid.uuid4().hex}",
                workers=[worker],
                allow_other_workers=False,
                pure=False,
            )
            for worker in self._workers()
        ]
        results = []
        deadline = monotonic() + ANSWER_SECONDS
        for future in futures:
            try:
                results.append(future.result(timeout=max(0.0, deadline - monotonic())))
            except Exception:
                logger.info("a worker did not answer %s", function.__name__, exc_info=True)
                future.cancel()
        return results

    def _round(self, make: Make, name: str, version: int, *, summed: bool = False) -> Iterator[Any]:
        """Run the task that `make` builds once for every block; yield the answers as they come."""
        self._rebalance()
        self._refusals = 0
        gatherer = Gatherer(self._homes, self._fan_in)
        round_ = _Round(make, name, version, set(range(self._n_blocks)), gatherer, summed and gatherer.active)
        try:
            self._start_errands(round_)
            while round_.pending:
                kind, value = self._next_signal()
                if kind == "done" and value in round_.pending:
                    yield from self._finished(value, round_)
                elif kind == "remove-worker":
                    self._lose(value, round_)
                elif kind == "poll":
                    for worker in set(self._homes.values()) - set(self._workers()):
                        self._lose(worker, round_)
                self._start_errands(round_)
                if self._signals.empty():
                    self._sum_groups(round_)
        finally:
            for future in round_.pending:
                future.cancel()

    def _finished(self, future: Any, round_: _Round) -> Iterator[Any]:
        """Take a finished task's result; yield what it answers."""
        errand = round_.pending.pop(future)
        if round_.summed and isinstance(errand, Errand) and errand.last and future.status == "finished":
            round_.gatherer.hold(future, errand)
            return
        outcome = self._fetch(future, errand)
        if outcome is _GONE:
            for worker in errand.workers:
                self._lose(worker, round_)
        elif isinstance(errand, SumErrand):
            nodes, refusals = outcome
            for number, (part, member) in enumerate(errand.parts):
                part.release()
                if self._advance(member, refusals.get(number), round_):
                    round_.todo -= set(member.blocks)
            yield nodes
        elif self._advance(errand, outcome, round_):
            round_.todo -= set(errand.blocks)
            yield outcome

    def _start_errands(self, round_: _Round) -> None:
        if not round_.unassigned:
            return
        round_.unassigned = False
        idle = round_.idle()
        for worker in sorted({self._homes[block] for block in idle}):
            blocks = tuple(sorted(block for block in idle if self._homes[block] == worker))
            self._submit(Errand(worker, blocks), round_.name, round_.make(self._fence(worker), blocks), round_)

    def _sum_groups(self, round_: _Round) -> None:
        """Have the answers of complete groups summed by one of their workers."""
        round_.gatherer.homes = self._homes
        errands = [errand for errand in round_.pending.values() if isinstance(errand, Errand)]
        for errand in round_.gatherer.complete(errands):
            answers = [future for future, _ in errand.parts]
            self._submit(errand, "sum-answers", (tasks.sum_answers, self._n_blocks, answers), round_)

    def _advance(self, errand: Errand, outcome: Any, round_: _Round) -> bool:
        """Take an errand's result; return whether it was the answer."""
        version = round_.version
        if isinstance(outcome, Refusal):
            self._refusals += 1
            if self._refusals > MAX_REFUSALS * max(1, self.n_workers):
                raise ClusterError(
                    f"workers refused {self._refusals} tasks in one round, the last {errand.blocks} on "
                    f"{errand.worker} ({outcome}); another driver may be using run {self._run_id}",
                    kind="refused",
                )
            round_.unassigned = True
            # Blocks in different states go separate ways; those that are well wait for the next message task.
            groups: dict[int, list[int]] = {}
            for block in errand.blocks:
                state = outcome.versions.get(block, version if not outcome.stale else None)
                if state is not None:
                    groups.setdefault(state if state <= version else -1, []).append(block)
            for state, blocks in groups.items():
                part = Errand(errand.worker, tuple(blocks))
                message = (round_.name, round_.make(self._fence(part.worker), part.blocks))
                part.steps = chain(self._catch_up(part, state, version), [message])
                self._submit(part, *next(part.steps), round_)
            return False
        step = next(errand.steps, None)
        if step is not None:
            self._submit(errand, *step, round_)
            return False
        if errand.replayed:
            self._events.emit(BlocksReplayed(worker=errand.worker, blocks=errand.blocks, messages=errand.replayed))
        return True

    def _catch_up(self, errand: Errand, state: int, version: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Steps that bring blocks from `state` (-1: absent) to `version`."""
        fence = self._fence(errand.worker)
        if state < 0:
            for blocks, source in shipments(self._source, errand.blocks, SLICE_BYTES):
                known = {block: self._checksums[block] for block in blocks if block in self._checksums}
                call = (tasks.place_blocks, fence, source, blocks, self._with_factors, self._room, known)
                yield "place-blocks", call
            state = 0
        errand.replayed = version - state
        for first, last in self._log.slices(state, version):
            messages = tuple(self._log.messages[first:last])
            yield (
                "replay-log",
                (tasks.replay_messages, fence, errand.blocks, first, self._log.hashes[first], messages),
            )

    def _submit(self, errand: Errand | SumErrand, name: str, call: tuple[Any, ...], round_: _Round) -> None:
        function, first, *arguments = call
        # The epoch may have risen since the call was made.
        first = self._fence(errand.worker) if isinstance(first, Fence) else first
        errand.last = name == round_.name
        # A message is a few MB at most; dask's advice about large graphs is for data in graphs.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
            future = self._client.submit(
                function,
                first,
                *arguments,
                key=f"{name}-{uuid.uuid4().hex}",
                workers=[errand.worker],
                allow_other_workers=False,
                pure=False,
            )
        round_.pending[future] = errand
        future.add_done_callback(lambda done: self._signals.put(("done", done)))

    def _fence(self, worker: str) -> Fence:
        return Fence(
            run_id=self._run_id,
            worker=worker,
            token=(self._incarnation, self._epoch),
            keep=blocks_of(self._homes, worker),
            n_blocks=self._n_blocks,
        )

    def _fetch(self, future: Any, errand: Errand | SumErrand) -> Any:
        """Fetch a finished task's result, unless its worker leaves meanwhile."""
        # A timeout of dask's own would cancel the transfer, and a large reply would never arrive.
        transfer = asyncio.run_coroutine_threadsafe(
            self._client.gather(future, asynchronous=True), self._client.loop.asyncio_loop
        )
        while not wait([transfer], timeout=POLL_SECONDS).done:
            if not errand.workers <= set(self._workers()):
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

    def _lose(self, worker: str, round_: _Round | None) -> None:
        """Cancel a lost worker's errands and give its blocks new homes."""
        blocks = blocks_of(self._homes, worker)
        if round_ is not None:
            round_.unassigned = True
            round_.gatherer.forget(worker)
            for future in [f for f, errand in round_.pending.items() if worker in errand.workers]:
                del round_.pending[future]
                future.cancel()
        if worker in self._workers():
            # It answers to the scheduler but lost a result: its memory may be fine, the task is simply sent again.
            return
        self._leases.pop(worker, None)
        memo.drop_run(worker, self._run_id)  # its memory is in this process where workers are threads
        if not blocks:
            return
        self._events.emit(WorkerLost(worker=worker, blocks=blocks))
        for block in blocks:
            self._deaths[block] += 1
            if self._deaths[block] > MAX_DEATHS:
                raise ClusterError(
                    f"{self._deaths[block]} workers died while they looked after block {block} (limit {MAX_DEATHS}); "
                    "look at the workers' logs, often their memory limit is too low",
                    kind="workers-dying",
                )
        self._homes = rehome(self._homes, worker, self._wait_for_workers())
        self._epoch += 1
        self._take_leases()

    def _rebalance(self) -> None:
        """Between rounds, share the blocks among all workers if some have joined."""
        while not self._signals.empty():
            kind, value = self._signals.get()
            if kind == "remove-worker":
                self._lose(value, None)
        if not self._joined:
            return
        self._joined = False
        workers = self._wait_for_workers()
        if set(workers) - set(self._homes.values()) and len(set(self._homes.values())) < self._n_blocks:
            self._homes = place(self._n_blocks, workers, self._homes)
            self._epoch += 1
            self._take_leases()

    def _next_signal(self) -> tuple[str, Any]:
        try:
            return self._signals.get(timeout=POLL_SECONDS)
        except queue.Empty:
            return "poll", None

    def _on_worker(self, action: str, worker: str) -> None:
        if action == "add-worker":
            self._joined = True
        else:
            self._signals.put((action, worker))

    def _workers(self) -> list[str]:
        return list(self._client.scheduler_info(n_workers=-1)["workers"])

    def _wait_for_workers(self) -> list[str]:
        deadline = monotonic() + self._worker_wait
        while True:
            workers = self._workers()
            if workers:
                return sorted(workers)
            if monotonic() > deadline:
                raise ClusterError(
                    f"no worker joined the cluster within {self._worker_wait:g} s: start workers and train again",
                    kind="no-workers",
                )
            try:
                self._client.wait_for_workers(1, timeout=POLL_SECONDS)
            except TimeoutError:
                continue

    def _take_leases(self) -> None:
        for worker in set(self._homes.values()) - set(self._leases):
            self._leases[worker] = self._client.submit(
                tasks.hold_lease,
                self._run_id,
                worker,
                key=f"distkern-lease-{uuid.uuid4().hex}",
                workers=[worker],
                allow_other_workers=False,
                pure=False,
            )


_GONE = object()


def canonical_answers(nodes: dict[Node, Answer]) -> dict[Node, Answer]:
    """Make the arrays of received answers aligned, contiguous and writable."""
    for answer in nodes.values():
        for problem in answer.problems:
            for name, array in problem.sums.items():
                problem.sums[name] = np.require(array, requirements=["C", "A", "W"])
    return nodes

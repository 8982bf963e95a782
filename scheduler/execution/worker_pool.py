"""The workers of one run: usable workers, owners of blocks, and the number of failures of each block's owners.

A worker is usable if it is on the cluster, runs (it is neither paused nor retired by dask), answers, makes progress,
and has the versions of the driver. When a worker is not usable any more, its blocks are reassigned; it rejoins when it
is usable again.

Covers neither tasks nor the times of looks, see `dask_executor`, nor signs of life and of progress, see
`..clusters.liveness` and `..clusters.step_watch`.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from time import monotonic, sleep
from typing import Any, Literal, TypeVar, cast

from distkern.errors import ClusterError
from distkern.monitoring.events import EventBus, WorkerLost, WorkerRefused, WorkersAwaited
from distkern.storage import RetryPolicy

from ..blocks import block_registry as memo
from ..clusters.clients import keep_local_workers
from ..clusters.futures import submit
from ..clusters.held_messages import LongWait
from ..clusters.liveness import Liveness, ping_through
from ..clusters.placement import owned, place, reassign
from ..clusters.step_watch import StepWatch
from ..clusters.worker_events import WorkerWatch
from ..clusters.worker_queries import require_requested_workers, workers_of
from ..runtime.environment import AskFacts, Difference, Facts, difference, process_facts
from ..runtime.timings import Activity, activity

T = TypeVar("T")

MAX_DEATHS = 3
"""Failures of a block's owners before the run ends, so that one block cannot end all workers of a cluster."""

FACTS_SECONDS = 30.0
"""Most time to wait for the versions of workers at the start; they may have to import distkern first."""

JOIN_SECONDS = 5.0
"""Most time that a round waits for the versions of a worker that has just joined; later it joins a later round."""

SETTLE_SECONDS = 0.2
"""Time to wait after a failure, so that blocks are not reassigned to workers that failed at the same time."""

LOOK_SECONDS = 0.1
"""Time between two looks at the list of workers while the run waits for workers."""

AWAY_SECONDS = 1.0
"""Time between two looks for a failed worker that is usable again."""

STUCK_SECONDS = 600.0
"""Longest time without a step of a worker that has work, beyond the longest time of a read with all its attempts."""

Reason = Literal["left", "retired", "paused", "frozen", "stuck"]
"""Why a worker is not usable: it left, dask retires or paused it, it does not answer, or makes no progress."""

logger = logging.getLogger(__name__)


class Workforce:
    """Workers of one run.

    Parameters
    ----------
    client : distributed.Client
        The cluster.
    events : EventBus
        Receives events of workers that fail, are refused, or are awaited.
    run_id : str
        Name of the run on the workers.
    incarnation : int
        Number of this driver of the run.
    n_blocks : int
        Number of blocks of the run.
    worker_wait : float
        Seconds to wait for a worker when none is usable.
    ask_facts : callable
        Returns the facts that driver and workers must share; the versions of a process by default.
    """

    def __init__(
        self,
        client: Any,
        events: EventBus,
        run_id: str,
        incarnation: int,
        n_blocks: int,
        *,
        worker_wait: float,
        ask_facts: AskFacts = process_facts,
    ) -> None:
        self.signals: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        """Workers that left, as ("remove-worker", address); the executor adds its own signals."""
        self._owners: dict[int, str] = {}
        self.owned: dict[str, tuple[int, ...]] = {}
        """Address to the blocks that a worker owns, in the order of the blocks."""
        self.epoch = 0
        """Number of the assignment; it rises whenever owners change."""
        self._client = client
        self._events = events
        self._run_id = run_id
        self._incarnation = incarnation
        self._n_blocks = n_blocks
        self._worker_wait = worker_wait
        self._ask_facts = ask_facts
        self._liveness = Liveness(ping_through(client))
        self._steps = StepWatch(self._ask_activity, RetryPolicy.default().longest_read + STUCK_SECONDS)
        self._long_wait = LongWait(client)
        self._deaths = dict.fromkeys(range(n_blocks), 0)
        self._leases: dict[str, Any] = {}
        self._status: dict[str, str] = {}
        self._threads: dict[str, int] = {}
        self._facts: dict[str, Future[Facts]] = {}
        self._refused: dict[str, Difference] = {}
        self._expected: set[str] = set()
        self._departed: dict[str, Reason] = {}
        """Workers that left, with the reason: another process may have joined under the same address since."""
        self._compared: set[str] = set()
        self._usable: set[str] = set()
        self._arrived = False
        self._joined = False
        self._news = threading.Event()
        self._looked = 0.0

    @property
    def owners(self) -> dict[int, str]:
        """Block to the address of its owner."""
        return self._owners

    @owners.setter
    def owners(self, owners: dict[int, str]) -> None:
        self._owners, self.owned = owners, owned(owners)

    @property
    def busy(self) -> set[str]:
        """Workers that own blocks."""
        return set(self.owned)

    @property
    def n_threads(self) -> int:
        """Threads of those workers, at the last look."""
        return sum(self._threads.get(worker, 1) for worker in self.busy)

    def start(self) -> None:
        """Wait for workers, compare versions, and assign every block to an owner.

        Raises
        ------
        ClusterError
            ``no-workers``: none joins in time. ``version-mismatch``: one differs from this process.
        """
        keep_local_workers(self._client)
        WorkerWatch.listen(self._client, self._on_worker)
        self._wait()
        self._await_facts(FACTS_SECONDS)
        self.owners = place(self._n_blocks, self._wait())
        self._joined = False
        self._take_leases()

    def close(self) -> None:
        """Remove the listener, and free the memory of the run on the workers."""
        WorkerWatch.stop(self._client, self._on_worker)
        self._liveness.close()
        self._steps.close()
        for asked in self._facts.values():
            asked.cancel()
        leases, self._leases = self._leases, {}
        for worker in leases:
            # Workers may be threads of this process, whose memory must be freed even after they left.
            memo.drop_run(worker, self._run_id, self._incarnation)
        if self._client.status == "running":
            for lease in leases.values():
                lease.release()

    def look(self) -> set[str]:
        """Query the scheduler for the workers; return owners of blocks that are not usable any more."""
        found = workers_of(self._client)
        self._looked = monotonic()
        self._status = {worker: facts["status"] for worker, facts in found.items()}
        self._threads = {worker: int(facts["nthreads"]) for worker, facts in found.items()}
        self._liveness.look({worker: facts["last_seen"] for worker, facts in found.items()})
        if self._steps.stuck:
            self._steps.look(self.busy)  # the run may be waiting for them
        for worker in set(self._facts) - set(found):
            self._forget(worker)
        for worker in set(found) - set(self._facts):
            self._facts[worker] = self._inquire(worker)
        for worker in list(self._facts):
            self._compare(worker)
        before, self._usable = self._usable, set(self.usable())
        self._joined = self._joined or not self._usable <= before
        return {worker for worker in self.busy if self.trouble(worker) is not None}

    def trouble(self, worker: str) -> Reason | None:
        """Return the reason for which a worker is not usable, at the last look; None if there is none."""
        status = self._status.get(worker)
        if status is None:
            return "retired" if worker in self._expected else "left"
        if status == "paused":
            return "paused"
        if status != "running":
            return "retired" if status == "closing_gracefully" else "left"
        if worker in self._liveness.frozen:
            return "frozen"
        return "stuck" if worker in self._steps.stuck else None

    def attend(self) -> None:
        """In a round that lasts, ask the cluster for messages that are held back, and the owners for their progress."""
        self._long_wait.look()
        self._steps.look(self.busy)

    def usable(self) -> list[str]:
        """Return the workers that may own blocks, at the last look."""
        return sorted(
            worker for worker in self._compared if self.trouble(worker) is None and worker not in self._refused
        )

    def reassign(self, worker: str) -> None:
        """Reassign the blocks of a worker that is not usable; wait for a worker if there is none."""
        reason = self.trouble(worker)
        if reason is None and worker in self._departed:
            # Another process, maybe of another version, has joined under its address.
            reason = self._departed[worker]
            self._forget(worker)
        self._departed.pop(worker, None)
        if reason is None:
            return
        blocks = self.owned.get(worker, ())
        self._leases.pop(worker, None)
        # The memory is in this process where workers are threads.
        memo.drop_run(worker, self._run_id, self._incarnation)
        if not blocks:
            return
        self._events.emit(WorkerLost(worker=worker, blocks=blocks, reason=reason))
        if reason == "left":
            self._count_deaths(blocks)
            sleep(SETTLE_SECONDS)
        self.owners = reassign(self.owners, worker, self._wait())
        self.epoch += 1
        self._take_leases()

    def rebalance(self) -> None:
        """Between rounds: reassign the blocks of workers that left, and assign blocks to workers that joined."""
        while not self.signals.empty():
            kind, worker = self.signals.get()
            if kind == "remove-worker":
                self.look()
                self.reassign(worker)
        arrived, self._arrived = self._arrived, False
        if not arrived and not (self._absent() and monotonic() - self._looked > AWAY_SECONDS):
            return
        for worker in self._await_facts(JOIN_SECONDS if arrived else 0.0):
            self.reassign(worker)
        if not self._joined:
            return
        self._joined = False
        if self._usable - self.busy and len(self.busy) < self._n_blocks:
            self.owners = place(self._n_blocks, sorted(self._usable), self.owners)
            self.epoch += 1
            self._take_leases()

    def _on_worker(self, action: str, worker: str, expected: bool) -> None:
        if action == "add-worker":
            self._expected.discard(worker)
            self._arrived = True
        else:
            if expected:
                self._expected.add(worker)
            self._departed[worker] = "retired" if expected else "left"
            self.signals.put((action, worker))
        self._news.set()

    def _wait(self) -> list[str]:
        """Wait for usable workers and return them."""
        self.look()
        if not self.usable() and not self._unanswered():
            if not self._status:
                require_requested_workers(self._client)
                # A client of an address does not know whether its cluster adapts.
                logger.warning(
                    "the cluster has no workers: waiting up to %g s for one; an adaptive cluster needs a minimum, "
                    "adapt(minimum=n), or scale(n)",
                    self._worker_wait,
                )
            self._events.emit(WorkersAwaited(seconds=self._worker_wait, unusable=tuple(self._unusable())))
        deadline = monotonic() + self._worker_wait
        while not self.usable():
            if monotonic() > deadline:
                unusable = ", ".join(f"{worker} {why}" for worker, why in self._unusable().items())
                raise ClusterError(
                    f"no worker was usable within {self._worker_wait:g} s ({unusable or 'the cluster has none'}): "
                    "start workers (an adaptive cluster needs a minimum of them) and train again, or wait longer "
                    "([cluster] wait, distkern.worker-wait in dask's configuration)",
                    kind="no-workers",
                )
            self._pause()
            self.look()
        return self.usable()

    def _await_facts(self, seconds: float) -> set[str]:
        """Look until the versions of all workers are there, or the time is up; return the result of the last look."""
        lost, deadline = self.look(), monotonic() + seconds
        while self._unanswered() and monotonic() < deadline:
            self._pause()
            lost = self.look()
        return lost

    def _pause(self) -> None:
        self._news.wait(LOOK_SECONDS)
        self._news.clear()

    def _unanswered(self) -> list[str]:
        """Return the workers that would be usable if their versions were known."""
        return [worker for worker in self._facts if worker not in self._compared and self.trouble(worker) is None]

    def _absent(self) -> set[str]:
        """Return the workers on the cluster that may become usable."""
        return set(self._status) - self._usable - set(self._refused)

    def _unusable(self) -> dict[str, str]:
        """Return each worker of the cluster that is not usable, with the reason."""
        refused = {worker: f"differs: {found}" for worker, found in self._refused.items()}
        absent = {worker: f"is {self.trouble(worker) or 'silent'}" for worker in self._absent()}
        return dict(sorted({**absent, **refused}.items()))

    def _forget(self, worker: str) -> None:
        """Drop the versions of a worker, which are then queried again."""
        if worker in self._facts:
            self._facts.pop(worker).cancel()
        self._compared.discard(worker)
        self._refused.pop(worker, None)
        self._steps.forget(worker)

    def _inquire(self, worker: str) -> Future[Facts]:
        """Query a worker for its facts, on its event loop: its threads may be busy for long."""

        async def ask() -> Facts:
            try:
                answer = await self._call(self._ask_facts, worker)
            finally:
                self._news.set()
            if isinstance(answer, OSError):
                raise answer
            # Most likely the worker cannot import distkern, or this part of it.
            return {"distkern": f"unusable ({answer})"} if isinstance(answer, Exception) else answer

        return asyncio.run_coroutine_threadsafe(ask(), self._client.loop.asyncio_loop)

    def _ask_activity(self, worker: str) -> Future[Activity | Exception]:
        return asyncio.run_coroutine_threadsafe(self._call(activity, worker), self._client.loop.asyncio_loop)

    async def _call(self, function: Callable[[], T], worker: str) -> T | Exception:
        """Call a function on the event loop of a worker; return its result or its error."""
        answers = await self._client.run(function, workers=[worker], on_error="return", asynchronous=True)
        return cast(T | Exception, answers[worker])

    def _compare(self, worker: str) -> None:
        """Compare the facts of a worker with those of this process, once they have arrived."""
        answer = self._facts[worker]
        if worker in self._compared or not answer.done():
            return
        try:
            found = difference(self._ask_facts(), answer.result())
        except (Exception, CancelledError):
            logger.info("worker %s did not answer with its versions", worker, exc_info=True)
            del self._facts[worker]  # the next look queries it again, if it is still on the cluster
            return
        self._compared.add(worker)
        if found is None:
            return
        self._refused[worker] = found
        if not self.owners:
            raise ClusterError(
                f"worker {worker} cannot take part: {found}, and the model could not have the same bits; give workers "
                "and driver the same environment and kind of processor, or use other workers",
                kind="version-mismatch",
            )
        self._events.emit(WorkerRefused(worker=worker, what=found.what, driver=found.driver, found=found.worker))

    def _count_deaths(self, blocks: tuple[int, ...]) -> None:
        for block in blocks:
            self._deaths[block] += 1
            if self._deaths[block] > MAX_DEATHS:
                raise ClusterError(
                    f"{self._deaths[block]} workers failed while they owned block {block} (limit {MAX_DEATHS}); "
                    "look at the workers' logs, often their memory limit is too low",
                    kind="workers-dying",
                )

    def _take_leases(self) -> None:
        for worker in self.busy - set(self._leases):
            lease = memo.Lease, worker, self._run_id, self._incarnation
            self._leases[worker] = submit(self._client, "distkern-lease", *lease, worker=worker)

"""The workers of one run: which can be used, which look after which blocks, and how often blocks lost theirs.

A worker is used if it is on the cluster, runs (dask may have paused it, or be retiring it), answers, and has the
versions of the driver. One that stops being so loses its blocks to others, and counts as joined once it is so again.

Out of scope: tasks, and when to look (`cluster`); what a sign of life is (`liveness`).
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from concurrent.futures import CancelledError, Future
from time import monotonic, sleep
from typing import Any, Literal

from distkern.errors import ClusterError
from distkern.monitoring.events import EventBus, WorkerLost, WorkerRefused, WorkersAwaited

from ..blocks import block_registry as memo
from ..clusters.clients import keep_local_workers
from ..clusters.futures import submit
from ..clusters.liveness import Liveness, ping_through
from ..clusters.placement import blocks_of, place, rehome
from ..clusters.worker_events import WorkerWatch
from ..clusters.worker_queries import workers_of
from ..runtime.environment import AskFacts, Difference, Facts, difference, process_facts

MAX_DEATHS = 3
"""Worker deaths a block may see before the run ends, lest it kill a cluster."""

FACTS_SECONDS = 30.0
"""How long workers may take to tell their versions at the start; they may have to import distkern first."""

JOIN_SECONDS = 5.0
"""How long a round is held up for the versions of a worker that has just joined; later ones are for a later round."""

SETTLE_SECONDS = 0.2
"""How long after a death others that died with it may take to be noticed; blocks would only move to them."""

LOOK_SECONDS = 0.1
"""How often the list of workers is asked for while there is nothing else to do."""

AWAY_SECONDS = 1.0
"""How often a run that has enough workers looks whether one that it lost is back."""

Reason = Literal["left", "retired", "paused", "frozen"]
"""Why a worker cannot be used: it was killed or left, dask retires it, dask paused it, it does not answer."""

logger = logging.getLogger(__name__)


class Workforce:
    """Workers of one run.

    Parameters
    ----------
    client : distributed.Client
        The cluster.
    events : EventBus
        Told of workers that are lost, refused or waited for.
    run_id : str
        Name of the run on the workers.
    incarnation : int
        Which driver of the run this is.
    n_blocks : int
        Blocks of the run.
    worker_wait : float
        Seconds to wait for a worker when none can be used.
    ask_facts : callable
        What driver and workers must have in common, found on each.
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
        """Workers that are gone, as ("remove-worker", address); others may put their own here."""
        self.homes: dict[int, str] = {}
        """Block to the worker that looks after it."""
        self.epoch = 0
        """Raised whenever homes change."""
        self._client = client
        self._events = events
        self._run_id = run_id
        self._incarnation = incarnation
        self._n_blocks = n_blocks
        self._worker_wait = worker_wait
        self._ask_facts = ask_facts
        self._liveness = Liveness(ping_through(client))
        self._deaths = dict.fromkeys(range(n_blocks), 0)
        self._leases: dict[str, Any] = {}
        self._status: dict[str, str] = {}
        self._threads: dict[str, int] = {}
        self._facts: dict[str, Future[Facts]] = {}
        self._refused: dict[str, Difference] = {}
        self._expected: set[str] = set()
        self._departed: set[str] = set()
        self._judged: set[str] = set()
        self._usable: set[str] = set()
        self._arrived = False
        self._joined = False
        self._news = threading.Event()
        self._looked = 0.0

    @property
    def busy(self) -> set[str]:
        """Workers that look after blocks."""
        return set(self.homes.values())

    @property
    def n_threads(self) -> int:
        """Threads of those workers, as of the last look."""
        return sum(self._threads.get(worker, 1) for worker in self.busy)

    def start(self) -> None:
        """Wait for workers, compare versions, and give every block a home.

        Raises
        ------
        ClusterError
            ``no-workers``: none comes in time. ``version-mismatch``: one differs from this process.
        """
        keep_local_workers(self._client)
        WorkerWatch.listen(self._client, self._on_worker)
        self._wait()
        self._await_facts(FACTS_SECONDS)
        self.homes = place(self._n_blocks, self._wait())
        self._joined = False
        self._take_leases()

    def close(self) -> None:
        """Stop watching, and let go of the run's memory on the workers."""
        WorkerWatch.stop(self._client, self._on_worker)
        self._liveness.close()
        for asked in self._facts.values():
            asked.cancel()
        leases, self._leases = self._leases, {}
        for worker in leases:
            memo.drop_run(
                worker, self._run_id, self._incarnation
            )  # workers that are threads of this process, gone or not
        if self._client.status == "running":
            for lease in leases.values():
                lease.release()

    def look(self) -> set[str]:
        """Ask the scheduler for the workers; return those with blocks that cannot be used any more."""
        found = workers_of(self._client)
        self._looked = monotonic()
        self._status = {worker: facts["status"] for worker, facts in found.items()}
        self._threads = {worker: int(facts["nthreads"]) for worker, facts in found.items()}
        self._liveness.look({worker: facts["last_seen"] for worker, facts in found.items()})
        for worker in set(self._facts) - set(found):
            self._forget(worker)
        for worker in set(found) - set(self._facts):
            self._facts[worker] = self._inquire(worker)
        for worker in list(self._facts):
            self._judge(worker)
        before, self._usable = self._usable, set(self.usable())
        self._joined = self._joined or not self._usable <= before
        return {worker for worker in self.busy if self.trouble(worker) is not None}

    def trouble(self, worker: str) -> Reason | None:
        """Say why a worker cannot be used, as of the last look; None if nothing is known against it."""
        status = self._status.get(worker)
        if status is None:
            return "retired" if worker in self._expected else "left"
        if status == "paused":
            return "paused"
        if status != "running":
            return "retired" if status == "closing_gracefully" else "left"
        return "frozen" if worker in self._liveness.frozen else None

    def usable(self) -> list[str]:
        """Workers that blocks may be given to, as of the last look."""
        return sorted(worker for worker in self._judged if self.trouble(worker) is None and worker not in self._refused)

    def lose(self, worker: str) -> None:
        """Give the blocks of a worker that cannot be used new homes, waiting for one if there must be."""
        reason = self.trouble(worker)
        if reason is None and worker in self._departed:
            reason = "left"  # and another process is there under its address
            self._forget(worker)
        self._departed.discard(worker)
        if reason is None:
            return
        blocks = blocks_of(self.homes, worker)
        self._leases.pop(worker, None)
        # Its memory is in this process where workers are threads.
        memo.drop_run(worker, self._run_id, self._incarnation)
        if not blocks:
            return
        self._events.emit(WorkerLost(worker=worker, blocks=blocks, reason=reason))
        if reason == "left":
            self._count_deaths(blocks)
            sleep(SETTLE_SECONDS)
        self.homes = rehome(self.homes, worker, self._wait())
        self.epoch += 1
        self._take_leases()

    def rebalance(self) -> None:
        """Between rounds: replace workers that are gone, and share the blocks with those that have joined."""
        while not self.signals.empty():
            kind, worker = self.signals.get()
            if kind == "remove-worker":
                self.look()
                self.lose(worker)
        arrived, self._arrived = self._arrived, False
        if not arrived and not (self._absent() and monotonic() - self._looked > AWAY_SECONDS):
            return
        for worker in self._await_facts(JOIN_SECONDS if arrived else 0.0):
            self.lose(worker)
        if not self._joined:
            return
        self._joined = False
        if self._usable - self.busy and len(self.busy) < self._n_blocks:
            self.homes = place(self._n_blocks, sorted(self._usable), self.homes)
            self.epoch += 1
            self._take_leases()

    def _on_worker(self, action: str, worker: str, expected: bool) -> None:
        if action == "add-worker":
            self._expected.discard(worker)
            self._arrived = True
        else:
            (self._expected if expected else self._departed).add(worker)
            self.signals.put((action, worker))
        self._news.set()

    def _wait(self) -> list[str]:
        """Return the workers that can be used, once there are any."""
        self.look()
        if not self.usable() and not self._unanswered():
            self._events.emit(WorkersAwaited(seconds=self._worker_wait, unusable=tuple(self._unusable())))
        deadline = monotonic() + self._worker_wait
        while not self.usable():
            if monotonic() > deadline:
                unusable = ", ".join(f"{worker} {why}" for worker, why in self._unusable().items())
                raise ClusterError(
                    f"no worker could be used within {self._worker_wait:g} s ({unusable or 'the cluster has none'}): "
                    "start workers and train again, or wait longer ([cluster] wait, distkern.worker-wait in dask's "
                    "configuration)",
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
        """Workers that could be used if their versions were known."""
        return [worker for worker in self._facts if worker not in self._judged and self.trouble(worker) is None]

    def _absent(self) -> set[str]:
        """Workers that are on the cluster and may become usable."""
        return set(self._status) - self._usable - set(self._refused)

    def _unusable(self) -> dict[str, str]:
        """Why each worker of the cluster that cannot be used cannot."""
        refused = {worker: f"differs in {found.what}" for worker, found in self._refused.items()}
        absent = {worker: f"is {self.trouble(worker) or 'silent'}" for worker in self._absent()}
        return dict(sorted({**absent, **refused}.items()))

    def _forget(self, worker: str) -> None:
        """Have a worker asked for its versions anew."""
        if worker in self._facts:
            self._facts.pop(worker).cancel()
        self._judged.discard(worker)
        self._refused.pop(worker, None)

    def _inquire(self, worker: str) -> Future[Facts]:
        """Ask a worker for its facts, on its event loop: its threads may be busy for long."""

        async def ask() -> Facts:
            try:
                answers = await self._client.run(
                    self._ask_facts, workers=[worker], on_error="return", asynchronous=True
                )
            finally:
                self._news.set()
            answer = answers[worker]
            if isinstance(answer, OSError):
                raise answer
            # Most likely it cannot import distkern, or this part of it.
            return {"distkern": f"unusable ({answer})"} if isinstance(answer, Exception) else answer

        return asyncio.run_coroutine_threadsafe(ask(), self._client.loop.asyncio_loop)

    def _judge(self, worker: str) -> None:
        """Compare a worker's facts with this process's, if they are there and were not compared before."""
        answer = self._facts[worker]
        if worker in self._judged or not answer.done():
            return
        try:
            found = difference(self._ask_facts(), answer.result())
        except (Exception, CancelledError):
            logger.info("worker %s did not tell its versions", worker, exc_info=True)
            del self._facts[worker]  # it is asked again, if it is still there
            return
        self._judged.add(worker)
        if found is None:
            return
        self._refused[worker] = found
        if not self.homes:
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
                    f"{self._deaths[block]} workers died while they looked after block {block} (limit {MAX_DEATHS}); "
                    "look at the workers' logs, often their memory limit is too low",
                    kind="workers-dying",
                )

    def _take_leases(self) -> None:
        for worker in self.busy - set(self._leases):
            lease = memo.Lease, worker, self._run_id, self._incarnation
            self._leases[worker] = submit(self._client, "distkern-lease", *lease, worker=worker)

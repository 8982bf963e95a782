"""Executors on top of another: events of exchanges, and factors in the driver instead of with their rows.

With factors in either place the driver loop calls one `exchange`, and the arithmetic on a tile is the same code in the
same shapes, so the model has the same bits. The layer that records exchanges is in `..training.run_record`.
"""

from __future__ import annotations

from dataclasses import replace
from time import monotonic, perf_counter

import numpy as np

from distkern.monitoring.events import WAITING, EventBus, ExchangeDone
from distkern.storage import ReadReport
from distkern.storage.arrays.source import BlockSource

from ..protocol.answers import Answer, CandidateRows
from ..protocol.messages import PASSIVE, Columns, Compare, FetchRows, KernelColumns, Message, Step, message_name
from ..runtime.spillable_matrix import MemoryBudget
from ..runtime.timings import Costs, ProcessMemory
from .executor import Executor, SerialExecutor

MEMORY_SECONDS = 2.0
"""Least time between two events with the memory of workers, up to `MEMORY_WORKERS`; longer in proportion with more."""

MEMORY_WORKERS = 50
"""So the records of events, and what the dashboard receives, do not grow with the number of workers."""


class AnnouncingExecutor(Executor):
    """Emits an event for every exchange.

    Parameters
    ----------
    below : Executor
        Executor that sends the messages.
    events : EventBus
        Receives the events.
    planned : int
        Planned peak bytes of a process that holds blocks; 0, for unknown, by default.
    part : str
        Part of the run: ``training`` (default) or ``search``.
    """

    def __init__(self, below: Executor, events: EventBus, planned: int = 0, part: str = "training") -> None:
        super().__init__(below)
        self._events = events
        self._planned = planned
        self._part = part
        self._memory_sent = -MEMORY_SECONDS
        self._seen: dict[str, ProcessMemory] = {}

    def exchange(self, message: Message) -> Answer:
        """Send the next message."""
        before, started = self.exchanges, perf_counter()
        answer = self._below.exchange(message)
        seconds = perf_counter() - started
        self._events.emit(
            ExchangeDone(
                name=message_name(message),
                seconds=seconds,
                exchanges=self.exchanges - before,
                bytes_read=answer.bytes_read + (0 if answer.load is None else answer.load.bytes_read),
                part=self._part,
                busy=self._busy(answer.costs, seconds),
                memory=self._memory(answer.costs),
            )
        )
        return answer

    def _busy(self, costs: Costs, seconds: float) -> dict[str, float]:
        """Return the seconds of threads by phase, with all other seconds as waiting."""
        if not costs.busy:
            return {}  # the answer comes from the record
        waiting = self.n_threads * seconds - sum(costs.busy.values())
        return {phase: round(took, 6) for phase, took in {**costs.busy, WAITING: max(0.0, waiting)}.items()}

    def _memory(self, costs: Costs) -> dict[str, dict[str, int]]:
        """Return the bytes of every worker, if `MEMORY_SECONDS` have passed since the last ones."""
        now = monotonic()
        self._seen.update(costs.memory)
        pause = MEMORY_SECONDS * max(1.0, len(self._seen) / MEMORY_WORKERS)
        if not self._seen or now - self._memory_sent < pause:
            return {}
        self._memory_sent = now
        seen, self._seen = self._seen, {}
        return {worker: {**vars(found), "planned": self._planned} for worker, found in seen.items()}


class DriverFactors(Executor):
    """`factors="driver"`: workers compute kernel columns, this process holds Q and E.

    Parameters
    ----------
    below : Executor
        Workers with the features.
    source : BlockSource
        The same rows; this process reads targets and weights only.
    budget : MemoryBudget, optional
        Memory for Q and the pool in this process; unlimited by default.
    """

    def __init__(self, below: Executor, source: BlockSource, budget: MemoryBudget | None = None) -> None:
        super().__init__(below)
        self._local = SerialExecutor(source, with_features=False, budget=budget)
        self._n_rows = source.n_rows
        self._skipped: list[Step] = []

    @property
    def n_threads(self) -> int:
        """Number of threads of the workers and of this process; with workers in this process they are the same."""
        return self._below.n_threads + (0 if self.in_process else self._local.n_threads)

    def exchange(self, message: Message) -> Answer:
        """Split the message: workers compute kernel columns and send features, this process does the rest."""
        skipped, self._skipped = self._skipped, []
        for step in skipped:
            self._step(step)
        if isinstance(message, Compare):
            return self._compare(message)
        if isinstance(message, PASSIVE):
            return self._below.exchange(message)
        if isinstance(message, Step):
            answer = self._step(message)
        else:
            remote = self._below.exchange(message)
            answer = self._local.exchange(message)
            if remote.load is not None and answer.load is not None:
                answer.load = replace(remote.load, bytes_read=remote.load.bytes_read + answer.load.bytes_read)
                # Absent chunks of y were found on both sides.
                answer.report = remote.report.merge(ReadReport(retries=answer.report.retries))
            answer.costs = answer.costs.merge(remote.costs)
        self._fetch_drawn(answer)
        return answer

    def skip(self, message: Message, answer: Answer | None) -> None:
        """Add the next message; a step queries kernel columns when it takes effect."""
        if isinstance(message, Step):
            self._skipped.append(message)
            return
        self._below.skip(message, answer)
        if not isinstance(message, PASSIVE):
            self._local.skip(message, None)

    def _step(self, message: Step) -> Answer:
        wanted: tuple[Columns | None, ...] = tuple(None if p is None else p.columns for p in message.problems)
        handed_in, costs = None, Costs()
        if any(columns is not None for columns in wanted):
            found = self._below.query(KernelColumns(wanted))
            handed_in, costs = found.columns, found.costs
        answer = self._local.exchange(message, handed_in)
        answer.costs = answer.costs.merge(costs)
        return answer

    def _compare(self, message: Compare) -> Answer:
        """Join the predictions of the workers with the fits of this process, row by row."""
        answer, fits = self._below.exchange(message), self._local.exchange(message)
        for predicted, fitted in zip(answer.problems, fits.problems, strict=True):
            if predicted.candidates is not None and fitted.candidates is not None:
                rows, values = predicted.candidates.rows, (predicted.candidates.values, fitted.candidates.values)
                predicted.candidates = CandidateRows(rows, np.concatenate(values, axis=1))
        answer.costs = answer.costs.merge(fits.costs)
        return answer

    def _fetch_drawn(self, answer: Answer) -> None:
        parts = [part for p in answer.problems for part in (p.drawn, p.leaders)]
        drawn = [part for part in parts if part is not None]
        if not drawn:
            return
        rows = np.unique(np.concatenate([d.rows % self._n_rows for d in drawn]))
        if len(rows):
            features = self._below.query(FetchRows(rows)).rows
        for d in drawn:
            own = d.rows % self._n_rows
            d.features = np.array([features[int(row)] for row in own]) if len(own) else np.empty((0, 0))

"""Where the factors live: with the workers, beside their rows, or in the driver.

Either way the driver loop sees one `exchange`; the arithmetic on a tile is the same code in the same shapes, so
the model has the same bits.
"""

from __future__ import annotations

from dataclasses import replace
from time import monotonic, perf_counter
from typing import Protocol

import numpy as np

from distkern.monitoring.events import WAITING, EventBus, ExchangeDone
from distkern.storage import ReadReport
from distkern.storage.arrays.source import BlockSource

from ..execution.executor import Executor, SerialExecutor
from ..protocol.answers import Answer
from ..protocol.messages import PASSIVE, Columns, FetchRows, KernelColumns, Message, Step, message_name
from ..runtime.spillable_matrix import MemoryBudget
from ..runtime.timings import Costs, ProcessMemory
from .time_limit import TimeLimit

MEMORY_SECONDS = 2.0
"""Least time between two events that tell of the memory of workers."""


class Backend(Protocol):
    """Runs the messages of one training."""

    @property
    def exchanges(self) -> int:
        """Driver-workers-driver exchanges so far."""
        ...

    @property
    def n_threads(self) -> int:
        """Threads that may work for a message now."""
        ...

    def exchange(self, message: Message) -> Answer:
        """Send the next message and return the sum of the answers, drawn rows with their features."""
        ...

    def skip(self, message: Message, answer: Answer) -> None:
        """Take note of the next message and its answer; its effect comes before the next exchange."""
        ...

    def finish(self) -> None:
        """Hear that no message follows."""
        ...


class WorkerFactors:
    """`factors="workers"`: blocks hold everything; a message is one exchange."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.exchanges = 0

    @property
    def n_threads(self) -> int:
        """Threads of the workers."""
        return self._executor.n_threads

    def exchange(self, message: Message) -> Answer:
        """Send the next message."""
        self.exchanges += 1
        return self._executor.exchange(message)

    def skip(self, message: Message, answer: Answer) -> None:
        """Take note of the next message."""
        self._executor.skip(message, answer)

    def finish(self) -> None:
        """Do nothing."""


class AnnouncingBackend:
    """Tells subscribers of every exchange.

    Parameters
    ----------
    backend : Backend
        Where messages go.
    events : EventBus
        Told of exchanges.
    planned : int
        Bytes that a process which holds blocks was planned to take at most.
    part : str
        What the exchanges belong to: ``training`` or ``search``.
    limit : TimeLimit, optional
        Told how long they take.
    """

    def __init__(
        self,
        backend: Backend,
        events: EventBus,
        planned: int = 0,
        part: str = "training",
        limit: TimeLimit | None = None,
    ) -> None:
        self._backend = backend
        self._events = events
        self._planned = planned
        self._part = part
        self._limit = limit or TimeLimit()
        self._told_of_memory = -MEMORY_SECONDS
        self._seen: dict[str, ProcessMemory] = {}

    @property
    def exchanges(self) -> int:
        """Exchanges so far."""
        return self._backend.exchanges

    @property
    def n_threads(self) -> int:
        """Threads that may work for a message now."""
        return self._backend.n_threads

    def exchange(self, message: Message) -> Answer:
        """Send the next message."""
        before, started = self._backend.exchanges, perf_counter()
        answer = self._backend.exchange(message)
        seconds = perf_counter() - started
        self._limit.note_exchange(seconds)
        self._events.emit(
            ExchangeDone(
                name=message_name(message),
                seconds=seconds,
                exchanges=self._backend.exchanges - before,
                bytes_read=answer.bytes_read + (0 if answer.load is None else answer.load.bytes_read),
                part=self._part,
                busy=self._busy(answer.costs, seconds),
                memory=self._memory(answer.costs),
            )
        )
        return answer

    def _busy(self, costs: Costs, seconds: float) -> dict[str, float]:
        """Seconds of threads by phase, and what is left of them as waiting."""
        if not costs.busy:
            return {}  # the answer was on record
        waiting = self._backend.n_threads * seconds - sum(costs.busy.values())
        return {phase: round(took, 6) for phase, took in {**costs.busy, WAITING: max(0.0, waiting)}.items()}

    def _memory(self, costs: Costs) -> dict[str, dict[str, int]]:
        """Bytes of every worker, where it is time to tell of them again."""
        now = monotonic()
        self._seen.update(costs.memory)
        if not self._seen or now - self._told_of_memory < MEMORY_SECONDS:
            return {}
        self._told_of_memory = now
        told, self._seen = self._seen, {}
        return {worker: {**vars(found), "planned": self._planned} for worker, found in told.items()}

    def skip(self, message: Message, answer: Answer) -> None:
        """Take note of the next message."""
        self._backend.skip(message, answer)

    def finish(self) -> None:
        """Hear that no message follows."""
        self._backend.finish()


class DriverFactors:
    """`factors="driver"`: workers compute kernel columns, this process holds Q and E.

    Parameters
    ----------
    executor : Executor
        Workers with the features.
    source : BlockSource
        The same rows; this process reads targets and weights only.
    budget : MemoryBudget, optional
        What Q and the pool may take of this process's memory.
    """

    def __init__(self, executor: Executor, source: BlockSource, budget: MemoryBudget | None = None) -> None:
        self._remote = executor
        self._local = SerialExecutor(source, with_features=False, budget=budget)
        self._n_rows = source.n_rows
        self._skipped: list[Step] = []
        self.exchanges = 0

    @property
    def n_threads(self) -> int:
        """Threads of the workers and of this process; threads that are both count once."""
        return self._remote.n_threads if self._remote.in_process else self._remote.n_threads + self._local.n_threads

    def exchange(self, message: Message) -> Answer:
        """Split the message: kernel columns and features from the workers, the rest here."""
        skipped, self._skipped = self._skipped, []
        for step in skipped:
            self._step(step)
        if isinstance(message, PASSIVE):
            self.exchanges += 1
            return self._remote.exchange(message)
        if isinstance(message, Step):
            answer = self._step(message)
        else:
            self.exchanges += 1
            remote = self._remote.exchange(message)
            answer = self._local.exchange(message)
            if remote.load is not None and answer.load is not None:
                answer.load = replace(remote.load, bytes_read=remote.load.bytes_read + answer.load.bytes_read)
                # Absent chunks of y were found on both sides.
                answer.report = remote.report.merge(ReadReport(retries=answer.report.retries))
            answer.costs = answer.costs.merge(remote.costs)
        self._fetch_drawn(answer)
        return answer

    def skip(self, message: Message, answer: Answer) -> None:
        """Take note of the next message; a step's kernel columns are asked for when it takes effect."""
        if isinstance(message, Step):
            self._skipped.append(message)
            return
        self._remote.skip(message, answer)
        if not isinstance(message, PASSIVE):
            self._local.skip(message, None)

    def finish(self) -> None:
        """Do nothing."""

    def _step(self, message: Step) -> Answer:
        wanted: tuple[Columns | None, ...] = tuple(None if p is None else p.columns for p in message.problems)
        handed_in, costs = None, Costs()
        if any(columns is not None for columns in wanted):
            self.exchanges += 1
            found = self._remote.query(KernelColumns(wanted))
            handed_in, costs = found.columns, found.costs
        answer = self._local.exchange(message, handed_in)
        answer.costs = answer.costs.merge(costs)
        return answer

    def _fetch_drawn(self, answer: Answer) -> None:
        parts = [part for p in answer.problems for part in (p.drawn, p.leaders)]
        drawn = [part for part in parts if part is not None]
        if not drawn:
            return
        rows = np.unique(np.concatenate([d.rows % self._n_rows for d in drawn]))
        if len(rows):
            self.exchanges += 1
            features = self._remote.query(FetchRows(rows)).rows
        for d in drawn:
            own = d.rows % self._n_rows
            d.features = np.array([features[int(row)] for row in own]) if len(own) else np.empty((0, 0))

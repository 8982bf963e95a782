"""Where the factors live: with the workers, beside their rows, or in the driver.

Either way the driver loop sees one `exchange`; the arithmetic on a tile is the same code in the same shapes, so
the model has the same bits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np

from distkern.scheduler.answers import Answer
from distkern.scheduler.executors import Executor, SerialExecutor
from distkern.scheduler.messages import Accumulate, Columns, FetchRows, KernelColumns, Message, Step
from distkern.scheduler.row_matrix import MemoryBudget
from distkern.storage import ReadReport
from distkern.storage.source import BlockSource


class Backend(Protocol):
    """Runs the messages of one training."""

    exchanges: int
    """Driver-workers-driver exchanges so far."""

    def exchange(self, message: Message) -> Answer:
        """Send the next message and return the sum of the answers, drawn rows with their features."""
        ...


class WorkerFactors:
    """`factors="workers"`: blocks hold everything; a message is one exchange."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.exchanges = 0

    def exchange(self, message: Message) -> Answer:
        """Send the next message."""
        self.exchanges += 1
        return self._executor.exchange(message)


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
        self.exchanges = 0

    def exchange(self, message: Message) -> Answer:
        """Split the message: kernel columns and features from the workers, the rest here."""
        handed_in = None
        if isinstance(message, Accumulate):
            self.exchanges += 1
            return self._remote.exchange(message)
        if isinstance(message, Step):
            wanted: tuple[Columns | None, ...] = tuple(None if p is None else p.columns for p in message.problems)
            if any(columns is not None for columns in wanted):
                self.exchanges += 1
                handed_in = self._remote.query(KernelColumns(wanted)).columns
            answer = self._local.exchange(message, handed_in)
        else:
            self.exchanges += 1
            remote = self._remote.exchange(message)
            answer = self._local.exchange(message)
            if remote.load is not None and answer.load is not None:
                answer.load = replace(remote.load, bytes_read=remote.load.bytes_read + answer.load.bytes_read)
                # Absent chunks of y were found on both sides.
                answer.report = remote.report.merge(ReadReport(retries=answer.report.retries))
        self._fetch_drawn(answer)
        return answer

    def _fetch_drawn(self, answer: Answer) -> None:
        parts = [part for p in answer.problems for part in (p.drawn, p.leaders)]
        drawn = [part for part in parts if part is not None]
        if not drawn:
            return
        rows = np.unique(np.concatenate([d.rows for d in drawn]))
        if len(rows):
            self.exchanges += 1
            features = self._remote.query(FetchRows(rows)).rows
        for d in drawn:
            d.features = np.array([features[int(row)] for row in d.rows]) if len(d.rows) else np.empty((0, 0))

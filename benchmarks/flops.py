"""Floating-point operations of a training's matrix products, counted from its messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from distkern.scheduler.execution.executor import SerialExecutor
from distkern.scheduler.protocol.messages import Begin, LookaheadStep, ProblemStep, Step


class FlopCounter:
    """Counts the operations of the large matrix products by kind: two for each multiplication and addition.

    Parameters
    ----------
    n_rows, n_features, n_targets : int
        M, d and T of the training.
    """

    def __init__(self, n_rows: int, n_features: int, n_targets: int) -> None:
        self.n_rows, self.n_features, self.n_targets = n_rows, n_features, n_targets
        self.by_kind: Counter[str] = Counter()
        self._columns = 1
        self._begin: Begin | None = None

    def message(self, message: Any) -> None:
        """Count the operations of one message."""
        if isinstance(message, Begin):
            self._begin = message
        elif isinstance(message, Step):
            (step,) = message.problems
            if isinstance(step, ProblemStep):
                self._step(step)
            elif isinstance(step, LookaheadStep):
                self._look_ahead(step)

    def _step(self, step: ProblemStep) -> None:
        assert self._begin is not None
        pool, panel, batch = self._begin.pool, self._begin.panel, self._begin.batch
        targets = max(self.n_targets, 2)
        if step.append is not None:
            kept = step.append.combine.shape[1]
            self._add("append", step.append.combine.size)
            if step.append.correct is not None:
                self._add("append", step.append.correct.size)
            self._add("residual", step.append.steps.size)
            self._columns = step.append.start + kept
        if step.eliminate is not None:
            self._add("pool", step.eliminate.multipliers.size)
        if step.project is not None:
            self._add("projection", step.project.coefficients.size)
            self._add("pool", pool * batch)
            self._add("residual", targets * batch)
        if step.form is not None:
            self._add("form", step.form.combine.size)
        if step.columns is not None:
            self._add("kernel", self.n_features * batch)
        if step.form is not None or step.columns is not None:
            width = panel + batch if step.columns is not None else panel
            self._add("cross", (self._columns + panel) * width)
            self._add("residual", targets * panel)
        if step.refresh:
            self._add("refresh", pool * (pool + targets))

    def _look_ahead(self, step: LookaheadStep) -> None:
        assert self._begin is not None
        new = 0
        if step.form is not None:
            width = step.form.combine.shape[1]
            self._add("form", step.form.combine.size + step.form.coefficients.size)
            self._add("cross", width * (width + (self._columns if step.form.check else 0)))
        if step.trial is not None:
            self._add("append", step.trial.combine.size)
            if step.trial.correct is not None:
                self._add("append", step.trial.correct.size)
            self._add("residual", step.trial.steps.size)
        if step.commit is not None:
            new = len(step.commit.keep)
            self._columns = step.commit.start + new
            self._add("residual", step.commit.steps.size)
        if step.enter is not None:
            new += len(step.enter.slots)
            self._add("kernel", self.n_features * len(step.enter.slots))
            self._add("cross", self._columns * new)
            self._add("pool", self._begin.pool * (new + self.n_targets))

    def _add(self, kind: str, operations: int) -> None:
        self.by_kind[kind] += 2 * self.n_rows * operations

    @property
    def total(self) -> int:
        """Number of all operations."""
        return sum(self.by_kind.values())


@contextmanager
def counted(counter: FlopCounter) -> Iterator[None]:
    """Count the messages of a training in this process while the context lasts."""
    exchange = SerialExecutor.exchange

    def spy(executor: SerialExecutor, message: Any, handed_in: Any = None) -> Any:
        counter.message(message)
        return exchange(executor, message, handed_in)

    with patch.object(SerialExecutor, "exchange", spy):
        yield

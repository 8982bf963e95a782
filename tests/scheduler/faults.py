"""Trainings that meet trouble at chosen rounds, and what must come of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.monitoring.events import BlocksReplayed, Event, EventBus, RoundDone, WorkerLost
from distkern.scheduler.clusters.worker_queries import workers_of
from distkern.scheduler.execution.dask_executor import DaskExecutor
from distkern.scheduler.execution.executor import SerialExecutor
from distkern.scheduler.execution.layers import DriverFactors
from distkern.scheduler.training.driver_loop import TrainingResult, train
from distkern.storage import ArraySource
from tests.scheduler.trainings import cut, make_classes, make_job

N_BLOCKS = 8
JOB = make_job(classification=True, stop="validation", patience=50, max_centers=24, sampler="mixture", sigma="median")


def source() -> ArraySource:
    X, y = make_classes(320, seed=4)
    return ArraySource(X, y, np.random.default_rng(0).integers(1, 4, 320), boundaries=cut(320, 40))


@cache
def expected() -> TrainingResult:
    return train(JOB, source(), SerialExecutor(source()), EventBus())


class KillsAWorker(ArraySource):
    """Kills the worker that reads one of its blocks so many times, once.

    Parameters
    ----------
    whole : ArraySource
        The rows.
    notes : Path
        Directory that all processes see, for the reads so far.
    at : int
        Number of the read that kills.
    """

    inline = False

    def __init__(self, whole: ArraySource, notes: Path, at: int) -> None:
        super().__init__(whole.X, whole.y, whole.weights, boundaries=whole.boundaries)
        self._notes, self._at = notes, at

    @property
    def killed(self) -> bool:
        """Whether a worker was killed."""
        return (self._notes / "dead").exists()

    def read_features(self, block: int) -> NDArray[Any]:
        if block == 5:
            reads = self._notes / "reads"
            with reads.open("a") as file:
                file.write(".")
            if reads.stat().st_size >= self._at and not self.killed:
                (self._notes / "dead").touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return super().read_features(block)


class Trouble(EventBus):
    """Makes trouble after chosen rounds and at the first event of a kind, and raises what goes wrong with it."""

    def __init__(
        self,
        trouble: dict[int, Callable[[], object]],
        at: dict[type[Event], Callable[[], object]] | None = None,
    ) -> None:
        super().__init__()
        self.events: list[Event] = []
        self._rounds = 0
        self._trouble = dict(trouble)
        self._at = dict(at or {})

    def emit(self, event: Event) -> None:
        self.events.append(event)
        self._at.pop(type(event), lambda: None)()
        if isinstance(event, RoundDone):
            self._rounds += 1
            self._trouble.pop(self._rounds, lambda: None)()

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def run(
    client: Any, events: Trouble, factors: str = "workers", rows: ArraySource | None = None, **options: Any
) -> tuple[TrainingResult, int]:
    """Train; return the result and the workers at the end."""
    rows = source() if rows is None else rows
    executor = DaskExecutor(client, rows, events, with_factors=factors == "workers", **options)
    backend = executor if factors == "workers" else DriverFactors(executor, rows)
    try:
        return train(JOB, rows, backend, events), executor.n_workers
    finally:
        executor.close()
        assert not events._trouble
        assert not events._at


def check_events(events: Trouble, lost: list[str], reason: str = "left") -> None:
    """Every lost worker is reported once, and every block it had is rebuilt elsewhere."""
    reported = events.of(WorkerLost)
    assert [event.worker for event in reported] == lost
    assert {event.reason for event in reported} == {reason}
    assert all(event.blocks for event in reported)
    rebuilt = {block for event in events.of(BlocksReplayed) for block in event.blocks}
    assert rebuilt >= {block for event in reported for block in event.blocks}
    assert all(event.messages > 0 and event.seconds > 0 for event in events.of(BlocksReplayed))


def wait_for(client: Any, condition: Callable[[set[str]], bool]) -> set[str]:
    for _ in range(1500):
        workers = set(workers_of(client))
        if condition(workers):
            return workers
        sleep(0.02)
    raise AssertionError(f"still {workers}")


def addresses(client: Any) -> list[str]:
    return sorted(workers_of(client))


def pids(client: Any) -> dict[str, int]:
    found: dict[str, int] = client.run(os.getpid)
    return dict(sorted(found.items()))

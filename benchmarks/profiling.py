"""The time of each phase of a training, on the tiles and in the driver, and the driver's most expensive functions.

Nothing in the package measures: its functions are wrapped while the training runs, and a thread samples the stack of
the driver every few milliseconds.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from pathlib import Path
from time import perf_counter
from typing import Any
from unittest.mock import patch

import numpy as np

import distkern
from benchmarks import generated
from distkern.scheduler.blocks import block
from distkern.scheduler.blocks import message_handler as rounds
from distkern.scheduler.blocks import pool_tiles as tiles
from distkern.scheduler.runtime import threads
from distkern.scheduler.runtime import tree_reducer as reduction
from distkern.scheduler.selectors import pool_selector as selectors

INTERVAL = 0.005
"""Seconds between two samples of the driver's stack."""

PACKAGE = Path(distkern.__file__).resolve().parents[1]


class Clock:
    """Time in wrapped functions, without the time in other wrapped functions that they call."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._open = threading.local()

    def wrap(self, function: Callable[..., Any], name: str | Callable[..., str]) -> Callable[..., Any]:
        """Return `function`, timed under a name that may depend on its arguments."""

        @wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            stack = self._open.__dict__.setdefault("stack", [])
            stack.append(0.0)
            started = perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                elapsed = perf_counter() - started
                inner = stack.pop()
                if stack:
                    stack[-1] += elapsed
                label = name if isinstance(name, str) else name(*args)
                with self._lock:
                    self.seconds[label] += elapsed - inner
                    self.calls[label] += 1

        return timed


def _answer_phase(state: Any, tile: Any, step: Any, *rest: Any) -> str:
    return "cross products" if step.form is not None or step.columns is not None else "pool products"


TILE_PHASES = (
    "kernel columns",
    "cross products",
    "products with Q for both passes",
    "append, eliminate, project",
    "form",
    "pool products",
    "draw",
    "start",
    "load",
    "other tile work",
)
"""Phases that run on the tile threads; the others run in the driver while these threads wait."""


@contextmanager
def instrumented(clock: Clock) -> Iterator[None]:
    """Measure the time of the package's functions by phase within the context."""
    wrapped: list[tuple[Any, str, str | Callable[..., str]]] = [
        (tiles, "kernel_columns", "kernel columns"),
        (tiles, "answer", _answer_phase),
        (tiles, "finish", "append, eliminate, project"),
        (tiles, "times_q", "products with Q for both passes"),
        (tiles, "compute", "form"),
        (tiles, "draw", "draw"),
        (block.Block, "start", "start"),
        (block.Block, "load", "load"),
        (block.Block, "load_answer", "load"),
        (block.Block, "step", "other tile work"),
        (block.Block, "run_strip", "other tile work"),
        (block.Block, "start_answer", "other tile work"),
        (block.Block, "prepare", "prepare"),
        (rounds, "prepare_step", "prepare"),
        (reduction.TreeReducer, "add", "reduction"),
        *((cls, name, "driver algebra") for cls in _selectors() for name in ("next_step", "receive", "begin")),
    ]
    with ExitStack() as stack:
        for owner, name, phase in wrapped:
            if name in vars(owner):
                stack.enter_context(patch.object(owner, name, clock.wrap(vars(owner)[name], phase)))
        yield


def _selectors() -> list[type[Any]]:
    return [
        value for value in vars(selectors).values() if isinstance(value, type) and issubclass(value, selectors.Selector)
    ]


@contextmanager
def sampled(counts: Counter[str]) -> Iterator[None]:
    """Sample every few milliseconds which function of the package this thread runs, and count."""
    watched, done = threading.get_ident(), threading.Event()

    def sample() -> None:
        while not done.wait(INTERVAL):
            frame = sys._current_frames().get(watched)
            while frame is not None and not _ours(frame.f_code.co_filename):
                frame = frame.f_back
            if frame is not None:
                code = frame.f_code
                counts[f"{Path(code.co_filename).stem}.{code.co_qualname}"] += 1

    watcher = threading.Thread(target=sample, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _ours(filename: str) -> bool:
    path = Path(filename).resolve()
    return PACKAGE in path.parents and "benchmarks" not in path.parts


def measure(rows: int, features: int, centers: int, dtype: str, criterion: str, top: int) -> list[dict[str, Any]]:
    """Train once in this process and return a row for each phase, then for the driver's most expensive functions."""
    X, y = generated.in_memory(generated.waves(rows, features, dtype))
    estimator = distkern.OROLSRegressor(
        sigma=float(np.sqrt(features)), max_centers=centers, stop=None, dtype=dtype, criterion=criterion
    )
    clock, counts = Clock(), Counter[str]()
    started = perf_counter()
    with instrumented(clock), sampled(counts):
        estimator.fit(X, y)
    wall = perf_counter() - started
    return _phases(clock, wall, threads.tile_pool()[1]) + _functions(counts, wall, top)


def _phases(clock: Clock, wall: float, width: int) -> list[dict[str, Any]]:
    found = []
    for phase, seconds in clock.seconds.items():
        on_tiles = phase in TILE_PHASES
        of_wall = seconds / width if on_tiles else seconds
        found.append(_row("tiles" if on_tiles else "driver", phase, clock.calls[phase], seconds, of_wall / wall))
    found.sort(key=lambda row: -row["share"])
    rest = 1.0 - sum(row["share"] for row in found)
    return [*found, _row("driver", "other: waiting, messages, checks", 0, rest * wall, rest)]


def _functions(counts: Counter[str], wall: float, top: int) -> list[dict[str, Any]]:
    total = sum(counts.values())
    return [
        _row("driver sample", name, count, count / total * wall, count / total)
        for name, count in counts.most_common(top)
    ]


def _row(part: str, phase: str, calls: int, seconds: float, share: float) -> dict[str, Any]:
    return {"part": part, "phase": phase, "calls": calls, "s": seconds, "share": share}

"""One colour for each activity of workers, the same on distkern's page and in dask's task stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distkern.monitoring.events import WAITING

from ..runtime.timings import DRAW, FIT, KERNEL_COLUMNS, OTHER, PROJECTION, READ, REPLAY, SCORE, SCRATCH, UPDATE

PHASE_COLOURS = {
    KERNEL_COLUMNS: "#3b6fb6",
    PROJECTION: "#59a89c",
    UPDATE: "#8cb369",
    DRAW: "#f0c571",
    FIT: "#0b81a2",
    SCORE: "#7e4794",
    READ: "#e25759",
    SCRATCH: "#f28e2b",
    REPLAY: "#9d2c00",
    OTHER: "#9aa5b1",
    WAITING: "#e3e7ec",
}
"""Colours in the order of the stacked bars."""

TASK_COLOURS = {
    "load-blocks": PHASE_COLOURS[READ],
    "place-blocks": "#f0a3a4",
    "read-block": PHASE_COLOURS[READ],
    "send-block": "#f0a3a4",
    "fetch-rows": "#f0a3a4",
    "begin-run": PHASE_COLOURS[DRAW],
    "kernel-columns": PHASE_COLOURS[KERNEL_COLUMNS],
    "form-panel": PHASE_COLOURS[PROJECTION],
    "project-candidates": "#9fd1c8",
    "append-panel": PHASE_COLOURS[UPDATE],
    "residual-argmax": PHASE_COLOURS[DRAW],
    "judge-candidates": "#d9a441",
    "fit-all-rows": PHASE_COLOURS[FIT],
    "score-folds": PHASE_COLOURS[SCORE],
    "compare-fit": PHASE_COLOURS[SCORE],
    "calibration-rows": "#b58ac6",
    "replay-log": PHASE_COLOURS[REPLAY],
    "sum-answers": PHASE_COLOURS[OTHER],
}
"""Name of each message and task to the colour of the phase of most of its time, or a shade of it."""


def colour_tasks() -> None:
    """Show tasks of trainings in dask's task stream in the colours of their phases; other tasks keep theirs."""
    from distributed.diagnostics import task_stream

    before = task_stream.colors["compute"]
    if not isinstance(before, TaskColour):
        task_stream.colors["compute"] = TaskColour(before, task_stream.key_split)


class TaskColour:
    """Colour of a task of dask's task stream.

    Parameters
    ----------
    otherwise : callable
        Colour of a task that is not distkern's, or failed.
    name_of : callable
        Name of a task, by its key.
    """

    def __init__(self, otherwise: Callable[[Any], str], name_of: Callable[[Any], str]) -> None:
        self._otherwise = otherwise
        self._name_of = name_of

    def __call__(self, message: Any) -> str:
        """Return the colour of the task of a scheduler's message."""
        colour = TASK_COLOURS.get(self._name_of(message["key"])) if message.get("status") == "OK" else None
        return self._otherwise(message) if colour is None else colour

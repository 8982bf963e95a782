"""The driver of one run of the campaign: what it computes in each phase, and its report."""

from __future__ import annotations

import hashlib
import json
import shutil
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np

import distkern
from benchmarks.cluster.clock import step_on_signals
from benchmarks.cluster.driver import Notes, model_digest
from distkern.errors import DistkernError
from distkern.scheduler.training import solver

SELECTED = 24
"""Centres that a training by conjugate gradients selects, instead of thousands."""

TRAINING: dict[str, dict[str, Any]] = {
    "selection": {},
    "search": {"sigma": "cv", "max_centers": 8},
    "metric": {"metric": "diagonal", "metric_rounds": 1, "selection_rows": 1000},
    "final-pass": {"selection_rows": 1000},
    "conjugate-gradients": {"solver": "conjugate-gradients", "max_centers": 64},
}
"""Parameters of a training that spends much of its time in each phase."""

PHASES = (*TRAINING, "predictions", "appends")

COMMON: dict[str, Any] = {
    "sigma": 2.5,
    "max_centers": 32,
    "stop": None,
    "selection_rows": None,
    "candidates": 64,
    "memory_limit": 256 << 20,
}


def drive(
    scheduler: str,
    data: str,
    more: str,
    model: str,
    run: str,
    notes: str,
    result: str,
    phase: str,
) -> None:
    """Compute a phase and write the digest of its result, or the error.

    Parameters
    ----------
    scheduler : str
        Address.
    data, more : str
        Datasets: training rows, and rows to predict or to append.
    model : str
        Run directory of a finished training, for predictions and appended rows.
    run : str
        Run directory of a training, which is resumed if it exists.
    notes, result : str
        Files to write: events of the training, and the digest or the error.
    phase : str
        One of `PHASES`.
    """
    step_on_signals()
    try:
        with _client(scheduler) as client:
            Path(notes).touch()
            digest = _compute(client, data, more, model, run, notes, phase)
        outcome: dict[str, Any] = {"digest": digest}
    except BaseException as error:
        with suppress(OSError):  # the disk of the log may be full, too
            traceback.print_exc()
        typed = isinstance(error, DistkernError)
        outcome = {"error": type(error).__name__, "kind": error.kind if isinstance(error, DistkernError) else ""}
        outcome |= {"typed": typed, "message": str(error)[:300]}
    Path(f"{result}.part").write_text(json.dumps(outcome))
    Path(f"{result}.part").rename(result)


@contextmanager
def _client(scheduler: str) -> Iterator[Any]:
    from distkern.scheduler import connect

    with connect(scheduler, timeout=30) as client:
        client.wait_for_workers(1, timeout=60)
        yield client


def _compute(client: Any, data: str, more: str, model: str, run: str, notes: str, phase: str) -> str:
    if phase in TRAINING:
        solver.SELECTED_CENTERS = SELECTED
        parameters = {**COMMON, **TRAINING[phase]}
        estimator = distkern.OROLSRegressor(
            client=client, factors="workers", run_dir=run, callbacks=(Notes(notes),), **parameters
        )
        return model_digest(estimator.fit(distkern.open_dataset(data)))
    if phase == "appends":
        # Appended rows become part of the run: a driver that finds them there has nothing to do.
        if not Path(run).exists():
            shutil.copytree(model, f"{run}.part")
            Path(f"{run}.part").rename(run)
        fitted = distkern.load_model(run)
        fitted.client = client
        if not fitted.summary_.get("appended"):
            fitted.append(distkern.open_dataset(more))
        return model_digest(fitted)
    fitted = distkern.load_model(model)
    fitted.client = client
    state = hashlib.blake2b(digest_size=8)
    for _ in range(3):
        state.update(np.ascontiguousarray(fitted.predict(distkern.open_dataset(more))).tobytes())
        sleep(0.01)
    return state.hexdigest()


def train_on_and_on(scheduler: str, data: str, notes: str, stop: str, result: str) -> None:
    """Train until a file appears; add a character to the notes after each training, and write the number of digests."""
    digests = set()
    with _client(scheduler) as client:
        while not Path(stop).exists():
            estimator = distkern.OROLSRegressor(client=client, factors="workers", **COMMON)
            digests.add(model_digest(estimator.fit(distkern.open_dataset(data))))
            with Path(notes).open("a") as file:
                file.write(".")
    Path(result).write_text(json.dumps({"digests": len(digests)}))

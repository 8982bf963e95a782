"""A search that a run directory keeps, and when it is made again."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distkern.monitoring.events import Event, ExchangeDone, RunResumed
from distkern.scheduler import run_training
from distkern.scheduler.search.search import SearchResult, search_settings
from distkern.scheduler.search.search_record import search_once
from distkern.storage import RunDirectory, describe
from tests.locations import ROOT
from tests.scheduler.trainings import make_data, make_job, make_source

X, Y = make_data(60)
SOURCE = make_source(X, Y, rows=20)
JOBS = [make_job(sigma=sigma, max_centers=6) for sigma in (0.5, 1.0)]


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "run", {})


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory with a search, to be copied."""
    run = RunDirectory.create(tmp_path_factory.mktemp("kept") / "run", {})
    searched(run)
    return run.path


@pytest.fixture
def searched_run(kept: Path, tmp_path: Path) -> RunDirectory:
    """A run directory that keeps the search of `JOBS`."""
    return RunDirectory.open(shutil.copytree(kept, tmp_path / "searched"))


def searched(run: RunDirectory, jobs: Any = JOBS, folds: int = 3, source: Any = SOURCE) -> tuple[SearchResult, bool]:
    """The result, and whether anything was exchanged for it."""
    events: list[Event] = []
    found = search_once(run, jobs, folds, source, subscribers=[events.append])
    return found, any(isinstance(event, ExchangeDone) for event in events)


def assert_same(a: SearchResult, b: SearchResult) -> None:
    assert a.errors.tobytes() == b.errors.tobytes()
    assert a.n_centers.tobytes() == b.n_centers.tobytes()
    assert a.trained.tobytes() == b.trained.tobytes()
    assert a.mean_errors.tobytes() == b.mean_errors.tobytes()
    assert a.kernels == b.kernels
    assert (a.best, a.passes, a.bytes_read) == (b.best, b.passes, b.bytes_read)


def test_once(run: RunDirectory) -> None:
    first, made = searched(run)
    assert made
    assert_same(first, search_settings(JOBS, 3, SOURCE))
    again, made = searched(RunDirectory.open(run.path))
    assert not made
    assert_same(again, first)
    assert_same(search_once(None, JOBS, 3, SOURCE), first)


@pytest.mark.parametrize(
    "other",
    [
        {"jobs": JOBS[:1]},
        {"jobs": [replace(job, max_centers=7) for job in JOBS]},
        {"jobs": [replace(job, seed=1) for job in JOBS]},
        {"folds": 4},
        {"source": make_source(X, Y + 1, rows=20)},
    ],
    ids=str,
)
def test_another_search_is_made(other: dict[str, Any], searched_run: RunDirectory) -> None:
    found, made = searched(searched_run, **other)
    assert made
    assert found.errors.shape == (len(other.get("jobs", JOBS)), other.get("folds", 3))
    assert not searched(searched_run, **other)[1]


@pytest.mark.parametrize(
    "damage",
    [
        {"errors": [[1.0]]},
        {"errors": "many"},
        {"n_centers": None},
        {"trained": [True, False]},
        {"mean_errors": [float("nan")] * 2},
        {"mean_errors": [1.0]},
        {"kernels": []},
        {"kernels": [{"name": "none such", "parameters": {}}] * 2},
        {"kernels": [3, 4]},
        {"passes": "x"},
        {"of": "another"},
    ],
    ids=str,
)
def test_what_is_damaged_is_made_again(damage: dict[str, Any], searched_run: RunDirectory) -> None:
    first, made = searched(searched_run)
    assert not made
    assert searched_run.search is not None
    searched_run.write_search({**searched_run.search, **damage})
    found, made = searched(searched_run)
    assert made
    assert_same(found, first)


def test_folds_that_were_left_out_stay_so(searched_run: RunDirectory) -> None:
    run = searched_run
    first, _ = searched(run)
    errors, trained = first.errors.copy(), first.trained.copy()
    errors[1, 2], trained[1, 2] = np.nan, False
    assert run.search is not None
    run.write_search({**run.search, "errors": errors, "trained": trained})
    found, made = searched(run)
    assert not made
    assert np.isnan(found.errors[1, 2])
    assert not found.trained[1, 2]


def test_what_is_no_json_is_made_again(searched_run: RunDirectory) -> None:
    (searched_run.path / "search.json").write_text("{")
    assert searched(searched_run)[1]


def test_a_search_shows_who_drives_the_run(run: RunDirectory) -> None:
    states: list[str] = []

    def look(event: Event) -> None:
        states.append(str(describe(run.path)["state"]))

    search_once(run, JOBS, 3, SOURCE, subscribers=[look])
    assert set(states) == {"running"}
    assert describe(run.path)["state"] == "cut short"  # until the training goes on


@pytest.mark.slow
def test_a_process_that_dies_while_it_searches_leaves_a_run_cut_short(tmp_path: Path) -> None:
    program = f"""
import os, signal, numpy as np, distkern as dk
die = lambda event: os.kill(os.getpid(), signal.SIGKILL)
X = np.random.default_rng(0).standard_normal((80, 2))
dk.OROLSRegressor(sigma="cv", max_centers=8, run_dir={str(tmp_path / "run")!r}, callbacks=[die]).fit(X, X[:, 0])
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert describe(tmp_path / "run")["state"] == "cut short"


def test_a_training_after_a_search_of_another_process_begins_as_any(run: RunDirectory) -> None:
    search_once(run, JOBS, 3, SOURCE)
    events: list[Event] = []
    result = run_training(JOBS[0], SOURCE, run=run, subscribers=[events.append])
    assert not any(isinstance(event, RunResumed) for event in events)
    np.testing.assert_array_equal(result.paths[0].rows, run_training(JOBS[0], SOURCE).paths[0].rows)
    # Searching again, with other folds, leaves the records of the training as they are.
    search_once(run, JOBS, 4, SOURCE)
    run_training(JOBS[0], SOURCE, run=RunDirectory.open(run.path), subscribers=[events.append])
    (resumed,) = [event for event in events if isinstance(event, RunResumed)]
    assert resumed.exchanges == result.summary["exchanges"]

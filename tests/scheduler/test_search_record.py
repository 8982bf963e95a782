"""A search that a run directory keeps, and when it is made again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trainings import make_data, make_job, make_source

from distkern.events import Event, ExchangeDone
from distkern.scheduler.search_record import search_once
from distkern.scheduler.searching import SearchResult, search_settings
from distkern.storage import RunDirectory

X, Y = make_data(60)
SOURCE = make_source(X, Y, rows=20)
JOBS = [make_job(sigma=sigma, max_centers=6) for sigma in (0.5, 1.0)]


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "run", {})


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
def test_another_search_is_made(other: dict[str, Any], run: RunDirectory) -> None:
    searched(run)
    found, made = searched(run, **other)
    assert made
    assert found.errors.shape == (len(other.get("jobs", JOBS)), other.get("folds", 3))
    assert not searched(run, **other)[1]


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
def test_what_is_damaged_is_made_again(damage: dict[str, Any], run: RunDirectory) -> None:
    first, _ = searched(run)
    assert run.search is not None
    run.write_search({**run.search, **damage})
    found, made = searched(run)
    assert made
    assert_same(found, first)


def test_folds_that_were_left_out_stay_so(run: RunDirectory) -> None:
    first, _ = searched(run)
    errors, trained = first.errors.copy(), first.trained.copy()
    errors[1, 2], trained[1, 2] = np.nan, False
    assert run.search is not None
    run.write_search({**run.search, "errors": errors, "trained": trained})
    found, made = searched(run)
    assert not made
    assert np.isnan(found.errors[1, 2])
    assert not found.trained[1, 2]


def test_what_is_no_json_is_made_again(run: RunDirectory) -> None:
    searched(run)
    (run.path / "search.json").write_text("{")
    assert searched(run)[1]

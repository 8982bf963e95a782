"""Peaks of whole processes against the plan, and the limit that the operating system holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distkern.scheduler import local_client
from distkern.scheduler.planning.plan import BASELINE, MIB
from distkern.scheduler.runtime.processes import peak_rss
from distkern.storage import write_dataset
from tests.locations import ROOT

PEAKS = ROOT / "tests" / "scheduler" / "peaks.py"

FIT = {"candidates": 256, "panel": 16, "sampler": "mixture", "sigma": 2.0}

KINDS: dict[str, dict[str, Any]] = {
    "load": {"data": "wide", "job": {"max_centers": 2, "candidates": 16, "panel": 2, "sigma": "median"}},
    "load in scratch": {
        "data": "wide",
        "job": {"max_centers": 2, "candidates": 16, "panel": 2, "sigma": "median"},
        "limit": 220 * MIB,
    },
    "float64": {"data": "tall", "job": {"max_centers": 400}},
    "float32": {"data": "tall", "job": {"max_centers": 400, "dtype": "float32"}},
    "scratch": {"data": "tall", "job": {"max_centers": 250}, "limit": 230 * MIB},
    "all in scratch": {"data": "tall", "job": {"max_centers": 400}, "limit": 100 * MIB},
    "residual": {"data": "tall", "job": {"max_centers": 300, "criterion": "residual"}},
    "26 classes": {"data": "letters", "job": {"max_centers": 300, "classification": True}},
    "one-vs-rest": {
        "data": "letters",
        "job": {"max_centers": 16, "classification": True, "multiclass": "one-vs-rest", "candidates": 16},
    },
    "a row sample": {"data": "tall", "job": {"max_centers": 600, "selection_rows": 20_000}},
    "workers of this process": {"data": "tall", "job": {"max_centers": 300}, "in_process": 2, "factors": "workers"},
    "workers of this process, limited": {
        "data": "tall",
        "job": {"max_centers": 300},
        "in_process": 2,
        "factors": "workers",
        "limit": 250 * MIB,
    },
    "driver": {"data": "tall", "job": {"max_centers": 300}, "workers": 1, "factors": "driver"},
    "workers": {"data": "tall", "job": {"max_centers": 300}, "workers": 1, "factors": "workers", "limit": 800 * MIB},
    "workers in scratch": {
        "data": "tall",
        "job": {"max_centers": 200},
        "workers": 1,
        "factors": "workers",
        "limit": 130 * MIB,
    },
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Dataset stores: many rows, many features, 26 classes."""
    folder = tmp_path_factory.mktemp("stores")
    rng = np.random.default_rng(0)
    for name, (n, d) in {"tall": (100_000, 16), "wide": (60_000, 400), "letters": (50_000, 16)}.items():
        X = rng.standard_normal((n, d))
        if name == "letters":
            write_dataset(folder / name, X, rng.integers(0, 26, n), task="classification")
        else:
            write_dataset(folder / name, X, np.sin(X[:, 0]) + rng.standard_normal(n), task="regression")
    return folder


def measure(stores: Path, kind: str) -> dict[str, Any]:
    """Train in a fresh process."""
    options = {**KINDS[kind], "store": str(stores / KINDS[kind]["data"]), "job": {**FIT, **KINDS[kind]["job"]}}
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, str(PEAKS), json.dumps(options)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert result["centers"] == options["job"]["max_centers"]
    return result


ALWAYS = {"scratch", "26 classes", "a row sample", "workers in scratch"}
"""Some kinds of each way to hold rows; the others are measured nightly."""


def kinds() -> Iterator[Any]:
    for kind, options in KINDS.items():
        marks = [pytest.mark.cluster] if "workers" in options else []
        yield pytest.param(kind, marks=marks if kind in ALWAYS else [*marks, pytest.mark.nightly])


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*kinds()])
def test_measured_peaks_are_within_the_plan(stores: Path, kind: str) -> None:
    result = measure(stores, kind)
    driver, worker = result["peak_rss_driver"], result["peak_rss_worker"]
    planned = result["planned_peak_bytes"]
    assert driver <= result["planned_peak_driver"]
    assert worker <= planned
    # Not by the baseline's grace alone: what the training took on top is within what was planned on top.
    if not worker:
        assert driver - result["before"] <= planned - BASELINE
    limit = KINDS[kind].get("limit")
    if limit is not None:
        assert planned <= BASELINE + limit
    holder = worker if KINDS[kind].get("factors") == "workers" and worker else driver
    assert planned <= 3 * holder


def grow(nbytes: int) -> int:
    return int(np.ones(nbytes // 8).sum())


@pytest.fixture(scope="module")
def limited() -> Iterator[Any]:
    """A worker with 256 MiB beside the interpreter's own."""
    with local_client(1, memory=256 * MIB) as client:
        yield client


@pytest.mark.cluster
def test_a_worker_that_takes_too_much_gets_a_memory_error_and_lives(limited: Any) -> None:
    before = limited.run(os.getpid)
    with pytest.raises(MemoryError):
        limited.submit(grow, 2 << 30).result(60)
    assert limited.run(os.getpid) == before
    # What the limit allows is there.
    assert limited.submit(grow, 200 * MIB, pure=False).result(60) == 200 * MIB // 8
    assert limited.run(os.getpid) == before


@pytest.mark.cluster
def test_the_limit_is_the_baseline_the_memory_and_some_slack(limited: Any) -> None:
    (soft,) = limited.run(data_limit).values()
    assert BASELINE + 256 * MIB < soft <= BASELINE + (256 + 128) * MIB
    (worker,) = limited.scheduler_info()["workers"].values()
    assert worker["memory_limit"] == BASELINE + 256 * MIB


def data_limit() -> int:
    import resource

    return resource.getrlimit(resource.RLIMIT_DATA)[0]


@pytest.mark.slow
def test_a_fresh_worker_is_within_the_baseline() -> None:
    """The interpreter with all that a training imports."""
    code = "import distkern.scheduler.execution.dask_executor, distkern.estimators, distkern.storage, scipy.linalg\n"
    code += "from distkern.scheduler.runtime.processes import peak_rss\nprint(peak_rss())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0.2 * BASELINE < int(done.stdout) < BASELINE


@pytest.mark.slow
def test_peak_rss_follows_what_is_touched() -> None:
    before = peak_rss()
    code = "import numpy as np\nfrom distkern.scheduler.runtime.processes import peak_rss\na = peak_rss()\n"
    code += "x = np.ones(1 << 23)\nprint(peak_rss() - a)"
    grown = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert 0.9 * (64 * MIB) < grown < 1.5 * (64 * MIB)
    # The parent's peak is no part of a child's, nor a child's of the parent's.
    assert peak_rss() - before < 64 * MIB

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distkern.cli.main import main
from distkern.storage import write_dataset
from tests.report.report_pages import Node, parse

Train = Callable[..., Path]


@pytest.fixture(scope="session")
def train(tmp_path_factory: pytest.TempPathFactory) -> Train:
    """Trains by the command line on rows, two thirds to train and one to test; returns the folder."""

    def run(X: Any, y: Any, task: str, names: list[str] | None = None, **model: Any) -> Path:
        folder = tmp_path_factory.mktemp("run")
        cut = 2 * len(X) // 3
        kept = {"chunk_rows": 128, "task": task}
        write_dataset(folder / "train.zarr", X[:cut], y[:cut], feature_names=names, **kept)
        write_dataset(folder / "test.zarr", X[cut:], y[cut:], feature_names=names, **kept)
        sections = {
            "data": {"train": folder / "train.zarr", "test": folder / "test.zarr"},
            "model": {"max_centers": 40, **model},
            "output": {"model": folder / "it.model", "run": folder / "it.run"},
        }
        lines = [
            line
            for section, keys in sections.items()
            for line in (f"[{section}]", *(f"{key} = {json.dumps(value, default=str)}" for key, value in keys.items()))
        ]
        (folder / "job.toml").write_text("\n".join(lines))
        assert main(["train", "-q", str(folder / "job.toml")]) == 0
        return folder

    return run


@pytest.fixture(scope="session")
def digits(train: Train) -> Path:
    """A classifier of images."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return train(X[:900], y[:900], "classification", sigma=20.0, standardize=False, max_centers=120)


@pytest.fixture(scope="session")
def waves(train: Train) -> Path:
    """A regression of one target, with rows held out."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (900, 3))
    y = 100 + 5 * np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(900)
    return train(X, y, "regression", names=["time", "<b>depth</b>", "a & b"], sigma=1.0, stop="validation")


WIDE = [f"column <{index}> of a table with many" for index in range(22)]


@pytest.fixture(scope="session")
def metric(train: Train) -> Path:
    """A regression with a learnt metric, on more features than a chart has bars."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((900, len(WIDE)))
    return train(X, np.sin(2 * X[:, 5]) + X[:, 0], "regression", names=WIDE, metric="diagonal", metric_rounds=2)


@pytest.fixture
def report(tmp_path: Path) -> Callable[..., tuple[str, Node]]:
    """Writes a report by the command line and reads it."""

    def write(run: Path, *arguments: object) -> tuple[str, Node]:
        out = tmp_path / "report.html"
        assert main(["report", "-q", str(run), "--out", str(out), "--overwrite", *map(str, arguments)]) == 0
        page = out.read_text(encoding="utf-8")
        return page, parse(page)

    return write

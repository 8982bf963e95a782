from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from distkern.storage import write_dataset
from tests.cli.command_line import Call, job_text


@pytest.fixture
def job(here: Path) -> str:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2)) * [1.0, 1e5]
    write_dataset("d.zarr", X, np.sin(X[:, 0]), feature_names=["age", "income"])
    (here / "job.toml").write_text(
        job_text(data={"train": "d.zarr"}, model={"standardize": False, "max_centers": 3}, output={"model": "m"})
    )
    return "job.toml"


def test_a_difference_in_scale_is_one_line_on_standard_error(call: Call, job: str) -> None:
    for _ in range(2):
        done = call("train", job, "--overwrite")
        assert done.code == 0, done.err
        (line,) = [line for line in done.err.splitlines() if "standardize" in line]
        assert "column 'income'" in line
        assert "column 'age'" in line
        assert "WARNING" in line
        assert "standardize" not in done.out


def test_quiet_leaves_it_out(call: Call, job: str) -> None:
    done = call("train", job, "-q")
    assert done.code == 0
    assert done.err == ""

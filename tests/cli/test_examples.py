"""The examples of batch jobs: run as they are, with a small grid."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from distkern.storage import write_dataset
from tests.cli.command_line import ROOT, environment

EXAMPLES = ROOT / "examples"
DISTKERN = f"{sys.executable} -m distkern"


def run(*words: object, folder: Path, code: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env={**environment(), **variables},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_the_grid(tmp_path: Path) -> None:
    folder = tmp_path / "grid"
    shutil.copytree(EXAMPLES / "grid", folder, ignore=shutil.ignore_patterns("out"))
    make = ("make", "-s", f"DISTKERN={DISTKERN}", f"PYTHON={sys.executable}", "SIGMAS=10 40")
    made = run(*make, folder=folder)
    assert "unlink" not in made.stdout + made.stderr
    grid = {path.stem: json.loads(path.read_text()) for path in (folder / "out" / "grid").glob("*.json")}
    assert grid.keys() == {"10-none", "10-rkhs", "40-none", "40-rkhs"}
    errors = {name: result["test"]["error"] for name, result in grid.items()}
    best = (folder / "out" / "best.txt").read_text().strip()
    assert errors[Path(best).stem] == min(errors.values()) < max(errors.values())
    test = json.loads((folder / "out" / "test.json").read_text())
    assert test["n_rows"] == 447
    assert test["error"] < 0.03
    assert (folder / "out" / "predictions.zarr").is_dir()
    # What was lost is printed again from its run, without training.
    before = (folder / "out" / "grid" / "10-none.json").read_text()
    (folder / "out" / "grid" / "10-none.json").unlink()
    run(*make, folder=folder)
    assert (folder / "out" / "grid" / "10-none.json").read_text() == before


def test_a_failed_training_is_not_picked(tmp_path: Path) -> None:
    good = {"test": {"error": 0.25}, "n_centers": 3, "stop_reason": "gcv-risen", "model": "a.model"}
    (tmp_path / "a.json").write_text(json.dumps(good))
    (tmp_path / "b.json").write_text(json.dumps({**good, "test": {"error": 0.125}, "model": "b.model"}))
    pick = (sys.executable, EXAMPLES / "grid" / "pick.py")
    done = run(*pick, "a.json", "b.json", folder=tmp_path)
    assert done.stdout == "b.model\n"
    (tmp_path / "b.json").write_text('{"error": {"kind": "x", "message": "y", "exit_code": 3}}')
    assert "b.json" in run(*pick, "a.json", "b.json", folder=tmp_path, code=1).stderr


SCRIPT = EXAMPLES / "array" / "train.sbatch"


def test_the_array_is_a_script_with_a_task_a_setting() -> None:
    subprocess.run(["bash", "-n", str(SCRIPT)], check=True)
    settings = (EXAMPLES / "array" / "settings.txt").read_text().splitlines()
    assert f"#SBATCH --array=1-{len(settings)}" in SCRIPT.read_text()
    assert all("=" in word for line in settings for word in line.split())


@pytest.fixture
def array(tmp_path: Path) -> Path:
    folder = tmp_path / "array"
    shutil.copytree(EXAMPLES / "array", folder, ignore=shutil.ignore_patterns("out", "data"))
    rng = np.random.default_rng(0)
    X = rng.uniform(-30, 30, (300, 2))
    y = np.where(np.sin(X[:, 0] / 10) * X[:, 1] > 0, "up", "down")
    for name, rows in (("train", slice(200)), ("validation", slice(200, 300))):
        write_dataset(folder / "data" / f"{name}.zarr", X[rows], y[rows], task="classification")
    return folder


@pytest.mark.nightly
def test_the_tasks_of_an_array(array: Path) -> None:
    """The body of the script, without Slurm."""
    own = {"DISTKERN": str(array / "distkern"), "SLURM_SUBMIT_DIR": str(array)}
    (array / "distkern").write_text(f'#!/bin/bash\nexec {DISTKERN} "$@"\n')
    os.chmod(array / "distkern", 0o755)
    for task, sigma in (("1", 10), ("6", 40)):
        run("bash", SCRIPT, folder=array.parent, SLURM_ARRAY_TASK_ID=task, **own)
        result = json.loads((array / "out" / f"{task}.json").read_text())
        assert result["test"]["error"] < 0.2
        job = json.loads((array / "out" / f"{task}.run" / "job.json").read_text())["job"]
        assert job["model"]["sigma"] == sigma
        assert 3000 < job["model"]["max_seconds"] <= 3480
    first = (array / "out" / "1.json").read_text()
    run("bash", SCRIPT, folder=array.parent, SLURM_ARRAY_TASK_ID="1", **own)
    assert (array / "out" / "1.json").read_text() == first
    assert "no line 7" in run("bash", SCRIPT, folder=array.parent, code=2, SLURM_ARRAY_TASK_ID="7", **own).stderr
    # Slurm sets the end time of the task.
    own["SLURM_JOB_END_TIME"] = "4102444800"
    run("bash", SCRIPT, folder=array.parent, SLURM_ARRAY_TASK_ID="2", **own)
    job = json.loads((array / "out" / "2.run" / "job.json").read_text())["job"]
    assert job["model"]["max_seconds"] > 1e6

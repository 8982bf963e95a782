"""``distkern train --append``: the run continues over new rows alone; drift, plan, report, kills and refusals."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest

import distkern as dk
from tests.cli.command_line import Call, environment, model_bits
from tests.waiting import wait_until

JOB = (
    '[data]\ntrain = "p0.zarr"\ntest = "te.zarr"\n[output]\nmodel = "m.model"\nrun = "r.run"\n'
    "[model]\nmax_centers = 20\nsigma = 1.0\n"
)


def trained(here: Path, call: Call, parts: int = 3, n: int = 200) -> None:
    """A run of the rows p0.zarr, which are gone, and further parts p1.zarr and so on."""
    rng = np.random.default_rng(0)
    for name in [f"p{i}" for i in range(parts)] + ["te"]:
        X = rng.uniform(-2, 2, (n, 2))
        y = np.sin(2 * X[:, 0]) + 0.2 * rng.standard_normal(n)
        dk.write_dataset(f"{name}.zarr", X, y, chunk_rows=max(64, n // 8), task="regression")
    (here / "j.toml").write_text(JOB)
    done = call("train", "j.toml")
    assert done.code == 0, done.err
    shutil.rmtree("p0.zarr")


def sums(run: str) -> dict[str, bytes]:
    (place,) = Path(run).glob("sums-*")
    return {file.name: file.read_bytes() for file in place.glob("*.npy")} | {"name": place.name.encode()}


def test_parts_continue_the_run(here: Path, call: Call) -> None:
    trained(here, call)
    before = model_bits(here / "m.model")
    done = call("train", "j.toml", "--append", "p1.zarr", "--json")
    assert done.code == 0, done.err
    record = json.loads(done.out.splitlines()[-1])
    assert record["n_rows"] == 400
    assert record["test"]["rmse"] > 0
    (part,) = record["appended"]
    assert (part["n_rows"], part["rows_before"], part["score"]) == (200, 200, "rmse")
    assert model_bits(here / "m.model") != before
    done = call("train", "j.toml", "--append", "p2.zarr")
    assert done.code == 0, done.err
    assert "appended, part 2" in done.out
    assert "200 rows after 400: rmse on them" in done.out
    model, kept = dk.load_model("m.model"), dk.load_model("r.run")
    np.testing.assert_array_equal(kept.coef_, model.coef_)
    assert json.loads(call("info", "r.run", "--json").out)["summary"]["n_rows"] == 600
    assert len(model.summary_["appended"]) == 2
    assert call("report", "r.run", "--out", "r.html").code == 0
    page = Path("r.html").read_text()
    assert "Rows that came later" in page
    assert f"{part['before']:.4g}" in page


def test_a_part_cut_short_after_its_sums_is_finished_without_a_read(here: Path, call: Call) -> None:
    trained(here, call)
    shutil.copytree("m.model", "old.model")
    assert call("train", "j.toml", "--append", "p1.zarr").code == 0
    whole, bits = sums("r.run"), model_bits(here / "m.model")
    # As a kill before the model was written leaves it.
    shutil.rmtree("m.model")
    shutil.move("old.model", "m.model")
    shutil.rmtree(here / "p1.zarr" / "X" / "c")
    done = call("train", "j.toml", "--append", "p1.zarr", "--json")
    assert done.code == 0, done.err
    assert sums("r.run") == whole
    assert model_bits(here / "m.model") == bits
    assert json.loads(done.out.splitlines()[-1])["n_rows"] == 400


@pytest.mark.slow
def test_a_kill_within_a_part_loses_nothing(here: Path, call: Call) -> None:
    trained(here, call, parts=2, n=20_000)
    shutil.copytree("r.run", "other.run")
    command = [sys.executable, "-m", "distkern", "train", "j.toml", "--append", "p1.zarr"]
    process = subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    # The process has its imports behind it once it takes memory for blocks; where it kills itself does not matter.
    own = psutil.Process(process.pid)
    wait_until(lambda: process.poll() is not None or own.memory_info().rss > 150 << 20, 60.0)
    process.kill()
    process.communicate()
    assert call("train", "j.toml", "--append", "p1.zarr").code == 0
    undisturbed = call(
        "train", "j.toml", "--append", "p1.zarr", "--set", "output.run=other.run", "--set", "output.model=o"
    )
    assert undisturbed.code == 0, undisturbed.err
    assert sums("r.run") == sums("other.run")
    assert model_bits(here / "m.model") == model_bits(here / "o")


def test_rows_are_not_counted_twice(here: Path, call: Call) -> None:
    trained(here, call)
    shutil.copytree("p1.zarr", "again.zarr")
    for place in ("p1.zarr", "p2.zarr"):
        assert call("train", "j.toml", "--append", place).code == 0
    kept = sums("r.run")
    done = call("train", "j.toml", "--append", "again.zarr")
    assert done.code == 3
    assert "part 1 of its appended rows" in done.err
    assert sums("r.run") == kept


@pytest.mark.parametrize(
    ("more", "code", "text"),
    [
        (("--set", "model.sigma=2.0"), 6, "sigma"),
        (("--set", "output.run=none.run"), 6, "there is no run"),
        (("--resume",), 2, "exclude each other"),
        (("--set", "output.model=j.toml"), 6, "j.toml"),
    ],
)
def test_refusals(here: Path, call: Call, more: tuple[str, ...], code: int, text: str) -> None:
    trained(here, call)
    kept = sums("r.run")
    done = call("train", "j.toml", "--append", "p1.zarr", *more)
    assert done.code == code, done.err
    assert text in done.err
    assert sums("r.run") == kept


def test_resuming_would_drop_the_parts(here: Path, call: Call) -> None:
    trained(here, call)
    shutil.copytree("p1.zarr", "p0.zarr")  # any rows: the run is refused before they are read
    assert call("train", "j.toml", "--append", "p2.zarr").code == 0
    done = call("train", "j.toml", "--resume")
    assert done.code == 6
    assert "appended" in done.err


def test_the_plan_has_the_passes(here: Path, call: Call) -> None:
    trained(here, call)
    done = call("plan", "j.toml", "--append", "p1.zarr", "--json")
    assert done.code == 0, done.err
    plan = json.loads(done.out)
    assert (plan["n_rows"], plan["passes"]) == (200, 2)
    read = json.loads(Path("r.run", "summary.json").read_text())["bytes_read"]
    record = json.loads(call("train", "j.toml", "--append", "p1.zarr", "--json").out.splitlines()[-1])
    assert record["bytes_read"] - read == plan["bytes_read"]
    assert call("plan", "j.toml", "--append", "p1.zarr", "--memory", "1MiB").code == 4

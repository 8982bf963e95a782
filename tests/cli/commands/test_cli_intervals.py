"""``distkern predict --interval``, and the coverage that ``distkern evaluate`` and a report show."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import distkern as dk
from distkern.storage import read_predictions
from tests.cli.command_line import Call


def trained(here: Path, call: Call, n_targets: int = 1, more: str = "intervals = true") -> None:
    """A model m.model of noisy waves, a run r.run, test rows te.zarr and a file te.npz."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (900, 2))
    y = np.sin(2 * X) + 0.2 * rng.standard_normal((900, 2))
    y = y if n_targets == 2 else y[:, 0]
    dk.write_dataset("tr.zarr", X[:400], y[:400], chunk_rows=128, task="regression")
    dk.write_dataset("te.zarr", X[400:], y[400:], chunk_rows=128, task="regression")
    np.savez("te.npz", X=X[400:], y=y[400:])
    (here / "j.toml").write_text(
        '[data]\ntrain = "tr.zarr"\ntest = "te.zarr"\n[output]\nmodel = "m.model"\nrun = "r.run"\n'
        f"[model]\nmax_centers = 30\nsigma = 1.0\n{more}\n"
    )
    done = call("train", "j.toml")
    assert done.code == 0, done.err


@pytest.mark.parametrize("n_targets", [1, 2])
@pytest.mark.parametrize("out", ["p.csv", "p.parquet", "p.zarr"])
def test_predictions_have_the_ends(here: Path, call: Call, out: str, n_targets: int) -> None:
    trained(here, call, n_targets)
    test, model = dk.open_dataset("te.zarr"), dk.load_model("m.model")
    expected, predicted = model.predict_interval(test, 0.8)[:], model.predict(test)[:]
    for rows in ("te.zarr", "te.npz"):
        done = call("predict", "m.model", rows, "--out", out, "--interval", "0.8", "--overwrite")
        assert done.code == 0, done.err
        if out == "p.zarr":
            found = read_predictions(out)
            np.testing.assert_array_equal(found.prediction, predicted)
            np.testing.assert_allclose(found.interval, expected, rtol=1e-12)
            continue
        frame = pd.read_csv(out) if out == "p.csv" else pd.read_parquet(out)
        ends = ["lower", "upper"] if n_targets == 1 else ["lower_0", "upper_0", "lower_1", "upper_1"]
        assert list(frame)[n_targets:] == ends
        np.testing.assert_allclose(frame[ends].to_numpy(), expected.reshape(500, -1), rtol=1e-12)
        np.testing.assert_allclose(frame.iloc[:, :n_targets].to_numpy(), predicted.reshape(500, -1), rtol=1e-12)


def test_evaluations_and_reports_show_the_coverage(here: Path, call: Call) -> None:
    trained(here, call)
    test, model = dk.open_dataset("te.zarr"), dk.load_model("m.model")
    low, high = model.predict_interval(test)[:].T
    truth = test.targets(0, 500)
    covered = float(np.mean((low <= truth) & (truth <= high)))
    assert 0.85 < covered < 0.95
    for rows in (("te.zarr",), ("te.npz",)):
        record = json.loads(call("evaluate", "m.model", *rows, "--json").out)
        assert record["interval"] == 0.9
        assert record["covered"] == pytest.approx(covered)
    assert call("report", "r.run").code == 0
    page = (here / "r.run" / "report.html").read_text()
    assert "Coverage of intervals" in page
    assert f"0.9: {covered:.3f}" in page


def test_models_without_residuals(here: Path, call: Call) -> None:
    trained(here, call, more="")
    done = call("predict", "m.model", "te.zarr", "--out", "p.csv", "--interval", "0.8")
    assert done.code == 2
    assert "intervals=True" in done.err
    assert not (here / "p.csv").exists()
    assert "covered" not in json.loads(call("evaluate", "m.model", "te.zarr", "--json").out)
    assert call("predict", "m.model", "te.zarr", "--out", "p.csv", "--interval", "90").code == 2

"""Keys of ``[model]`` that are tables: factors of the classes by their labels; and a model without a constant."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import distkern as dk
from tests.cli.command_line import Call

JOB = '[data]\ntrain = "d.zarr"\n[output]\nmodel = "m.model"\nrun = "r.run"\n[model]\nmax_centers = 8\nsigma = 1.0\n'


@pytest.mark.parametrize("labels", [["a", "b"], [3, 7]])
def test_class_weights_and_no_constant(here: Path, call: Call, labels: list[object]) -> None:
    X = np.random.default_rng(0).standard_normal((120, 2))
    y = np.where(X[:, 0] + 0.3 * X[:, 1] > 0.5, labels[0], labels[1])
    dk.write_dataset("d.zarr", X, y, task="classification")
    (here / "j.toml").write_text(f"{JOB}fit_intercept = false\n[model.class_weight]\n{labels[0]} = 4.0\n")
    done = call("train", "j.toml")
    assert done.code == 0, done.err
    model = dk.load_model("m.model")
    np.testing.assert_array_equal(model.intercept_, 0.0)
    plain = dk.OROLSClassifier(max_centers=8, sigma=1.0, fit_intercept=False)
    plain.fit(X, y, sample_weight=np.where(y == labels[0], 4.0, 1.0))
    np.testing.assert_allclose(model.predict_proba(X), plain.predict_proba(X), rtol=1e-9)
    assert call("plan", "j.toml").code == 0
    assert call("train", "j.toml", "--resume", "auto").code == 0
    (here / "j.toml").write_text(f"{JOB}class_weight = 3\n")
    wrong = call("train", "j.toml", "--overwrite")
    assert wrong.code == 2
    assert "class_weight" in wrong.err

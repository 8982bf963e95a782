"""Peaks of the dense methods, each in a fresh process, against their plans."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.markers import variants

TRAINING = """
import json, sys
import numpy as np
import distkern as dk
name, n, parameters = json.loads(sys.argv[1])
X = np.random.default_rng(0).standard_normal((n, 10))
y = X[:, 0] if name.endswith("Regressor") else (2 * X[:, 0]).astype(int).clip(-1, 1)
print(json.dumps(getattr(dk, name)(**parameters).fit(X, y).summary_))
"""


KINDS: list[tuple[str, int, dict[str, Any]]] = [
    ("LSSVMClassifier", 4000, {"solver": "dense"}),
    ("LSSVMRegressor", 4000, {"solver": "cg"}),
    ("KernelFisherDiscriminant", 3000, {}),
    ("KernelMSEClassifier", 2000, {}),
    ("KernelMSEClassifier", 1500, {"ridge": 0.0}),
    ("KernelMSEClassifier", 10000, {"max_centers": 300}),
    ("QRForwardClassifier", 20000, {"max_centers": 150}),
    ("OLSForwardRegressor", 4000, {"max_centers": 10}),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "n", "parameters"),
    variants([kind for kind in KINDS if kind[0] in ("KernelFisherDiscriminant", "OLSForwardRegressor")], KINDS),
)
def test_measured_peaks_are_within_the_plan(name: str, n: int, parameters: dict[str, Any]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TRAINING, json.dumps([name, n, parameters])], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["peak_rss_driver"] <= summary["planned_peak_bytes"] < 3 * summary["peak_rss_driver"]

"""Writes the handwritten digits of scikit-learn as three files: training rows, validation rows and test rows."""

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

X, y = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(y))
parts = dict(zip(("train", "validation", "test"), np.split(order, [900, 1350]), strict=True))
for name, rows in parts.items():
    np.savez(Path(sys.argv[1]) / f"{name}.npz", X=X[rows], y=y[rows])

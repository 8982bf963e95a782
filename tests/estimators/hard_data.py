"""Data that is hard on arithmetic: every case says which precision has to refuse it, and as what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import distkern as dk

Array = NDArray[Any]
Made = tuple[Array, Array, Array | None]

BOTH = ("float64", "float32")


@dataclass(frozen=True)
class Hard:
    """Rows, targets and weights, and how to train on them."""

    make: Callable[[], Made]
    parameters: dict[str, Any] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    """dtype to the kind of the error; a model must come out of the others."""
    regression_only: bool = False
    warns: tuple[str, ...] = ()
    """dtypes that may train only with a `ScaleWarning`."""
    rounds: tuple[str, ...] = ()
    """dtypes in which a `RoundingWarning` may end the path."""


def easy(n: int = 150, d: int = 2) -> tuple[Array, Array]:
    rng = np.random.default_rng(5)
    X = rng.uniform(-2, 2, (n, d))
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, -1] + 0.05 * rng.standard_normal(n)
    return X, y


def labelled(y: Array, n_classes: int = 3) -> Array:
    """Classes of equal size by the order of a target."""
    order = np.argsort(np.argsort(y, kind="stable"), kind="stable")
    return order * n_classes // len(y)


def scaled_features(exponent: int, columns: slice = slice(None)) -> Callable[[], Made]:
    def make() -> Made:
        X, y = easy()
        X[:, columns] *= 10.0**exponent
        return X, y, None

    return make


def scaled_target(exponent: int) -> Callable[[], Made]:
    def make() -> Made:
        X, y = easy()
        return X, y * 10.0**exponent, None

    return make


def many_targets(exponent: int) -> Callable[[], Made]:
    def make() -> Made:
        X, y = easy()
        return X, np.column_stack([y * 10.0**exponent, y, X[:, 0] - y]), None

    return make


def weighted(exponent: float, rows: slice) -> Callable[[], Made]:
    def make() -> Made:
        X, y = easy()
        weights = np.ones(len(X))
        weights[rows] = 10.0**exponent
        return X, y, weights

    return make


def spread_weights() -> Made:
    X, y = easy()
    return X, y, 10.0 ** np.random.default_rng(1).uniform(-12, 12, len(X))


def changed(change: Callable[[Array, Array], tuple[Array, Array]], n: int = 150, d: int = 2) -> Callable[[], Made]:
    def make() -> Made:
        return *change(*easy(n, d)), None

    return make


def with_row(X: Array, column: int, value: float) -> Array:
    X = X.copy()
    X[7, column] = value
    return X


def kernel_columns(X: Array) -> Array:
    return np.array([[np.exp(-0.5 * np.square(a - b).sum()) for b in X[:3]] for a in X]) @ np.array([1.0, 2.0, -3.0])


def _wide() -> Made:
    X = np.random.default_rng(2).standard_normal((25, 500))
    return X, X[:, 0], None


def _one_off() -> Made:
    X, y = easy()
    y[:] = 1e30
    y[3] = np.nextafter(1e30, 2e30)
    return X, y, None


RAW = {"standardize": False}
ALL_ROWS, HALF, ONE = slice(None), slice(None, None, 2), slice(5, 6)

CASES: dict[str, Hard] = {
    "duplicates": Hard(changed(lambda X, y: (X[np.arange(150) % 10], y))),
    "two-rows-repeated": Hard(changed(lambda X, y: (X[np.r_[0, 1, np.full(148, 2)]], y))),
    "rank-one": Hard(changed(lambda X, y: (np.outer(X[:, 0], [1.0, 2.0, 3.0]), y))),
    "rank-one-linear": Hard(changed(lambda X, y: (np.outer(X[:, 0], [1.0, 2.0, 3.0]), y)), {"kernel": "linear"}),
    "constant-column": Hard(changed(lambda X, y: (np.column_stack([X, np.full(150, 7.7)]), y))),
    "column-constant-to-rounding": Hard(
        changed(lambda X, y: (np.column_stack([X, 1 + 2.2e-16 * (np.arange(150) % 3)]), y))
    ),
    "all-constant-to-rounding": Hard(changed(lambda X, y: (1e8 + 1e-8 * np.rint(X), y))),
    "identical-rows": Hard(
        changed(lambda X, y: (np.tile(X[0], (150, 1)), y)), refused=dict.fromkeys(BOTH, "constant-features")
    ),
    "identical-raw-rows": Hard(
        changed(lambda X, y: (np.tile(X[0], (150, 1)), y)), RAW, refused=dict.fromkeys(BOTH, "constant-features")
    ),
    "one-feature": Hard(changed(lambda X, y: (X, y), d=1)),
    "more-features-than-rows": Hard(_wide),
    "three-rows": Hard(changed(lambda X, y: (X, y), n=3)),
    "four-rows": Hard(changed(lambda X, y: (X, y), n=4)),
    "integers": Hard(changed(lambda X, y: (np.rint(10 * X).astype(np.int16), y))),
    "large-integers": Hard(changed(lambda X, y: ((X * 2.0**61).astype(np.int64), y))),
    "booleans": Hard(changed(lambda X, y: (X > 0, y), d=6)),
    "denormal-features": Hard(
        changed(lambda X, y: (np.rint(100 * X) * 5e-324, y)), refused=dict.fromkeys(BOTH, "underflow")
    ),
    "denormal-raw-features": Hard(
        changed(lambda X, y: (np.rint(100 * X) * 5e-324, y)), RAW, refused=dict.fromkeys(BOTH, "underflow")
    ),
    "denormal-target": Hard(
        changed(lambda X, y: (X, np.rint(100 * y) * 5e-324)),
        refused=dict.fromkeys(BOTH, "underflow"),
        regression_only=True,
    ),
    "equal-targets": Hard(changed(lambda X, y: (X, np.full(150, 3.7))), regression_only=True),
    "zero-targets": Hard(changed(lambda X, y: (X, np.zeros(150))), regression_only=True),
    "equal-huge-targets": Hard(changed(lambda X, y: (X, np.full(150, 1e300))), regression_only=True),
    "target-one-bit-off": Hard(_one_off, regression_only=True),
    "target-of-kernel-columns": Hard(
        changed(lambda X, y: (X, kernel_columns(X))), {"sigma": 1.0, **RAW}, regression_only=True
    ),
    "target-of-kernel-columns-plain": Hard(
        changed(lambda X, y: (X, kernel_columns(X))),
        {"sigma": 1.0, "regularization": "none", **RAW},
        regression_only=True,
    ),
    "linear-target": Hard(changed(lambda X, y: (X, X @ [1.0, 2.0])), {"kernel": "linear"}, regression_only=True),
    "linear-target-plain": Hard(
        changed(lambda X, y: (X, X @ [1.0, 2.0])),
        {"kernel": "linear", "regularization": "none"},
        regression_only=True,
    ),
    "linear-target-gaussian": Hard(changed(lambda X, y: (X, X @ [1.0, 2.0])), regression_only=True),
    "outlier-in-y": Hard(changed(lambda X, y: (X, with_row(y[:, None], 0, 1e12)[:, 0])), regression_only=True),
    "outlier-in-x": Hard(changed(lambda X, y: (with_row(X, 1, 1e12), y))),
    "outlier-in-raw-x": Hard(changed(lambda X, y: (with_row(X, 1, 1e12), y)), {"sigma": 1.0, **RAW}, warns=BOTH),
    "outlier-in-raw-x-median": Hard(changed(lambda X, y: (with_row(X, 1, 1e12), y)), RAW, warns=BOTH),
    "far-from-origin": Hard(changed(lambda X, y: (X + 1e12, y))),
    "far-from-origin-raw": Hard(changed(lambda X, y: (X + 1e12, y)), RAW),
    "target-far-from-zero": Hard(changed(lambda X, y: (X, y + 1e12)), regression_only=True),
    "target-beyond-its-digits": Hard(changed(lambda X, y: (X, y + 1e16)), regression_only=True),
    "polynomial-large": Hard(
        changed(lambda X, y: (1e6 * X, y)),
        {"kernel": dk.Polynomial(9, 1.0), **RAW},
        refused={"float32": "overflow"},
    ),
    "polynomial-overflow": Hard(
        changed(lambda X, y: (1e6 * X, y)),
        {"kernel": dk.Polynomial(60, 1.0), **RAW},
        refused=dict.fromkeys(BOTH, "overflow"),
    ),
    "sigmoid-saturated": Hard(changed(lambda X, y: (1e6 * X, y)), {"kernel": "sigmoid", **RAW}),
    "sigmoid-overflow": Hard(
        changed(lambda X, y: (X, y)), {"kernel": dk.Sigmoid(1e308, 1e308)}, {"float32": "overflow"}
    ),
    "epsilon-large": Hard(changed(lambda X, y: (X, y)), {"epsilon": 1e10}),
    "epsilon-huge": Hard(changed(lambda X, y: (X, y)), {"epsilon": 1e300}, refused=dict.fromkeys(BOTH, "overflow")),
    "lambda-huge": Hard(changed(lambda X, y: (X, y)), {"regularization": 1e300}),
    "lambda-tiny": Hard(changed(lambda X, y: (X, y)), {"regularization": 1e-300}),
    "all-weights-1e-6": Hard(weighted(-6, ALL_ROWS)),
    "all-weights-1e-150": Hard(weighted(-150, ALL_ROWS), refused=dict.fromkeys(BOTH, "underflow")),
    "all-weights-1e12": Hard(weighted(12, ALL_ROWS)),
    "all-weights-1e150": Hard(weighted(150, ALL_ROWS), refused=dict.fromkeys(BOTH, "overflow")),
    "half-weights-1e-300": Hard(weighted(-300, HALF)),
    "half-weights-1e-12": Hard(weighted(-12, HALF)),
    "half-weights-1e12": Hard(weighted(12, HALF), rounds=("float32",)),
    "one-weight-1e-12": Hard(weighted(-12, ONE)),
    "one-weight-1e12": Hard(weighted(12, ONE)),
    "one-weight-1e24": Hard(weighted(24, ONE)),
    "one-weight-1e300": Hard(weighted(300, ONE), refused=dict.fromkeys(BOTH, "overflow")),
    "weights-1e-12-to-1e12": Hard(spread_weights, rounds=("float32",)),
    **{
        f"sigma-1e{e}": Hard(changed(lambda X, y: (X, y)), {"sigma": 10.0**e}, rounds=("float32",) if e <= -4 else ())
        for e in (-300, -160, -30, -10, -4, 4, 10, 30, 160, 300)
    },
    **{
        f"features-1e{e}": Hard(
            scaled_features(e),
            refused=dict.fromkeys(BOTH, "underflow")
            if e < -140
            else dict.fromkeys(BOTH, "overflow")
            if e > 152
            else {},
        )
        for e in (-308, -200, -150, -130, -38, -20, 20, 38, 100, 150, 153, 300)
    },
    **{
        f"raw-features-1e{e}": Hard(
            scaled_features(e),
            RAW,
            refused={
                **({"float64": "underflow"} if e < -140 else {"float64": "overflow"} if e >= 150 else {}),
                **({"float32": "underflow"} if e < -30 else {"float32": "overflow"} if e > 14 else {}),
            },
        )
        for e in (-308, -200, -150, -130, -38, -20, 14, 20, 100, 140, 150, 300)
    },
    **{
        f"one-raw-feature-1e{e}": Hard(
            scaled_features(e, slice(1)),
            RAW,
            refused={} if e < 14 else {"float32": "overflow"},
            warns=BOTH,
        )
        for e in (-308, -30, -4, 4, 20)
    },
    **{
        f"target-1e{e}": Hard(
            scaled_target(e),
            refused={
                **({"float64": "underflow"} if e < -140 else {"float64": "overflow"} if e > 140 else {}),
                **({"float32": "underflow"} if e < -30 else {"float32": "overflow"} if e > 30 else {}),
            },
            regression_only=True,
        )
        for e in (-308, -200, -150, -100, -40, -20, 20, 38, 100, 150, 300)
    },
    **{
        f"targets-1e{e}-apart": Hard(
            many_targets(e),
            refused={
                **({"float64": "underflow"} if e < -140 else {"float64": "overflow"} if e > 140 else {}),
                **({"float32": "underflow"} if e < -30 else {"float32": "overflow"} if e > 30 else {}),
            },
            regression_only=True,
            rounds=("float32",) if -30 < e < 0 else (),
        )
        for e in (-200, -100, -20, -6, 6, 20, 100, 150)
    },
}

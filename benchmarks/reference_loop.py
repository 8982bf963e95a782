"""The paper's Algorithm 1 in distkern, compared with a plain numpy loop over the same equations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

import distkern
from benchmarks import generated

Array = NDArray[np.float64]

DEPENDENT = 1e-14
"""A column with |q|^2 below this times |k|^2 is skipped."""


@dataclass(frozen=True)
class Loop:
    """Result of the loop."""

    centers: list[int]
    """Rows in the order of selection."""
    lambda_: float
    gcv: float
    seconds: float
    layout: str
    """Layout of Q in memory."""


def plain_loop(X: Array, y: Array, sigma: float, max_centers: int, layout: str) -> Loop:
    """Select one centre at a time: largest residual, kernel column, two Gram-Schmidt passes, lambda by GCV, residual.

    Parameters
    ----------
    X : array, shape (M, d)
        Rows in kernel space.
    y : array, shape (M,)
        Targets; their mean is subtracted.
    sigma : float
        Width of the Gaussian.
    max_centers : int
        Number of centres to select.
    layout : {"columns", "rows"}
        Whether Q is stored column by column or row by row.
    """
    started = perf_counter()
    M, columns = len(X), max_centers + 1
    Q = np.zeros((columns, M)).T if layout == "columns" else np.zeros((M, columns))
    norms = np.einsum("ij,ij->i", X, X)
    E = y - y.mean()
    centred, yy = E.copy(), float(E @ E)
    s, z = np.zeros(columns), np.zeros(columns)
    Q[:, 0], s[0] = 1.0, M
    taken = np.zeros(M, dtype=bool)
    k, q, size, product = np.empty(M), np.empty(M), np.empty(M), np.empty(M)
    centers: list[int] = []
    lam = gcv = 0.0
    while len(centers) < max_centers and not taken.all():
        m = len(centers) + 1
        np.abs(E, out=size)
        size[taken] = -1.0
        row = int(size.argmax())
        taken[row] = True
        np.matmul(X, X[row], out=k)
        k *= 2.0
        k -= norms
        k -= norms[row]
        k /= 2.0 * sigma**2
        np.exp(k, out=k)
        k[row] = 1.0
        head = Q[:, :m]
        np.matmul(head, head.T @ k / s[:m], out=product)
        np.subtract(k, product, out=q)
        np.matmul(head, head.T @ q / s[:m], out=product)
        np.subtract(q, product, out=q)
        norm = float(q @ q)
        if norm <= DEPENDENT * float(k @ k):
            continue
        s[m], z[m] = norm, q @ centred
        Q[:, m] = q
        lam, gcv = estimate_lambda(s[: m + 1], z[: m + 1], yy, lam, M)
        np.multiply(q, z[m] / (lam + norm), out=product)
        np.subtract(E, product, out=E)
        centers.append(row)
    return Loop(centers, lam, gcv, perf_counter() - started, layout)


def estimate_lambda(s: Array, z: Array, yy: float, lam: float, M: int) -> tuple[float, float]:
    """Return lambda after one step by GCV (thesis 3.85 to 3.89), and the GCV with the new lambda."""

    def parts(value: float) -> tuple[Array, float, float]:
        total = value + s
        squares = yy - 2 * np.sum(z**2 / total) + np.sum(s * z**2 / total**2)
        return total, max(float(squares), 0.0), float(M - np.sum(s / total))

    total, squares, trace = parts(lam)
    curvature = float(np.sum((z / total) ** 2 / total))
    if trace > 0 and curvature > 0:
        lam = float(np.sum(s / total**2)) * squares / (trace * curvature)
        lam = min(max(lam, 0.0), 1e6 * float(s.max()))
    _, squares, trace = parts(lam)
    return lam, M * squares / trace**2


def faster_layout(M: int, max_centers: int) -> str:
    """Return the layout of Q for which the loop's two products, at half its length, take less time."""
    half = max(1, max_centers // 2)
    column, coefficients, out = np.ones(M), np.ones(half), np.empty(M)
    seconds = {}
    for layout in ("columns", "rows"):
        Q = np.zeros((max_centers + 1, M)).T if layout == "columns" else np.zeros((M, max_centers + 1))
        Q[:, :half] = 1.0
        times = []
        for _ in range(3):
            started = perf_counter()
            head = Q[:, :half]
            head.T @ column
            np.matmul(head, coefficients, out=out)
            times.append(perf_counter() - started)
        seconds[layout] = min(times)
        del Q, head
    return min(seconds, key=lambda layout: seconds[layout])


def compare(rows: int, features: int, centers: int) -> dict[str, Any]:
    """Measure both on the same rows."""
    X, y = generated.in_memory(generated.waves(rows, features))
    sigma = float(np.sqrt(features))
    loop = plain_loop(X, y, sigma, centers, faster_layout(rows, centers))
    estimator = distkern.OROLSRegressor(
        criterion="residual", sigma=sigma, max_centers=centers, stop=None, standardize=False
    )
    clone(estimator).set_params(max_centers=2).fit(X[:1000], y[:1000])  # imports what a training needs
    started = perf_counter()
    model = estimator.fit(X, y)
    seconds = perf_counter() - started
    ours = model.center_indices_.tolist()
    same = next((i for i, pair in enumerate(zip(ours, loop.centers, strict=False)) if pair[0] != pair[1]), None)
    agree = min(len(ours), len(loop.centers)) if same is None else same
    return {
        "rows": rows,
        "features": features,
        "centers": len(ours),
        "loop s": loop.seconds,
        "Q by": loop.layout,
        "distkern s": seconds,
        "loop/distkern": loop.seconds / seconds,
        "exchanges": model.summary_["exchanges"],
        "same order": ours == loop.centers,
        "same first": agree,
        "lambda difference": abs(model.lambda_ - loop.lambda_) / loop.lambda_ if loop.lambda_ else model.lambda_,
    }


def run(rows: int, features: int, centers: Iterable[int]) -> Iterator[dict[str, Any]]:
    """Compare at several numbers of centres."""
    for m in centers:
        yield compare(rows, features, m)

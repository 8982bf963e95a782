"""Kernel recursive least squares row by row, straight from the equations (Engel et al.; thesis 3.94-3.110)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Recursed(NamedTuple):
    rows: list[int]
    """Rows that joined."""
    weights: Array
    """(m, T)."""
    deltas: Array
    """(n,): delta of every row against the dictionary before it."""
    P: Array
    """inv(R'R)."""


def plus_one(kernel: Any, X: Array, C: Array) -> Array:
    return np.asarray(kernel.block(X, C.copy())) + 1.0


def recurse(kernel: Any, X: Array, y: Array, nu: float) -> Recursed:
    """Engel's recursion: K^-1 by (3.108), P by (3.106) or (3.107), weights with every row."""
    rows = [0]
    deltas = np.zeros(len(X))
    deltas[0] = plus_one(kernel, X[:1], X[:1])[0, 0]
    K_inverse = np.array([[1 / deltas[0]]])
    P = np.ones((1, 1))
    weights = K_inverse @ y[:1]
    for n in range(1, len(X)):
        k = plus_one(kernel, X[n : n + 1], X[rows])[0]
        own = float(np.asarray(kernel.diagonal(X[n : n + 1]))[0]) + 1.0
        r = K_inverse @ k
        delta = own - k @ r
        deltas[n] = delta
        error = y[n] - k @ weights
        if delta > nu:
            m = len(rows)
            K_inverse = np.block([[delta * K_inverse + np.outer(r, r), -r[:, None]], [-r[None], np.ones((1, 1))]])
            K_inverse /= delta
            P = np.block([[P, np.zeros((m, 1))], [np.zeros((1, m)), np.ones((1, 1))]])
            weights = np.vstack([weights - np.outer(r, error) / delta, error[None] / delta])
            rows.append(n)
        else:
            q = P @ r / (1 + r @ P @ r)
            P = P - np.outer(q, r @ P)
            weights = weights + np.outer(K_inverse @ q, error)
    return Recursed(rows, weights, deltas, P)


def sparsify(kernel: Any, X: Array, nu: float) -> tuple[list[int], Array]:
    """Algorithm 3 without P: rows that join, and every row's delta; room is made once, for many rows."""
    most = len(X)
    deltas = np.empty(len(X))
    rows: list[int] = []
    K_inverse = np.zeros((64, 64))
    for n in range(most):
        own = float(np.asarray(kernel.diagonal(X[n : n + 1]))[0]) + 1.0
        m = len(rows)
        k = plus_one(kernel, X[n : n + 1], X[rows])[0] if m else np.empty(0)
        r = K_inverse[:m, :m] @ k
        deltas[n] = own - k @ r
        if deltas[n] <= nu:
            continue
        if m == len(K_inverse):
            grown = np.zeros((2 * m, 2 * m))
            grown[:m, :m] = K_inverse
            K_inverse = grown
        K_inverse[:m, :m] += np.outer(r, r) / deltas[n]
        K_inverse[:m, m] = K_inverse[m, :m] = -r / deltas[n]
        K_inverse[m, m] = 1 / deltas[n]
        rows.append(n)
    return rows, deltas


def reduced_rows(kernel: Any, X: Array, rows: list[int]) -> Array:
    """R: every row in terms of the dictionary at its time, padded with zeros; a centre's own is a unit vector."""
    R = np.zeros((len(X), len(rows)))
    for n in range(len(X)):
        known = [row for row in rows if row <= n]
        K = plus_one(kernel, X[known], X[known])
        R[n, : len(known)] = np.linalg.solve(K, plus_one(kernel, X[known], X[n : n + 1])[:, 0])
    return R


def filtered(K_inverse: Array, R: Array, k_rows: Array, y: Array, P: Array) -> Array:
    """Algorithm 4: the weights of a dictionary that stays, starting at zero with the given P."""
    weights = np.zeros((len(K_inverse), y.shape[1]))
    for r, k, target in zip(R, k_rows, y, strict=True):
        q = P @ r / (1 + r @ P @ r)
        weights = weights + np.outer(K_inverse @ q, target - k @ weights)
        P = P - np.outer(q, r @ P)
    return weights

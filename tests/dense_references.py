"""Slow references of the dense methods, straight from the equations."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tests.references import gaussian_gram

Array = NDArray[np.float64]


def bordered(K: Array, Y: Array, gamma: float) -> tuple[Array, Array]:
    """Weights and intercepts of [0 1'; 1 K + I/gamma][b; a] = [0; y], the whole system at once."""
    n = len(K)
    system = np.block([[np.zeros((1, 1)), np.ones((1, n))], [np.ones((n, 1)), K + np.eye(n) / gamma]])
    solution = np.linalg.solve(system, np.vstack([np.zeros((1, Y.shape[1])), Y]))
    return solution[1:], solution[0]


def within_scatter(K: Array, codes: NDArray[np.intp]) -> Array:
    """N = sum_c K_c (I - 1/M_c) K_c' (thesis 3.38)."""
    N = np.zeros_like(K)
    for c in np.unique(codes):
        part = K[:, codes == c]
        m = part.shape[1]
        N += part @ (np.eye(m) - np.full((m, m), 1 / m)) @ part.T
    return N


def class_means(K: Array, codes: NDArray[np.intp]) -> Array:
    """Mean kernel column of each class (thesis 3.37), a row a class."""
    return np.array([K[:, codes == c].mean(axis=1) for c in np.unique(codes)])


def standardized(X: Array) -> Array:
    """Zero mean and unit standard deviation."""
    return (X - X.mean(axis=0)) / X.std(axis=0)


def gram_of(X: Array, sigma: float) -> Array:
    """Gram matrix of standardised rows."""
    return gaussian_gram(standardized(X), sigma)


def least_squares_weights(K: Array, rows: list[int], Y: Array) -> Array:
    """Intercept and weights of the least-squares fit on [1 K[:, rows]]."""
    return np.linalg.lstsq(np.column_stack([np.ones(len(K)), K[:, rows]]), Y, rcond=None)[0]


def residual_path(K: Array, Y: Array, count: int) -> list[int]:
    """Rows with the largest residual, one at a time, every fit from scratch."""
    rows: list[int] = []
    for _ in range(count):
        weights = least_squares_weights(K, rows, Y)
        residual = Y - np.column_stack([np.ones(len(K)), K[:, rows]]) @ weights
        sizes = np.sqrt(np.square(residual).sum(axis=1))
        sizes[rows] = -1.0
        rows.append(int(np.argmax(sizes)))
    return rows

"""Generated data, in memory or streamed into a store; a smaller set has the first rows of a larger one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.storage import Dataset, DatasetWriter, open_dataset

PIECE = 1 << 15
"""Rows that are generated together."""

Pieces = Iterator[tuple[NDArray[Any], NDArray[Any]]]


def waves(rows: int, features: int, dtype: str = "float64", seed: int = 0) -> Pieces:
    """Yield pieces of a smooth regression: a sum of sines in random directions and a tenth of noise."""
    shape = np.random.default_rng([seed, 0])
    directions = shape.standard_normal((features, 8)) / np.sqrt(features) * np.linspace(0.5, 2.0, 8)
    for number, n in numbered_pieces(rows):
        rng = np.random.default_rng([seed, 1, number])
        # Always a whole piece: the rows of a smaller set are then the first rows of a larger one.
        X = rng.standard_normal((PIECE, features))[:n]
        y = np.sin(2.0 * (X @ directions)).sum(axis=1) + 0.1 * rng.standard_normal(PIECE)[:n]
        yield X.astype(dtype), y.astype(dtype)


@dataclass(frozen=True)
class Mixture:
    """Classes that are mixtures of spherical Gaussians of unit variance.

    Components lie around the centre of their class, class centres around 0, both within a random subspace. The
    components of a class are farther apart than neighbouring classes, so no hyperplane separates the classes, and all
    of them overlap.
    """

    classes: int
    components: int
    """Components of a class."""
    features: int
    subspace: int = 8
    """Dimensions in which the means differ."""
    middles: float = 2.0
    """Standard deviation of the class centres in each dimension."""
    spread: float = 2.0
    """Standard deviation of the components around their class centre in each dimension."""
    seed: int = 0
    means: NDArray[np.float64] = field(init=False, repr=False)
    """(classes * components, features), class by class."""

    def __post_init__(self) -> None:
        rng = np.random.default_rng([self.seed, 0])
        size = (self.classes, self.components, min(self.subspace, self.features))
        inner = self.middles * rng.standard_normal((size[0], 1, size[2])) + self.spread * rng.standard_normal(size)
        basis = np.linalg.qr(rng.standard_normal((self.features, size[2])))[0]
        object.__setattr__(self, "means", inner.reshape(-1, size[2]) @ basis.T)

    def draw(self, rows: int, part: int = 0) -> Pieces:
        """Yield pieces of float32 rows and class numbers; parts are independent of each other."""
        for number, n in numbered_pieces(rows):
            rng = np.random.default_rng([self.seed, 1, part, number])
            chosen = rng.integers(0, len(self.means), PIECE)
            X = self.means[chosen] + rng.standard_normal((PIECE, self.features))
            yield X[:n].astype(np.float32), chosen[:n] // self.components

    def best_guess(self, X: NDArray[Any]) -> NDArray[np.int64]:
        """Predict the class with the largest density; with equal class shares no classifier has a smaller error."""
        X = X.astype(np.float64)
        exponents = X @ self.means.T - 0.5 * np.square(self.means).sum(axis=1)
        exponents -= exponents.max(axis=1, keepdims=True)
        densities = np.exp(exponents).reshape(len(X), self.classes, self.components).sum(axis=2)
        return np.asarray(densities.argmax(axis=1))


def in_memory(pieces: Pieces) -> tuple[NDArray[Any], NDArray[Any]]:
    """Join pieces into X and y."""
    X, y = zip(*pieces, strict=True)
    return np.concatenate(X), np.concatenate(y)


def store(path: Path, rows: int, pieces: Pieces, task: str, chunk_rows: int | None = None) -> Dataset:
    """Write pieces to a dataset store, in the memory of a few pieces."""
    with DatasetWriter(path, n_rows=rows, task=task, chunk_rows=chunk_rows) as writer:
        for X, y in pieces:
            writer.append(X, y)
    return open_dataset(path)


def rows_of(dataset: Dataset, then: Callable[[NDArray[Any], NDArray[Any]], None]) -> None:
    """Call a function with all rows of a store, one piece at a time."""
    for start in range(0, dataset.n_rows, PIECE):
        stop = min(start + PIECE, dataset.n_rows)
        then(np.asarray(dataset.X[start:stop]), dataset.targets(start, stop))


def numbered_pieces(rows: int) -> Iterator[tuple[int, int]]:
    """Yield the number of each piece and how many of its rows belong to a set of `rows` rows."""
    for number, start in enumerate(range(0, rows, PIECE)):
        yield number, min(PIECE, rows - start)

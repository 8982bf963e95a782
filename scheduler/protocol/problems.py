"""What a set of factors is about: some target columns, some of the rows, a kernel.

All problems of a training share the reads of the rows and the exchanges. One problem of all targets is the default;
one a class, one a pair of classes, and one a fold and a setting are the same mechanism.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array
from distkern.kernels import Kernel
from distkern.numerics.row_draws import row_uniforms

FOLD_STREAM = (1 << 40) + 3
"""Stream of the row draws that decides which fold a row belongs to."""


@dataclass(frozen=True)
class Draw:
    """Answer with the rows most worth being candidates; with every width, where there are several."""

    seed: int
    """Key of the row draws."""
    round: int
    """Stream of the row draws."""
    n_top: int
    """Candidates of the rows with the largest residual."""
    n_race: int
    """Candidates of the rows of a weighted draw without replacement."""
    by_residual: bool
    """Race with probability proportional to the squared residual; else to the row weight."""


@dataclass(frozen=True)
class Folds:
    """A partition of the rows into folds of equal size."""

    count: int
    """Folds."""
    seed: int
    """Key of the row draws."""

    def numbers(self, first: int, n_rows: int) -> NDArray[np.int64]:
        """Fold of each of `n_rows` rows from row `first` on.

        Every run of `count` consecutive rows is spread over all folds in an order of its own, so that rows that are
        sorted by class or by value are spread evenly too. The fold of a row depends on its number alone.
        """
        start = first // self.count
        groups = -(-(first + n_rows) // self.count) - start
        uniforms = row_uniforms(self.seed, FOLD_STREAM, start * self.count, groups * self.count)
        order = np.argsort(uniforms.reshape(groups, self.count), axis=1, kind="stable")
        skipped = first - start * self.count
        return order.ravel()[skipped : skipped + n_rows].astype(np.int64)


@dataclass(frozen=True)
class OtherFolds:
    """The rows outside one fold."""

    folds: Folds
    fold: int


@dataclass(frozen=True)
class ClassPair:
    """The rows of two classes."""

    first: int
    """Code of the class whose target is -1."""
    second: int
    """Code of the class whose target is +1."""


@dataclass(frozen=True)
class Problem:
    """One set of factors."""

    columns: tuple[int, ...]
    """Encoded target columns."""
    target_means: Array
    """(len(columns),): subtracted from them."""
    weight_sum: float
    """Of the rows that take part."""
    kernel: Kernel
    within: tuple[OtherFolds | ClassPair, ...]
    """What a row must be of to take part."""
    draw: Draw | None
    """First draw of candidates."""

    def takes(self, numbers: NDArray[np.int64], codes: NDArray[np.int64] | None) -> NDArray[np.bool_] | None:
        """Tell which rows take part, None for all.

        Parameters
        ----------
        numbers : array, shape (n,)
            Global row numbers, all of one block.
        codes : array, shape (n,), or None
            Class of each row.
        """
        if not self.within:
            return None
        taking = np.ones(len(numbers), dtype=bool)
        for condition in self.within:
            if isinstance(condition, ClassPair):
                assert codes is not None
                taking &= (codes == condition.first) | (codes == condition.second)
            else:
                taking &= folds_of(condition.folds, numbers) != condition.fold
        return taking


def folds_of(folds: Folds, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Fold of each of some rows of one block, shape (n,)."""
    if not len(numbers):
        return np.empty(0, dtype=np.int64)
    first = int(numbers.min())
    return folds.numbers(first, int(numbers.max()) - first + 1)[numbers - first]

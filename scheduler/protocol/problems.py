"""Problems: target columns, rows and a kernel that share one set of factors.

All problems of a training share the reads of the rows and the exchanges. By default there is one problem of all
targets; it may also be one for each class, pair of classes, or fold and setting. Covers the rows and draws of a
problem; `..selectors.problem_setup` sets problems up. Messages contain these classes, and digests contain their names.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array
from distkern.kernels import Kernel
from distkern.numerics.row_draws import row_uniforms

FOLD_STREAM = (1 << 40) + 3
"""Stream of the row draws that decides which fold a row belongs to."""


@dataclass(frozen=True)
class Draw:
    """Answer with the rows that are the best candidates; with every width, where there are several."""

    seed: int
    """Key of the row draws."""
    round: int
    """Stream of the row draws."""
    n_top: int
    """Number of candidates of the rows with the largest residual."""
    n_race: int
    """Number of candidates of a weighted draw without replacement."""
    by_residual: bool
    """Whether the probability of the weighted draw is proportional to the squared residual; else to the row weight."""


@dataclass(frozen=True)
class Folds:
    """A partition of the rows into folds of equal size."""

    count: int
    """Number of folds."""
    seed: int
    """Key of the row draws."""

    def numbers(self, first: int, n_rows: int) -> NDArray[np.int64]:
        """Return the fold of each of `n_rows` rows from row `first` on.

        Of every `count` consecutive rows each fold gets one, in an order that is drawn anew, so rows sorted by class or
        value are spread evenly too. The fold of a row depends on its number alone.
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
    """(len(columns),): subtracted from the target columns."""
    weight_sum: float
    """Sum of the weights of the rows that take part."""
    kernel: Kernel
    within: tuple[OtherFolds | ClassPair, ...]
    """Sets that all hold the rows that take part."""
    draw: Draw | None
    """First draw of candidates."""
    target_units: tuple[float, ...] | None = field(default=None, metadata={"hashed_unless": None})
    """(len(columns),): units of the centred targets, see `distkern.numerics.target_scales`; None for ones."""

    def centred(self, encoded: Array, means: Array) -> Array:
        """Return the columns of the problem less `means`, in its units.

        Parameters
        ----------
        encoded : array, shape (n, all columns)
            Encoded targets.
        means : array, shape (len(columns),)
            Means in the units of the user.
        """
        targets: Array = encoded[:, list(self.columns)] - means
        if self.target_units is not None:
            targets /= np.array(self.target_units)
        return targets

    def takes(self, numbers: NDArray[np.int64], codes: NDArray[np.int64] | None) -> NDArray[np.bool_] | None:
        """Return a mask of the rows that take part, None for all.

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
    """Return the fold of each of some rows of one block, shape (n,)."""
    if not len(numbers):
        return np.empty(0, dtype=np.int64)
    first = int(numbers.min())
    return folds.numbers(first, int(numbers.max()) - first + 1)[numbers - first]

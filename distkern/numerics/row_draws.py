"""Random draws of rows, and lists of the best rows, that do not depend on how the rows are split into blocks.

Every random number is a function of a seed, a round and a global row number. For a draw without replacement each row
gets a key, and the rows with the smallest keys are drawn (an exponential race). Each block keeps a short list of its
best rows. Lists merge exactly, so any tree of blocks gives the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..arrays import Array
from ..errors import DataError

__all__ = ["Shortlist", "combine_draws", "draw_keys", "residual_keys", "row_uniforms", "uniforms_for_rows"]

IntArray = npt.NDArray[np.int64]

_WORD = 2**64 - 1

_WINDOW = 65536
"""Longest range of rows whose numbers are generated at once, to take the numbers of scattered rows from it."""


def row_uniforms(seed: int, round_: int, start: int, count: int) -> Array:
    """Return one uniform number for each of `count` rows from row `start` on.

    Row i has word i of the Philox4x64-10 stream with key (seed, round). A counter-based generator (Salmon, Moraes, Dror
    and Shaw, 2011) makes it a function of these three numbers: no state passes from block to block.

    Parameters
    ----------
    seed, round_ : int
        The key, each taken modulo 2^64.
    start : int
        First global row, at least 0.
    count : int
        Number of rows.

    Returns
    -------
    array, shape (count,)
        Numbers strictly between 0 and 1, multiples of 2^-53.
    """
    skipped = start % 4  # one counter value of Philox gives four words
    generator = np.random.Philox(
        key=np.array([seed & _WORD, round_ & _WORD], dtype=np.uint64),
        counter=np.array([start // 4, 0, 0, 0], dtype=np.uint64),
    )
    words = generator.random_raw(skipped + count)[skipped:]
    # 52 bits and a half: with 53 bits the largest number would round to 1, and the logarithm of 0 is infinite.
    return np.asarray(((words >> np.uint64(12)) + 0.5) * 2.0**-52)


def uniforms_for_rows(seed: int, round_: int, rows: IntArray) -> Array:
    """Return the numbers of `row_uniforms` for given rows.

    Rows that lie close together cost least; a row far from all others costs about ten microseconds.

    Parameters
    ----------
    seed, round_ : int
        The key, each taken modulo 2^64.
    rows : array, shape (n,)
        Global rows in ascending order.

    Returns
    -------
    array, shape (n,)
        Numbers strictly between 0 and 1.
    """
    rows = np.asarray(rows, dtype=np.int64)
    assert (rows[1:] >= rows[:-1]).all(), "rows must ascend"
    uniforms = np.empty(len(rows))
    begin = 0
    while begin < len(rows):
        first = int(rows[begin])
        end = int(np.searchsorted(rows, first + _WINDOW))
        window = row_uniforms(seed, round_, first, int(rows[end - 1]) - first + 1)
        uniforms[begin:end] = window[rows[begin:end] - first]
        begin = end
    return uniforms


def draw_keys(uniforms: Array, weights: npt.NDArray[Any]) -> Array:
    """Return the keys -log(u)/w of a weighted draw without replacement, the arrival times of an exponential race.

    The rows with the n smallest keys are a draw of n rows without replacement. Each next row is drawn with a
    probability proportional to its weight among the remaining rows (Efraimidis and Spirakis, 2006).

    Parameters
    ----------
    uniforms : array, shape (n_rows,)
        Numbers strictly between 0 and 1.
    weights : array, shape (n_rows,)
        Not negative; the draw depends on their ratios only.

    Returns
    -------
    array, shape (n_rows,)
        Keys, at least 0; infinite where the weight is 0.

    Raises
    ------
    DataError
        A weight is negative or not a number.
    """
    w = np.asarray(weights, dtype=np.float64)
    invalid = ~(w >= 0.0)
    if invalid.any():
        row = int(np.argmax(invalid))
        raise DataError(
            f"the weight of row {row} in a draw is {w[row]}: a weight must be at least 0",
            kind="invalid-weights",
        )
    with np.errstate(divide="ignore", over="ignore"):
        keys = -np.log(uniforms) / w
    # The key of a tiny weight can overflow; a finite key keeps the row in the draw.
    return np.where(w > 0.0, np.minimum(keys, np.finfo(np.float64).max), np.inf)


def residual_keys(residual_norm: npt.NDArray[Any]) -> Array:
    """Return -|e|, shape (n_rows,): the rows with the largest residuals have the smallest keys."""
    return -np.abs(np.asarray(residual_norm, dtype=np.float64))


@dataclass(frozen=True, eq=False)
class Shortlist:
    """The best rows of a set: smallest keys first, equal keys by ascending row."""

    keys: Array
    """Key of each row, shape (n,), ascending; finite or -inf."""

    rows: IntArray
    """Global row numbers, shape (n,)."""

    residuals: Array
    """A number that is kept with each row, shape (n,), such as the norm of its residual."""

    @classmethod
    def empty(cls) -> Shortlist:
        """Return the list of no rows: the neutral element of `merge`."""
        return cls(np.empty(0), np.empty(0, dtype=np.int64), np.empty(0))

    @classmethod
    def top(
        cls,
        keys: npt.NDArray[Any],
        rows: npt.NDArray[np.integer[Any]],
        residuals: npt.NDArray[Any],
        n: int,
    ) -> Shortlist:
        """Return the best `n` of the given rows, in time linear in their number.

        Parameters
        ----------
        keys : array, shape (n_rows,)
            Smaller is better; a row with an infinite key or one that is not a number is left out.
        rows : array, shape (n_rows,)
            Distinct global row numbers, in any order.
        residuals : array, shape (n_rows,)
            A number that is kept with each row.
        n : int
            Largest number of rows in the list.

        Returns
        -------
        Shortlist
            At most `n` rows, ordered by (key, row).
        """
        keys = np.asarray(keys, dtype=np.float64)
        numbers: IntArray = np.asarray(rows, dtype=np.int64)
        chosen = np.flatnonzero(keys < np.inf)
        if 0 < n < len(chosen):
            present = keys[chosen]
            last = np.partition(present, n - 1)[n - 1]
            below, tied = chosen[present < last], chosen[present == last]
            missing = n - len(below)
            if missing < len(tied):
                tied = tied[np.argpartition(numbers[tied], missing - 1)[:missing]]
            chosen = np.concatenate([below, tied])
        chosen = chosen[np.lexsort((numbers[chosen], keys[chosen]))][: max(n, 0)]
        return cls(keys[chosen], numbers[chosen], np.asarray(residuals, dtype=np.float64)[chosen])

    def merge(self, other: Shortlist, n: int) -> Shortlist:
        """Return the best `n` rows of both lists.

        Parameters
        ----------
        other : Shortlist
            A list of other rows.
        n : int
            Largest number of rows in the list; the same at every merge of a tree, and at most that of both lists.

        Returns
        -------
        Shortlist
            Equal to `top` of all rows at once, for any order of merging.
        """
        return Shortlist.top(
            np.concatenate([self.keys, other.keys]),
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.residuals, other.residuals]),
            n,
        )


def combine_draws(top: Shortlist, weighted: Shortlist, n_top: int, n: int) -> IntArray:
    """Return up to `n` distinct rows: first the best of `top`, then drawn rows.

    Parameters
    ----------
    top : Shortlist
        Rows by residual; the first `n_top` are taken.
    weighted : Shortlist
        Rows by `draw_keys`; they follow, without the rows already taken, until there are `n`.
    n_top, n : int
        Number of rows from `top`, and of all rows. When `weighted` has no more rows, further rows of `top` follow.

    Returns
    -------
    array of int64, shape (at most n,)
        Rows in the order in which they were taken.
    """
    taken = top.rows[: max(min(n_top, n), 0)]
    for more in (weighted.rows, top.rows[len(taken) :]):
        fresh = more[~np.isin(more, taken)]
        taken = np.concatenate([taken, fresh[: max(n - len(taken), 0)]])
    return taken

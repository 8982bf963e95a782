"""Candidates: a row with one of the widths that the kernel may have there.

Draws, pool, marks and unfinished paths name a candidate by one number: the row number, plus the number of rows of the
data for every width before its own. With one width this is the row number. Covers names and kernel-space features;
which candidates are drawn is decided in `..blocks.pool_tiles`, which are accepted in `..selectors`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.kernels import Kernel, kernel_of_centers
from distkern.numerics.scaling import FeatureScaling

Numbers = NDArray[np.int64]


def rows_and_widths(numbers: Numbers, n_rows: int) -> tuple[Numbers, Numbers]:
    """Split candidate numbers into global rows and numbers of widths, each of shape (n,).

    Parameters
    ----------
    numbers : array, shape (n,)
        Candidates.
    n_rows : int
        Rows of the data.
    """
    widths, rows = np.divmod(numbers, n_rows)
    return rows, widths


def candidate_numbers(rows: Numbers, widths: Numbers, n_rows: int) -> Numbers:
    """Return the candidates of some rows with some widths, the inverse of `rows_and_widths`."""
    return widths * n_rows + rows


@dataclass(frozen=True)
class Candidates:
    """Candidates in kernel space, ready for the kernel columns of any block."""

    rows: Numbers
    """(n,): global row of each candidate."""
    features: NDArray[Any]
    """(w, d): zero-padded to w >= n rows, so that products have the same shapes for any number of candidates."""
    kernel: Kernel
    """Kernel of w centres; only the columns of the first n are used."""

    @classmethod
    def prepare(
        cls,
        numbers: Numbers,
        raw: NDArray[Any],
        *,
        n_rows: int,
        scaling: FeatureScaling,
        kernel: Kernel,
        dtype: np.dtype[Any],
        width: int,
    ) -> Candidates:
        """Map candidates to kernel space.

        Parameters
        ----------
        numbers : array, shape (n,)
            Candidates.
        raw : array, shape (n, d)
            Raw features of their rows.
        n_rows : int
            Rows of the data.
        scaling : FeatureScaling
            From raw features to kernel space.
        kernel : Kernel
            Kernel of the problem.
        dtype : dtype
            Dtype of the kernel columns.
        width : int
            Columns to pad to.
        """
        rows, widths = rows_and_widths(numbers, n_rows)
        features = np.zeros((width, scaling.width), dtype=dtype)
        scaling.apply(raw, dtype, out=features[: len(rows)])
        padded = np.zeros(width, dtype=np.int64)
        padded[: len(rows)] = widths
        return cls(rows, features, kernel_of_centers(kernel, padded))


def drawable(taken: NDArray[np.bool_], rows: Numbers, n_rows: int) -> tuple[Numbers, NDArray[np.intp]]:
    """Return the candidates of some rows that may be drawn, and the position of each one's row.

    Parameters
    ----------
    taken : array of bool, shape (n_widths, n)
        Candidates that must not be drawn.
    rows : array, shape (n,)
        Global rows.
    n_rows : int
        Rows of the data.
    """
    widths, where = np.nonzero(~taken)
    return candidate_numbers(rows[where], widths.astype(np.int64), n_rows), where

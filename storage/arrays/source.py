"""Where training rows come from: blocks of raw features, targets and weights.

A source knows shapes and block boundaries before it reads anything; reading is by block number and returns
fresh C-contiguous arrays in the dtype that is stored. Nothing here knows about kernels or workers.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class BlockSource(Protocol):
    """Rows of X and y in blocks.

    Attributes
    ----------
    n_rows, n_features : int
        Shape of X.
    target_shape : tuple of int
        ``()`` for y of shape (n_rows,), ``(T,)`` for y of shape (n_rows, T).
    boundaries : tuple of int
        First row of each block, then ``n_rows``; block b is rows ``boundaries[b]:boundaries[b + 1]``.
    feature_dtype : numpy.dtype
        dtype of the blocks that `read_features` returns.
    classes : numpy.ndarray or None
        Sorted class labels if `read_targets` returns integer codes into them, else None.
    inline : bool
        True where blocks live in this process and must be sent to remote workers; False where any
        worker can read them itself from a pickled copy of the source.
    place : str
        Where the rows are, for messages; without credentials.
    """

    n_rows: int
    n_features: int
    target_shape: tuple[int, ...]
    boundaries: tuple[int, ...]
    feature_dtype: np.dtype[Any]
    classes: NDArray[Any] | None
    inline: bool
    place: str

    def read_features(self, block: int) -> NDArray[Any]:
        """Rows of X of one block, array of shape (rows, n_features), raw."""
        ...

    def read_targets(self, block: int) -> NDArray[Any]:
        """Targets of one block, array of shape (rows,) + target_shape."""
        ...

    def read_weights(self, block: int) -> NDArray[np.float64] | None:
        """Row weights of one block, array of shape (rows,), or None where every weight is one."""
        ...

    def fingerprint(self) -> str | None:
        """Name the content as well as can be done without reading stored rows; None where that says nothing."""
        ...

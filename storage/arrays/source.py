"""The protocol of block sources: raw features, targets and weights of the training rows, block by block.

A source has shapes and block boundaries before it reads anything. A read takes a block number and returns a fresh
C-contiguous array in the stored dtype. Kernels and workers are no part of it.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class FeatureSource(Protocol):
    """Rows of X in blocks: what a prediction needs of a `BlockSource`."""

    n_features: int
    boundaries: tuple[int, ...]
    feature_dtype: np.dtype[Any]
    inline: bool

    def read_features(self, block: int) -> NDArray[Any]:
        """Return the raw rows of X of one block, shape (rows, n_features)."""
        ...


class BlockSource(FeatureSource, Protocol):
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
        True where blocks are in the memory of this process and must be sent to remote workers; False where any
        worker can read them itself from a pickled copy of the source.
    place : str
        Place of the rows for messages, without credentials.

    A source may have `feature_names`, for messages, and `feature_scales`, shape (n_features,): the scales of the
    columns where a training standardises, NaN for the standard deviation.
    """

    n_rows: int
    target_shape: tuple[int, ...]
    classes: NDArray[Any] | None
    place: str

    def read_targets(self, block: int) -> NDArray[Any]:
        """Return the targets of one block, shape (rows,) + target_shape."""
        ...

    def read_weights(self, block: int) -> NDArray[np.float64] | None:
        """Return the row weights of one block, shape (rows,); None where every weight is one."""
        ...

    def fingerprint(self) -> str | None:
        """Return a hash of the content, as far as it is known without reading stored rows; None where nothing is."""
        ...

"""Checksums of the rows of a block: whether what is read now is what was read before.

CRC-32 runs at about 2.7 GB/s on one core, three times as fast as a chunk is read, and notices every change within 32
bits and all but one in 2^32 of the others. It guards against accidents; a dataset store holds cryptographic hashes
beside it.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["differing_arrays", "rows_checksum"]

_BITS = 32
_NAMES = ("X", "y", "sample_weight")


def rows_checksum(features: NDArray[Any] | None, targets: NDArray[Any], weights: NDArray[Any] | None) -> int:
    """Return a number that depends on the bytes of some rows.

    Parameters
    ----------
    features : array, shape (n, d), or None
        Rows of X.
    targets : array, shape (n,) or (n, T)
        Rows of y.
    weights : array, shape (n,), or None
        Row weights.

    Returns
    -------
    int
        32 bits each of X (lowest), y and the weights; 0 for what is None.
    """
    parts = (features, targets, weights)
    return sum(_crc(part) << (_BITS * place) for place, part in enumerate(parts) if part is not None)


def differing_arrays(expected: int, found: int) -> list[str]:
    """Name the arrays whose checksums differ; an array that either side has no checksum of is left out.

    Parameters
    ----------
    expected, found : int
        Results of `rows_checksum`.
    """
    mask = (1 << _BITS) - 1
    pairs = [((expected >> (_BITS * i)) & mask, (found >> (_BITS * i)) & mask) for i in range(len(_NAMES))]
    return [name for name, (a, b) in zip(_NAMES, pairs, strict=True) if a and b and a != b]


def _crc(array: NDArray[Any]) -> int:
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)

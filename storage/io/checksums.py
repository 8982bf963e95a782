"""Checksums of the rows of a block: whether a block has the same bytes as in an earlier read.

CRC-32 runs at about 2.7 GB/s on one core, three times as fast as a chunk is read. It detects every change within 32
bits and all but one in 2^32 of the others. It guards against accidents; a dataset store holds cryptographic hashes too.
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
    """Return the CRC-32 of X (lowest 32 bits), y and the weights of some rows; 0 for an array that is None."""
    parts = (features, targets, weights)
    return sum(_crc(part) << (_BITS * place) for place, part in enumerate(parts) if part is not None)


def differing_arrays(expected: int, found: int) -> list[str]:
    """Return the names of arrays whose parts of two `rows_checksum` differ; 0 differs from nothing."""
    mask = (1 << _BITS) - 1
    pairs = [((expected >> (_BITS * i)) & mask, (found >> (_BITS * i)) & mask) for i in range(len(_NAMES))]
    return [name for name, (a, b) in zip(_NAMES, pairs, strict=True) if a and b and a != b]


def _crc(array: NDArray[Any]) -> int:
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)

"""Headers of npy streams: shape, memory order and dtype of an array before its data are read."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy

__all__ = ["NpyHeader", "read_npy_header"]

_MAX_HEADER = 1 << 16
_READERS: dict[tuple[int, int], tuple[int, Callable[[IO[bytes]], Any]]] = {
    (1, 0): (2, npy.read_array_header_1_0),
    (2, 0): (4, npy.read_array_header_2_0),
}
"""By version: the bytes of the header's length, and the function that reads length and header."""


class NpyHeader(NamedTuple):
    """Shape, memory order and dtype of a stored array."""

    shape: tuple[int, ...]
    """Shape of the array."""
    fortran_order: bool
    """True where columns are contiguous, False where rows are."""
    dtype: np.dtype[Any]
    """dtype of the items, never of objects."""


def read_npy_header(stream: IO[bytes]) -> NpyHeader:
    """Read the header of a npy file, and leave the stream at the first byte of the data.

    Raises
    ------
    ValueError
        There is no npy header, or it describes pickled objects.
    """
    version = npy.read_magic(stream)
    if version not in _READERS:
        raise ValueError(f"npy version {version} is not known")
    length_bytes, read = _READERS[version]
    prefix = stream.read(length_bytes)
    length = int.from_bytes(prefix, "little")
    if len(prefix) < length_bytes or length > _MAX_HEADER:
        # A damaged length may be gigabytes, which the read would allocate.
        raise ValueError(f"a header of {length} bytes is not known")
    with warnings.catch_warnings():
        # numpy warns of files that Python 2 wrote, and reads them.
        warnings.simplefilter("ignore", UserWarning)
        shape, fortran_order, dtype = read(io.BytesIO(prefix + stream.read(length)))
    if min(shape, default=0) < 0:
        raise ValueError(f"an array of shape {shape} does not exist")
    if dtype.hasobject:
        raise ValueError("it holds pickled objects, which are not read for safety")
    return NpyHeader(shape, fortran_order, dtype)

"""Reads what a npy stream says about its array, before the array itself."""

from __future__ import annotations

from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy

__all__ = ["NpyHeader", "read_npy_header"]


class NpyHeader(NamedTuple):
    """Shape, memory order and dtype of a stored array."""

    shape: tuple[int, ...]
    """Shape of the array."""
    fortran_order: bool
    """True where columns lie together, False where rows do."""
    dtype: np.dtype[Any]
    """dtype of the items; objects are refused before this is made."""


def read_npy_header(stream: IO[bytes]) -> NpyHeader:
    """Read the header and leave the stream at the first byte of the data.

    Parameters
    ----------
    stream : binary file
        Stream at the start of a npy file.

    Returns
    -------
    NpyHeader
        What the header says.

    Raises
    ------
    ValueError
        There is no npy header, or it describes pickled objects.
    """
    version = npy.read_magic(stream)
    if version == (1, 0):
        shape, fortran_order, dtype = npy.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, fortran_order, dtype = npy.read_array_header_2_0(stream)
    else:
        raise ValueError(f"npy version {version} is not known")
    if dtype.hasobject:
        raise ValueError("it holds pickled objects, which are not read for safety")
    return NpyHeader(shape, fortran_order, dtype)

"""Blocks of dask arrays as they were declared: every block is checked when it is computed.

dask never compares a block with the shape and dtype that its array declares, so a function given to ``map_blocks`` may
return other rows or columns without an error. Reading and prediction of the checked arrays are in `dask_arrays`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.errors import DataError, DataTypeError
from distkern.storage import plain_array, require_finite
from distkern.storage.arrays.conventions import decoded


def checked_blocks(array: Any, what: str, *, finite: bool = False) -> Any:
    """Return a dask array whose blocks are plain numpy arrays of the declared shape and kind of numbers.

    Parameters
    ----------
    array : dask.array.Array
        Rows, targets or weights.
    what : str
        Name for messages.
    finite : bool, default False
        Whether to refuse NaN and infinity too; a training does so when it reads a block.

    Returns
    -------
    dask.array.Array
        Lazy, with the same chunks and dtype; packed numbers of zarr arrays are decoded. A block that is not as declared
        raises `DataError` when it is computed: ``shape-mismatch``, ``dtype-mismatch``, ``not-finite``, or what
        `plain_array` raises for masked entries and sparse blocks.
    """
    if array.ndim == 0:
        return array
    array = decoded(array, what)
    declared = np.dtype(array.dtype)
    dtype = np.dtype(object) if declared.itemsize == 0 else declared  # text of a width that is not declared
    meta = np.empty((0,) * array.ndim, dtype=dtype)
    return array.map_blocks(check_block, what=what, declared=declared, finite=finite, dtype=dtype, meta=meta)


def check_block(
    block: Any,
    what: str,
    declared: np.dtype[Any],
    *,
    finite: bool,
    block_info: Mapping[Any, Mapping[str, Any]] | None = None,
) -> NDArray[Any]:
    """Return a block as a plain array of the declared dtype; see `checked_blocks`."""
    place = (block_info or {0: {}})[0]
    spans = [(start, stop) for start, stop in place.get("array-location", ())]
    located = bool(spans) and not any(math.isnan(bound) for span in spans for bound in span)
    where = f"block {place.get('chunk-location', ('',))[0]} of {what}, a dask array,"
    if located:
        where = f"rows {spans[0][0]} to {spans[0][1] - 1} of {what} (counted from 0), a dask array,"
    first = [int(start) for start, _ in spans] if located else [0, 0]
    first_column = first[1] if len(first) > 1 else 0
    name = what if located else where
    try:
        values = plain_array(block, name, first[0], first_column)
    except DataTypeError as error:
        raise DataTypeError(f"{where} cannot be used: {error}", kind=error.kind) from None
    shape = tuple(None if math.isnan(stop - start) else int(stop - start) for start, stop in spans)
    if spans and (
        values.ndim != len(shape) or any(n not in (None, m) for n, m in zip(shape, values.shape, strict=True))
    ):
        expected = f"({', '.join('?' if size is None else str(size) for size in shape)}{',' * (len(shape) == 1)})"
        raise DataError(
            f"{where} have the shape {values.shape}, but the array declares {expected}: declare the right chunks where "
            "it is made, for example in map_blocks or from_delayed",
            kind="shape-mismatch",
        )
    values = _declared_kind(values, declared, where)
    if finite:
        require_finite(values, name, first[0], first_column=first_column)
    return values


def _declared_kind(values: NDArray[Any], declared: np.dtype[Any], where: str) -> NDArray[Any]:
    """Return values in the declared dtype, without loss but of the precision of floats."""
    if values.dtype == declared:
        return values
    if declared.kind == "O" or declared.itemsize == 0:
        # Blocks of one array are joined in the dtype of the first, so a nullable column gives objects throughout.
        if values.dtype.kind in "OUSTbiuf":
            objects = np.empty(values.size, dtype=object)
            objects[:] = list(values.ravel())
            return objects.reshape(values.shape)
    elif declared.kind in "UST":
        if values.dtype.kind == declared.kind and np.can_cast(values.dtype, declared, "safe"):
            return values.astype(declared)
    elif values.dtype.kind in "biuf":
        if declared.kind == "f" or np.can_cast(values.dtype, declared, "safe"):
            return values.astype(declared)
        with np.errstate(invalid="ignore"):
            converted = values.astype(declared)
        if (converted == values).all():
            return converted
    elif values.dtype.kind == "O" and all(isinstance(value, (bool, int, float)) for value in values.flat):
        return _declared_kind(np.array(values.tolist()).reshape(values.shape), declared, where)
    raise DataError(
        f"{where} hold values of dtype {values.dtype}, but the array declares {declared}: declare the right dtype "
        "where it is made, for example in map_blocks or from_delayed",
        kind="dtype-mismatch",
    )

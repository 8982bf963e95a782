"""Values of zarr arrays that are stored by the conventions of xarray and netCDF (CF).

The attributes of packed numbers are ``scale_factor``, ``add_offset``, ``_FillValue``, ``missing_value``,
``_Unsigned``. Rows are decoded as they are read, and a fill value becomes NaN, as through xarray. Dates are refused.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from distkern.errors import DataError

__all__ = ["Packing", "decoded", "packing_of", "value_dtype"]

_PACKED = ("scale_factor", "add_offset", "missing_value", "_Unsigned")

_READS = {"array", "from-zarr", "blocks", "concatenate", "getitem", "rechunk-merge", "rechunk-split", "reshape"}
_READS |= {"stack", "transpose"}
"""Names that dask gives to tasks which read arrays and move their numbers."""

_SINCE = re.compile(r"\S+\s+since\s+\S")


@dataclass(frozen=True)
class Packing:
    """The rule by which the stored numbers of an array become its values."""

    integers: np.dtype[Any] | None
    """Type that the stored bytes are read as, bool or an integer of the other sign; None for the stored type."""
    fills: tuple[Any, ...]
    """Stored values that stand for a missing one."""
    scale: float | None
    """Factor; None without."""
    offset: float | None
    """Summand; None without."""
    dtype: np.dtype[Any]
    """Type of the decoded numbers."""

    def decode(self, stored: NDArray[Any]) -> NDArray[Any]:
        """Return decoded numbers in a fresh array of the shape of `stored`."""
        if self.integers is not None:
            stored = stored.view(self.integers)
        values = stored.astype(self.dtype)
        if self.scale is not None:
            values *= self.scale
        if self.offset is not None:
            values += self.offset
        for fill in self.fills:
            values[stored == fill] = np.nan
        return values


def decoded(lazy: Any, what: str) -> Any:
    """Return a dask array with the values of a zarr array, where its tasks only read stored numbers; else as it is.

    Parameters
    ----------
    lazy : dask.array.Array
        Array, for example of ``dask.array.from_zarr``.
    what : str
        Name of the array for the message.

    Raises
    ------
    DataError
        As `packing_of`; ``attribute``: the array joins arrays of different attributes.
    """
    layers = getattr(lazy.__dask_graph__(), "layers", {})
    stored = [name for name in layers if str(name).startswith("original-")]
    kinds = [str(name).rsplit("-", 1)[0] for name in layers.keys() - set(stored)]
    if not stored or not _READS.issuperset(kinds):
        return lazy
    arrays = [value for name in stored for value in layers[name].values() if isinstance(value, zarr.Array)]
    rules = {packing_of(array, what) for array in arrays}
    if not rules - {None}:
        return lazy
    if len(rules) > 1 or len(arrays) < kinds.count("array") + kinds.count("from-zarr"):
        raise DataError(
            f"{what} joins arrays that xarray stores with different attributes (such as scale_factor): read them with "
            "xarray.open_zarr",
            kind="attribute",
        )
    (rule,) = rules
    assert rule is not None
    return lazy.map_blocks(rule.decode, dtype=rule.dtype, meta=np.empty((0,) * lazy.ndim, rule.dtype))


def value_dtype(array: zarr.Array[Any], what: str) -> np.dtype[Any]:
    """Return the type of the decoded values; raises as `packing_of`."""
    packing = packing_of(array, what)
    return np.dtype(array.dtype) if packing is None else packing.dtype


def packing_of(array: zarr.Array[Any], what: str) -> Packing | None:
    """Return how the numbers of an array are decoded; None where its stored values are the values.

    Parameters
    ----------
    array : zarr.Array
        Array of any format.
    what : str
        Name of the array for the message.

    Raises
    ------
    DataError
        ``not-numeric``: the numbers are dates or durations; ``attribute``: an attribute cannot be decoded.
    """
    dtype = np.dtype(array.dtype)
    attributes = array.metadata.attributes
    if dtype.kind not in "iuf" or not attributes:
        return None
    stored = dtype.newbyteorder("=")
    _require_no_dates(array, attributes, what)
    if attributes.get("dtype") == "bool" and dtype.itemsize == 1:
        return Packing(np.dtype(bool), (), None, None, np.dtype(bool))
    integers = _other_sign(array, stored, attributes, what)
    fills = _fills(array, stored, attributes, what, wrapped=integers is not None)
    if integers is not None:
        fills = tuple(np.asarray(fill, dtype=stored).view(integers)[()] for fill in fills)
    scale, offset = (_number(array, name, attributes, what) for name in ("scale_factor", "add_offset"))
    if integers is None and not fills and scale is None and offset is None:
        return None
    shown = stored if integers is None else integers
    if scale is not None or offset is not None:
        shown = np.dtype(np.float64)
    elif fills and shown.kind != "f":
        shown = np.dtype(np.float32 if shown.itemsize <= 2 else np.float64)
    return Packing(integers, fills, scale, offset, shown)


def _require_no_dates(array: zarr.Array[Any], attributes: Any, what: str) -> None:
    units, named = attributes.get("units"), str(attributes.get("dtype", ""))
    found = None
    if isinstance(units, str) and _SINCE.match(units):
        found = f"dates in {units!r} (its attribute units)"
    elif named.startswith(("timedelta64", "datetime64")):
        found = f"{named} (its attribute dtype)"
    if found:
        raise DataError(
            f"{what} ({array.store_path}) holds {found}: only real numbers can be trained on; store the times as "
            "numbers, and without that attribute",
            kind="not-numeric",
        )


def _other_sign(array: zarr.Array[Any], stored: np.dtype[Any], attributes: Any, what: str) -> np.dtype[Any] | None:
    """Return the integers that `_Unsigned` makes of others; floats ignore it."""
    unsigned = attributes.get("_Unsigned")
    if unsigned is None or stored.kind == "f":
        return None
    text = str(unsigned).lower()
    if text not in ("true", "false"):
        raise _refused(array, "_Unsigned", unsigned, "'true' or 'false'", what)
    kind = "u" if text == "true" else "i"
    return None if stored.kind == kind else np.dtype(f"{kind}{stored.itemsize}")


def _fills(
    array: zarr.Array[Any], stored: np.dtype[Any], attributes: Any, what: str, *, wrapped: bool
) -> tuple[Any, ...]:
    """Return the numbers other than NaN that stand for missing values, in the stored type."""
    named = [(name, attributes[name]) for name in ("_FillValue", "missing_value") if attributes.get(name) is not None]
    # In format 2 xarray keeps _FillValue as the fill value; that of other arrays is an ordinary number.
    by_xarray = "_ARRAY_DIMENSIONS" in attributes or any(name in attributes for name in _PACKED)
    if array.metadata.zarr_format == 2 and by_xarray and array.fill_value is not None:
        named.append(("fill_value", array.fill_value))
    fills = []
    for name, given in named:
        for value in given if isinstance(given, list | tuple) else [given]:
            number = _plain(value)
            if number is None:
                raise _refused(array, name, value, "a number", what)
            if number != number:
                continue
            with np.errstate(over="ignore"):
                fill = _in_type(number, stored, wrapped=wrapped)
            if fill is not None and fill not in fills:
                fills.append(fill)
    return tuple(fills)


def _in_type(number: float, stored: np.dtype[Any], *, wrapped: bool) -> Any:
    """Return a number in a type, None where no value equals it; `wrapped`: integers of the other sign are its bits."""
    if stored.kind == "f":
        return stored.type(number)
    bits, limits = 8 * stored.itemsize, np.iinfo(stored)
    low, high = (-(2 ** (bits - 1)), 2**bits - 1) if wrapped else (int(limits.min), int(limits.max))
    if math.isinf(number) or int(number) != number or not low <= number <= high:
        return None
    return np.array(int(number) % 2**bits, dtype=f"u{stored.itemsize}").view(stored)[()]


def _number(array: zarr.Array[Any], name: str, attributes: Any, what: str) -> float | None:
    value = attributes.get(name)
    if value is None:
        return None
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    number = _plain(value)
    if number is None or not math.isfinite(number):
        raise _refused(array, name, value, "one finite number", what)
    return float(number)


def _plain(value: Any) -> Any:
    """Return a number of an attribute, also from the base64 that xarray writes in format 3; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float | np.integer | np.floating):
        return value.item() if isinstance(value, np.generic) else value
    if not isinstance(value, str):
        return None
    try:
        return float(value)
    except ValueError:
        pass
    try:
        return struct.unpack("<d", base64.b64decode(value, validate=True))[0]
    except (binascii.Error, struct.error, ValueError):
        return None


def _refused(array: zarr.Array[Any], name: str, value: Any, wanted: str, what: str) -> DataError:
    return DataError(
        f"{what} ({array.store_path}) has the attribute {name} = {str(value)[:80]!r}, by which xarray decodes its "
        f"values: it must be {wanted}; correct or remove it",
        kind="attribute",
    )

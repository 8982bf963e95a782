"""Block sources of the containers that users give, and zarr arrays opened by path."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import zarr

from distkern.errors import DataError, DistkernError

from ..arrays.chunks import read_slab
from ..arrays.source import BlockSource
from ..io.formats import appearance, identify
from ..io.guarded_reads import RegularFiles
from ..io.retries import RetryPolicy, read_patiently
from ..io.trust import trusted
from ..io.urls import Refused, is_url, open_store, place_of, shown_cause, shown_line
from .dataset import Dataset
from .sources import ArraySource, DatasetSource, ZarrSource

__all__ = ["as_source", "in_memory", "open_array", "open_arrays"]


def as_source(X: Any, y: Any = None, sample_weight: Any = None, *, columns: Sequence[str] | None = None) -> BlockSource:
    """Return a block source for training rows in any container.

    Parameters
    ----------
    X : Dataset, zarr.Array or array-like
        A dataset with its targets, or features of shape (n_rows, n_features).
    y : zarr.Array or array-like, shape (n_rows,) or (n_rows, n_targets), optional
        Targets; left out exactly where X is a dataset.
    sample_weight : zarr.Array or array-like, shape (n_rows,), optional
        Row weights, finite and at least 0; by default those of a dataset.
    columns : sequence of str, optional
        As for `DatasetSource`; without meaning for arrays.

    Returns
    -------
    BlockSource
        The rows; zarr arrays are not read yet.

    Raises
    ------
    DataError
        ``target``, ``no-targets``, ``shape-mismatch``, ``not-numeric``, ``not-finite`` or ``invalid-weights``.
    """
    if isinstance(X, Dataset):
        if y is not None:
            raise DataError("y is given, but X is a dataset with its own targets: leave y out", kind="target")
        return DatasetSource(X.require_targets(), sample_weight, columns=columns)
    if y is None:
        raise DataError("y is missing: give the targets of the rows of X", kind="target")
    if isinstance(X, zarr.Array):
        return ZarrSource(X, y, sample_weight)
    return ArraySource(X, in_memory(y, "y"), in_memory(sample_weight, "sample_weight"))


def open_arrays(
    x_path: str | os.PathLike[str],
    y_path: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[zarr.Array[Any], zarr.Array[Any]]:
    """Open two plain zarr arrays for reading.

    Parameters
    ----------
    x_path, y_path : path-like
        Local paths or URLs of zarr arrays of format 2 or 3.
    storage_options : mapping, optional
        As for `open_dataset`.

    Returns
    -------
    X, y : zarr.Array
        The arrays, for `as_source`.

    Raises
    ------
    DataError
        ``missing``, ``not-an-array``, ``codec``, ``denied`` or ``unreachable``; what `open_dataset` raises for URLs.
    """
    return open_array(x_path, storage_options), open_array(y_path, storage_options)


def open_array(path: str | os.PathLike[str], options: Mapping[str, Any] | None = None) -> zarr.Array[Any]:
    """Open one plain zarr array for reading; parameters (options: default None) and errors as of `open_arrays`."""
    place = place_of(path)
    where: Any = RegularFiles(place)
    if is_url(place):
        where = open_store(place, options)
    else:
        if not os.path.exists(place):
            raise DataError(f"there is no zarr array at {path}: check the name", kind="missing")
        # The folder itself decides: an array inside a group has a folder of its own.
        if identify(place) != "zarr-array":
            raise DataError(
                f"{path} is {appearance(path)}, not a zarr array: name the array itself"
                + (" (or the dataset as train =)" if identify(place) == "dataset" else ""),
                kind="not-an-array",
            )
    policy = RetryPolicy.default().at_start()
    try:
        array = read_patiently(lambda: zarr.open_array(where, mode="r"), "the zarr array", place, policy)
    except DistkernError:
        raise
    except Refused as cause:
        raise DataError(f"the zarr array {path} cannot be opened: {cause}", kind=cause.kind) from None
    except FileNotFoundError as cause:
        raise DataError(f"there is no zarr array at {path}: check the name", kind="missing") from shown_cause(
            cause, place
        )
    except Exception as cause:  # damaged metadata may lead to any error
        raise DataError(
            f"{path} cannot be opened as a zarr array: {shown_line(cause, place)}", kind="not-an-array"
        ) from shown_cause(cause, place)
    return trusted(array, os.fspath(path))


def in_memory(values: Any, what: str) -> Any:
    """Return a zarr array as an array in memory, decoded; other values as they are. `what` is their name."""
    if isinstance(values, zarr.Array):
        return read_slab(trusted(values, what), 0, values.shape[0], what)
    return values

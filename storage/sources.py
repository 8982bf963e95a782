"""Block sources: arrays in memory, users' own zarr arrays, and datasets.

Blocks are whole chunks of X and depend on shape, item size and chunking only, so that every worker count
cuts the rows alike. A chunk that is absent from a user's zarr array reads as the fill value, which zarr
defines so; in a dataset it is damage and refused.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.storage import FsspecStore, LocalStore, MemoryStore, WrapperStore

from distkern.errors import DataError
from distkern.storage.blocks import block_boundaries, memory_block_rows
from distkern.storage.checks import (
    check_rows_agree,
    check_weights,
    numeric_dtype,
    require_extent,
    require_finite,
    to_numeric,
)
from distkern.storage.chunks import read_rows, read_slab
from distkern.storage.labels import as_targets

if TYPE_CHECKING:
    from distkern.storage.dataset import Dataset

__all__ = ["ArraySource", "DatasetSource", "ZarrRows", "ZarrSource"]

_NUMERIC = "fiub"


class ArraySource:
    """Rows of numpy arrays in this process.

    Parameters
    ----------
    X : array-like, shape (n_rows, n_features)
        Numbers.
    y : array-like, shape (n_rows,) or (n_rows, n_targets)
        Numbers, labels, or codes into `classes`.
    weights : array-like, shape (n_rows,), optional
        Row weights, finite and at least 0.
    classes : numpy.ndarray, optional
        Sorted class labels, where y holds codes.
    boundaries : tuple of int, optional
        Block boundaries; by default up to 32 blocks of 512 rows or more and at most 4 MiB.
    feature_names : sequence of str, optional
        Names of the columns of X, for messages.

    Raises
    ------
    DataError
        ``shape-mismatch``, ``not-numeric``, ``not-finite``, ``invalid-weights`` or ``boundaries``.
    """

    inline = True

    def __init__(
        self,
        X: Any,
        y: Any,
        weights: Any = None,
        classes: NDArray[Any] | None = None,
        boundaries: tuple[int, ...] | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> None:
        self.feature_names = feature_names
        self.X = _two_dimensional(to_numeric(X, "X"))
        self.y = _targets_allowed(as_targets(y))
        self.n_rows, self.n_features = self.X.shape
        check_rows_agree(self.n_rows, len(self.y))
        self.target_shape: tuple[int, ...] = self.y.shape[1:]
        self.feature_dtype: np.dtype[Any] = self.X.dtype
        self.classes = classes
        self.weights = None if weights is None else check_weights(weights, self.n_rows)
        require_finite(self.X, "X")
        require_finite(self.y, "y")
        if boundaries is None:
            row_bytes = self.n_features * self.X.itemsize
            boundaries = block_boundaries(self.n_rows, row_bytes, memory_block_rows(self.n_rows, row_bytes))
        self.boundaries = _checked_boundaries(boundaries, self.n_rows)

    def read_features(self, block: int) -> NDArray[Any]:
        """Rows of X of one block, a fresh array of shape (rows, n_features)."""
        return np.array(self.X[_span(self.boundaries, block)], order="C")

    def read_targets(self, block: int) -> NDArray[Any]:
        """Targets of one block, a fresh array of shape (rows,) + target_shape."""
        return np.array(self.y[_span(self.boundaries, block)], order="C")

    def read_weights(self, block: int) -> NDArray[np.float64] | None:
        """Row weights of one block, shape (rows,), or None where every weight is one."""
        return None if self.weights is None else self.weights[_span(self.boundaries, block)].copy()

    def read_rows(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Single rows of X in the order given, shape (n, n_features)."""
        return np.ascontiguousarray(self.X[_checked_rows(rows, self.n_rows)])

    def fingerprint(self) -> str:
        """Name the content."""
        return _digest(self.X, self.y, self.weights)

    def __repr__(self) -> str:
        return f"<ArraySource: {self.n_rows} rows x {self.n_features} features {self.feature_dtype}>"


class ZarrRows:
    """Rows of a zarr array of any format and chunking, local or behind a URL, without targets.

    Values are checked to be finite as they are read.

    Parameters
    ----------
    X : zarr.Array, shape (n_rows, n_features)
        Numbers.

    Raises
    ------
    DataError
        ``shape-mismatch`` or ``not-numeric``.
    """

    def __init__(self, X: zarr.Array[Any]) -> None:
        self.X: zarr.Array[Any] = _anchored(_two_dimensional(X))
        self.n_rows, self.n_features = (int(size) for size in self.X.shape)
        self.feature_dtype: np.dtype[Any] = numeric_dtype(self.X.dtype, "X")
        chunk_rows = self.X.shards[0] if self.X.shards else self.X.chunks[0]
        row_bytes = self.n_features * self.feature_dtype.itemsize
        self.boundaries = block_boundaries(self.n_rows, row_bytes, chunk_rows)
        self.inline = _in_process(self.X.store)

    def read_features(self, block: int) -> NDArray[Any]:
        """Rows of X of one block, a fresh array of shape (rows, n_features)."""
        span = _span(self.boundaries, block)
        values = read_slab(self.X, span.start, span.stop, "X")
        self._check(values, "X", span.start)
        return values

    def read_rows(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Single rows of X in the order given, shape (n, n_features)."""
        return read_rows(self.X, _checked_rows(rows, self.n_rows), "X")

    def _check(self, values: NDArray[Any], what: str, first_row: int) -> None:
        require_finite(values, what, first_row)

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.X.store_path}: {self.n_rows} rows x {self.n_features} features "
            f"{self.feature_dtype}>"
        )


class ZarrSource(ZarrRows):
    """Rows of zarr arrays of any format and chunking, local or behind a URL.

    X and y may be chunked differently and by columns too. Values are checked to be finite as they are read.

    Parameters
    ----------
    X : zarr.Array, shape (n_rows, n_features)
        Numbers.
    y : zarr.Array or array-like, shape (n_rows,) or (n_rows, n_targets)
        Numbers, labels, or codes into `classes`.
    weights : zarr.Array or array-like, shape (n_rows,), optional
        Row weights, finite and at least 0.
    classes : numpy.ndarray, optional
        Sorted class labels, where y holds codes.

    Raises
    ------
    DataError
        ``shape-mismatch``, ``not-numeric`` or ``invalid-weights``.
    """

    def __init__(
        self,
        X: zarr.Array[Any],
        y: zarr.Array[Any] | Any,
        weights: zarr.Array[Any] | Any = None,
        *,
        classes: NDArray[Any] | None = None,
    ) -> None:
        super().__init__(X)
        require_extent(self.n_rows, self.n_features)
        self.y = _targets_allowed(_anchored(y) if isinstance(y, zarr.Array) else as_targets(y))
        check_rows_agree(self.n_rows, self.y.shape[0])
        self.target_shape: tuple[int, ...] = tuple(self.y.shape[1:])
        self.classes = classes
        if isinstance(weights, zarr.Array):
            check_rows_agree(self.n_rows, weights.shape[0] if weights.ndim == 1 else 0, "sample_weight")
            self.weights: Any = _anchored(weights)
        else:
            self.weights = None if weights is None else check_weights(weights, self.n_rows)
        stored = (self.X, self.y, self.weights)
        self.inline = any(isinstance(array, zarr.Array) and _in_process(array.store) for array in stored)

    def read_targets(self, block: int) -> NDArray[Any]:
        """Targets of one block, a fresh array of shape (rows,) + target_shape."""
        span = _span(self.boundaries, block)
        values = self._read(self.y, span, "y")
        self._check(values, "y", span.start)
        return values

    def read_weights(self, block: int) -> NDArray[np.float64] | None:
        """Row weights of one block, shape (rows,), or None where every weight is one."""
        if self.weights is None:
            return None
        span = _span(self.boundaries, block)
        values = self._read(self.weights, span, "sample_weight")
        return check_weights(values, span.stop - span.start, span.start)

    def fingerprint(self) -> str | None:
        """Name the form of stored arrays, and the content of others."""
        arrays = (self.X, self.y, self.weights)
        return _digest(*(a.metadata.to_dict() if isinstance(a, zarr.Array) else a for a in arrays))

    @staticmethod
    def _read(values: Any, span: slice, what: str) -> NDArray[Any]:
        if isinstance(values, zarr.Array):
            return read_slab(values, span.start, span.stop, what)
        return np.array(values[span], order="C")


class DatasetSource(ZarrSource):
    """Rows of a dataset; targets of a classification are codes into `classes`.

    Values were checked when the dataset was written and are not checked again.

    Parameters
    ----------
    dataset : Dataset
        The store.
    weights : zarr.Array or array-like, shape (n_rows,), optional
        Row weights, finite and at least 0.

    Raises
    ------
    DataError
        ``shape-mismatch`` or ``invalid-weights``; on reading ``unreadable`` for a chunk that is damaged or
        missing.
    """

    def __init__(self, dataset: Dataset, weights: Any = None) -> None:
        super().__init__(dataset.X, dataset.y, weights, classes=dataset.class_labels)
        self.path = dataset.path
        self.feature_names = dataset.feature_names
        self._content = dataset.fingerprint()

    def read_features(self, block: int) -> NDArray[Any]:
        """Rows of X of one block, a fresh array of shape (rows, n_features)."""
        span = _span(self.boundaries, block)
        self._require_chunks(self.X, np.arange(span.start, span.stop, self.X.chunks[0]), "X")
        return super().read_features(block)

    def read_targets(self, block: int) -> NDArray[Any]:
        """Targets of one block, a fresh array of shape (rows,) + target_shape."""
        span = _span(self.boundaries, block)
        self._require_chunks(self.y, np.arange(span.start, span.stop, self.y.chunks[0]), "y")
        return super().read_targets(block)

    def read_rows(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Single rows of X in the order given, shape (n, n_features)."""
        self._require_chunks(self.X, _checked_rows(rows, self.n_rows), "X")
        return super().read_rows(rows)

    def fingerprint(self) -> str:
        """Name the content as it was written."""
        return f"{self._content} {super().fingerprint() if self.weights is not None else ''}".strip()

    def _check(self, values: NDArray[Any], what: str, first_row: int) -> None:
        pass

    def _require_chunks(self, array: zarr.Array[Any], rows: NDArray[np.int64], what: str) -> None:
        if not isinstance(array.store, LocalStore):
            return
        folder = array.store.root / array.path
        for chunk in np.unique(rows // array.chunks[0]).tolist():
            key = array.metadata.encode_chunk_key((chunk, *(0,) * (array.ndim - 1)))
            if not (folder / key).is_file():
                raise DataError(
                    f"chunk {chunk} of {what} is missing from {self.path}: ingest the data again",
                    kind="unreadable",
                )


def _digest(*parts: Any) -> str:
    state = blake2b(digest_size=16)
    for part in parts:
        if not isinstance(part, np.ndarray):
            state.update(repr(part).encode())
            continue
        state.update(f"{part.dtype.str} {part.shape}".encode())
        if part.dtype.kind in "OT":
            state.update(repr(part.tolist()).encode())
        else:
            state.update(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
    return state.hexdigest()


def _span(boundaries: tuple[int, ...], block: int) -> slice:
    return slice(boundaries[block], boundaries[block + 1])


def _two_dimensional(X: Any) -> Any:
    if X.ndim != 2:
        raise DataError(f"X has shape {X.shape}: it must have two dimensions, rows and features", kind="shape-mismatch")
    return X


def _targets_allowed(y: Any) -> Any:
    if y.ndim not in (1, 2):
        raise DataError(
            f"y has shape {y.shape}: it must have shape (n_rows,) or (n_rows, n_targets)",
            kind="shape-mismatch",
        )
    if isinstance(y, np.ndarray) and y.dtype.kind in _NUMERIC:
        return y.astype(y.dtype.newbyteorder("="), copy=False)
    return y


def _checked_boundaries(boundaries: tuple[int, ...], n_rows: int) -> tuple[int, ...]:
    bounds = tuple(int(bound) for bound in boundaries)
    ascending = all(low < high for low, high in pairwise(bounds))
    if not bounds or bounds[0] != 0 or bounds[-1] != n_rows or not ascending:
        raise DataError(f"block boundaries {bounds} do not rise from 0 to the {n_rows} rows of X", kind="boundaries")
    return bounds


def _checked_rows(rows: NDArray[np.int64], n_rows: int) -> NDArray[np.int64]:
    rows = np.asarray(rows, dtype=np.int64)
    if rows.size and not (rows.min() >= 0 and rows.max() < n_rows):
        raise IndexError(f"rows {rows.min()} to {rows.max()} asked for, X has rows 0 to {n_rows - 1}")
    return rows


def _anchored(array: Any) -> Any:
    """Open a local array again by absolute path: a worker may run in another directory."""
    if not isinstance(array.store, LocalStore):
        return array
    root = os.path.abspath(array.store.root)
    return zarr.open_array(
        LocalStore(root, read_only=True), path=array.path, mode="r", zarr_format=array.metadata.zarr_format
    )


def _in_process(store: Any) -> bool:
    if isinstance(store, WrapperStore):
        return _in_process(store._store)
    if isinstance(store, FsspecStore):
        return type(store.fs).__name__ in ("MemoryFileSystem", "AsyncFileSystemWrapper")
    return isinstance(store, MemoryStore)

"""Block sources: arrays in memory, users' own zarr arrays, and datasets.

Blocks are whole chunks of X and depend on shape, item size and chunking only, so they are the same for every number of
workers. A chunk that is absent from a user's zarr array reads as the fill value, as zarr defines, and is reported; in a
dataset it is damage and refused.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.storage import FsspecStore, LocalStore, MemoryStore, WrapperStore

from distkern.errors import DataError
from distkern.redaction import redact

from ..arrays.absent import absent_chunks, chunk_shape, holds_chunks
from ..arrays.blocks import block_boundaries, block_rows, memory_block_rows
from ..arrays.checks import check_rows_agree, check_weights, numeric_dtype, require_extent, require_finite, to_numeric
from ..arrays.chunks import read_rows, read_slab, require_checksums, require_room
from ..arrays.column_names import require_names
from ..arrays.conventions import packing_of, value_dtype
from ..arrays.labels import as_targets
from ..arrays.shared_chunks import SharedChunks
from ..io.retries import RetryPolicy, note_absent
from ..io.trust import require_plausible_blocks, trusted
from ..io.urls import is_remote

if TYPE_CHECKING:
    from .dataset import Dataset

__all__ = ["ArraySource", "DatasetSource", "ZarrRows", "ZarrSource"]

_NUMERIC = "fiub"

_ORDERED_ROWS = 256
"""Rows whose columns are put in another order together."""


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
    place = "arrays in memory"
    feature_scales: NDArray[np.float64] | None = None
    """As of `BlockSource`."""

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
        self.X = self._own_rows(X)
        self.y = _targets_allowed(as_targets(y))
        self.n_rows, self.n_features = self.X.shape
        check_rows_agree(self.n_rows, len(self.y))
        self.target_shape: tuple[int, ...] = self.y.shape[1:]
        self.feature_dtype: np.dtype[Any] = self.X.dtype
        self.classes = classes
        self.weights = None if weights is None else check_weights(weights, self.n_rows)
        require_finite(self.y, "y")
        if boundaries is None:
            row_bytes = self.n_features * self.feature_dtype.itemsize
            boundaries = block_boundaries(self.n_rows, row_bytes, memory_block_rows(self.n_rows, row_bytes))
        self.boundaries = _checked_boundaries(boundaries, self.n_rows)

    def _own_rows(self, X: Any) -> Any:
        """Return X as rows of finite numbers."""
        rows = _two_dimensional(to_numeric(X, "X"))
        require_finite(rows, "X")
        return rows

    def read_features(self, block: int) -> NDArray[Any]:
        """Return the rows of X of one block, a fresh array of shape (rows, n_features)."""
        return np.array(self.X[_span(self.boundaries, block)], order="C")

    def read_targets(self, block: int) -> NDArray[Any]:
        """Return the targets of one block, a fresh array of shape (rows,) + target_shape."""
        return np.array(self.y[_span(self.boundaries, block)], order="C")

    def read_weights(self, block: int) -> NDArray[np.float64] | None:
        """Return the row weights of one block, shape (rows,); None where every weight is one."""
        return None if self.weights is None else self.weights[_span(self.boundaries, block)].copy()

    def read_rows(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return single rows of X in the order given, shape (n, n_features)."""
        return np.ascontiguousarray(self.X[_checked_rows(rows, self.n_rows)])

    def fingerprint(self) -> str:
        """Return a hash of the content."""
        return _digest(self.X, self.y, self.weights)

    def __repr__(self) -> str:
        return f"<ArraySource: {self.n_rows} rows x {self.n_features} features {self.feature_dtype}>"


class ZarrRows:
    """Rows of a zarr array of any format and chunking, local or behind a URL, without targets.

    Values are decoded by the attributes of xarray, and checked to be finite, as they are read.

    Parameters
    ----------
    X : zarr.Array, shape (n_rows, n_features)
        Numbers.
    policy : RetryPolicy, optional
        Retries of failed reads, on workers too.

    Raises
    ------
    DataError
        ``shape-mismatch``, ``not-numeric``, ``attribute``, ``codec``, ``chunk-grid``, ``no-chunks`` or
        ``too-many-blocks``; on reading ``unreadable``, ``unreachable`` or ``not-finite``.
    """

    def __init__(self, X: zarr.Array[Any], policy: RetryPolicy | None = None) -> None:
        self.X: zarr.Array[Any] = _anchored(_two_dimensional(X), "X")
        self.policy = RetryPolicy.default() if policy is None else policy
        self.place = redact(str(self.X.store_path))
        self.n_rows, self.n_features = (int(size) for size in self.X.shape)
        self.feature_dtype: np.dtype[Any] = numeric_dtype(value_dtype(self.X, "X"), "X")
        chunk_rows = max(1, chunk_shape(self.X)[0])
        row_bytes = self.n_features * self.feature_dtype.itemsize
        require_plausible_blocks(self.n_rows, chunk_rows, block_rows(self.n_rows, row_bytes, chunk_rows), "X")
        self._require_written()
        self.boundaries = block_boundaries(self.n_rows, row_bytes, chunk_rows)
        self.inline = _in_process(self.X.store)
        self.remote = is_remote(self.X.store) and not self.inline

    def read_features(self, block: int) -> NDArray[Any]:
        """Return the rows of X of one block, a fresh array of shape (rows, n_features)."""
        values = self._read_block(self.X, _span(self.boundaries, block), "X")
        return values.astype(self.feature_dtype, copy=False)

    def read_rows(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return single rows of X in the order given, shape (n, n_features)."""
        values = read_rows(self.X, _checked_rows(rows, self.n_rows), "X", self.policy)
        return values.astype(self.feature_dtype, copy=False)

    def _require_written(self) -> None:
        if self.X.size and not holds_chunks(self.X, "X", self.policy):
            raise DataError(
                f"X ({self.place}) declares shape {self.X.shape} and holds no chunk: nothing was ever written to it",
                kind="no-chunks",
            )

    def _slab(self, array: zarr.Array[Any], span: slice, what: str) -> NDArray[Any]:
        return read_slab(array, span.start, span.stop, what, self.policy)

    def _read_block(self, array: zarr.Array[Any], span: slice, what: str) -> NDArray[Any]:
        values = self._slab(array, span, what)
        absent = absent_chunks(array, span.start, values, what, self.policy)
        if absent:
            note_absent(what, absent)
        _require_present(values, array, what, span.start)
        return values

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.place}: {self.n_rows} rows x {self.n_features} features "
            f"{self.feature_dtype}>"
        )


class ZarrSource(ZarrRows):
    """Rows of zarr arrays of any format and chunking, local or behind a URL.

    X and y may be chunked differently and by columns too. Values are checked to be finite as they are read.

    Parameters
    ----------
    X : zarr.Array, shape (n_rows, n_features)
        Numbers.
    y : zarr.Array or array-like, shape (n_rows,) or (n_rows, n_targets), or None
        Numbers, labels, or codes into `classes`; None for rows without targets, which are not read.
    weights : zarr.Array or array-like, shape (n_rows,), optional
        Row weights, finite and at least 0.
    classes : numpy.ndarray, optional
        Sorted class labels, where y holds codes.
    policy : RetryPolicy, optional
        Retries of failed reads.

    Raises
    ------
    DataError
        What `ZarrRows` raises, or ``invalid-weights``.
    """

    def __init__(
        self,
        X: zarr.Array[Any],
        y: zarr.Array[Any] | Any,
        weights: zarr.Array[Any] | Any = None,
        *,
        classes: NDArray[Any] | None = None,
        policy: RetryPolicy | None = None,
    ) -> None:
        super().__init__(X, policy)
        require_extent(self.n_rows, self.n_features)
        self.y: Any = None
        self.target_shape: tuple[int, ...] = ()
        if y is not None:
            self.y = _targets_allowed(_anchored(y, "y") if isinstance(y, zarr.Array) else as_targets(y))
            check_rows_agree(self.n_rows, self.y.shape[0])
            self.target_shape = tuple(self.y.shape[1:])
        self.classes = classes
        if isinstance(weights, zarr.Array):
            check_rows_agree(self.n_rows, weights.shape[0] if weights.ndim == 1 else 0, "sample_weight")
            self.weights: Any = _anchored(weights, "sample_weight")
        else:
            self.weights = None if weights is None else check_weights(weights, self.n_rows)
        stored = (self.X, self.y, self.weights)
        arrays = [array for array in stored if isinstance(array, zarr.Array)]
        self.inline = any(_in_process(array.store) for array in arrays)
        self.remote = any(is_remote(array.store) for array in arrays) and not self.inline
        self._shared = {
            what: SharedChunks(array, self.boundaries, what, self.policy)
            for what, array in (("y", self.y), ("sample_weight", self.weights))
            if isinstance(array, zarr.Array) and is_remote(array.store)
        }

    def read_targets(self, block: int) -> NDArray[Any]:
        """Return the targets of one block, a fresh array of shape (rows,) + target_shape."""
        span = _span(self.boundaries, block)
        if isinstance(self.y, zarr.Array):
            return self._read_block(self.y, span, "y")
        values = np.array(self.y[span], order="C")
        require_finite(values, "y", span.start)
        return values

    def read_weights(self, block: int) -> NDArray[np.float64] | None:
        """Return the row weights of one block, shape (rows,); None where every weight is one."""
        if self.weights is None:
            return None
        span = _span(self.boundaries, block)
        if isinstance(self.weights, zarr.Array):
            values = self._slab(self.weights, span, "sample_weight")
            absent = absent_chunks(self.weights, span.start, values, "sample_weight", self.policy)
            if absent:
                note_absent("sample_weight", absent)
        else:
            values = np.array(self.weights[span], order="C")
        return check_weights(values, span.stop - span.start, span.start)

    def _slab(self, array: zarr.Array[Any], span: slice, what: str) -> NDArray[Any]:
        shared = self._shared.get(what)
        return super()._slab(array, span, what) if shared is None else shared.read(span.start, span.stop)

    def fingerprint(self) -> str | None:
        """Return a hash of the metadata of stored arrays and the content of others."""
        arrays = (self.X, self.y, self.weights)
        return _digest(*(a.metadata.to_dict() if isinstance(a, zarr.Array) else a for a in arrays))


class DatasetSource(ZarrSource):
    """Rows of a dataset; targets of a classification are codes into `classes`.

    Every chunk that is read is compared with the checksum made when it was written; values need no other check.

    Parameters
    ----------
    dataset : Dataset
        The store.
    weights : zarr.Array or array-like, shape (n_rows,), optional
        Row weights instead of those of the dataset, finite and at least 0.
    policy : RetryPolicy, optional
        Retries of failed reads.
    columns : sequence of str, optional
        The names of the columns in the order in which they are read; that of the store by default, and for a store
        without names.
    thorough : bool, default False
        Whether to compare hashes instead of the faster CRC-32.

    Raises
    ------
    DataError
        ``shape-mismatch``, ``feature-names`` or ``invalid-weights``; on reading ``corrupt`` for a chunk that differs
        from what was written, ``unreadable`` for one that is damaged or missing, ``unreachable``.
    """

    def __init__(
        self,
        dataset: Dataset,
        weights: Any = None,
        policy: RetryPolicy | None = None,
        *,
        columns: Sequence[str] | None = None,
        thorough: bool = False,
    ) -> None:
        y = dataset.y if dataset.has_targets else None
        super().__init__(dataset.X, y, dataset.weights if weights is None else weights, policy=policy)
        self.classes = dataset.class_labels
        self._own_weights = weights is None and "weights" in dataset.checksums
        self.path = dataset.path
        self.feature_names = dataset.feature_names
        self._order: NDArray[np.intp] | None = None
        if columns is not None and self.feature_names is not None and tuple(columns) != self.feature_names:
            require_names(self.feature_names, columns, redact(dataset.path), "the training", any_order=True)
            places = {name: place for place, name in enumerate(self.feature_names)}
            self._order = np.array([places[name] for name in columns])
            self.feature_names = tuple(columns)
        if dataset.table_schema is not None:
            scales = dataset.table_schema.scales
            self.feature_scales = scales if self._order is None else scales[self._order]
        self._content = dataset.fingerprint()
        self.place = redact(dataset.path)
        self._checksums: Mapping[str, Sequence[str | int]] = dataset.checksums
        if dataset.crcs is not None and not thorough:
            self._checksums = dataset.crcs

    def _require_written(self) -> None:
        """Pass: every read refuses a missing chunk."""

    def read_features(self, block: int) -> NDArray[Any]:
        """Return the rows of X of one block, a fresh array of shape (rows, n_features)."""
        return self._ordered(super().read_features(block))

    def read_rows(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return single rows of X in the order given, shape (n, n_features), without a check of checksums."""
        self._require_chunks(self.X, np.unique(_checked_rows(rows, self.n_rows) // self.X.chunks[0]), "X")
        return self._ordered(super().read_rows(rows))

    def _ordered(self, values: NDArray[Any]) -> NDArray[Any]:
        """Put the columns in order, in place: the plan has no memory for a second block."""
        if self._order is not None:
            for start in range(0, len(values), _ORDERED_ROWS):
                part = values[start : start + _ORDERED_ROWS]
                part[...] = part[:, self._order]
        return values

    def fingerprint(self) -> str:
        """Return a hash of the written content, and of the row weights where they are given."""
        order = "" if self._order is None else _digest(self._order)
        given = self.weights is not None and not self._own_weights
        return f"{self._content} {super().fingerprint() if given else ''} {order}".strip()

    def read_weights(self, block: int) -> NDArray[np.float64] | None:
        """Return the row weights of one block, shape (rows,); None where every weight is one."""
        if not self._own_weights:
            return super().read_weights(block)
        span = _span(self.boundaries, block)
        return check_weights(self._read_block(self.weights, span, "weights"), span.stop - span.start, span.start)

    def _read_block(self, array: zarr.Array[Any], span: slice, what: str) -> NDArray[Any]:
        size = array.chunks[0]
        self._require_chunks(array, np.arange(span.start // size, -(-span.stop // size)), what)
        values = read_slab(array, span.start, span.stop, what, self.policy)
        for chunk in absent_chunks(array, span.start, values, what, self.policy):
            require_room(None, array, chunk[0], what, self.place)
        require_checksums(values, span.start, size, self._checksums[what], what, self.place)
        if what == "y" and self.classes is not None and not (values.max() < len(self.classes) and values.min() >= 0):
            raise DataError(f"y of {self.place} holds codes without a class: ingest the data again", kind="corrupt")
        return values

    def _require_chunks(self, array: zarr.Array[Any], chunks: NDArray[np.int64], what: str) -> None:
        """Check that the files of local chunks exist before their values are allocated."""
        if not isinstance(array.store, LocalStore):
            return
        folder = array.store.root / array.path
        for chunk in chunks.tolist():
            file = folder / array.metadata.encode_chunk_key((chunk, *(0,) * (array.ndim - 1)))
            require_room(file.stat().st_size if file.is_file() else None, array, chunk, what, self.place)


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
        raise IndexError(f"rows {rows.min()} to {rows.max()} are not among the rows 0 to {n_rows - 1} of X")
    return rows


def _require_present(values: NDArray[Any], array: zarr.Array[Any], what: str, first_row: int) -> None:
    """Refuse NaN and infinity; the error says which stored values stand for a missing one."""
    try:
        require_finite(values, what, first_row)
    except DataError as error:
        packing = packing_of(array, what)
        if packing is None or not packing.fills:
            raise
        fills = " or ".join(str(fill) for fill in packing.fills)
        raise DataError(
            f"{error}; by the attributes of {redact(str(array.store_path))}, {fills} is a missing value",
            kind=error.kind,
        ) from None


def _anchored(array: Any, what: str) -> Any:
    """Return a trusted array; a local one has an absolute path, as a worker may run in another directory."""
    array = trusted(array, what)
    packing_of(array, what)  # attributes that cannot be decoded are refused before the first read
    if not isinstance(array.store, LocalStore) or array.store.root.is_absolute():
        return array
    store = LocalStore(os.path.abspath(array.store.root), read_only=True)
    return trusted(zarr.open_array(store, path=array.path, mode="r", zarr_format=array.metadata.zarr_format), what)


def _in_process(store: Any) -> bool:
    if isinstance(store, WrapperStore):
        return _in_process(store._store)
    if isinstance(store, FsspecStore):
        return type(store.fs).__name__ in ("MemoryFileSystem", "AsyncFileSystemWrapper")
    return isinstance(store, MemoryStore)

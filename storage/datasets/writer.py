"""Writing of dataset stores: streams of any length, in memory of about one chunk."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import zarr
from numpy.typing import NDArray

from distkern.errors import DataError, JobError
from distkern.numerics.moments import Moments

from ..arrays.blocks import chunk_rows_for
from ..arrays.checks import check_rows_agree, check_weights, require_finite, to_numeric
from ..arrays.chunks import ChunkAppender, create_array, read_slab, require_fit
from ..arrays.column_names import names_of, require_names
from ..arrays.labels import CODE_DTYPE, TargetRecorder, as_targets, plain_labels
from ..arrays.plain import frame_columns
from ..io.destinations import publish_place
from ..io.formats import ATTRIBUTE
from ..io.json_files import MAX_JSON_BYTES, dump_json
from ..io.remote_folders import RemoteFolder
from ..io.staged_writer import StagedWriter
from ..io.trust import trusted
from ..tables.schema import TableSchema
from .dataset import DATASET_VERSION, Dataset, open_dataset

__all__ = ["DatasetWriter", "write_dataset"]

_RECORDED = "y-recorded"


class DatasetWriter(StagedWriter):
    """Context manager that writes rows piece by piece; the dataset appears when it is complete, or not at all.

    ::

        with DatasetWriter("letter.zarr") as writer:
            for X, y in pieces:
                writer.append(X, y)

    Parameters
    ----------
    path : path-like
        Local path or URL of the store.
    n_rows : int, optional
        Number of rows, where known: a small store then still has several chunks.
    chunk_rows : int, optional
        Rows of a chunk; by default chunks of X take 256 KiB to 16 MiB.
    task : {"classification", "regression"}, optional
        Task of the target; by default text, bool and integers of at most 100 distinct values are classes.
    feature_names : sequence of str, optional
        Names of the columns of X; by default those of the first piece, if it is a frame.
    overwrite : bool, default False
        Whether to replace a dataset at `path`.
    notes : mapping, optional
        JSON values that are kept with the store; `notes` may be changed until the block ends.
    table_schema : TableSchema, optional
        Schema of the raw columns that X was made of.

    Raises
    ------
    DataError
        ``exists`` or ``foreign`` for the path; those of `append`; at the end ``too-few-rows``, ``constant-features``,
        ``single-class`` and ``shape-mismatch``.
    JobError
        A parameter is wrong.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        n_rows: int | None = None,
        chunk_rows: int | None = None,
        task: str | None = None,
        feature_names: Sequence[str] | None = None,
        overwrite: bool = False,
        notes: Mapping[str, Any] | None = None,
        table_schema: TableSchema | None = None,
    ) -> None:
        if chunk_rows is not None and chunk_rows < 1:
            raise JobError(f"chunk_rows is {chunk_rows}: it must be at least 1", kind="invalid-chunk-rows")
        self.notes: dict[str, Any] = dict(notes or {})
        self._schema = table_schema
        self._n_rows = n_rows
        self._chunk_rows = chunk_rows
        self._names = None if feature_names is None else [str(name) for name in feature_names]
        self._targets = TargetRecorder(task)
        self._published = publish_place(path, overwrite, DataError, "dataset", self._needed_bytes)
        super().__init__()
        self._X: ChunkAppender | None = None
        self._y: ChunkAppender | None = None
        self._weights: ChunkAppender | None = None
        self._moments: Moments | None = None

    def __enter__(self) -> Self:
        place = self._stack.enter_context(self._published)
        where = place.store if isinstance(place, RemoteFolder) else place
        self._group = zarr.open_group(where, mode="w", zarr_format=3)
        self._describe({"complete": False})
        return self

    @property
    def rows_written(self) -> int:
        """Rows appended so far."""
        return 0 if self._X is None else self._X.n_rows

    def append(self, X: Any, y: Any = None, weights: Any = None) -> None:
        """Add rows.

        Parameters
        ----------
        X : array-like, shape (n, n_features)
            Features; the dtype of the first piece is the dtype of the store.
        y : array-like, shape (n,) or (n, n_targets), optional
            Targets; a store of rows to predict has none. The first piece decides for the store.
        weights : array-like, shape (n,), optional
            Row weights, finite and at least 0; with them in every piece or in none.

        Raises
        ------
        DataError
            ``not-numeric``, ``not-finite``, ``shape-mismatch``, ``zero-features``, ``dtype-mismatch``,
            ``invalid-weights``, ``feature-names`` for a frame whose columns have other names, or a label that cannot be
            used.
        """
        names = names_of(X)
        require_names(names, self._names, "X", "the store")
        rows = to_numeric(X, "X", self.rows_written)
        if rows.ndim != 2:
            raise DataError(
                f"X has shape {rows.shape}: it must have two dimensions, rows and features",
                kind="shape-mismatch",
            )
        if rows.shape[1] == 0:
            raise DataError("X has no features: give at least one column", kind="zero-features")
        raw = None if y is None else as_targets(y, self.rows_written)
        if raw is not None:
            check_rows_agree(len(rows), raw.shape[0] if raw.ndim else 0)
        require_finite(rows, "X", self.rows_written, self._names)
        shares = None if weights is None else check_weights(weights, len(rows), self.rows_written)
        targets = None if raw is None else self._targets.record(raw, self.rows_written)
        if self._X is None:
            self._names = names if self._names is None else self._names
            self._create(rows, targets, shares)
        beside = (("y", targets, self._y), ("weights", shares, self._weights))
        for name, values, appender in beside:
            if (values is None) != (appender is None):
                raise DataError(
                    f"some pieces have {name} and others do not: give them with every piece, or with none",
                    kind="shape-mismatch",
                )
        assert self._X is not None
        require_fit(rows, self._X.array, "X")
        if targets is not None and self._y is not None:
            require_fit(targets, self._y.array, "y")
        self._X.append(rows)
        for _, values, appender in beside:
            if values is not None and appender is not None:
                appender.append(values)

    def _create(self, rows: NDArray[Any], targets: NDArray[Any] | None, weights: NDArray[Any] | None) -> None:
        n_features = rows.shape[1]
        if self._names is not None and (len(self._names) != n_features or len(set(self._names)) != n_features):
            raise DataError(
                f"feature_names, or a frame, has {len(set(self._names))} different names for {n_features} columns: "
                "give one name for each column",
                kind="feature-names",
            )
        chunk_rows = self._chunk_rows or chunk_rows_for(n_features * rows.itemsize, self._n_rows)
        if self._n_rows is not None:
            chunk_rows = max(1, min(chunk_rows, self._n_rows))
        start = self._n_rows or 0

        def made(name: str, values: NDArray[Any]) -> zarr.Array[Any]:
            return create_array(self._group, name, (start, *values.shape[1:]), chunk_rows, values.dtype)

        self._X = ChunkAppender(made("X", rows), self._add_moments)
        self._y = None if targets is None else ChunkAppender(made(_RECORDED, targets))
        self._weights = None if weights is None else ChunkAppender(made("weights", weights))

    def _needed_bytes(self) -> int | None:
        """Return the bytes of X, and of y twice, before compression; None where the number of rows is not known."""
        if self._n_rows is None or self._X is None:
            return None
        row_bytes = self._X.array.dtype.itemsize * self._X.array.shape[1]
        if self._y is not None:
            y = self._y.array
            row_bytes += 2 * y.dtype.itemsize * int(np.prod(y.shape[1:], dtype=int))
        return self._n_rows * row_bytes

    def _add_moments(self, rows: NDArray[Any]) -> None:
        moments = Moments.from_rows(rows)
        self._moments = moments if self._moments is None else self._moments.merge(moments)

    def _finish(self) -> None:
        n_rows = self.rows_written
        labelled = self._y is not None
        if self._X is None or n_rows < (2 if labelled else 1):
            raise DataError(f"the data has {n_rows} rows: at least 2 are needed", kind="too-few-rows")
        if self._n_rows is not None:
            check_rows_agree(self._n_rows, n_rows, "the appended data")
        made = (("X", self._X), ("y", self._y), ("weights", self._weights))
        stored = {name: appender for name, appender in made if appender is not None}
        for appender in stored.values():
            appender.finish()
        if self._schema is not None:
            text = self._schema.to_bytes()
            create_array(self._group, "table_schema", text.shape, len(text), text.dtype)[:] = text
        assert self._moments is not None
        # Rows to predict may be few and alike.
        if labelled and not self._moments.std().any():
            raise DataError(
                f"constant features only: each of the {self._X.array.shape[1]} columns of X has the same "
                f"value in all {n_rows} rows, so there is nothing to learn from; add a column that varies",
                kind="constant-features",
            )
        task, labels, counts = None, None, None
        if self._y is not None:
            task, labels, recorded = self._targets.finish()
            stored["y"], counts = self._order_targets(self._y.array, recorded)
        self._describe(
            {
                "complete": True,
                "task": task,
                "n_rows": n_rows,
                "feature_names": self._names,
                "class_labels": None if labels is None else labels.tolist(),
                "class_labels_dtype": None if labels is None else labels.dtype.str,
                "class_counts": counts,
                "feature_mean": self._moments.mean.tolist(),
                "feature_std": self._moments.std().tolist(),
                "checksums": {name: appender.checksums for name, appender in stored.items()},
                "crc32": {name: appender.crcs for name, appender in stored.items()},
                "dtypes": {name: appender.array.dtype.str for name, appender in stored.items()},
                **({} if self._schema is None else {"table_schema": True}),
                "notes": self.notes,
            }
        )

    def _order_targets(
        self, array: zarr.Array[Any], recorded: NDArray[Any] | None
    ) -> tuple[ChunkAppender, list[int] | None]:
        size = array.chunks[0]
        dtype = array.dtype if recorded is None else CODE_DTYPE
        final = ChunkAppender(create_array(self._group, "y", array.shape, size, dtype))
        counts = np.zeros(0 if recorded is None else len(recorded), dtype=np.int64)
        order = None if recorded is None else np.argsort(recorded)
        for start in range(0, array.shape[0], size):
            values = read_slab(array, start, min(start + size, array.shape[0]), "y")
            if recorded is not None and order is not None:
                values = order[np.searchsorted(recorded, values, sorter=order)].astype(CODE_DTYPE)
                counts += np.bincount(values, minlength=len(counts))
            final.append(values)
        final.finish()
        del self._group[_RECORDED]
        return final, None if recorded is None else counts.tolist()

    def _describe(self, facts: Mapping[str, Any]) -> None:
        if len(dump_json(dict(facts))) > MAX_JSON_BYTES // 2:
            raise DataError(
                f"the description of the store takes more than {MAX_JSON_BYTES // 2} bytes, most of them checksums of "
                "chunks: raise chunk_rows",
                kind="too-many-chunks",
            )
        # Readers of version 1 know neither stores without targets nor weights.
        version = 1 if self._y is not None and self._weights is None else DATASET_VERSION
        self._group.attrs[ATTRIBUTE] = {"kind": "dataset", "format_version": version, **facts}


def write_dataset(
    path: str | os.PathLike[str],
    X: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    chunk_rows: int | None = None,
    task: str | None = None,
    feature_names: Sequence[str] | None = None,
    overwrite: bool = False,
) -> Dataset:
    """Write a dataset store.

    Parameters
    ----------
    path : path-like
        Local path or URL of the store, which appears only when it is complete.
    X : array-like or zarr.Array, shape (n_rows, n_features)
        Finite numbers. float32, float64 and integers keep their dtype, bool becomes uint8, other numbers float64. A
        zarr array is read a chunk at a time; the names of a frame's columns are kept. A frame whose columns are not all
        numbers is encoded as by `TableEncoder`, and the store keeps its schema.
    y : array-like or zarr.Array, shape (n_rows,) or (n_rows, n_targets), optional
        Labels or numbers; a store of rows to predict has none.
    sample_weight : array-like or zarr.Array, shape (n_rows,), optional
        Row weights, which trainings on the store use.
    chunk_rows, task, feature_names : optional
        As for `DatasetWriter`.
    overwrite : bool, default False
        Whether to replace a dataset at `path`.

    Returns
    -------
    Dataset
        The store, opened.

    Raises
    ------
    DataError, JobError
        As for `DatasetWriter`.
    """
    names = names_of(X)
    schema = None
    if frame_columns(X) is not None:
        X, schema = _encoded(X, y, task)
    if schema is not None:
        if feature_names is not None:
            raise JobError(
                "feature_names is given, but the columns of a raw frame are encoded, and named by its own columns: "
                "leave it out, or rename the columns of the frame",
                kind="feature-names",
            )
        names = schema.encoded_names
    if feature_names is not None:
        feature_names = [str(name) for name in feature_names]
        require_names(names, feature_names, "X", "feature_names")
    X = trusted(X, "X") if isinstance(X, zarr.Array) else to_numeric(X, "X")
    if y is not None:
        y = trusted(y, "y") if isinstance(y, zarr.Array) else as_targets(y)
    if sample_weight is not None:
        sample_weight = (
            trusted(sample_weight, "sample_weight")
            if isinstance(sample_weight, zarr.Array)
            else to_numeric(sample_weight, "sample_weight")
        )
    if X.ndim != 2:
        raise DataError(f"X has shape {X.shape}: it must have two dimensions, rows and features", kind="shape-mismatch")
    for values, name in ((y, "y"), (sample_weight, "sample_weight")):
        if values is not None:
            check_rows_agree(X.shape[0], values.shape[0] if values.ndim else 0, name)
    with DatasetWriter(
        path,
        n_rows=X.shape[0],
        chunk_rows=chunk_rows,
        task=task,
        feature_names=names if feature_names is None else feature_names,
        overwrite=overwrite,
        table_schema=schema,
    ) as writer:
        step = X.chunks[0] if isinstance(X, zarr.Array) else max(1, X.shape[0])
        for start in range(0, X.shape[0], step):
            stop = min(start + step, X.shape[0])
            parts = (("X", X), ("y", y), ("sample_weight", sample_weight))
            writer.append(*(None if values is None else _rows(values, start, stop, what) for what, values in parts))
    return open_dataset(path)


def _encoded(frame: Any, y: Any, task: str | None) -> tuple[Any, TableSchema | None]:
    """Encode a frame whose columns are not all numbers; return the rows and the schema, None for numbers."""
    # Every worker imports this room, so pyarrow is loaded only where it is used.
    from ..tables.encode import TableEncoding
    from ..tables.frames import encoded_table, frame_table, needs_encoding
    from ..tables.raw_rows import ArrowRows, profile_rows

    if not needs_encoding(frame):
        return frame, None
    table = frame_table(frame)
    targets = None
    if y is not None:
        values = read_slab(y, 0, y.shape[0], "y") if isinstance(y, zarr.Array) else as_targets(y)
        check_rows_agree(table.num_rows, values.shape[0] if values.ndim else 0)
        targets = to_numeric(values, "y") if task == "regression" else plain_labels(values)
    found = profile_rows(ArrowRows(table, targets), task=task)
    return encoded_table(TableEncoding(found.schema, found.out_of_fold), table), found.schema


def _rows(values: Any, start: int, stop: int, what: str) -> NDArray[Any]:
    if isinstance(values, zarr.Array):
        return read_slab(values, start, stop, what)
    return np.asarray(values[start:stop])

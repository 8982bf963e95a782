"""Writing of dataset stores: streams of any length, in memory of about one chunk."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
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
from ..arrays.labels import CODE_DTYPE, TargetRecorder, as_targets
from ..io.destinations import publish_place
from ..io.formats import ATTRIBUTE
from ..io.json_files import MAX_JSON_BYTES, dump_json
from ..io.remote_folders import RemoteFolder
from ..io.staged_writer import StagedWriter
from ..tables.schema import TableSchema
from .dataset import DATASET_VERSION

__all__ = ["DatasetWriter"]

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
        # Chunks are compressed and written while the next rows are read and encoded.
        self._thread = self._stack.enter_context(ThreadPoolExecutor(1, "dataset-writer"))
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

        dense = self._schema is None or self._schema.n_zero_one < n_features / 2
        array = create_array(self._group, "X", (start, n_features), chunk_rows, rows.dtype, shuffled=dense)
        self._X = ChunkAppender(array, self._add_moments, self._thread)
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

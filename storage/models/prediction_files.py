"""Predictions as CSV or Parquet files, written block by block."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from distkern.errors import DataError

from ..io.destinations import check_place
from ..io.publish import check_destination, publish_file
from ..io.staged_writer import StagedWriter
from ..io.urls import is_url, local_place
from .predictions import PredictionWriter, require_shapes

__all__ = ["PredictionFileWriter", "check_prediction_destination", "open_predictions"]

_FILES = (".csv", ".parquet")
_REFUSED = (".tsv", ".txt", ".json", ".npy", ".npz", ".feather", ".arrow", ".xlsx", ".gz", ".bz2", ".xz", ".zst")
_FLUSH_BYTES = 8 * 1024 * 1024


def check_prediction_destination(path: str | os.PathLike[str], overwrite: bool = False) -> None:
    """Refuse a place where predictions cannot be written, before the work.

    `overwrite`, default False, allows predictions there to be replaced.

    Raises
    ------
    DataError
        ``exists``, ``foreign``, ``not-writable``, ``not-local``, or ``unknown-format`` for the ending of another kind
        of file.
    """
    name = os.fspath(path)
    suffix = Path(name).suffix.lower()
    if name == "-" or suffix in _REFUSED:
        raise DataError(
            f"predictions are not written as {name}: name a file that ends in {' or '.join(_FILES)}, or a folder for a "
            "zarr store",
            kind="unknown-format",
        )
    if suffix not in _FILES:
        check_place(path, overwrite, DataError, "predictions")
    elif is_url(path):
        raise DataError(
            f"{name} is behind a URL, and {suffix} files are written to local folders: name one, or a name without "
            "this ending for a zarr store",
            kind="not-local",
        )
    else:
        check_destination(local_place(path), overwrite, DataError, _is_prediction_file)


def open_predictions(
    path: str | os.PathLike[str], n_rows: int, **options: Any
) -> PredictionWriter | PredictionFileWriter:
    """Return the writer for a place: of a CSV or Parquet file by its ending, else of a store.

    `options` are those of `PredictionWriter`.

    Raises
    ------
    DataError
        Those of `check_prediction_destination`.
    """
    check_prediction_destination(path, options.get("overwrite", False))
    is_file = Path(os.fspath(path)).suffix.lower() in _FILES
    return (PredictionFileWriter if is_file else PredictionWriter)(path, n_rows, **options)


class PredictionFileWriter(StagedWriter):
    """Context manager that writes predictions in row order to a CSV or Parquet file.

    The file appears when it is complete, or not at all. It has the column ``prediction`` (``prediction_0`` and so on
    for several targets) and, on request, ``probability_LABEL`` for each class.

    Parameters
    ----------
    path : path-like
        Local path that ends in .csv or .parquet.
    n_rows : int
        Number of rows.
    n_targets : int, optional
        Columns of a regression with several targets; a single column by default.
    class_labels : numpy.ndarray, optional
        Sorted labels of a classification.
    probability : bool, default False
        Whether class probabilities are written too.
    dtype : dtype-like, default float64
        dtype of the numbers.
    overwrite : bool, default False
        Whether to replace a file of predictions at `path`.

    Raises
    ------
    DataError
        ``exists`` or ``foreign`` for the path; ``shape-mismatch`` where the rows do not fit; ``disk-full``.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        n_rows: int,
        *,
        n_targets: int | None = None,
        class_labels: NDArray[Any] | None = None,
        probability: bool = False,
        dtype: npt.DTypeLike = np.float64,
        overwrite: bool = False,
    ) -> None:
        if probability and class_labels is None:
            raise ValueError("probabilities need class_labels")
        self._n_rows = n_rows
        self._tail = () if n_targets is None else (n_targets,)
        self._classes = len(class_labels) if probability and class_labels is not None else None
        self._is_csv = Path(path).suffix.lower() == ".csv"
        self._dtype = np.dtype(dtype) if class_labels is None else class_labels.dtype
        self._names = ["prediction"] if n_targets is None else [f"prediction_{target}" for target in range(n_targets)]
        if probability and class_labels is not None:
            self._names += [f"probability_{label}" for label in class_labels.tolist()]
        self._published = publish_file(local_place(path), overwrite, DataError, _is_prediction_file)
        super().__init__()
        self._held: list[Any] = []
        self._written = 0

    def __enter__(self) -> Self:
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.parquet

        aside = self._stack.enter_context(self._published)
        columns = [self._column(np.empty(0, self._dtype))] * (self._tail or (1,))[0]
        columns += [pa.array(np.empty(0))] * (self._classes or 0)
        schema = pa.table(columns, names=self._names).schema
        # A stream of Python, as its errors have the number of the system's error.
        sink = self._stack.enter_context(aside.open("wb"))
        if self._is_csv:
            line = io.StringIO()
            csv.writer(line, lineterminator="\n").writerow(self._names)
            sink.write(line.getvalue().encode())
            options = pa.csv.WriteOptions(include_header=False)
            self._writer: Any = self._stack.enter_context(pa.csv.CSVWriter(sink, schema, write_options=options))
        else:
            self._writer = self._stack.enter_context(pa.parquet.ParquetWriter(sink, schema))
        return self

    def append(self, prediction: Any, probability: Any = None) -> None:
        """Add the predictions of the next rows, as `PredictionWriter.append`; `probability` is optional there."""
        import pyarrow as pa

        values, shares = require_shapes(prediction, probability, self._tail, self._classes)
        columns = [self._column(column) for column in values.reshape(len(values), -1).T]
        columns += [] if shares is None else [pa.array(np.ascontiguousarray(column)) for column in shares.T]
        self._held.append(pa.table(columns, names=self._names))
        if sum(table.nbytes for table in self._held) >= _FLUSH_BYTES:
            self._flush()

    def _finish(self) -> None:
        self._flush()
        if self._written != self._n_rows:
            raise DataError(f"{self._written} rows were predicted, not {self._n_rows}", kind="shape-mismatch")

    def _flush(self) -> None:
        import pyarrow as pa

        if self._held:
            table = pa.concat_tables(self._held).combine_chunks()
            self._writer.write_table(table)
            self._written += table.num_rows
            self._held = []

    def _column(self, values: NDArray[Any]) -> Any:
        import pyarrow as pa

        if self._dtype.kind == "O" or (self._dtype.kind == "b" and self._is_csv):
            return pa.array([str(value) for value in values.tolist()], pa.string())
        if self._dtype.kind == "U":
            return pa.array(values.tolist(), pa.string())
        return pa.array(np.ascontiguousarray(values.astype(self._dtype, copy=False)))


def _is_prediction_file(path: Path) -> bool:
    """Return whether the file at a path has the columns of predictions, so that it may be replaced."""
    if not path.is_file():
        return False
    if path.suffix.lower() == ".csv":
        with path.open("rb") as stream:
            return stream.read(10) == b"prediction"
    import pyarrow as pa
    import pyarrow.parquet

    try:
        return str(pa.parquet.read_schema(path).names[0]).startswith("prediction")
    except (pa.ArrowException, OSError, IndexError):
        return False

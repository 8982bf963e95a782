"""Predictions as CSV or Parquet files, written block by block."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from distkern.errors import DataError

from ..io.destinations import check_place
from ..io.publish import check_destination, publish_file
from ..io.urls import is_url, local_place
from .predictions import PredictionSink, PredictionWriter

__all__ = ["check_prediction_destination", "open_predictions"]

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


def open_predictions(path: str | os.PathLike[str], n_rows: int, **options: Any) -> PredictionSink:
    """Return the writer for a place: of a CSV or Parquet file by its ending, else of a store.

    `options` are those of `PredictionSink`.

    Raises
    ------
    DataError
        Those of `check_prediction_destination`.
    """
    check_prediction_destination(path, options.get("overwrite", False))
    is_file = Path(os.fspath(path)).suffix.lower() in _FILES
    return (PredictionFileWriter if is_file else PredictionWriter)(path, n_rows, **options)


class PredictionFileWriter(PredictionSink):
    """Writer of a CSV or Parquet file, by the ending of a local path; see `PredictionSink`.

    The file has the column ``prediction`` (``prediction_0`` and so on for several targets) and, on request,
    ``probability_LABEL`` for each class, or ``lower`` and ``upper`` (``lower_0`` and so on).
    """

    def __enter__(self) -> Self:
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.parquet

        place = local_place(self._path)
        self._is_csv = Path(place).suffix.lower() == ".csv"
        self._kind = self._dtype if self._labels is None else self._labels.dtype
        self._names = [f"prediction_{target}" for target in range(self._tail[0])] if self._tail else ["prediction"]
        columns = [self._column(np.empty(0, self._kind))] * len(self._names)
        if self._shared is not None:
            self._names += [f"probability_{label}" for label in self._shared.tolist()]
            columns += [pa.array(np.empty(0))] * len(self._shared)
        if self._coverage is not None:
            suffixes = [f"_{target}" for target in range(self._tail[0])] if self._tail else [""]
            self._names += [end + suffix for suffix in suffixes for end in ("lower", "upper")]
            columns += [self._column(np.empty(0, self._kind))] * 2 * len(suffixes)
        schema = pa.table(columns, names=self._names).schema
        self._held: list[Any] = []
        aside = self._stack.enter_context(publish_file(place, self._overwrite, DataError, _is_prediction_file))
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

    def _add(self, values: NDArray[Any], shares: NDArray[Any] | None, ends: NDArray[Any] | None) -> None:
        import pyarrow as pa

        columns = [self._column(column) for column in values.reshape(len(values), -1).T]
        columns += [] if shares is None else [pa.array(np.ascontiguousarray(column)) for column in shares.T]
        columns += [] if ends is None else [self._column(column) for column in ends.reshape(len(ends), -1).T]
        self._held.append(pa.table(columns, names=self._names))
        if sum(table.nbytes for table in self._held) >= _FLUSH_BYTES:
            self._complete()

    def _complete(self) -> None:
        import pyarrow as pa

        if self._held:
            self._writer.write_table(pa.concat_tables(self._held).combine_chunks())
            self._held = []

    def _column(self, values: NDArray[Any]) -> Any:
        import pyarrow as pa

        if self._kind.kind == "O" or (self._kind.kind == "b" and self._is_csv):
            return pa.array([str(value) for value in values.tolist()], pa.string())
        if self._kind.kind == "U":
            return pa.array(values.tolist(), pa.string())
        return pa.array(np.ascontiguousarray(values.astype(self._kind, copy=False)))


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

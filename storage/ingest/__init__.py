"""Ingest: files of common formats are written to a dataset store, in bounded memory."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path

from distkern.errors import DataError, JobError

from ..arrays.blocks import chunk_rows_for
from ..datasets.dataset import Dataset, open_dataset
from ..datasets.writer import DatasetWriter
from ..io.destinations import check_place
from ..io.urls import is_url, local_place
from .cleaning import POLICIES, Cleaner
from .numpy_files import open_npy, open_npz
from .table import InputTable

__all__ = ["ingest"]

logger = logging.getLogger(__name__)

_FORMATS = {
    ".csv": "csv",
    ".csv.gz": "csv",
    ".tsv": "csv",
    ".tsv.gz": "csv",
    ".parquet": "parquet",
    ".npy": "npy",
    ".npz": "npz",
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
}


MAX_FEATURES = 2**21
"""Most columns of X; a row of that many takes 16 MiB."""


def ingest(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    target: str | int | None = None,
    part: str | None = None,
    task: str | None = None,
    missing: str = "error",
    drop: Sequence[str] = (),
    delimiter: str | None = None,
    chunk_rows: int | None = None,
    overwrite: bool = False,
) -> Dataset:
    """Write a dataset store from files of one format, one after another.

    Parameters
    ----------
    paths : path-like or sequence of path-like
        Files of one format, recognised by their extensions: .csv, .tsv (also with .gz), .parquet, .npy, .npz,
        .svm, .svmlight or .libsvm. Columns with names are matched by name.
    out : path-like
        Local path or URL of the store.
    target : str or int, optional
        CSV and Parquet: name of the target column. npy: number of the target column, or path of a npy file
        with y. npz: key of the target, y by default.
    part : {"train", "test"}, optional
        npz: read X_train and y_train, or X_test and y_test.
    task : {"classification", "regression"}, optional
        As for `DatasetWriter`.
    missing : {"error", "drop", "mean"}, default "error"
        Refuse a missing value, leave its row out, or replace it by the mean of its column. A row without target
        is refused or, with ``drop``, left out.
    drop : sequence of str, default ()
        CSV and Parquet: columns to leave out.
    delimiter : str, optional
        CSV: the character between columns.
    chunk_rows : int, optional
        Rows of a chunk of the store.
    overwrite : bool, default False
        Whether to replace a dataset at `out`.

    Returns
    -------
    Dataset
        The store, opened; its notes have the numbers of dropped rows and filled values.

    Raises
    ------
    DataError
        The files cannot be read, or their data cannot be trained on; rows are counted from 1 over all
        files, without header lines.
    JobError
        The parameters do not fit together.
    """
    files = [_file(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    if missing not in POLICIES:
        raise JobError(f"missing is {missing!r}: it must be one of {', '.join(POLICIES)}", kind="invalid-missing")
    check_place(out, overwrite, DataError, "dataset")
    table = _open_table(files, target, part, list(drop), delimiter)
    if table.n_features > MAX_FEATURES:
        raise DataError(
            f"{', '.join(str(path) for path in files)}: rows are stored dense and have {table.n_features} features, "
            f"and {MAX_FEATURES} are the most: leave features out, or number those of a sparse file anew",
            kind="too-many-features",
        )
    cleaner = Cleaner(table, missing)
    if chunk_rows is None:
        row_bytes = table.n_features * cleaner.dtype.itemsize
        chunk_rows = max(1, min(chunk_rows_for(row_bytes, table.n_rows), table.n_rows))
    with DatasetWriter(
        out,
        chunk_rows=chunk_rows,
        task=task,
        feature_names=table.names,
        overwrite=overwrite,
    ) as writer:
        for features, labels in cleaner.rows():
            writer.append(features, labels)
        writer.notes = {
            "sources": [path.name for path in files],
            "rows_dropped": cleaner.rows_dropped,
            "values_filled": cleaner.values_filled,
        }
    if cleaner.rows_dropped:
        logger.warning("%d of %d rows lack a value and were dropped", cleaner.rows_dropped, table.n_rows)
    if cleaner.values_filled:
        logger.warning("%d missing values were replaced by the column mean", cleaner.values_filled)
    return open_dataset(out)


def _file(path: str | os.PathLike[str]) -> Path:
    if is_url(path):
        raise DataError(
            f"{os.fspath(path)} is behind a URL, and files are read from local directories: copy it here first "
            "(the store itself may be written behind a URL)",
            kind="url",
        )
    return Path(local_place(path))


def _open_table(
    files: Sequence[Path],
    target: str | int | None,
    part: str | None,
    drop: Sequence[str],
    delimiter: str | None,
) -> InputTable:
    if not files:
        raise JobError("no file is named: name at least one", kind="no-source")
    formats = {_format(path) for path in files}
    if len(formats) > 1:
        raise JobError(
            f"files of the formats {', '.join(sorted(formats))} cannot be ingested together: name files of one format",
            kind="mixed-formats",
        )
    name = formats.pop()
    _refuse_unused(name, target, part, drop, delimiter)
    column = None if target is None else str(target)
    # Every worker imports this room, so pyarrow and scikit-learn are loaded only where they are used.
    if name == "csv":
        from .csv_files import CsvTable

        return CsvTable(files, column, drop, delimiter)
    if name == "parquet":
        from .parquet_files import ParquetTable

        return ParquetTable(files, column, drop)
    if name == "svmlight":
        from .svmlight_files import SvmlightTable

        return SvmlightTable(files)
    return open_npy(files, target) if name == "npy" else open_npz(files, column, part)


def _format(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix == ".gz":
        suffix = "".join(path.suffixes[-2:]).lower()
    if not path.exists():
        raise DataError(f"there is no file {path}: check the name", kind="missing")
    if not path.is_file():
        raise DataError(f"{path} is not a file: name the files in it", kind="not-a-file")
    if suffix not in _FORMATS:
        raise DataError(
            f"{path} has the unknown extension {suffix!r}: known are {', '.join(_FORMATS)}",
            kind="unknown-format",
        )
    return _FORMATS[suffix]


def _refuse_unused(
    name: str, target: str | int | None, part: str | None, drop: Sequence[str], delimiter: str | None
) -> None:
    if part is not None and part not in ("train", "test"):
        raise JobError(f"part is {part!r}: it must be train or test", kind="part")
    for option, given, formats in (
        ("--part", part is not None, ("npz",)),
        ("--drop", bool(drop), ("csv", "parquet")),
        ("--delimiter", delimiter is not None, ("csv",)),
        ("--target", target is not None, ("csv", "parquet", "npy", "npz")),
    ):
        if given and name not in formats:
            raise JobError(
                f"{option} has no meaning for {name} files, only for {', '.join(formats)}: leave it out",
                kind="unused-option",
            )
    if delimiter is not None and (len(delimiter) != 1 or not delimiter.isascii() or delimiter in '\r\n"\0'):
        raise JobError(
            f"delimiter is {delimiter!r}: it must be one ASCII character, and no quote or line break",
            kind="invalid-delimiter",
        )

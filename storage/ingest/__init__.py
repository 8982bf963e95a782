"""Ingest: files of common formats are written to a dataset store, in bounded memory."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Literal

from distkern.errors import DataError, JobError

from ..arrays.blocks import chunk_rows_for
from ..datasets.dataset import Dataset, open_dataset
from ..datasets.writer import DatasetWriter
from ..io.destinations import check_place
from .cleaning import POLICIES, Cleaner
from .files import FORMATS, found_files, open_table
from .row_files import RowFiles
from .table import Reading, require_storable

__all__ = ["FORMATS", "RowFiles", "ingest"]

logger = logging.getLogger(__name__)


def ingest(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    target: str | int | Sequence[str | int] | None = None,
    no_target: bool = False,
    weight: str | int | None = None,
    part: str | None = None,
    task: str | None = None,
    missing: str = "error",
    drop: Sequence[str] = (),
    delimiter: str | None = None,
    header: bool | None = None,
    features: int | None = None,
    index_base: int | Literal["auto"] | None = None,
    format: str | None = None,
    chunk_rows: int | None = None,
    overwrite: bool = False,
) -> Dataset:
    """Write a dataset store from files of one format, one after another.

    Parameters
    ----------
    paths : path-like or sequence of path-like
        Files of one format, recognised by their extensions: .csv, .tsv, .svm, .svmlight and .libsvm (also with .gz,
        .bz2, .xz or .zst), .parquet, .npy, .npz. A folder stands for the files in it, and a pattern such as
        ``rows/*.csv`` for the files that match. Columns with names are matched by name, and files without rows are
        passed over.
    out : path-like
        Local path or URL of the store.
    target : str, int or a sequence of these, optional
        CSV and Parquet: names of the target columns. npy: numbers of the target columns, or the path of a npy file
        with y. npz: key of the target, y by default. Several targets must be numbers.
    no_target : bool, default False
        Whether the rows have no targets: the store is for predictions.
    weight : str or int, optional
        Row weights, which trainings on the store use. CSV and Parquet: name of the column. npy: number of the column,
        or path of a npy file. npz: key. svmlight: path of a npy file.
    part : {"train", "test"}, optional
        npz: read X_train and y_train, or X_test and y_test.
    task : {"classification", "regression"}, optional
        As for `DatasetWriter`.
    missing : {"error", "drop", "mean"}, default "error"
        Refuse a missing value, leave its row out, or replace it by the mean of its column. A row without target or
        weight is refused or, with ``drop``, left out.
    drop : sequence of str, default ()
        CSV and Parquet: columns to leave out.
    delimiter : str, optional
        CSV: the character between columns; by default a tab for .tsv and a comma otherwise.
    header : bool, optional
        CSV: whether the first line has the names of the columns; without, columns are named by their numbers from 0. By
        default it has, and a first line that looks like a row is refused.
    features : int, optional
        svmlight: the number of features, also where these files do not use the last ones; by default the largest
        feature number in them decides.
    index_base : {0, 1, "auto"}, optional
        svmlight: the number of the first feature. By default, and with "auto", 0 where a file has a feature 0, else 1.
    format : {"csv", "parquet", "npy", "npz", "svmlight"}, optional
        Format of the files, by default that of their extensions.
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
    files = found_files([paths] if isinstance(paths, str | os.PathLike) else paths)
    if missing not in POLICIES:
        raise JobError(f"missing is {missing!r}: it must be one of {', '.join(POLICIES)}", kind="invalid-missing")
    if no_target and task is not None:
        raise JobError("rows without targets have no task: leave task (--task) out", kind="target")
    check_place(out, overwrite, DataError, "dataset")
    targets = () if target is None else (target,) if isinstance(target, str | int) else target
    reading = Reading(
        target=tuple(map(str, targets)),
        no_target=no_target,
        weight=None if weight is None else str(weight),
        part=part,
        drop=tuple(drop),
        delimiter=delimiter,
        header=header,
        features=features,
        index_base=None if index_base == "auto" else index_base,
    )
    table = open_table(files, reading, format)
    require_storable(table.n_features, ", ".join(map(str, files)))
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
        for batch in cleaner.rows():
            writer.append(batch.features, batch.target, batch.weights)
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

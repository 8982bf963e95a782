"""Ingest: files of common formats are written to a dataset store, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal

from distkern.errors import DataError, JobError

from ..datasets.dataset import Dataset, open_dataset
from ..io.destinations import check_place
from .cleaning import POLICIES
from .files import FORMATS, found_files
from .row_files import RowFiles
from .store_job import INDICATOR, StoreJob, schema_of
from .table import Reading

__all__ = ["FORMATS", "RowFiles", "ingest"]


def ingest(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    target: str | int | Sequence[str | int] | None = None,
    no_target: bool = False,
    weight: str | int | None = None,
    part: str | None = None,
    task: str | None = None,
    missing: str | None = None,
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
    like: str | os.PathLike[str] | None = None,
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
    missing : {"indicator", "error", "drop", "mean"}, optional
        Replace a missing value by the mean of its column, with a further column that is 1 for such rows (CSV and
        Parquet; the default where a column is not numeric); refuse it (the default where all columns are numbers);
        leave its row out; or replace it by the mean alone. A row without target or weight is refused or, with ``drop``,
        left out.
    drop : sequence of str, default ()
        CSV and Parquet: columns to leave out.
    categorical : sequence of str, default ()
        CSV and Parquet: columns that are categories whatever their values are.
    like : path-like, optional
        CSV and Parquet: dataset or model with the schema of the columns; the rows are then encoded as new ones, for
        tests and predictions.
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
    if missing is not None and missing not in (INDICATOR, *POLICIES):
        raise JobError(
            f"missing is {missing!r}: it must be one of {', '.join((INDICATOR, *POLICIES))}", kind="invalid-missing"
        )
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
    schema = None if like is None else schema_of(like)
    job = StoreJob(files, reading, format, out, task, missing, tuple(categorical), schema, chunk_rows, overwrite)
    job.write()
    return open_dataset(out)

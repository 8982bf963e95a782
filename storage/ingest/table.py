"""Input tables: the protocol of all formats, batches of rows with missing values marked, and the choice of columns."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from distkern.errors import DataError
from distkern.text import did_you_mean

__all__ = [
    "BATCH_BYTES",
    "Batch",
    "ChosenColumns",
    "InputTable",
    "Reading",
    "choose_columns",
    "require_storable",
    "some_rows",
    "unreadable",
]

logger = logging.getLogger(__name__)

MAX_FEATURES = 2**21
"""Most columns of X; a row of that many takes 16 MiB."""

BATCH_BYTES = 4 * 1024 * 1024
"""Approximate bytes of the features in one batch."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Some consecutive rows of a table."""

    features: NDArray[Any]
    """Numbers of shape (n, n_features), NaN where a value is missing."""
    target: NDArray[Any] | None
    """Targets of shape (n,) or (n, n_targets), None for rows without targets."""
    target_missing: NDArray[np.bool_] | None = None
    """True where the target is missing, shape (n,), default None: no target is."""
    weights: NDArray[Any] | None = None
    """Row weights of shape (n,), NaN where one is missing; default None: every weight is one."""


class InputTable(Protocol):
    """Rows of one or more files of one format.

    Attributes
    ----------
    names : tuple of str or None
        Names of the features, where the format has names.
    n_features : int
        Columns of `Batch.features`.
    n_rows : int
        Rows of all files.
    dtype : numpy.dtype
        dtype the features are stored in.
    """

    names: tuple[str, ...] | None
    n_features: int
    n_rows: int
    dtype: np.dtype[Any]

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order; may be called again."""
        ...


@dataclass(frozen=True)
class Reading:
    """Columns that are read of files, and how; options that a format does not have are refused before."""

    target: tuple[str, ...] = ()
    """Names of the target columns or keys, default ()."""
    no_target: bool = False
    """Whether the rows have no targets, default False."""
    weight: str | None = None
    """Column or key of the row weights, or file with them, default None."""
    part: str | None = None
    """``train`` or ``test`` of npz files, default None."""
    drop: tuple[str, ...] = ()
    """Columns to leave out, default ()."""
    delimiter: str | None = None
    """Character between the columns of a text file, default None: a tab for ``.tsv``, else a comma."""
    header: bool | None = None
    """Whether text files begin with names, default None: they must, and names that look like a row are refused."""
    features: int | None = None
    """Number of features of svmlight files, default None: the largest in them decides."""
    index_base: int | None = None
    """Number of the first feature of svmlight files, default None: 0 where a file has a feature 0, else 1."""
    expected: int | None = None
    """Number of features of the model that the rows are for, default None."""
    columns: tuple[str, ...] | None = None
    """Names of the features to read, in order, default None: all but target, weight and dropped columns."""

    def of_columns(self, columns: tuple[str, ...] | None) -> Reading:
        """Return the same for some columns; None leaves it as it is."""
        return self if columns is None else replace(self, columns=columns)


@dataclass(frozen=True)
class ChosenColumns:
    """Names of the columns that are read."""

    features: tuple[str, ...]
    """Names of the features in the order of the first file, or as asked for."""
    targets: tuple[str, ...]
    """Names of the targets."""
    weight: str | None = None
    """Name of the row weights, default None."""

    def all(self) -> tuple[str, ...]:
        """Return features, targets and weight."""
        return (*self.features, *self.targets, *(() if self.weight is None else (self.weight,)))


def choose_columns(
    headers: Sequence[tuple[Path, Sequence[str]]], reading: Reading, indexes: Collection[str] = ()
) -> ChosenColumns:
    """Return the columns that are features, targets and weight, and refuse files without them.

    Parameters
    ----------
    headers : sequence of (path, names)
        Column names of each file.
    reading : Reading
        Targets, weight, columns to leave out or to take.
    indexes : collection of str, default ()
        Columns that number the rows: no features unless `reading` asks for them.

    Raises
    ------
    DataError
        ``target``, ``unknown-column``, ``duplicate-column``, ``columns-differ`` or ``zero-features``.
    """
    path, names = headers[0]
    for file, header in headers:
        twice = sorted(name for name, count in Counter(header).items() if count > 1)
        if twice:
            raise DataError(
                f"{file} has more than one column {twice[0]!r}: rename one of them", kind="duplicate-column"
            )
    if not (reading.target or reading.no_target):
        raise DataError(
            f"which column of {path} is the target? Name it with --target, or give --no-target for rows to predict; "
            f"the columns are {_listed(names)}",
            kind="target",
        )
    roles = [*((name, "target") for name in reading.target), *((name, "column to drop") for name in reading.drop)]
    if reading.weight is not None:
        roles.append((reading.weight, "weight"))
    if len({name for name, _ in roles}) < len(roles):
        name = Counter(name for name, _ in roles).most_common(1)[0][0]
        found = " and ".join(role for other, role in roles if other == name)
        raise DataError(f"column {name!r} is named twice, as {found}: name it once", kind="target")
    chosen = {name for name, _ in roles}
    for name, role in roles:
        if name not in names and not (reading.columns is not None and name in reading.drop):
            raise DataError(
                f"{path} has no column {name!r} ({role}){did_you_mean(name, names)}; "
                f"the columns are {_listed(names)}{_delimiter_hint(names)}",
                kind="unknown-column",
            )
    if reading.columns is not None:
        return _asked_for(headers, reading, chosen)
    left_out = {*reading.drop, *(set(indexes) - chosen)}
    wanted = [name for name in names if name not in left_out]
    for file, header in headers[1:]:
        differing = sorted(set(wanted) ^ (set(header) - left_out))
        if differing:
            has, lacks = (path, file) if differing[0] in wanted else (file, path)
            raise DataError(
                f"column {differing[0]!r} is in {has} but not in {lacks}: all files need the same columns, "
                f"leave others out with --drop",
                kind="columns-differ",
            )
    features = tuple(name for name in wanted if name not in chosen)
    if not features:
        beside = f"besides the target {reading.target[0]!r}" if reading.target else "that is no index"
        raise DataError(f"{path} has no column {beside}: features are needed", kind="zero-features")
    return ChosenColumns(features, reading.target, reading.weight)


def _asked_for(
    headers: Sequence[tuple[Path, Sequence[str]]], reading: Reading, chosen: Collection[str]
) -> ChosenColumns:
    """Return the columns that are asked for by name; others are left out, with a note in the log."""
    columns = tuple(reading.columns or ())
    for path, names in headers:
        for name in columns:
            if name not in names or name in reading.drop:
                raise DataError(
                    f"{path} has no column {name!r}, which the model was trained on{did_you_mean(name, names)}; "
                    f"the columns are {_listed(names)}{_delimiter_hint(names)}",
                    kind="unknown-column",
                )
        others = [name for name in names if name not in columns and name not in chosen]
        if others:
            logger.info("%s: the model was trained without the columns %s: left out", path, _listed(others))
    return ChosenColumns(columns, reading.target, reading.weight)


def some_rows(paths: Sequence[Path], rows: Sequence[int], why: str) -> list[Path]:
    """Return the files that have rows, given the count of each; refuse files that have none together.

    `why` says what an empty file lacks.

    Raises
    ------
    DataError
        ``empty-file``.
    """
    full = [path for path, count in zip(paths, rows, strict=True) if count]
    if not full:
        beside = f", and so it is with the other {len(paths) - 1} files" if len(paths) > 1 else ""
        raise DataError(f"{paths[0]} {why}{beside}", kind="empty-file")
    if len(full) < len(paths):
        logger.info("%d of %d files have no rows and were passed over", len(paths) - len(full), len(paths))
    return full


def require_storable(n_features: int, place: str) -> None:
    """Refuse more than `MAX_FEATURES` features of the files at a place: `DataError` ``too-many-features``."""
    if n_features > MAX_FEATURES:
        raise DataError(
            f"{place}: rows are stored dense and have {n_features} features, "
            f"and {MAX_FEATURES} are the most: leave features out, or number those of a sparse file anew",
            kind="too-many-features",
        )


def unreadable(path: Path, why: object) -> DataError:
    """Return the error for a file that is damaged, or not of the format of its extension."""
    return DataError(
        f"{path} cannot be read as a {''.join(path.suffixes[-2:])} file: {why}; the file is damaged or of another kind",
        kind="unreadable",
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:20])
    return shown if len(names) <= 20 else f"{shown} and {len(names) - 20} more"


def _delimiter_hint(names: Sequence[str]) -> str:
    found = [mark for mark in ";\t|, " if len(names) == 1 and mark in names[0]]
    return f"; if {found[0]!r} separates the columns, set --delimiter" if found else ""

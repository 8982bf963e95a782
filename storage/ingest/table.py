"""Input tables: the protocol of all formats, batches of rows with missing values marked, and the choice of columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from distkern.errors import DataError
from distkern.text import did_you_mean

__all__ = ["BATCH_BYTES", "Batch", "ChosenColumns", "InputTable", "choose_columns", "unreadable"]

BATCH_BYTES = 4 * 1024 * 1024
"""Approximate bytes of the features in one batch."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Some consecutive rows of a table."""

    features: NDArray[Any]
    """Numbers of shape (n, n_features), NaN where a value is missing."""
    target: NDArray[Any]
    """Targets of shape (n,) or (n, n_targets)."""
    target_missing: NDArray[np.bool_] | None = None
    """True where the target is missing, shape (n,), default None: no target is."""


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
class ChosenColumns:
    """Names of the columns that are read."""

    features: tuple[str, ...]
    """Names of the features in the order of the first file."""
    target: str
    """Name of the target."""


def choose_columns(
    headers: Sequence[tuple[Path, Sequence[str]]], target: str | None, drop: Sequence[str]
) -> ChosenColumns:
    """Return the columns that are features and target, and refuse files without them.

    Parameters
    ----------
    headers : sequence of (path, names)
        Column names of each file.
    target : str or None
        Name of the target.
    drop : sequence of str
        Names of columns to leave out.

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
    if target is None:
        raise DataError(
            f"which column of {path} is the target? Name it with --target; the columns are {_listed(names)}",
            kind="target",
        )
    known = set(names)
    for name in (target, *drop):
        if name not in known:
            role = "target" if name == target else "column to drop"
            raise DataError(
                f"{path} has no column {name!r} ({role}){did_you_mean(name, names)}; "
                f"the columns are {_listed(names)}{_delimiter_hint(names)}",
                kind="unknown-column",
            )
    if target in drop:
        raise DataError(f"column {target!r} is the target and to be dropped: name one", kind="target")
    dropped = set(drop)
    wanted = [name for name in names if name not in dropped]
    for file, header in headers[1:]:
        others = set(header) - dropped
        differing = sorted(set(wanted) ^ others)
        if differing:
            has, lacks = (path, file) if differing[0] in wanted else (file, path)
            raise DataError(
                f"column {differing[0]!r} is in {has} but not in {lacks}: all files need the same columns, "
                f"leave others out with --drop",
                kind="columns-differ",
            )
    features = tuple(name for name in wanted if name != target)
    if not features:
        raise DataError(f"{path} has no column besides the target {target!r}", kind="zero-features")
    return ChosenColumns(features, target)


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
    found = [mark for mark in ";\t|," if len(names) == 1 and mark in names[0]]
    return f"; if {found[0]!r} separates the columns, set --delimiter" if found else ""

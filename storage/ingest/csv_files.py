"""CSV files, read by pyarrow in blocks of text.

Every feature is read as numbers from the first row to the last; no type is guessed from the first block. A first pass
counts the rows and reads the target as text; its type is the narrowest of int64, float64 and text that holds all its
values.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from distkern.errors import DataError

from .table import Batch, choose_columns, unreadable

__all__ = ["CsvTable"]

_BLOCK_BYTES = 4 * 1024 * 1024
_HEADER_LINES = 10_000
_HEADER_CHARACTERS = 64 * 1024 * 1024
_NULLS = ["", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "-nan", "-NaN", "null", "NULL", "None", "?"]
_FAILURES = (pa.ArrowException, OSError, ValueError)


class CsvTable:
    """Rows of CSV files with a header line; columns are matched by name.

    Parameters
    ----------
    paths : sequence of pathlib.Path
        Files, plain or compressed with gzip.
    target : str or None
        Name of the target column.
    drop : sequence of str
        Columns to leave out.
    delimiter : str, optional
        Character between columns; by default a tab for ``.tsv`` and a comma otherwise.

    Raises
    ------
    DataError
        ``empty-file``, ``unreadable``, ``ragged-row``, ``line-break``, ``empty-column``, ``text-column`` (on
        reading), and those of `choose_columns`.
    """

    def __init__(self, paths: Sequence[Path], target: str | None, drop: Sequence[str], delimiter: str | None) -> None:
        self._paths = paths
        self._delimiters = [delimiter or ("\t" if ".tsv" in path.suffixes else ",") for path in paths]
        headers = [(path, _header(path, mark)) for path, mark in zip(paths, self._delimiters, strict=True)]
        self._widths = [len(header) for _, header in headers]
        columns = choose_columns(headers, target, drop)
        self.names: tuple[str, ...] | None = columns.features
        self.n_features = len(columns.features)
        self.dtype: np.dtype[Any] = np.dtype(np.float64)
        self._features = columns.features
        self._target = columns.target
        self._first_rows = [1]
        self._target_type = pa.int64()
        for file in range(len(paths)):
            self._first_rows.append(self._first_rows[-1] + self._scan(file))
        self.n_rows = self._first_rows[-1] - 1

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order."""
        types = {name: pa.float64() for name in self._features}
        for file in range(len(self._paths)):
            for block in self._blocks(file, types):
                features = np.empty((block.num_rows, self.n_features))
                for column, name in enumerate(self._features):
                    features[:, column] = block.column(name).to_numpy(zero_copy_only=False)
                yield self._batch(features, block.column(self._target))

    def _batch(self, features: Any, text: Any) -> Batch:
        if pa.types.is_string(self._target_type):
            missing = pc.equal(text, "")
            target = np.asarray(text.to_numpy(zero_copy_only=False)).astype(str)
            return Batch(features, target, missing.to_numpy(zero_copy_only=False))
        values = pc.cast(_holes_as_null(text), self._target_type)
        missing = pc.is_null(values).to_numpy(zero_copy_only=False)
        return Batch(features, pc.fill_null(values, 0).to_numpy(zero_copy_only=False), missing)

    def _scan(self, file: int) -> int:
        """Count the rows of a file and widen the type of the target to hold its values."""
        rows = 0
        for block in self._blocks(file, {}):
            rows += block.num_rows
            text = _holes_as_null(block.column(self._target))
            self._refuse_line_breaks(text, self._first_rows[file] + rows - block.num_rows)
            while not _casts(text, self._target_type):
                self._target_type = pa.float64() if pa.types.is_integer(self._target_type) else pa.string()
        return rows

    def _refuse_line_breaks(self, text: Any, first_row: int) -> None:
        """Refuse labels with line breaks: an open quote makes one label of all lines up to the next quote."""
        broken = pc.fill_null(pc.match_substring(text, "\n"), False)
        if pc.any(broken).as_py():
            row = pc.index(broken, True).as_py()
            raise DataError(
                f"the target {self._target!r} holds a line break in row {first_row + row} (counted from 1 over all "
                f"files): {text[row].as_py()[:40]!r}; close the quote, or take the line break out",
                kind="line-break",
            )

    def _blocks(self, file: int, types: dict[str, Any]) -> Iterator[Any]:
        """Yield record batches of the typed columns and the target, which is text."""
        columns = {**types, self._target: pa.string()}
        try:
            with _stream(self._paths[file]) as stream:
                reader = pa_csv.open_csv(stream, *self._options(file, columns))
                yield from reader
        except _FAILURES as cause:
            if isinstance(cause, DataError):
                raise
            self._explain_ragged(file)
            if types:
                self._explain_text(file)
            raise unreadable(self._paths[file], cause) from cause

    def _options(self, file: int, columns: dict[str, Any], handler: Any = None) -> tuple[Any, Any, Any]:
        return (
            # Row numbers of bad rows are known only where one thread reads.
            pa_csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=handler is None),
            pa_csv.ParseOptions(delimiter=self._delimiters[file], newlines_in_values=True, invalid_row_handler=handler),
            pa_csv.ConvertOptions(
                include_columns=list(columns),
                column_types=columns,
                null_values=_NULLS,
                strings_can_be_null=False,
            ),
        )

    def _explain_ragged(self, file: int) -> None:
        """Raise the error for the first row with too few or too many values, if there is one."""
        found: list[Any] = []

        def note(row: Any) -> str:
            found.append(row)
            return "error"

        try:
            with _stream(self._paths[file]) as stream:
                # pyarrow strips bytes like spaces off the end of a row. A rest that is not ASCII may then not decode,
                # and pyarrow writes an error to standard error instead of calling the handler.
                plain = pa.PythonFile(codecs.EncodedFile(stream, "ascii", errors="replace"), mode="r")
                read, parse, convert = self._options(file, {"0": pa.string()}, note)
                read.column_names = [str(column) for column in range(self._widths[file])]
                for _ in pa_csv.open_csv(plain, read, parse, convert):
                    pass
        except _FAILURES:
            pass
        if not found:
            return
        row = found[0]
        # pyarrow counts the header as 1 and blank lines not at all.
        number = self._first_rows[file] + row.number - 2
        raise DataError(
            f"{self._paths[file]} has {row.actual_columns} values in row {number} (counted from 1 over all "
            f"files) where the header names "
            f"{row.expected_columns} columns: {row.text[:80]!r}; correct the line, or name another "
            f"--delimiter",
            kind="ragged-row",
        )

    def _explain_text(self, file: int) -> None:
        """Raise the error for the first cell that is not a number, if there is one."""
        row = self._first_rows[file]
        for block in self._blocks_as_text(file):
            found = []
            for name in self._features:
                text = _holes_as_null(block.column(name))
                if not _casts(text, pa.float64()):
                    bad = _first_failure(text)
                    found.append((bad, name, text[bad].as_py()))
            if found:
                bad, name, value = min(found, key=lambda item: item[0])
                raise DataError(
                    f"column {name!r} holds the text {value!r} in row {row + bad} (counted from 1 over all "
                    f"files), but features must be numbers: leave the column out with --drop {name}, or "
                    f"encode it as numbers",
                    kind="text-column",
                )
            row += block.num_rows

    def _blocks_as_text(self, file: int) -> Iterator[Any]:
        columns = {name: pa.string() for name in (*self._features, self._target)}
        try:
            with _stream(self._paths[file]) as stream:
                yield from pa_csv.open_csv(stream, *self._options(file, columns))
        except _FAILURES as cause:
            if isinstance(cause, DataError):
                raise
            raise unreadable(self._paths[file], cause) from cause


def _stream(path: Path) -> Any:
    return pa.input_stream(str(path), compression="gzip" if path.suffix == ".gz" else None)


def _first_lines(text: IO[str]) -> Iterator[str]:
    """Yield lines as long as they can belong to a header and a first row."""
    for _ in range(_HEADER_LINES):
        line = text.readline(_HEADER_CHARACTERS)
        if len(line) == _HEADER_CHARACTERS:
            raise ValueError(f"a line is longer than {_HEADER_CHARACTERS} characters")
        if not line:
            return
        yield line


def _header(path: Path, delimiter: str) -> list[str]:
    try:
        with _stream(path) as stream, io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
            rows = (row for row in csv.reader(_first_lines(text), delimiter=delimiter) if row)
            header, first = next(rows, None), next(rows, None)
    except (*_FAILURES, csv.Error) as cause:
        raise unreadable(path, cause) from cause
    if header is None:
        raise DataError(f"{path} is empty: a header line with column names is needed", kind="empty-file")
    if first is None:
        raise DataError(f"{path} has a header but no rows", kind="empty-file")
    return header


def _holes_as_null(text: Any) -> Any:
    trimmed = pc.utf8_trim_whitespace(text)
    hole = pc.is_in(trimmed, value_set=pa.array(_NULLS))
    return pc.if_else(hole, pa.scalar(None, pa.string()), trimmed)


def _casts(text: Any, dtype: Any) -> bool:
    try:
        pc.cast(text, dtype)
    except pa.ArrowInvalid:
        return False
    return True


def _first_failure(text: Any) -> int:
    low, size = 0, len(text)
    while size > 1:
        half = size // 2
        if _casts(text.slice(low, half), pa.float64()):
            low, size = low + half, size - half
        else:
            size = half
    return low

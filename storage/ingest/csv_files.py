"""CSV files, read by pyarrow in blocks of text.

Every feature is read as numbers from the first row to the last; no type is guessed from the first block. A first pass
counts the rows and reads the targets as text; the type of each is the narrowest of int64, float64 and text that holds
all its values. Columns whose first block has the words True and False become 1 and 0.
"""

from __future__ import annotations

import codecs
import csv
import io
import logging
import re
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from distkern.errors import DataError

from ..tables.arrow_columns import casts, first_failure
from .streams import STREAM_FAILURES, first_undecodable, open_stream
from .table import Batch, Reading, choose_columns, some_rows, unreadable

__all__ = ["CsvFiles", "CsvTable", "holes_as_null"]

logger = logging.getLogger(__name__)

_BLOCK_BYTES = 4 * 1024 * 1024
_HEADER_LINES = 10_000
_HEADER_CHARACTERS = 64 * 1024 * 1024
_NULLS = ["", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "-nan", "-NaN", "null", "NULL", "None", "?"]
_MAYBE_TRUTHS = {"true", "false", *map(str.lower, _NULLS)}
"""First values, in lower case, of columns that may hold the words True and False."""
_FAILURES = (pa.ArrowException, *STREAM_FAILURES)
_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_UNNAMED = ("", "Unnamed: 0")
"""Names of the index column in files of pandas; the second one where such a file was read and written again."""


class CsvFiles:
    """Text files whose columns are matched by name, or by position in files without names.

    A first column without a name that counts the rows, as ``DataFrame.to_csv`` writes it, is left out.

    Parameters
    ----------
    paths : sequence of pathlib.Path
        Files, plain or compressed.
    reading : Reading
        Targets, weight, columns to leave out or to take, delimiter, and whether there is a header.

    Attributes
    ----------
    chosen : ChosenColumns
        Features, targets and weight.

    Raises
    ------
    DataError
        ``empty-file``, ``unreadable``, ``no-header``, and those of `choose_columns`; on reading ``ragged-row``,
        ``line-break`` and ``unnamed-column``.
    """

    _block_bytes = _BLOCK_BYTES

    def __init__(self, paths: Sequence[Path], reading: Reading) -> None:
        self._named = reading.header is not False
        if not self._named:
            # The columns have no names that could be asked for.
            reading = replace(reading, columns=None)
        found = []
        for path in paths:
            mark = reading.delimiter or ("\t" if ".tsv" in path.name.lower() else ",")
            found.append((path, mark, *_first_rows(path, mark, self._named)))
        why = "has a header but no rows" if found[0][2] else "is empty: a header line with column names is needed"
        self._paths = some_rows(paths, [int(first) for *_, first in found], why)
        found = [item for item in found if item[3]]
        self._delimiters = [mark for _, mark, *_ in found]
        self._headers = [header for _, _, header, _ in found]
        names = [[name.strip() for name in header] for header in self._headers]
        if reading.header is None:
            for path, header in zip(self._paths, names, strict=True):
                _require_names(path, header)
        self.chosen = choose_columns(list(zip(self._paths, names, strict=True)), reading, self._unnamed(names, reading))
        self._types = dict.fromkeys(self.chosen.targets, pa.int64())
        self._starts = [1]

    def _count_rows(self) -> int:
        """Count the rows of all files, and find the types of the targets."""
        for file in range(len(self._paths)):
            self._starts.append(self._starts[-1] + self._scan(file))
        self._require_numeric_targets()
        return self._starts[-1] - 1

    def _require_numeric_targets(self) -> None:
        text = [name for name, kind in self._types.items() if pa.types.is_string(kind)]
        if text and len(self.chosen.targets) > 1:
            raise DataError(
                f"the target {text[0]!r} holds text: several targets must be numbers, labels are one target",
                kind="bad-target",
            )

    def _unnamed(self, names: Sequence[Sequence[str]], reading: Reading) -> list[str]:
        """Return the name of a first column that may number the rows; `_scan` decides."""
        first = names[0][0]
        chosen = {*reading.target, *reading.drop, reading.weight}
        if not self._named or first not in _UNNAMED or first in chosen or reading.columns is not None:
            self._index = None
            return []
        self._index = first
        return [first]

    def _scan(self, file: int) -> int:
        """Count the rows of a file and widen the types of the targets to hold their values."""
        rows, last = 0, None
        index = self._index_of(file)
        counted = (index,) if index is not None else () if self.chosen.targets else self.chosen.features[:1]
        for block in self._blocks(file, dict.fromkeys(counted, pa.string())):
            rows += block.num_rows
            first_row = self._starts[file] + rows - block.num_rows
            self._widen_targets(block, first_row)
            if index is not None:
                last = self._require_numbering(file, block.column(index), last, first_row)
        if index is not None:
            logger.warning(
                "%s: the first column has no name and numbers the rows, as the index of a pandas frame does: left out",
                self._paths[file],
            )
        return rows

    def _index_of(self, file: int) -> str | None:
        """Return the name of the first column of a file where it may number the rows."""
        return self._index if self._index in self._stripped(file) else None

    def _widen_targets(self, block: Any, first_row: int) -> None:
        """Widen the types of the targets to hold the values of a block."""
        for name in self.chosen.targets:
            text = holes_as_null(block.column(name))
            self._refuse_line_breaks(name, text, first_row)
            while not casts(text, self._types[name]):
                self._types[name] = pa.float64() if pa.types.is_integer(self._types[name]) else pa.string()

    def _targets_of(self, block: Any) -> tuple[Any, Any]:
        """Return the targets of a block, and where one is missing; None for rows without targets."""
        targets, missing = [], np.zeros(block.num_rows, dtype=bool)
        for name in self.chosen.targets:
            text = block.column(name)
            if not pa.types.is_string(text.type):
                missing |= pc.is_null(text).to_numpy(zero_copy_only=False)
                targets.append(pc.fill_null(text, 0).to_numpy(zero_copy_only=False))
            elif pa.types.is_string(self._types[name]):
                missing |= pc.equal(text, "").to_numpy(zero_copy_only=False)
                targets.append(np.asarray(text.to_numpy(zero_copy_only=False)).astype(str))
            else:
                values = pc.cast(holes_as_null(text), self._types[name])
                missing |= pc.is_null(values).to_numpy(zero_copy_only=False)
                targets.append(pc.fill_null(values, 0).to_numpy(zero_copy_only=False))
        if not targets:
            return None, None
        return targets[0] if len(targets) == 1 else np.column_stack(targets), missing

    def _require_numbering(self, file: int, text: Any, last: int | None, first_row: int) -> int | None:
        """Refuse a first column without a name whose values are not whole numbers that rise from row to row."""
        values = holes_as_null(text)
        if casts(values, pa.int64()) and not values.null_count:
            numbers = pc.cast(values, pa.int64()).to_numpy(zero_copy_only=False)
            rising = bool(np.all(numbers[1:] > numbers[:-1])) and (
                last is None or not len(numbers) or last < numbers[0]
            )
            if rising:
                return int(numbers[-1]) if len(numbers) else last
        raise DataError(
            f"the first column of {self._paths[file]} has the name {self._index!r}, and its values from row "
            f"{first_row} on do not number the rows: leave it out with --drop {self._index or repr('')}, or give it a "
            "name in the header to train on it",
            kind="unnamed-column",
        )

    def _refuse_line_breaks(self, name: str, text: Any, first_row: int) -> None:
        """Refuse labels with line breaks: an open quote makes one label of all lines up to the next quote."""
        broken = pc.fill_null(pc.match_substring(text, "\n"), False)
        if pc.any(broken).as_py():
            row = pc.index(broken, True).as_py()
            raise DataError(
                f"the target {name!r} holds a line break in row {first_row + row} (counted from 1 over all "
                f"files): {text[row].as_py()[:40]!r}; close the quote, or take the line break out",
                kind="line-break",
            )

    def _stripped(self, file: int) -> dict[str, str]:
        """Return the names in the header of a file by the names without blanks around them."""
        return {name.strip(): name for name in self._headers[file]}

    def _blocks(self, file: int, types: dict[str, Any]) -> Generator[Any, None, None]:
        """Yield record batches of the typed columns and the targets, text unless typed, under names without blanks."""
        columns = {**dict.fromkeys(self.chosen.targets, pa.string()), **types}
        known = self._stripped(file)
        try:
            with _stream(self._paths[file]) as stream:
                options = self._options(file, {known[name]: kind for name, kind in columns.items()})
                for block in pa_csv.open_csv(stream, *options):
                    yield block.rename_columns(list(columns))
        except _FAILURES as cause:
            if isinstance(cause, DataError):
                raise
            self._explain_ragged(file)
            self._explain_types(file, types)
            _explain_encoding(self._paths[file], self._delimiters[file], self._headers[file])
            raise unreadable(self._paths[file], cause) from cause

    def _explain_types(self, file: int, types: dict[str, Any]) -> None:
        """Raise the error for a value that is not of its type, if there is one."""

    def _options(self, file: int, columns: dict[str, Any], handler: Any = None) -> tuple[Any, Any, Any]:
        names = None if self._named else self._headers[file]
        # pyarrow keeps a copy of these lists for every column: half of the memory that a file of 100,000 columns takes
        # is for lists that no column of their types looks into.
        convert = pa_csv.ConvertOptions(
            include_columns=list(columns), column_types=columns, null_values=[], strings_can_be_null=False
        )
        if not all(map(pa.types.is_string, columns.values())):
            convert.null_values = _NULLS
        if not any(map(pa.types.is_boolean, columns.values())):
            convert.true_values = convert.false_values = []
        return (
            # Row numbers of bad rows are known only where one thread reads.
            pa_csv.ReadOptions(block_size=self._block_bytes, use_threads=handler is None, column_names=names),
            pa_csv.ParseOptions(delimiter=self._delimiters[file], newlines_in_values=True, invalid_row_handler=handler),
            convert,
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
                read.column_names = [str(column) for column in range(len(self._headers[file]))]
                for _ in pa_csv.open_csv(plain, read, parse, convert):
                    pass
        except _FAILURES:
            pass
        if not found:
            return
        row = found[0]
        # pyarrow counts the header as 1 and blank lines not at all.
        number = self._starts[file] + row.number - (2 if self._named else 1)
        raise DataError(
            f"{self._paths[file]} has {row.actual_columns} values in row {number} (counted from 1 over all "
            f"files) where the {'header names' if self._named else 'first row has'} "
            f"{row.expected_columns} columns: {row.text[:80]!r}; correct the line, or name another "
            f"--delimiter",
            kind="ragged-row",
        )


class CsvTable(CsvFiles):
    """Rows of text files whose features are numbers, or the words True and False.

    Parameters
    ----------
    paths : sequence of pathlib.Path
        Files, plain or compressed.
    reading : Reading
        Targets, weight, columns to leave out or to take, delimiter, and whether there is a header.

    Raises
    ------
    DataError
        ``bad-target``, ``text-column`` (on reading), and those of `CsvFiles`.
    """

    def __init__(self, paths: Sequence[Path], reading: Reading) -> None:
        super().__init__(paths, reading)
        self.names: tuple[str, ...] | None = self.chosen.features if self._named else None
        self.n_features = len(self.chosen.features)
        self.dtype: np.dtype[Any] = np.dtype(np.float64)
        self._words = [self._word_columns(file) for file in range(len(self._paths))]
        self.n_rows = self._count_rows()

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order."""
        numbers = self._numeric()
        for file in range(len(self._paths)):
            words = self._words[file]
            types = {name: pa.string() if name in words else pa.float64() for name in numbers}
            for block in self._blocks(file, types):
                features = np.empty((block.num_rows, len(numbers)))
                for column, name in enumerate(numbers):
                    values = self._truths(file, block.column(name)) if name in words else block.column(name)
                    features[:, column] = values.to_numpy(zero_copy_only=False)
                yield self._batch(features, block)

    def _batch(self, features: Any, block: Any) -> Batch:
        weights = None
        if self.chosen.weight is not None:
            features, weights = np.ascontiguousarray(features[:, :-1]), features[:, -1].copy()
        target, missing = self._targets_of(block)
        return Batch(features, target, missing, weights)

    def _truths(self, file: int, text: Any) -> Any:
        """Return a column of the words True and False as 1 and 0."""
        try:
            return pc.cast(pc.cast(holes_as_null(text), pa.bool_()), pa.float64())
        except pa.ArrowInvalid as cause:
            self._explain_text(file)
            raise unreadable(self._paths[file], cause) from cause

    def _word_columns(self, file: int) -> list[str]:
        """Return the features that are words for true and false in the first block."""
        for block in self._blocks_as_text(file):
            if not block.num_rows:
                return []
            firsts = ((name, (block.column(name)[0].as_py() or "").strip().lower()) for name in self.chosen.features)
            text = {name: holes_as_null(block.column(name)) for name, first in firsts if first in _MAYBE_TRUTHS}
            return [
                name for name, values in text.items() if not casts(values, pa.float64()) and casts(values, pa.bool_())
            ]
        return []

    def _explain_types(self, file: int, types: dict[str, Any]) -> None:
        if any(pa.types.is_floating(kind) for kind in types.values()):
            self._explain_text(file)

    def _explain_text(self, file: int) -> None:
        """Raise the error for the first cell that is not a number, if there is one."""
        row = self._starts[file]
        for block in self._blocks_as_text(file):
            found = []
            for name in self._numeric():
                text = holes_as_null(block.column(name))
                kind = pa.bool_() if name in self._words[file] else pa.float64()
                if not casts(text, kind):
                    bad = first_failure(text, kind)
                    found.append((bad, name, text[bad].as_py()))
            if found:
                bad, name, value = min(found, key=lambda item: item[0])
                raise DataError(
                    f"column {name!r} holds the text {value!r} in row {row + bad} (counted from 1 over all "
                    f"files), but features and weights must be numbers, or all True and False: leave the column out "
                    f"with --drop {name}, or encode it as numbers",
                    kind="text-column",
                )
            row += block.num_rows

    def _numeric(self) -> tuple[str, ...]:
        weight = self.chosen.weight
        return self.chosen.features if weight is None else (*self.chosen.features, weight)

    def _blocks_as_text(self, file: int) -> Iterator[Any]:
        return self._blocks(file, dict.fromkeys(self._numeric(), pa.string()))


def _stream(path: Path) -> Any:
    suffix = path.suffix.lower()
    if suffix == ".xz":
        return open_stream(path)
    return pa.input_stream(str(path), compression=_CODECS.get(suffix))


def _header(path: Path, delimiter: str) -> list[str]:
    """Return the names in the first line of a file, none where it cannot be read."""
    try:
        with open_stream(path) as stream:
            return next(csv.reader([stream.readline(_HEADER_CHARACTERS).decode("utf-8-sig")], delimiter=delimiter), [])
    except (*STREAM_FAILURES, csv.Error):
        return []


def _explain_encoding(path: Path, delimiter: str, names: Sequence[str]) -> None:
    """Raise the error for the first line that is not UTF-8 text, if there is one; `names` are those of the columns."""
    try:
        found = first_undecodable(path)
    except STREAM_FAILURES:
        return
    if found is None:
        return
    number, line, place = found
    column = max(len(next(csv.reader([line[:place].decode()], delimiter=delimiter))) - 1, 0)
    name = f"column {names[column].strip()!r}" if column < len(names) else f"column {column} (counted from 0)"
    raise DataError(
        f"{path} is not UTF-8 text: line {number} has the byte 0x{line[place]:02x} in {name}; convert the file, for "
        f"example with iconv -f latin1 -t utf-8",
        kind="unreadable",
    )


def _first_lines(text: IO[str]) -> Iterator[str]:
    """Yield lines as long as they can belong to a header and a first row."""
    for _ in range(_HEADER_LINES):
        line = text.readline(_HEADER_CHARACTERS)
        if len(line) == _HEADER_CHARACTERS:
            raise ValueError(f"a line is longer than {_HEADER_CHARACTERS} characters")
        if not line:
            return
        yield line


def _first_rows(path: Path, delimiter: str, named: bool) -> tuple[list[str], bool]:
    """Return the names of the columns, numbers from 0 where they have none, and whether the file has a row."""
    try:
        with _stream(path) as stream, io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
            rows = (row for row in csv.reader(_first_lines(text), delimiter=delimiter) if row)
            header, first = next(rows, None), next(rows, None)
    except (*_FAILURES, csv.Error) as cause:
        _explain_encoding(path, delimiter, _header(path, delimiter) if named else ())
        raise unreadable(path, cause) from cause
    if not named:
        return [str(column) for column in range(len(header or ()))], header is not None
    return header or [], first is not None


def _require_names(path: Path, header: Sequence[str]) -> None:
    """Refuse a header that looks like a row; names that count, as those of a frame made of an array, are names."""
    numbers = [name for name in header if _NUMBER.fullmatch(name)]
    whole = [int(name) for name in numbers if name.isdigit()]
    if len(whole) == len(numbers) and whole == list(range(whole[0], whole[0] + len(whole))) if whole else not numbers:
        return
    texts = len(header) - len(numbers)
    if texts == 0 or (texts == 1 and len(numbers) > 1 and len(whole) < len(numbers)):
        raise DataError(
            f"the first line of {path} looks like a row and not like names of columns "
            f"({', '.join(header[:8])}{', ...' if len(header) > 8 else ''}): give --no-header if it is a row (columns "
            "are then numbered from 0), --header if these are the names",
            kind="no-header",
        )


def holes_as_null(text: Any) -> Any:
    """Return text without blanks around it, null where it is a word for a missing value."""
    trimmed = pc.utf8_trim_whitespace(text)
    hole = pc.is_in(trimmed, value_set=pa.array(_NULLS))
    return pc.if_else(hole, pa.scalar(None, pa.string()), trimmed)

"""svmlight files, read by scikit-learn in pieces of whole lines and made dense."""

from __future__ import annotations

import codecs
import io
import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_svmlight_file

from distkern.errors import DataError

from .streams import STREAM_FAILURES, open_stream
from .table import BATCH_BYTES, Batch, Reading, require_storable, some_rows, unreadable

__all__ = ["SvmlightTable"]

logger = logging.getLogger(__name__)

_PIECE_BYTES = 4 * 1024 * 1024
_LINE_BYTES = 256 * 1024 * 1024
_ANY_WIDTH = 2**31 - 1
_LARGEST_WHOLE = 2.0**53
"""Largest whole number up to which float64 holds every whole number."""
_WITHOUT_LABEL = re.compile(rb"(?m)^(?=[ \t]*(?:qid|\d+):)")


class SvmlightTable:
    """Rows of svmlight files; a first pass finds the number of features and the lowest feature number.

    The names of the features are their numbers in the files. Labels are integers where all of them are whole numbers;
    lines of rows without targets may lack the label.

    Parameters
    ----------
    paths : sequence of pathlib.Path
        Files, plain or compressed.
    reading : Reading
        Number of features and number of the first one, and whether there are targets. Where `Reading.columns` are
        consecutive numbers, as the names of a model that was trained on svmlight files, they say both.

    Raises
    ------
    DataError
        ``unreadable``, ``empty-file``, ``zero-features`` or ``feature-count``.
    """

    def __init__(self, paths: Sequence[Path], reading: Reading) -> None:
        self._labelled = not reading.no_target
        first, width = reading.index_base, reading.features or reading.expected
        if reading.columns is not None:
            named = _first_number(reading.columns)
            first, width = (first if named is None else named), len(reading.columns)
        self._whole = True
        lowest, highest = _ANY_WIDTH, -1
        counts = []
        for path in paths:
            rows = 0
            for X, y in self._pieces(path, _ANY_WIDTH):
                self._whole = self._whole and bool(np.all(np.abs(y) <= _LARGEST_WHOLE) and np.all(y == np.rint(y)))
                if X.nnz:
                    lowest, highest = min(lowest, int(X.indices.min())), max(highest, int(X.indices.max()))
                    self._require_within(path, X, rows, first, width, lowest)
                rows += len(y)
            counts.append(rows)
        self._paths = some_rows(paths, counts, "has no rows")
        self.n_rows = sum(counts)
        if highest < 0 and width is None:
            raise DataError(f"{paths[0]} has labels but no features", kind="zero-features")
        self._first = first if first is not None else 1 if lowest > 0 else 0
        self.n_features = highest + 1 - self._first if width is None else width
        if width is not None:
            self._require_known_base(first, highest)
            if highest >= self._first + width:
                raise DataError(
                    f"the files have a feature 0, so they are counted from 0, and a feature {highest}, but {width} "
                    f"features were expected; check --features and --index-base",
                    kind="feature-count",
                )
        require_storable(self.n_features, ", ".join(map(str, paths)))
        self.names: tuple[str, ...] | None = tuple(map(str, range(self._first, self._first + self.n_features)))
        self.dtype: np.dtype[Any] = np.dtype(np.float64)

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order."""
        step = max(1, BATCH_BYTES // (8 * self.n_features))
        for path in self._paths:
            for X, y in self._pieces(path, self._first + self.n_features):
                labels = None if not self._labelled else y.astype(np.int64) if self._whole else y
                for start in range(0, len(y), step):
                    dense = X[start : start + step].toarray()[:, self._first :]
                    target = None if labels is None else labels[start : start + step]
                    yield Batch(np.ascontiguousarray(dense), target)

    def _require_within(self, path: Path, X: Any, rows: int, first: int | None, width: int | None, lowest: int) -> None:
        """Refuse a feature number below the first one, or above the last one."""
        base = 1 if first is None else first
        for bad, wrong in (
            (int(X.indices.argmin()), first == 1 and lowest < 1),
            (int(X.indices.argmax()), width is not None and int(X.indices.max()) >= base + width),
        ):
            if wrong:
                row = rows + int(np.searchsorted(X.indptr, bad, side="right"))
                last = "" if width is None else f" to {base + width - 1}"
                raise DataError(
                    f"row {row} of {path} has a feature {X.indices[bad]}, and they are numbered from {base}{last}: "
                    "check --features and --index-base",
                    kind="feature-count",
                )

    def _require_known_base(self, first: int | None, highest: int) -> None:
        """Warn if the files leave open from where features are counted."""
        if first is None and self._first == 1 and highest < self.n_features:
            logger.warning(
                "no file has a feature 0 or %d: the features are counted from 1; say --index-base 0 if they are not",
                self.n_features,
            )

    def _pieces(self, path: Path, width: int) -> Iterator[tuple[Any, NDArray[np.float64]]]:
        """Yield sparse rows and labels, with the feature numbers of the file."""
        for line, text in _lines(path):
            piece = text if self._labelled else _WITHOUT_LABEL.sub(b"0 ", text)
            try:
                yield _parsed(piece, width)
            except (ValueError, OverflowError, UnicodeDecodeError) as cause:
                raise _explained(path, line, piece, cause) from cause


def _first_number(names: Sequence[str]) -> int | None:
    """Return the first of the consecutive numbers 0, 1, ... or 1, 2, ... that names are; None where they are not."""
    for first in (0, 1):
        if all(name == str(number) for number, name in enumerate(names, first)):
            return first
    return None


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield pieces of whole lines, with the number of their first line."""
    rest, line, start = b"", 1, True
    try:
        with open_stream(path) as stream:
            while piece := stream.read(_PIECE_BYTES):
                rest += piece.removeprefix(codecs.BOM_UTF8) if start else piece
                start = False
                cut = rest.rfind(b"\n") + 1
                if cut:
                    yield line, rest[:cut]
                    line += rest.count(b"\n", 0, cut)
                    rest = rest[cut:]
                elif len(rest) > _LINE_BYTES:
                    raise unreadable(path, f"line {line} has more than {_LINE_BYTES} bytes")
    except STREAM_FAILURES as cause:
        if isinstance(cause, DataError):
            raise
        raise unreadable(path, cause) from cause
    if rest:
        yield line, rest


def _parsed(text: bytes, width: int) -> tuple[Any, NDArray[np.float64]]:
    X, y = load_svmlight_file(io.BytesIO(text), n_features=width, zero_based=True)
    return X, y


def _explained(path: Path, first: int, text: bytes, cause: Exception) -> DataError:
    for number, line in enumerate(text.split(b"\n"), first):
        try:
            _parsed(line + b"\n", _ANY_WIDTH)
        except (ValueError, OverflowError, UnicodeDecodeError) as error:
            return DataError(
                f"line {number} of {path} is not in svmlight form (label index:value ...): {error}; correct the line, "
                "or give --no-target if the lines have no labels",
                kind="unreadable",
            )
    return DataError(f"{path} cannot be read as an svmlight file: {cause}", kind="unreadable")

"""The description of a raw table: its columns, and the numbers that each of them becomes.

A schema is made by a `profile` of the training rows, is kept as JSON in datasets and models, and is all that the
encoding of new rows needs.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from distkern.errors import DataError, StoreError
from distkern.text import counted

__all__ = ["COLUMN_KINDS", "CYCLES", "Column", "TableSchema"]

SCHEMA_VERSION = 1
"""Newest version of the JSON form."""

COLUMN_KINDS = ("number", "boolean", "date", "category")
"""Kinds of raw columns."""

CYCLES = ("day", "week", "year")
"""Periods of which a date has a sine and a cosine."""

ENCODINGS = ("one-hot", "frequent", "target")
"""Encodings of a category: a column for each level; for the most frequent levels, and one for all others; or the
smoothed mean of the target over the rows of the level."""

MISSING_VALUES = " missing"
"""Suffix of the encoded column that is 1 where a value is missing."""

OTHER_LEVELS = " other"
"""Suffix of the encoded column that is 1 for all levels without a column."""

LEAST_LEVEL_VARIANCE = 0.5
"""Least variance by which the columns of one category are scaled, that of two equally frequent levels: a level that
nearly all rows have does not make the others infinitely far."""

FLAG_SCALE = 0.5
"""Scale of a column of ones for missing values: the largest standard deviation of zeros and ones."""

MOST_SHOWN = 5
"""Most levels in the description of a column."""

CYCLE_SCALE = math.sqrt(0.5)
"""Scale of a sine and a cosine: their standard deviation over whole periods."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Column:
    """One raw column."""

    name: str
    """Name in the table."""
    kind: str
    """One of `COLUMN_KINDS`."""
    gaps: bool = False
    """Whether training rows had no value, default False; an encoded column is then 1 for such rows."""
    fill: float = 0.0
    """Number in place of a missing one, the mean of the training rows, default 0.0."""
    zone: str | None = None
    """Time zone of a date, default None: dates without."""
    extent: tuple[float, float] | None = None
    """First and last date of the training rows in days, default None: no date."""
    cycles: tuple[str, ...] = ()
    """Periods of a date that training rows vary in, of `CYCLES`, default ()."""
    encoding: str | None = None
    """One of `ENCODINGS` for a category, default None."""
    levels: tuple[str, ...] = ()
    """Levels of a category, sorted, default (); only the most frequent ones for the encoding "frequent"."""
    level_variance: float = 0.0
    """Sum of the variances of the one-hot columns over the training rows, default 0.0."""
    statistics: NDArray[np.float64] | None = None
    """(len(levels) + 2, K): for the encoding "target" the smoothed mean targets of the levels, of rows without a level,
    and of rows with an unknown level; default None."""

    def encoded_names(self, targets: tuple[str, ...]) -> list[str]:
        """Return the names of the encoded columns; `targets` are those of the target statistics."""
        flag = [self.name + MISSING_VALUES] if self.gaps else []
        if self.kind != "category":
            waves = [f"{self.name} {cycle} {wave}" for cycle in self.cycles for wave in ("sin", "cos")]
            return [self.name, *waves, *flag]
        if self.encoding == "target":
            return [f"{self.name} {target}".rstrip() for target in targets]
        other = [self.name + OTHER_LEVELS] if self.encoding == "frequent" else []
        return [*(f"{self.name}={level}" for level in self.levels), *other, *flag]

    def scales(self, targets: tuple[str, ...]) -> list[float]:
        """Return the scale of each encoded column, NaN for its own standard deviation."""
        flag = [FLAG_SCALE] if self.gaps else []
        if self.kind != "category":
            return [self._number_scale, *[CYCLE_SCALE] * (2 * len(self.cycles)), *flag]
        if self.encoding == "target":
            return [math.nan] * len(targets)
        scale = math.sqrt(max(self.level_variance, LEAST_LEVEL_VARIANCE))
        return [scale] * len(self.encoded_names(targets))

    @property
    def _number_scale(self) -> float:
        """Scale of a number, NaN for its standard deviation.

        All training dates together have the length 1, a quarter to a third of that of a standardised number: with that
        a model fits single days, which say nothing of later ones.
        """
        if self.extent is None:
            return math.nan
        span = self.extent[1] - self.extent[0]
        return span if span > 0 else 1.0

    @property
    def words(self) -> str:
        """The column in a few words."""
        gaps = ", with gaps" if self.gaps else ""
        if self.kind == "category":
            shown = ", ".join(self.levels[:MOST_SHOWN]) + (", ..." if len(self.levels) > MOST_SHOWN else "")
            return f"category, {self.encoding}, {counted(len(self.levels), 'level')} ({shown}){gaps}"
        zone = f" of the time zone {self.zone}" if self.zone else ""
        return self.kind + zone + gaps

    def as_record(self) -> dict[str, Any]:
        """Return JSON values."""
        record: dict[str, Any] = {"name": self.name, "kind": self.kind, "gaps": self.gaps}
        if self.kind == "category":
            record |= {"encoding": self.encoding, "levels": list(self.levels), "level_variance": self.level_variance}
            if self.statistics is not None:
                record["statistics"] = self.statistics.tolist()
            return record
        record["fill"] = self.fill
        if self.kind == "date":
            assert self.extent is not None
            record |= {"zone": self.zone, "cycles": list(self.cycles), "extent": list(self.extent)}
        return record

    @classmethod
    def of_record(cls, record: dict[str, Any], n_statistics: int) -> Column:
        """Return the column of JSON values; raises ValueError, KeyError or TypeError where they do not fit together."""
        values = dict(record)
        statistics = values.pop("statistics", None)
        for name in ("cycles", "levels", "extent"):
            if name in values:
                values[name] = tuple(values[name])
        column = cls(**values, statistics=None if statistics is None else np.array(statistics, dtype=np.float64))
        category = column.kind == "category"
        fits = (
            isinstance(column.name, str)
            and column.kind in COLUMN_KINDS
            and isinstance(column.gaps, bool)
            and math.isfinite(column.fill)
            and (column.zone is None or isinstance(column.zone, str))
            and set(column.cycles) <= set(CYCLES)
            and (column.encoding in ENCODINGS) == category
            and (column.extent is not None) == (column.kind == "date")
            and (column.extent is None or column.extent == tuple(sorted(map(float, column.extent))))
            and all(isinstance(level, str) for level in column.levels)
            and len(set(column.levels)) == len(column.levels)
            and 0.0 <= column.level_variance <= 1.0
        )
        made = column.statistics
        if column.encoding == "target":
            shape = (len(column.levels) + 2, n_statistics)
            fits = fits and made is not None and made.shape == shape and bool(np.isfinite(made).all())
        if not fits or (made is None) == (column.encoding == "target"):
            raise ValueError(f"column {record.get('name')!r}")
        return column


@dataclass(frozen=True, eq=False)
class TableSchema:
    """The raw columns of the training rows in their order."""

    columns: tuple[Column, ...]
    """Raw columns."""
    targets: tuple[str, ...] = ()
    """Names of the target statistics of a category, default (): none were made."""

    def __post_init__(self) -> None:
        twice = [name for name, count in Counter(self.encoded_names).items() if count > 1]
        if twice:
            raise DataError(
                f"two encoded columns would have the name {twice[0]!r}: rename a column of the table",
                kind="duplicate-column",
            )

    @property
    def names(self) -> list[str]:
        """Names of the raw columns."""
        return [column.name for column in self.columns]

    @cached_property
    def encoded_names(self) -> list[str]:
        """Names of the encoded columns."""
        return [name for column in self.columns for name in column.encoded_names(self.targets)]

    @property
    def n_encoded(self) -> int:
        """Number of encoded columns."""
        return len(self.encoded_names)

    @property
    def n_zero_one(self) -> int:
        """Number of encoded columns that are 0 or 1: those of levels, of gaps, and truth values."""
        return sum(
            len(column.encoded_names(self.targets))
            if column.kind == "boolean" or column.encoding in ("one-hot", "frequent")
            else int(column.gaps and column.kind != "category")
            for column in self.columns
        )

    @property
    def scales(self) -> NDArray[np.float64]:
        """Scale of each encoded column, shape (n_encoded,); NaN for its own standard deviation."""
        return np.array([scale for column in self.columns for scale in column.scales(self.targets)])

    @property
    def groups(self) -> NDArray[np.int64]:
        """Number of the raw column that each encoded column is made of, shape (n_encoded,)."""
        sizes = [len(column.encoded_names(self.targets)) for column in self.columns]
        return np.repeat(np.arange(len(sizes)), sizes)

    def summed(self, values: NDArray[np.float64]) -> dict[str, float]:
        """Return the sums of values of the encoded columns by raw column."""
        sums = np.bincount(self.groups, weights=values, minlength=len(self.columns))
        return dict(zip(self.names, sums.tolist(), strict=True))

    def as_record(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "format_version": SCHEMA_VERSION,
            "columns": [column.as_record() for column in self.columns],
            "targets": list(self.targets),
        }

    def to_bytes(self) -> NDArray[np.uint8]:
        """Return the JSON text as bytes for a store."""
        text = json.dumps(self.as_record(), sort_keys=True, ensure_ascii=False, allow_nan=False)
        return np.frombuffer(text.encode(), dtype=np.uint8)

    @classmethod
    def from_bytes(cls, stored: NDArray[np.uint8], place: str) -> TableSchema:
        """Return the schema of a store at `place`.

        Raises
        ------
        StoreError
            ``newer-version`` or ``corrupt``.
        """
        try:
            record = json.loads(stored.tobytes())
            version = record["format_version"]
            if isinstance(version, int) and version > SCHEMA_VERSION:
                raise StoreError(
                    f"the table schema of {place} has the format version {version}, and this version of distkern "
                    f"reads up to {SCHEMA_VERSION}: use a newer one",
                    kind="newer-version",
                )
            targets = tuple(record["targets"])
            if version != SCHEMA_VERSION or not _is_texts(record["targets"]):
                raise ValueError("version or targets")
            columns = tuple(Column.of_record(column, len(targets)) for column in record["columns"])
            if len({column.name for column in columns}) < len(columns) or not columns:
                raise ValueError("names of the columns")
            return cls(columns, targets)
        except StoreError:
            raise
        except Exception as cause:  # a damaged description may lead to any error
            _corrupt(place, cause)


def _is_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _corrupt(place: str, cause: Exception) -> NoReturn:
    raise StoreError(f"the table schema of {place} is damaged ({cause!r})", kind="corrupt") from None

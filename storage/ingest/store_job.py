"""The writing of one store from files: as numbers where all columns are, else encoded by the schema of raw columns."""

from __future__ import annotations

import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from distkern.errors import DataError, JobError

from ..arrays.blocks import chunk_rows_for
from ..datasets.dataset import open_dataset
from ..datasets.writer import DatasetWriter
from ..io.formats import identify
from ..io.urls import is_url, local_place
from ..models.model_store import read_model
from ..tables.schema import TableSchema
from .cleaning import Cleaner
from .files import format_of, open_raw, open_table
from .table import Reading, require_storable

if TYPE_CHECKING:
    from ..tables.encode import TableEncoding
    from .raw_tables import RawTable

logger = logging.getLogger(__name__)

INDICATOR = "indicator"
"""Treatment of a gap by the mean and a column that is 1 for it."""

RAW_FORMATS = ("csv", "parquet")
"""Formats of raw columns."""

WIDE = 4096
"""Columns above which a table is first taken for numbers: to look at the kind of each takes long."""

_RAW_KINDS = ("text-column", "missing-value")
"""Errors of a table of numbers whose later rows show raw columns."""


def schema_of(place: str | os.PathLike[str]) -> TableSchema:
    """Return the schema of a dataset or a model.

    Raises
    ------
    DataError
        ``no-schema``; what opening a dataset raises.
    StoreError
        What reading a model raises.
    """
    if identify(place) == "model":
        stored = read_model(place)[1].get("table_schema")
        schema = None if stored is None else TableSchema.from_bytes(stored, os.fspath(place))
    else:
        schema = open_dataset(place).table_schema
    if schema is None:
        raise DataError(
            f"{os.fspath(place)} has no schema of raw columns: all its columns are numbers, so leave --like out",
            kind="no-schema",
        )
    return schema


@dataclass(frozen=True)
class StoreJob:
    """Files and settings of one store; see `ingest`."""

    files: Sequence[Path]
    """Files."""
    reading: Reading
    """Columns and options of the reading."""
    format: str | None
    """Their format; None: that of the extensions."""
    out: str | os.PathLike[str]
    """Place of the store."""
    task: str | None
    """Task of the target."""
    missing: str | None
    """Treatment of gaps; None: that of the format."""
    categorical: tuple[str, ...]
    """Columns that are categories."""
    schema: TableSchema | None
    """Schema that the rows are encoded by; None: their own."""
    chunk_rows: int | None
    """Rows of a chunk."""
    overwrite: bool
    """Whether a store at the place is replaced."""

    def write(self) -> None:
        """Write the store; errors as of `ingest`."""
        name = format_of(self.files, self.reading, self.format)
        raw = self.categorical or self.schema is not None
        if name not in RAW_FORMATS:
            if raw or self.missing == INDICATOR:
                option = "--like" if self.schema else "--categorical" if raw else "--missing indicator"
                raise JobError(
                    f"{option} has no meaning for {name} files, only for {', '.join(RAW_FORMATS)}: leave it out",
                    kind="unused-option",
                )
            self._write_numbers()
        elif raw or self._shows_raw(name):
            self._write_raw(name)
        else:
            try:
                self._write_numbers()
            except DataError as error:
                if error.kind not in _RAW_KINDS or (error.kind == "missing-value" and self.missing != INDICATOR):
                    raise
                # A later row shows what the first ones did not.
                self._write_raw(name)

    def _shows_raw(self, name: str) -> bool:
        from .raw_tables import shows_raw_columns

        files = open_raw(self.files, self.reading, name)
        if len(files.kinds) > WIDE:
            return False
        return shows_raw_columns(files, with_gaps=self.missing == INDICATOR)

    def _write_numbers(self) -> None:
        table = open_table(self.files, self.reading, self.format)
        require_storable(table.n_features, ", ".join(map(str, self.files)))
        cleaner = Cleaner(table, "error" if self.missing in (None, INDICATOR) else str(self.missing))
        with self._writer(table.n_features, table.n_rows, cleaner.dtype.itemsize, table.names, None) as writer:
            for batch in cleaner.rows():
                writer.append(batch.features, batch.target, batch.weights)
            self._note(writer, table.n_rows, cleaner.rows_dropped, cleaner.values_filled)
        if cleaner.values_filled:
            logger.warning("%d missing values were replaced by the column mean", cleaner.values_filled)

    def _write_raw(self, name: str) -> None:
        from ..tables.encode import TableEncoding
        from ..tables.kept_rows import KeptRows
        from .raw_tables import RawTable, profiled, write_kept, write_raw

        columns = None if self.schema is None else tuple(self.schema.names)
        files = open_raw(self.files, self.reading.of_columns(columns), name)
        table = RawTable(files, self.missing or INDICATOR)
        if self.schema is not None:
            made = TableEncoding(self.schema)
            # Text of new rows is parsed column by column, so that an error names column and row.
            self._write_encoded(table, made, files.count_rows(), lambda writer: write_raw(table, made, {}, writer))
            return
        with KeptRows(self._scratch_folder(), sum(path.stat().st_size for path in self.files)) as kept:
            found = profiled(table, self.task, self.categorical, kept)
            made = TableEncoding(found.schema, found.out_of_fold)

            def write(writer: DatasetWriter) -> None:
                if kept.complete:
                    write_kept(kept, made, found, writer)
                else:
                    write_raw(table, made, table.text_types(found.schema), writer)

            self._write_encoded(table, made, found.n_rows, write)

    def _scratch_folder(self) -> Path:
        """Return the folder beside the store, or the first above it that exists; the temporary one for a URL."""
        if is_url(self.out):
            return Path(tempfile.gettempdir())
        return next(folder for folder in Path(os.path.abspath(local_place(self.out))).parents if folder.is_dir())

    def _write_encoded(
        self, table: RawTable, made: TableEncoding, n_rows: int, write: Callable[[DatasetWriter], None]
    ) -> None:
        schema = made.schema
        require_storable(schema.n_encoded, ", ".join(map(str, self.files)))
        with self._writer(schema.n_encoded, n_rows, 8, schema.encoded_names, schema) as writer:
            write(writer)
            self._note(writer, n_rows + table.rows_dropped, table.rows_dropped, table.gaps)
        with warnings.catch_warnings(record=True) as caught:
            made.warn(", ".join(map(str, self.files[:3])))
        for warning in caught:
            logger.warning("%s", warning.message)

    def _writer(
        self, n_features: int, n_rows: int, itemsize: int, names: Sequence[str] | None, schema: TableSchema | None
    ) -> DatasetWriter:
        chunk_rows = self.chunk_rows
        if chunk_rows is None:
            chunk_rows = max(1, min(chunk_rows_for(n_features * itemsize, n_rows), n_rows))
        return DatasetWriter(
            self.out,
            chunk_rows=chunk_rows,
            task=self.task,
            feature_names=names,
            overwrite=self.overwrite,
            table_schema=schema,
        )

    def _note(self, writer: DatasetWriter, n_rows: int, dropped: int, filled: int) -> None:
        writer.notes = {
            "sources": [path.name for path in self.files],
            "rows_dropped": dropped,
            "values_filled": filled,
        }
        if dropped:
            logger.warning("%d of %d rows lack a value and were dropped", dropped, n_rows)

"""Rows in files, read piece by piece for predictions and scores."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..tables.schema import TableSchema
from .cleaning import Cleaner
from .files import format_of, found_files, open_raw, open_table
from .store_job import INDICATOR, RAW_FORMATS
from .table import Reading

__all__ = ["RowFiles"]


class RowFiles:
    """Rows in files of one format, in bounded memory.

    Parameters
    ----------
    paths : sequence of path-like
        Files, folders or patterns, as for `ingest`.
    n_features : int
        Number of features of the model.
    names : sequence of str, optional
        Names of the features: columns with names are taken by name, in this order, and others are left out. The names
        of svmlight features are their numbers.
    format : str, optional
        Format of the files, by default that of their extensions.
    part, delimiter, header, index_base : optional
        As for `ingest`.
    drop : sequence of str, default ()
        As for `ingest`.
    target : sequence of str, default ()
        As for `ingest`.
    no_target : bool, default True
        Whether the rows are read without targets.
    schema : TableSchema, optional
        Schema of the raw columns of CSV and Parquet files, which are then read in place of encoded ones.

    Attributes
    ----------
    n_rows, n_features : int
        Shape of the rows.
    place : str
        Names of the files, for messages.

    Raises
    ------
    DataError
        A file cannot be read, or lacks a column.
    JobError
        The options do not fit the format.
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        n_features: int,
        names: Sequence[str] | None = None,
        *,
        format: str | None = None,
        part: str | None = None,
        drop: Sequence[str] = (),
        delimiter: str | None = None,
        header: bool | None = None,
        index_base: int | None = None,
        target: Sequence[str] = (),
        no_target: bool = True,
        schema: TableSchema | None = None,
    ) -> None:
        files = found_files(paths)
        self.place = ", ".join(map(str, files[:3])) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
        reading = Reading(
            target=tuple(target),
            no_target=no_target,
            part=part,
            drop=tuple(drop),
            delimiter=delimiter,
            header=header,
            index_base=index_base,
            columns=None if names is None else tuple(names),
            expected=n_features,
        )
        self._cleaner: Cleaner | None = None
        if schema is not None and (name := format_of(files, reading, format)) in RAW_FORMATS:
            from ..tables.encode import TableEncoding
            from .raw_tables import RawTable

            raw = open_raw(files, reading.of_columns(tuple(schema.names)), name)
            self.n_rows, self.n_features = raw.count_rows(), schema.n_encoded
            self._raw, self._encoding = RawTable(raw, INDICATOR), TableEncoding(schema)
            return
        self._cleaner = Cleaner(open_table(files, reading, format), "error")
        self.n_rows, self.n_features = self._cleaner.table.n_rows, self._cleaner.table.n_features

    def pieces(self) -> Iterator[tuple[NDArray[Any], NDArray[Any] | None]]:
        """Yield the rows in order: features of shape (n, n_features), and targets or None.

        Raises
        ------
        DataError
            ``missing-value``, ``not-finite``, ``type-changed``, or a damaged file.
        """
        if self._cleaner is None:
            from .raw_tables import encoded_pieces

            for rows, raw in encoded_pieces(self._raw, self._encoding):
                yield rows, raw.target
            self._encoding.warn(self.place)
            return
        for batch in self._cleaner.rows():
            yield np.ascontiguousarray(batch.features), batch.target

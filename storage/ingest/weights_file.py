"""Row weights from a npy file beside files that have no column for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from distkern.errors import DataError

from ..arrays.checks import check_rows_agree, numeric_dtype
from .numpy_files import stored_file
from .table import Batch, InputTable

__all__ = ["WeightedTable"]

_SLAB_ROWS = 65_536


class WeightedTable:
    """Rows of a table with the weights of a npy file, one for each row of all files.

    Parameters
    ----------
    table : InputTable
        The rows.
    path : pathlib.Path
        npy file of shape (n_rows,).

    Raises
    ------
    DataError
        ``missing``, ``unreadable``, ``not-numeric`` or ``shape-mismatch``.
    """

    def __init__(self, table: InputTable, path: Path) -> None:
        if not path.is_file():
            raise DataError(
                f"--weight {path} is no existing .npy file: name one with a weight for each row", kind="missing"
            )
        self._table = table
        self._stored = stored_file(path)
        shape = self._stored.header.shape
        numeric_dtype(self._stored.header.dtype, str(path))
        check_rows_agree(table.n_rows, shape[0] if len(shape) == 1 else 0, str(path))
        self.names, self.n_features, self.n_rows, self.dtype = table.names, table.n_features, table.n_rows, table.dtype

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order."""
        slabs = self._stored.slabs(_SLAB_ROWS)
        held = np.empty(0)
        for batch in self._table.batches():
            count = len(batch.features)
            while len(held) < count:
                held = np.concatenate([held, next(slabs)])
            yield replace(batch, weights=held[:count])
            held = held[count:]

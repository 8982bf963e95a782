"""Matrices with a row for each row of a block, in memory while the budget allows and in scratch beyond it.

Tiles borrow their rows and give them back. In memory that is a view; in scratch a copy in a buffer of the thread, read
when borrowed and written when given back. The numbers are the same either way.
"""

from __future__ import annotations

import tempfile
import threading
import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.storage import ScratchFile

from .threads import workspace
from .timings import SCRATCH, busy


class MemoryBudget:
    """Bytes that the row matrices of one run may take in this process.

    Parameters
    ----------
    limit : int, optional
        No limit if not given.
    directory : str, optional
        Where what is beyond the limit goes; the system's temporary directory by default.
    read_ahead : int, optional
        Blocks that reads run ahead, as planned; what the source's blocks allow by default.

    Attributes
    ----------
    used, spilled : int
        Bytes of row matrices in memory, and in scratch.
    """

    def __init__(self, limit: int | None = None, directory: str | None = None, read_ahead: int | None = None) -> None:
        self.limit = limit
        self.read_ahead = read_ahead
        self.directory = directory or tempfile.gettempdir()
        self.used = 0
        self.spilled = 0
        self._lock = threading.RLock()  # a matrix may be collected, and give its bytes back, while it is held

    def reserve(self, nbytes: int) -> bool:
        """Take `nbytes` if they are left."""
        with self._lock:
            if self.limit is not None and self.used + nbytes > self.limit:
                return False
            self.used += nbytes
            return True

    def release(self, nbytes: int) -> None:
        """Give `nbytes` back."""
        with self._lock:
            self.used -= nbytes

    def spill(self, nbytes: int) -> None:
        """Note that `nbytes` go to scratch; fewer than none where they are given up."""
        with self._lock:
            self.spilled += nbytes

    def scratch(self) -> LazyScratch:
        """Return a scratch file that is opened when it is first needed."""
        return LazyScratch(self.directory)


class LazyScratch:
    """A scratch file that exists once something is put into it."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._file: ScratchFile | None = None

    @property
    def nbytes(self) -> int:
        """Bytes reserved so far."""
        return 0 if self._file is None else self._file.nbytes

    @property
    def file(self) -> ScratchFile:
        """The file."""
        if self._file is None:
            self._file = ScratchFile(self._directory)
            weakref.finalize(self, self._file.close)
        return self._file


class RowMatrix:
    """A zero matrix of a block's rows.

    Parameters
    ----------
    rows, width : int
        Shape.
    dtype : numpy.dtype
        Item type.
    budget : MemoryBudget
        Asked whether the matrix may stay in memory.
    scratch : LazyScratch
        Where it goes otherwise.
    role : str
        Names the buffer that borrowed rows are copied to; matrices that a tile borrows together differ in it.
    """

    def __init__(
        self, rows: int, width: int, dtype: np.dtype[Any], budget: MemoryBudget, scratch: LazyScratch, role: str
    ) -> None:
        self.shape = rows, width
        self.dtype = np.dtype(dtype)
        self._role = role
        self._array: NDArray[Any] | None = None
        nbytes = rows * width * self.dtype.itemsize
        if budget.reserve(nbytes):
            weakref.finalize(self, budget.release, nbytes)
            self._array = np.zeros(self.shape, dtype=dtype)
        else:
            self._scratch = scratch
            self._offset = scratch.file.allocate(nbytes)
            budget.spill(nbytes)
            weakref.finalize(self, budget.spill, -nbytes)

    @property
    def in_memory(self) -> bool:
        """Whether the matrix is an array of this process."""
        return self._array is not None

    def borrow(self, rows: slice) -> NDArray[Any]:
        """Return rows ``start:stop``, shape (n, width); valid until this thread borrows from the same role again."""
        if self._array is not None:
            return self._array[rows]
        out = workspace.array(f"borrowed-{self._role}", (rows.stop - rows.start, self.shape[1]), self.dtype)
        with busy(SCRATCH):
            self._scratch.file.read(self._position(rows.start), out)
        return out

    def blank(self, rows: slice) -> NDArray[Any]:
        """Return room for rows ``start:stop`` that are about to be overwritten and given back."""
        if self._array is not None:
            return self._array[rows]
        return workspace.array(f"borrowed-{self._role}", (rows.stop - rows.start, self.shape[1]), self.dtype)

    def give_back(self, rows: slice, values: NDArray[Any]) -> None:
        """Keep what was changed in borrowed rows."""
        if self._array is None:
            with busy(SCRATCH):
                self._scratch.file.write(self._position(rows.start), values)

    def borrow_columns(self, rows: slice, first: int = 0, last: int | None = None) -> NDArray[Any]:
        """Borrow columns ``first:last`` of rows that are kept column after column, shape (last - first, n)."""
        n, last = rows.stop - rows.start, self.shape[1] if last is None else last
        if self._array is not None:
            return self._array[rows].reshape(self.shape[1], n)[first:last]
        out = workspace.array(f"borrowed-{self._role}", (last - first, n), self.dtype)
        with busy(SCRATCH):
            self._scratch.file.read(self._position(rows.start) + first * n * self.dtype.itemsize, out)
        return out

    def put_columns(self, rows: slice, first: int, values: NDArray[Any]) -> None:
        """Overwrite columns from `first` on, shape (k, n), of rows that are kept column after column."""
        n = rows.stop - rows.start
        if self._array is not None:
            self._array[rows].reshape(self.shape[1], n)[first : first + len(values)] = values
        else:
            with busy(SCRATCH):
                self._scratch.file.write(self._position(rows.start) + first * n * self.dtype.itemsize, values)

    def fill(self, values: NDArray[Any]) -> None:
        """Set all rows."""
        if self._array is not None:
            self._array[...] = values
        else:
            with busy(SCRATCH):
                self._scratch.file.write(self._offset, values)

    def whole(self) -> NDArray[Any]:
        """Return all rows, a copy unless they are in memory."""
        if self._array is not None:
            return self._array
        out = np.empty(self.shape, dtype=self.dtype)
        with busy(SCRATCH):
            self._scratch.file.read(self._offset, out)
        return out

    def prefetch(self, rows: slice, columns: int | None = None) -> None:
        """Have rows ``start:stop`` read ahead, or their first columns where they are kept column after column."""
        if self._array is None:
            width = self.shape[1] if columns is None else columns
            nbytes = (rows.stop - rows.start) * width * self.dtype.itemsize
            self._scratch.file.prefetch(self._position(rows.start), nbytes)

    def _position(self, row: int) -> int:
        return self._offset + row * self.shape[1] * self.dtype.itemsize

"""Row matrices: a matrix with a row for each row of a block, in memory within the budget and in scratch beyond it.

A tile borrows its rows and gives them back. In memory the rows are a view. In scratch they are a copy in a buffer of
the thread, read when borrowed and written when given back. The numbers are the same either way. Covers one process;
the size of the budget is planned in `..planning`, the file is `distkern.storage.ScratchFile`.
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
        Most bytes in memory; no limit by default.
    directory : str, optional
        Folder of the scratch files; the system's temporary directory by default.
    read_ahead : int, optional
        Blocks that reads run ahead, as planned; by default as many as the size of the blocks allows.

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
        # Reentrant: a matrix may be collected, and release its bytes, while this thread holds the lock.
        self._lock = threading.RLock()

    def reserve(self, nbytes: int) -> bool:
        """Reserve `nbytes` of memory if the budget allows; return whether it did."""
        with self._lock:
            if self.limit is not None and self.used + nbytes > self.limit:
                return False
            self.used += nbytes
            return True

    def release(self, nbytes: int) -> None:
        """Return `nbytes` to the budget."""
        with self._lock:
            self.used -= nbytes

    def spill(self, nbytes: int) -> None:
        """Count `nbytes` in scratch; a negative number where they are removed."""
        with self._lock:
            self.spilled += nbytes

    def scratch(self) -> LazyScratch:
        """Return a scratch file that is opened when it is first needed."""
        return LazyScratch(self.directory)


class LazyScratch:
    """A scratch file that is created when it is first used."""

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
        Decides whether the matrix is in memory.
    scratch : LazyScratch
        Its file otherwise.
    role : str
        Names the buffer of borrowed rows; matrices that a tile borrows together have different roles.
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
        out = self.blank(rows)
        if self._array is None:
            with busy(SCRATCH):
                self._scratch.file.read(self._position(rows.start), out)
        return out

    def blank(self, rows: slice) -> NDArray[Any]:
        """Return an array for rows ``start:stop``, of any content, that the caller overwrites and gives back."""
        if self._array is not None:
            return self._array[rows]
        return workspace.array(f"borrowed-{self._role}", (rows.stop - rows.start, self.shape[1]), self.dtype)

    def give_back(self, rows: slice, values: NDArray[Any]) -> None:
        """Store the changed values of borrowed rows."""
        if self._array is None:
            with busy(SCRATCH):
                self._scratch.file.write(self._position(rows.start), values)

    def borrow_columns(self, rows: slice, first: int = 0, last: int | None = None) -> NDArray[Any]:
        """Borrow columns ``first:last`` of rows that are stored column after column, shape (last - first, n)."""
        n, last = rows.stop - rows.start, self.shape[1] if last is None else last
        if self._array is not None:
            return self._array[rows].reshape(self.shape[1], n)[first:last]
        out = workspace.array(f"borrowed-{self._role}", (last - first, n), self.dtype)
        with busy(SCRATCH):
            self._scratch.file.read(self._position(rows.start) + first * n * self.dtype.itemsize, out)
        return out

    def put_columns(self, rows: slice, first: int, values: NDArray[Any]) -> None:
        """Overwrite columns from `first` on, shape (k, n), of rows that are stored column after column."""
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
        """Let the system read rows ``start:stop`` ahead, or their first columns where stored column after column."""
        if self._array is None:
            width = self.shape[1] if columns is None else columns
            nbytes = (rows.stop - rows.start) * width * self.dtype.itemsize
            self._scratch.file.prefetch(self._position(rows.start), nbytes)

    def _position(self, row: int) -> int:
        return self._offset + row * self.shape[1] * self.dtype.itemsize

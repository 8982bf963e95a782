"""Scratch space of one process: an unnamed file for arrays that do not fit in memory.

The file is unlinked as soon as it is open: the system frees its space when the process ends, however it ends. Bytes are
reserved before they are written: a full disk is detected when an array is made, not in the middle of a write.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import resource
import tempfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.errors import BudgetError, RunError

__all__ = ["ScratchFile"]


class ScratchFile:
    """Regions of an unnamed file.

    Parameters
    ----------
    directory : str
        Directory of the file, on a local disk.

    Raises
    ------
    BudgetError
        ``scratch``: the directory cannot be written to. ``scratch-files``: too many files are open.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        try:
            self._file = _unnamed_file(directory)
        except OSError as error:
            if error.errno == errno.EMFILE:
                raise BudgetError(
                    "no further scratch file can be opened, and every block in scratch has one: raise the limit of "
                    "open files (ulimit -n), allow more memory, or use more workers",
                    kind="scratch-files",
                ) from None
            raise BudgetError(
                f"no scratch file can be made in {directory}: {error.strerror}; name a directory on a local disk that "
                "can be written (dask's temporary-directory, or TMPDIR)",
                kind="scratch",
            ) from None
        self._size = 0

    @property
    def nbytes(self) -> int:
        """Bytes reserved so far."""
        return self._size

    def allocate(self, nbytes: int) -> int:
        """Reserve a region of zeros and return its offset.

        Raises
        ------
        RunError
            ``scratch-full``: the disk has no room for it.
        """
        offset = self._size
        try:
            self._reserve(offset, nbytes)
        except OSError as error:
            os.ftruncate(self._file.fileno(), offset)  # a reservation may have failed half way
            raise self._full(error, nbytes) from None
        self._size = offset + nbytes
        return offset

    def _full(self, error: OSError, nbytes: int) -> OSError | RunError:
        """Return the error to raise for one of the system: with sizes for a full disk, else the error itself."""
        if error.errno not in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
            return error
        free = os.statvfs(self._directory)
        return RunError(
            f"scratch needs {nbytes} more bytes and {self._directory} has {free.f_bavail * free.f_frsize} free: "
            "free some, name another directory (dask's temporary-directory, or TMPDIR), or allow more memory",
            kind="scratch-full",
        )

    def _reserve(self, offset: int, nbytes: int) -> None:
        if hasattr(os, "posix_fallocate") and nbytes:
            os.posix_fallocate(self._file.fileno(), offset, nbytes)
        else:
            os.ftruncate(self._file.fileno(), offset + nbytes)

    def read(self, offset: int, out: NDArray[Any]) -> None:
        """Fill a C-contiguous array from the file."""
        view = out.reshape(-1).view(np.uint8).data.cast("B")
        done = 0
        while done < len(view):
            count = os.preadv(self._file.fileno(), [view[done:]], offset + done)
            if not count:
                raise OSError(errno.EIO, "scratch file ends early")
            done += count

    def write(self, offset: int, values: NDArray[Any]) -> None:
        """Write a C-contiguous array.

        Raises
        ------
        RunError
            ``scratch-full``: the disk is full although the space was reserved, as on some file systems.
        """
        view = np.ascontiguousarray(values).reshape(-1).view(np.uint8).data.cast("B")
        done = 0
        while done < len(view):
            try:
                done += os.pwrite(self._file.fileno(), view[done:], offset + done)
            except OSError as error:
                raise self._full(error, len(view) - done) from None

    def prefetch(self, offset: int, nbytes: int) -> None:
        """Request that the system reads a range ahead."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._file.fileno(), offset, nbytes, os.POSIX_FADV_WILLNEED)

    def close(self) -> None:
        """Close the file, which frees its space."""
        self._file.close()


def _unnamed_file(directory: str) -> io.FileIO:
    try:
        return tempfile.TemporaryFile(prefix="distkern-scratch-", dir=directory, buffering=0)
    except OSError as error:
        if error.errno != errno.EMFILE or not _allow_more_files():
            raise
        return tempfile.TemporaryFile(prefix="distkern-scratch-", dir=directory, buffering=0)


def _allow_more_files() -> bool:
    """Raise the soft limit of open files, often 1024, to the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] != soft

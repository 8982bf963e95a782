"""The record of a run's exchanges in a local directory: checksummed records in append-only files, one for each driver.

A driver that starts or resumes a run claims the next number, which older drivers see before they write again. The
header of its file states how many earlier records are valid. So neither a torn record at the end of a file nor an older
driver that still writes changes the records of a newer one. A driver locks its file until its process ends.
`part_journal` writes the record under a URL; `records` reads both.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from distkern.errors import RunError

from ..io.publish import is_disk_full, sync_folder
from .records import driver_of, framed, header, last_number
from .run_files import LocalFiles

__all__ = ["Journal", "superseded"]


class Journal:
    """The file of one driver, made by `claim`.

    Attributes
    ----------
    incarnation : int
        Number of this driver, from 1.
    """

    def __init__(self, folder: Path, incarnation: int) -> None:
        self.incarnation = incarnation
        self._folder = folder
        self._end = 0
        self._file = os.open(_file(folder, incarnation), os.O_WRONLY)
        # The lock ends with this process, however that ends; a file system may have no locks.
        with suppress(OSError):
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Syncing takes as long as an exchange of a small run, so the next exchange runs meanwhile.
        self._syncer = ThreadPoolExecutor(1, thread_name_prefix="distkern-sync")
        self._syncing: Future[None] | None = None

    @classmethod
    def claim(cls, folder: Path) -> Journal:
        """Take the run in a directory over from all earlier drivers; `RunError` ``not-writable`` where this fails."""
        while True:
            number = last_number(LocalFiles(folder))[0] + 1
            try:
                os.close(os.open(_file(folder, number), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
                sync_folder(folder)
                return cls(folder, number)
            except FileExistsError:
                continue
            except OSError as cause:
                raise RunError(f"cannot write into {folder}: {cause.strerror}", kind="not-writable") from cause

    def begin(self, continues: int, note: dict[str, Any]) -> None:
        """Write the header, before the first record; errors are those of `append`.

        Parameters
        ----------
        continues : int
            Number of earlier records that are valid, from the first.
        note : dict
            Short JSON values about this driver, for those that resume the run.
        """
        self.append((header(continues, note),))

    def append(self, payload: Sequence[bytes | memoryview]) -> None:
        """Write one record.

        Parameters
        ----------
        payload : sequence of bytes-like
            The record, in pieces.

        Raises
        ------
        RunError
            ``superseded``: another driver has taken the run over. ``disk-full``, ``not-writable``: this record is
            removed, and all earlier ones are kept.
        """
        if _file(self._folder, self.incarnation + 1).exists():
            newer = driver_of(self._folder)
            raise superseded(self._folder, None if newer is None else (newer.host, newer.pid))
        pieces = framed(payload)
        size = sum(len(memoryview(piece).cast("B")) for piece in pieces)
        try:
            self._wait()
            for piece in pieces:
                _write(self._file, piece)
        except OSError as cause:
            os.ftruncate(self._file, self._end)
            os.lseek(self._file, self._end, os.SEEK_SET)
            if not is_disk_full(cause):
                raise RunError(f"cannot write into {self._folder}: {cause.strerror}", kind="not-writable") from cause
            free = shutil.disk_usage(self._folder).free
            raise RunError(
                f"no space is left for the record of the run in {self._folder}: {size} bytes are needed "
                f"and {free} are free ({cause.strerror}); the run is kept and can be resumed when there is more room",
                kind="disk-full",
            ) from cause
        self._end += size
        self._syncing = self._syncer.submit(os.fdatasync, self._file)

    def close(self) -> None:
        """Close the file after its records are synced to disk; idempotent."""
        if self._file < 0:
            return
        try:
            self._wait()
        except OSError as cause:
            raise RunError(f"cannot write into {self._folder}: {cause.strerror}", kind="not-writable") from cause
        finally:
            self._syncer.shutdown()
            os.close(self._file)
            self._file = -1

    def _wait(self) -> None:
        syncing, self._syncing = self._syncing, None
        if syncing is not None:
            syncing.result()


def superseded(place: Path | str, newer: tuple[str | None, int | None] | None) -> RunError:
    """Return the error for a driver whose run another one drives now; `newer` is that one's host and process."""
    host, pid = newer or (None, None)
    named = "" if host is None else f" (process {pid} on {host})"
    return RunError(
        f"another driver{named} has resumed the run in {place}, and this one ends: to train both, name another "
        "[output] run (run_dir)",
        kind="superseded",
    )


def _file(folder: Path, number: int) -> Path:
    return folder / f"log-{number:04d}.bin"


def _write(descriptor: int, piece: bytes | memoryview) -> None:
    rest = memoryview(piece).cast("B")
    while len(rest):
        rest = rest[os.write(descriptor, rest) :]

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

from distkern.errors import RunError

from ..io.publish import is_disk_full, sync_folder
from .records import RunJournal, driver_of, framed, last_number, superseded
from .run_files import LocalFiles

__all__ = ["Journal"]


class Journal(RunJournal):
    """The file of one driver, made by `claim`."""

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
        number = last_number(LocalFiles(folder))[0]
        while True:
            number += 1
            try:
                os.close(os.open(_file(folder, number), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
                sync_folder(folder)
                return cls(folder, number)
            except FileExistsError:
                continue
            except OSError as cause:
                raise RunError(f"cannot write into {folder}: {cause.strerror}", kind="not-writable") from cause

    def append(self, payload: Sequence[bytes | memoryview]) -> None:
        """Write one record; after ``disk-full`` and ``not-writable`` it is removed, and all earlier ones are kept."""
        if _file(self._folder, self.incarnation + 1).exists():
            raise superseded(self._folder, driver_of(self._folder))
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


def _file(folder: Path, number: int) -> Path:
    return folder / f"log-{number:04d}.bin"


def _write(descriptor: int, piece: bytes | memoryview) -> None:
    rest = memoryview(piece).cast("B")
    while len(rest):
        rest = rest[os.write(descriptor, rest) :]

"""The record of a run's exchanges: checksummed records in append-only files, one file for each driver.

A driver that starts or resumes a run claims the next number, which older drivers see before they write again. The
header of its file states how many earlier records are valid. So neither a torn record at the end of a file nor an older
driver that still writes changes the records of a newer one. A driver locks its file until its process ends.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import socket
import struct
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distkern.errors import RunError

from ..io.formats import require_version
from ..io.publish import is_disk_full, sync_folder

__all__ = ["Driver", "Journal", "Place", "driver_of", "recorded"]

JOURNAL_VERSION = 1
_FRAME = struct.Struct("<8sQ16s")
_MAGIC = b"dkrecord"
_MAX_HEADER = 4096


@dataclass(frozen=True)
class Place:
    """Place of one record."""

    path: Path
    offset: int
    """Offset of the payload in the file, in bytes."""
    size: int
    """Bytes of the payload."""
    digest: bytes

    def read(self) -> bytes | None:
        """Return the payload, or None where it differs from the written one."""
        try:
            with self.path.open("rb") as stream:
                stream.seek(self.offset)
                payload = stream.read(self.size)
        except OSError:
            return None
        return payload if len(payload) == self.size and _digest((payload,)) == self.digest else None


@dataclass(frozen=True)
class Driver:
    """The process that drives a run, or drove it last."""

    host: str | None
    """Name of its machine; None before it has recorded anything."""
    pid: int | None
    """Number of its process."""
    holds_lock: bool | None
    """Whether its file is locked; None where the file system has no locks."""

    @property
    def alive(self) -> bool | None:
        """Whether it still runs; None where this is unknown, since locks may not work between machines."""
        if self.holds_lock or self.holds_lock is None:
            return self.holds_lock
        return False if self.host == socket.gethostname() else None


def driver_of(folder: Path) -> Driver | None:
    """Return the process that drives the run in a directory, or drove it last; None before the first driver."""
    number = max(_numbers(folder), default=0)
    try:
        stream = _file(folder, number).open("rb")
    except OSError:
        return None
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
            holds_lock: bool | None = False
        except BlockingIOError:
            holds_lock = True
        except OSError:
            holds_lock = None
    places = _scan(_file(folder, number), most=1)
    found = (_header(places[0]) or {}).get("driver") if places else None
    host, pid = (found.get("host"), found.get("pid")) if isinstance(found, dict) else (None, None)
    return Driver(host if isinstance(host, str) else None, pid if isinstance(pid, int) else None, holds_lock)


def recorded(folder: Path) -> tuple[list[Place], list[dict[str, Any]]]:
    """Return the valid records of a run directory with complete frames, oldest first, and the notes of their drivers.

    Raises
    ------
    RunError
        ``newer-version``.
    """
    found: list[Place] = []
    notes: list[dict[str, Any]] = []
    for number in _numbers(folder):
        places = _scan(_file(folder, number))
        header = _header(places[0]) if places else None
        if header is None:
            continue  # the driver recorded nothing
        require_version(folder, header, JOURNAL_VERSION, RunError)
        continues = header.get("continues")
        if not isinstance(continues, int) or not 0 <= continues <= len(found):
            break
        found = found[:continues] + places[1:]
        note = header.get("note")
        notes.append(note if isinstance(note, dict) else {})
    return found, notes


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
            number = max(_numbers(folder), default=0) + 1
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
        driver = {"host": socket.gethostname(), "pid": os.getpid()}
        header = {"format_version": JOURNAL_VERSION, "continues": continues, "note": note, "driver": driver}
        self.append((json.dumps(header).encode(),))

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
            raise RunError(
                f"another driver has resumed the run in {self._folder}, and this one ends: to train both, name another "
                "[output] run (run_dir)",
                kind="superseded",
            )
        size = sum(len(memoryview(piece).cast("B")) for piece in payload)
        pieces = [_FRAME.pack(_MAGIC, size, _digest(payload)), *payload]
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
                f"no space is left for the record of the run in {self._folder}: {_FRAME.size + size} bytes are needed "
                f"and {free} are free ({cause.strerror}); the run is kept and can be resumed when there is more room",
                kind="disk-full",
            ) from cause
        self._end += _FRAME.size + size
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


def _numbers(folder: Path) -> list[int]:
    names = [path.name for path in folder.glob("log-*.bin")]
    return sorted(int(name[4:-4]) for name in names if name[4:-4].isascii() and name[4:-4].isdigit())


def _scan(path: Path, most: int | None = None) -> list[Place]:
    """Find the complete frames of a file up to the first incomplete one, or the first `most`."""
    places: list[Place] = []
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            position = 0
            while position + _FRAME.size <= size and len(places) != most:
                stream.seek(position)
                magic, length, digest = _FRAME.unpack(stream.read(_FRAME.size))
                position += _FRAME.size
                if magic != _MAGIC or length > size - position:
                    break
                places.append(Place(path, position, length, digest))
                position += length
    except OSError:
        return places
    return places


def _header(place: Place) -> dict[str, Any] | None:
    payload = place.read() if place.size <= _MAX_HEADER else None
    try:
        header = None if payload is None else json.loads(payload)
    except ValueError:
        return None
    return header if isinstance(header, dict) else None


def _digest(payload: Sequence[bytes | memoryview]) -> bytes:
    state = hashlib.blake2b(digest_size=16)
    for piece in payload:
        state.update(piece)
    return state.digest()


def _write(descriptor: int, piece: bytes | memoryview) -> None:
    rest = memoryview(piece).cast("B")
    while len(rest):
        rest = rest[os.write(descriptor, rest) :]

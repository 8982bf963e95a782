"""Reading of the record of a run's exchanges: checksummed records, a sequence of them for each driver.

A driver writes either one file, which it appends to (``log-0001.bin``, see `journal`), or an object for each record
(``log-TOKEN/0000000000.part``, see `part_journal`). Both kinds may be in one run, since a run can be copied between
disks and object stores and resumed there. The header of a driver states how many earlier records are valid.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import socket
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

from distkern.errors import RunError

from ..io.formats import require_version
from .run_files import LocalFiles, RunFiles, in_order, run_files

__all__ = [
    "JOURNAL_VERSION",
    "Driver",
    "Place",
    "RunJournal",
    "driver_of",
    "framed",
    "header",
    "read_records",
    "recorded",
    "superseded",
]

JOURNAL_VERSION = 1
FRAME = struct.Struct("<8sQ16s")
MAGIC = b"dkrecord"
HEAD = struct.Struct("<8sQQ")
"""Start of a part: its mark, the number of its driver, and the number of that driver's first part."""
PART_MAGIC = b"dkpart01"
_START = HEAD.size + FRAME.size
"""Offset of the payload of a part."""
_DAMAGED = 100
"""Most damaged parts at the end of a sequence that are passed over."""
_MAX_HEADER = 4096


@dataclass(frozen=True)
class Place:
    """Place of one record."""

    files: RunFiles = field(repr=False)
    name: str
    offset: int
    """Offset of the payload in the file, in bytes."""
    size: int
    """Bytes of the payload."""

    def read(self) -> bytes | None:
        """Return the payload, or None where it differs from the written one."""
        found = self.files.read_range(self.name, self.offset - FRAME.size, FRAME.size + self.size)
        if found is None:
            return None
        magic, size, digest = FRAME.unpack_from(found)
        payload = found[FRAME.size :]
        whole = magic == MAGIC and size == self.size and digest_of((payload,)) == digest
        return payload if whole else None


@dataclass(frozen=True)
class Driver:
    """The process that drives a run, or drove it last."""

    host: str | None
    """Name of its machine; None before it has recorded anything."""
    pid: int | None
    """Number of its process."""
    holds_lock: bool | None
    """Whether its file is locked; None where the storage has no locks."""

    @property
    def alive(self) -> bool | None:
        """Whether it still runs; None where this is unknown, since locks may not work between machines."""
        if self.holds_lock or self.holds_lock is None:
            return self.holds_lock
        return False if self.host == socket.gethostname() else None


@dataclass(frozen=True)
class Records:
    """The records of one driver."""

    number: int
    """Number of the driver, from 1."""
    places: list[Place]
    """The header and the records; empty where the driver recorded nothing."""
    claim: Place | None = None
    """Description of the driver, where it is not in the header (default None)."""

    def described(self) -> dict[str, Any]:
        """Return the description of the driver; empty where there is none."""
        found = self.claim or (self.places[0] if self.places else None)
        driver = (_json(found) or {}).get("driver") if found is not None else None
        return driver if isinstance(driver, dict) else {}


class RunJournal(ABC):
    """Record of a run, as one driver writes it.

    Attributes
    ----------
    incarnation : int
        Number of this driver, from 1.
    """

    incarnation: int

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

    @abstractmethod
    def append(self, payload: Sequence[bytes | memoryview]) -> None:
        """Write one record.

        Parameters
        ----------
        payload : sequence of bytes-like
            The record, in pieces.

        Raises
        ------
        RunError
            ``superseded``: another driver has taken the run over. The others depend on the storage.
        """

    @abstractmethod
    def close(self) -> None:
        """Wait until all records are stored; idempotent, errors as for `append`."""


def superseded(place: Path | str, newer: Driver | None) -> RunError:
    """Return the error for a driver whose run another one drives now; `newer` is that one, if it is known."""
    named = "" if newer is None or newer.host is None else f" (process {newer.pid} on {newer.host})"
    return RunError(
        f"another driver{named} has resumed the run in {place}, and this one ends: to train both, name another "
        "[output] run (run_dir)",
        kind="superseded",
    )


def driver_of(place: str | os.PathLike[str] | RunFiles) -> Driver | None:
    """Return the process that drives the run at a place, or drove it last; None before the first driver."""
    files = place if isinstance(place, RunFiles) else run_files(place)
    names, parts = _file_names(files), _part_sizes(files)
    newest_file, newest_part = max(names, default=0), _last_driver(files, parts)
    if not newest_file and newest_part is None:
        return None
    holds_lock: bool | None = None
    if newest_part is not None and newest_part[0] > newest_file:
        found = Records(newest_part[0], [], _part(files, newest_part[1], parts))
    else:
        found = Records(newest_file, scan(files, names[newest_file], most=1))
        if isinstance(files, LocalFiles):
            holds_lock = _is_locked(files, names[newest_file])
    described = found.described()
    host, pid = described.get("host"), described.get("pid")
    return Driver(host if isinstance(host, str) else None, pid if isinstance(pid, int) else None, holds_lock)


def recorded(place: str | os.PathLike[str] | RunFiles) -> tuple[list[Place], list[dict[str, Any]]]:
    """Return the valid records of a run with complete frames, oldest first, and the notes of their drivers.

    Raises
    ------
    RunError
        ``newer-version``.
    """
    files = place if isinstance(place, RunFiles) else run_files(place)
    names = _file_names(files)
    every = [Records(number, scan(files, name)) for number, name in names.items()] + _in_parts(files)
    found: list[Place] = []
    notes: list[dict[str, Any]] = []
    for one in sorted(every, key=lambda records: records.number):
        begun = _json(one.places[0]) if one.places else None
        if begun is None:
            continue  # the driver recorded nothing
        require_version(files.place, begun, JOURNAL_VERSION, RunError)
        continues = begun.get("continues")
        if not isinstance(continues, int) or not 0 <= continues <= len(found):
            break
        found = found[:continues] + one.places[1:]
        note = begun.get("note")
        notes.append(note if isinstance(note, dict) else {})
    return found, notes


def read_records(places: Sequence[Place]) -> Iterator[bytes]:
    """Yield the payloads of records up to the first incomplete one."""
    if not places:
        return
    for payload in in_order(places[0].files, [place.read for place in places]):
        if payload is None:
            return
        yield payload


def last_number(files: RunFiles) -> tuple[int, int]:
    """Return the number of the newest driver, 0 before the first, and the number of the next part."""
    parts = _part_sizes(files)
    newest = _last_driver(files, parts)
    number = max(_file_names(files), default=0)
    return (number if newest is None else max(number, newest[0])), max(parts, default=-1) + 1


def header(continues: int, note: dict[str, Any]) -> bytes:
    """Return the first record of a driver: how many earlier records are valid, and a note about the driver."""
    values = {"format_version": JOURNAL_VERSION, "continues": continues, "note": note, "driver": this_driver()}
    return json.dumps(values).encode()


def this_driver() -> dict[str, Any]:
    """Return the description of this process."""
    return {"host": socket.gethostname(), "pid": os.getpid()}


def framed(payload: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """Return a record with its frame, in pieces."""
    size = sum(len(memoryview(piece).cast("B")) for piece in payload)
    return [FRAME.pack(MAGIC, size, digest_of(payload)), *payload]


def digest_of(payload: Sequence[bytes | memoryview]) -> bytes:
    """Return the checksum of a payload in pieces."""
    state = hashlib.blake2b(digest_size=16)
    for piece in payload:
        state.update(piece)
    return state.digest()


def part_name(files: RunFiles, number: int) -> str:
    """Return the name of a part."""
    return f"log-{files.token}/{number:010d}.part"


def scan(files: RunFiles, name: str, most: int | None = None) -> list[Place]:
    """Find the complete frames of a file up to the first incomplete one, at most `most` (optional)."""
    places: list[Place] = []
    size = files.listing()[0].get(name, 0)
    position = 0
    while position + FRAME.size <= size and len(places) != most:
        frame = files.read_range(name, position, FRAME.size)
        if frame is None:
            break
        magic, length, _ = FRAME.unpack(frame)
        position += FRAME.size
        if magic != MAGIC or length > size - position:
            break
        places.append(Place(files, name, position, length))
        position += length
    return places


def _file_names(files: RunFiles) -> dict[int, str]:
    """Return the files of drivers, in their order."""
    numbered = [(name[4:-4], name) for name in files.listing()[0] if name.startswith("log-") and name.endswith(".bin")]
    return dict(sorted((int(number), name) for number, name in numbered if number.isascii() and number.isdigit()))


def _part_sizes(files: RunFiles) -> dict[int, int]:
    """Return the bytes of the parts, by number."""
    sizes = files.listing(f"log-{files.token}")[0]
    numbered = [(name[:-5], size) for name, size in sizes.items() if name.endswith(".part")]
    return {int(number): size for number, size in numbered if number.isascii() and number.isdigit()}


def _last_driver(files: RunFiles, parts: dict[int, int], before: int | None = None) -> tuple[int, int] | None:
    """Return the number of the driver of the last part, and of its first part; `before` leaves out later parts."""
    known = sorted(part for part, size in parts.items() if size >= _START and (before is None or part < before))
    # A part that is damaged does not hide those before it.
    for last in known[: -_DAMAGED - 1 : -1]:
        head = files.read_range(part_name(files, last), 0, HEAD.size)
        magic, number, first = HEAD.unpack(head) if head is not None else (b"", 0, 0)
        if magic == PART_MAGIC and first <= last and first in parts:
            return number, first
    return None


def _in_parts(files: RunFiles) -> list[Records]:
    """Return the records of all drivers that wrote parts."""
    parts = _part_sizes(files)
    found: list[Records] = []
    end = max(parts, default=-1) + 1
    while (driver := _last_driver(files, parts, end)) is not None:
        number, first = driver
        whole = takewhile(lambda part: parts.get(part, 0) >= _START, range(first + 1, end))
        found.append(Records(number, [_part(files, part, parts) for part in whole], _part(files, first, parts)))
        end = first
    return found


def _part(files: RunFiles, number: int, parts: dict[int, int]) -> Place:
    return Place(files, part_name(files, number), _START, max(parts[number] - _START, 0))


def _json(place: Place) -> dict[str, Any] | None:
    payload = place.read() if place.size <= _MAX_HEADER else None
    try:
        found = None if payload is None else json.loads(payload)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _is_locked(files: LocalFiles, name: str) -> bool | None:
    """Return whether a process holds the lock of a file; None where the file system has no locks."""
    try:
        with (files.place / name).open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False

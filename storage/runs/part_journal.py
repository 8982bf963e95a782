"""The record of a run's exchanges under a URL: one object for each record, in one sequence for all drivers.

An object store has no append and no locks, but it can refuse to write an object that exists. A driver claims a run by
the next part of the sequence, and every record is a further part. So of two drivers only one writes a part; the other
finds the part that it lost to, and ends with an error that names the other driver. The order of the parts is the order
of the drivers, and nothing that an older one sends late can come between the records of a newer one.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from .records import (
    HEAD,
    JOURNAL_VERSION,
    PART_MAGIC,
    RunJournal,
    driver_of,
    framed,
    last_number,
    part_name,
    superseded,
    this_driver,
)
from .run_files import RemoteFiles

__all__ = ["PartJournal"]

_ATTEMPTS = 5


class PartJournal(RunJournal):
    """The parts of one driver, made by `claim`."""

    def __init__(self, files: RemoteFiles, incarnation: int, first: int) -> None:
        self.incarnation = incarnation
        self._files = files
        self._first = self._next = first
        # A request takes as long as several exchanges of a small run, so the next exchange runs meanwhile.
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="distkern-parts")
        self._writing: Future[bool] | None = None
        self._closed = False

    @classmethod
    def claim(cls, files: RemoteFiles) -> PartJournal:
        """Take a run over from all earlier drivers; `RunError` where nothing can be written there."""
        while True:
            number, part = last_number(files)
            journal = cls(files, number + 1, part)
            # The random part distinguishes this claim from that of another process of this number (containers).
            claim = {"format_version": JOURNAL_VERSION, "driver": this_driver(), "claim": secrets.token_hex(8)}
            if journal._put(journal._part((json.dumps(claim).encode(),))):
                journal._next += 1
                return journal
            journal._writer.shutdown()

    def append(self, payload: Sequence[bytes | memoryview]) -> None:
        """Write one record while the caller goes on; the next call, or `close`, raises what the storage refused."""
        self._wait()
        self._writing = self._writer.submit(self._put, self._part(payload))

    def close(self) -> None:
        """Wait for the last record, and check that the run was not replaced; idempotent, errors as for `append`."""
        if self._closed:
            return
        self._closed = True
        try:
            self._wait()
            if self._files.present_token() != self._files.token:
                raise superseded(self._files.place, None)
        finally:
            self._writer.shutdown()

    def _wait(self) -> None:
        writing, self._writing = self._writing, None
        if writing is None:
            return
        if not writing.result():
            raise superseded(self._files.place, driver_of(self._files))
        self._next += 1

    def _part(self, payload: Sequence[bytes | memoryview]) -> bytes:
        return b"".join([HEAD.pack(PART_MAGIC, self.incarnation, self._first), *framed(payload)])

    def _put(self, part: bytes) -> bool:
        """Write the next part; return False where another driver's is there."""
        name = part_name(self._files, self._next)
        for _ in range(_ATTEMPTS):
            if self._files.folder.create(name, part):
                return True
            # The client repeats a request whose answer was lost, and is then refused by its own part.
            there = self._files.read(name)
            if there is not None:
                return there == part
        return False

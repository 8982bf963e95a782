"""The files of a run: in a local directory, or objects under a URL.

Covers single files only. `records` reads the record of the exchanges through this interface; what writes it differs,
see `journal` and `part_journal`.
"""

from __future__ import annotations

import os
import shutil
import stat
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from distkern.errors import DistkernError, RunError

from ..io.json_files import dump_json, read_json, write_json
from ..io.publish import disk_full, is_disk_full
from ..io.remote_folders import RemoteFolder
from ..io.urls import is_url, place_of

__all__ = ["JOB", "LocalFiles", "RemoteFiles", "RunFiles", "in_order", "run_files"]

T = TypeVar("T")

JOB = "job.json"
"""File that describes the run; without it, a folder is no run."""

_AHEAD = 16
"""Objects that are requested at a time."""


class RunFiles(ABC):
    """Files of one run.

    Attributes
    ----------
    place : pathlib.Path or str
        The directory, or the URL.
    """

    place: Path | str

    @property
    def name(self) -> str:
        """Last part of the place."""
        return os.fspath(self.place).rpartition("/")[2]

    @property
    def token(self) -> str:
        """Name of the parts of the record and of the events, new for each run that is created under a URL."""
        return self.present_token()

    def present_token(self) -> str:
        """Return the name of the parts of the run that is at the place now."""
        description = self.read_json(JOB)
        token = description.get("token") if isinstance(description, dict) else None
        return token if isinstance(token, str) and token.isalnum() else "0"

    @abstractmethod
    def read_json(self, name: str) -> Any:
        """Return the value of a JSON file; None where it is absent or cannot be read."""

    @abstractmethod
    def holds(self, name: str) -> bool:
        """Return whether there is a file."""

    @abstractmethod
    def replace(self, name: str, value: Any) -> None:
        """Write a JSON file, which holds the old value or the new at any time; `RunError` where this fails."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file, if it is there; `RunError` where this fails."""

    @abstractmethod
    def remove_part(self, part: str) -> None:
        """Remove all files in a part of the run, as far as possible."""

    @abstractmethod
    def clear(self) -> None:
        """Remove the run."""

    @abstractmethod
    def listing(self, part: str = "") -> tuple[dict[str, int], list[str]]:
        """Return the bytes of the files in a part of the run, and the names of parts there (default "")."""

    @abstractmethod
    def read_range(self, name: str, start: int, count: int) -> bytes | None:
        """Return `count` bytes of a file; None where they cannot be read."""

    @abstractmethod
    def child(self, part: str) -> Path | str:
        """Return the place of a part of the run."""


class LocalFiles(RunFiles):
    """Files of a run in a local directory.

    Parameters
    ----------
    place : pathlib.Path
        The directory.
    """

    def __init__(self, place: Path) -> None:
        self.place: Path = place

    def read_json(self, name: str) -> Any:
        """Return the value of a JSON file; None where it is absent or cannot be read."""
        return read_json(self.place / name)

    def holds(self, name: str) -> bool:
        """Return whether there is a file."""
        return (self.place / name).exists()

    def replace(self, name: str, value: Any) -> None:
        """Write a JSON file in one step."""
        try:
            write_json(self.place / name, value)
        except OSError as cause:
            raise self.not_writable(name, cause, len(dump_json(value))) from cause

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        try:
            (self.place / name).unlink(missing_ok=True)
        except OSError as cause:
            raise self.not_writable(name, cause, 0) from cause

    def remove_part(self, part: str) -> None:
        """Remove all files in a part of the run, as far as possible."""
        shutil.rmtree(self.place / part, ignore_errors=True)

    def clear(self) -> None:
        """Remove the directory, as far as possible."""
        shutil.rmtree(self.place, ignore_errors=True)

    def listing(self, part: str = "") -> tuple[dict[str, int], list[str]]:
        """Return the bytes of the files in a part of the run, and the names of parts there (default "")."""
        sizes: dict[str, int] = {}
        parts: list[str] = []
        with suppress(FileNotFoundError, NotADirectoryError):
            for entry in (self.place / part).iterdir():
                if entry.is_dir():
                    parts.append(entry.name)
                    continue
                try:
                    facts = entry.stat()
                except FileNotFoundError:
                    continue
                except OSError:  # a link to itself has a name, which no other file can take
                    sizes[entry.name] = 0
                    continue
                # What is no file, such as a pipe, has nothing to read.
                sizes[entry.name] = facts.st_size if stat.S_ISREG(facts.st_mode) else 0
        return sizes, parts

    def read_range(self, name: str, start: int, count: int) -> bytes | None:
        """Return `count` bytes of a file; None where they cannot be read."""
        try:
            with (self.place / name).open("rb") as stream:
                stream.seek(start)
                found = stream.read(count)
        except OSError:
            return None
        return found if len(found) == count else None

    def child(self, part: str) -> Path:
        """Return the place of a part of the run."""
        return self.place / part

    def not_writable(self, name: str, cause: OSError, nbytes: int) -> DistkernError:
        """Return the error for a file of `nbytes` bytes that could not be written."""
        if is_disk_full(cause):
            return disk_full(RunError, self.place / name, self.place, cause, nbytes)
        return RunError(f"cannot write {self.place / name}: {cause.strerror}", kind="not-writable")


class RemoteFiles(RunFiles):
    """Files of a run as objects under a URL; errors of the storage are a `RunError`.

    Parameters
    ----------
    place : str
        The URL.
    """

    def __init__(self, place: str) -> None:
        self.place: str = place_of(place)
        self._read = RemoteFolder(place, error=RunError)
        self._token: str | None = None

    @property
    def token(self) -> str:
        """Name of the parts when they were first needed."""
        if self._token is None:
            self._token = self.present_token()
        return self._token

    @cached_property
    def folder(self) -> RemoteFolder:
        """The objects, for writing."""
        return RemoteFolder(self.place, writable=True, error=RunError)

    def read(self, name: str) -> bytes | None:
        """Return an object of usual size; None where there is none."""
        return self._read.read(name)

    def read_json(self, name: str) -> Any:
        """Return the value of a JSON object; None where it is absent or cannot be read."""
        return self._read.read_json(name)

    def holds(self, name: str) -> bool:
        """Return whether there is an object."""
        return self._read.read(name) is not None

    def replace(self, name: str, value: Any) -> None:
        """Write a JSON object."""
        self.folder.write(name, (dump_json(value) + "\n").encode())

    def remove(self, name: str) -> None:
        """Remove an object, if it is there."""
        self.folder.delete([name])

    def remove_part(self, part: str) -> None:
        """Remove all objects in a part of the run, as far as possible."""
        with suppress(DistkernError):
            RemoteFolder(self.child(part), writable=True, error=RunError).clear()

    def clear(self) -> None:
        """Remove all objects."""
        self.folder.clear()

    def listing(self, part: str = "") -> tuple[dict[str, int], list[str]]:
        """Return the bytes of the objects in a part of the run, and the names of parts there (default "")."""
        return self._read.listing(part)

    def read_range(self, name: str, start: int, count: int) -> bytes | None:
        """Return `count` bytes of an object, which has them; None where it is absent."""
        found = self._read.read_range(name, start, count)
        return found if found is not None and len(found) == count else None

    def child(self, part: str) -> str:
        """Return the URL of a part of the run."""
        return f"{self.place}/{part}"


def run_files(place: str | os.PathLike[str]) -> LocalFiles | RemoteFiles:
    """Return the files at a local path or under a URL; no request is sent yet."""
    return RemoteFiles(os.fspath(place)) if is_url(place) else LocalFiles(Path(place_of(place)))


def in_order(files: RunFiles, reads: Sequence[Callable[[], T]]) -> Iterator[T]:
    """Yield the results of reads in their order; under a URL, the next ones are requested meanwhile."""
    if isinstance(files, LocalFiles):
        yield from (read() for read in reads)
        return
    with ThreadPoolExecutor(_AHEAD, "distkern-run") as threads:
        coming = deque(threads.submit(read) for read in reads[:_AHEAD])
        try:
            for following in range(_AHEAD, len(reads) + _AHEAD):
                if not coming:
                    return
                yield coming.popleft().result()
                if following < len(reads):
                    coming.append(threads.submit(reads[following]))
        finally:
            threads.shutdown(wait=False, cancel_futures=True)

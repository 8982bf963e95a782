"""Runs in local directories and under URLs: the job of a run, its events and its summary.

``job.json`` holds the job, ``training.json`` the settings that decide the model, ``search.json`` the results of a
search before the training, ``metric.json`` a learnt metric. ``events.jsonl`` has a line for each event, and
``summary.json`` appears at the end, beside ``sums-0000``, the sums of the centres over all rows in the form of a model
store; ``sums-0001`` and so on replace it when rows are appended. `distkern.storage.runs.journal` keeps the exchanges. A
process that is killed leaves at most one torn line, which readers skip and the next writer ends. Under a URL, exchanges
and events are objects in numbered parts, see `part_journal` and `event_parts`. There, each process that appends rows
writes a part of its own name, and the first one that creates ``sums-0001.json``, which names its part, has appended.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self

from distkern.errors import RunError
from distkern.redaction import redact_values

from ..io.formats import appearance, has_kind, identify, require_version
from ..io.json_files import MAX_JSON_BYTES, dump_json, write_json
from ..io.publish import publish_directory
from ..io.remote_folders import check_remote
from ..io.urls import is_url, place_of
from .event_parts import EventParts, PartTail
from .event_tail import EventTail, parsed
from .journal import Journal
from .part_journal import PartJournal
from .records import Driver, Place, RunJournal, driver_of, recorded
from .run_files import JOB, LocalFiles, RemoteFiles, in_order, run_files

__all__ = ["RunDirectory", "is_run", "run_exists"]

RUN_VERSION = 2
"""Newest format. A run has format 1, and format 2 once rows were appended to it under a URL, where an object names the
sums."""
_TRAINING, _EVENTS, _SUMMARY = "training.json", "events.jsonl", "summary.json"
_SEARCH, _METRIC = "search.json", "metric.json"
_SUMS, _SUMS_MARKER = "sums-", "model.json"
_SUMS_NAME = re.compile(_SUMS + r"([0-9]{4,9})(-[0-9a-f]{8})?")


def is_run(path: str | os.PathLike[str]) -> bool:
    """Return whether a run is at a local path or under a URL."""
    return has_kind(path, "run")


def run_exists(path: str | os.PathLike[str]) -> bool:
    """Return whether there is anything at a local path or under a URL."""
    return not has_kind(path, "missing") if is_url(path) else os.path.lexists(place_of(path))


class RunDirectory:
    """The record of one training in a local directory or under a URL, made by `create` or `open`.

    Attributes
    ----------
    path : pathlib.Path or str
        The directory, or the URL.
    job : dict
        JSON values that state what to train.
    """

    def __init__(self, files: LocalFiles | RemoteFiles, job: dict[str, Any], version: int) -> None:
        self._files, self._version = files, version
        self._parts = EventParts(files) if isinstance(files, RemoteFiles) else None
        self.path: Path | str = files.place
        self.job = job

    @classmethod
    def create(cls, path: str | os.PathLike[str], job: dict[str, Any], overwrite: bool = False) -> Self:
        """Make a run.

        Parameters
        ----------
        path : path-like
            Path of the directory, or URL of an object store that can refuse to write an object twice.
        job : dict
            JSON values that state what to train; credentials in them are not recorded.
        overwrite : bool, default False
            Whether to replace a run at `path`.

        Raises
        ------
        RunError
            ``exists``, ``foreign``, ``not-writable``, ``disk-full`` or ``no-conditional-writes``.
        """
        if is_url(path):
            _create_remote(os.fspath(path), job, overwrite)
        else:
            with publish_directory(place_of(path), overwrite, RunError, is_run) as folder:
                write_json(folder / JOB, _description(job))
                (folder / _EVENTS).touch()
        return cls.open(path)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Open a run, to read it or to resume it.

        Raises
        ------
        RunError
            ``missing``, ``not-a-run``, ``newer-version`` or ``corrupt``.
        """
        files = run_files(path)
        kind = identify(path)
        if kind == "missing":
            raise RunError(f"there is no run at {path}: check the name", kind="missing")
        if kind != "run":
            raise RunError(f"{path} is {appearance(path)}, not a run directory", kind="not-a-run")
        if isinstance(files, LocalFiles):
            for name in (JOB, _EVENTS, _SUMMARY, _SEARCH, _METRIC, _TRAINING):
                file = files.place / name
                if file.is_symlink():
                    raise RunError(f"{path} is damaged: {name} is a link to another file", kind="corrupt")
                if file.exists() and not file.is_file():
                    raise RunError(f"{path} is damaged: {name} is not a file, but a pipe or a folder", kind="corrupt")
        description = files.read_json(JOB)
        if not isinstance(description, dict) or not isinstance(description.get("job"), dict):
            raise RunError(f"{path} is damaged: {JOB} cannot be read; start the run again", kind="corrupt")
        require_version(path, description, RUN_VERSION, RunError)
        return cls(files, description["job"], description["format_version"])

    @property
    def name(self) -> str:
        """Last part of the path or URL."""
        return self._files.name

    def claim(self) -> RunJournal:
        """Take the run over from all earlier drivers; errors of `Journal.claim` and `PartJournal.claim`."""
        if isinstance(self._files, LocalFiles):
            return Journal.claim(self._files.place)
        return PartJournal.claim(self._files)

    def recorded(self) -> tuple[list[Place], list[dict[str, Any]]]:
        """Return the valid records of exchanges and the notes of their drivers, as `records.recorded` does."""
        return recorded(self._files)

    def driver(self) -> Driver | None:
        """Return the process that drives the run, or drove it last; None before the first driver."""
        return driver_of(self._files)

    def restart(self) -> None:
        """Record that the run is resumed, with the present `job`.

        Raises
        ------
        RunError
            ``not-writable``.
        """
        self._files.remove(_SUMMARY)
        self._describe()

    def _describe(self) -> None:
        self._files.replace(JOB, _description(self.job, self._files.token, self._version))

    def discard(self) -> bool:
        """Remove the run if no round of its training has ended; return whether it was removed."""
        if any(event.get("event") == "RoundDone" for event in self.events()):
            return False
        self._files.clear()
        return True

    @property
    def training(self) -> dict[str, Any] | None:
        """Settings that decide the model, as the first driver wrote them; None before a training."""
        if not self._files.holds(_TRAINING):
            return None
        training = self._files.read_json(_TRAINING)
        if not isinstance(training, dict):
            raise RunError(
                f"{self.path} is damaged: {_TRAINING} cannot be read; start the run again with --overwrite",
                kind="corrupt",
            )
        return training

    def write_training(self, training: Mapping[str, Any]) -> None:
        """Write the settings that decide the model, in one step; `RunError` ``not-writable`` or ``disk-full``."""
        self._files.replace(_TRAINING, dict(training))

    @property
    def search(self) -> dict[str, Any] | None:
        """Results of the search before the training; None where there was none, or the file cannot be read."""
        search = self._files.read_json(_SEARCH)
        return search if isinstance(search, dict) else None

    def write_search(self, search: Mapping[str, Any]) -> None:
        """Write the results of a search, numpy arrays allowed, in one step; errors as for `write_training`."""
        self._files.replace(_SEARCH, dict(search))

    @property
    def metric(self) -> dict[str, Any] | None:
        """A learnt metric; None where there was none, or the file cannot be read."""
        metric = self._files.read_json(_METRIC)
        return metric if isinstance(metric, dict) else None

    def write_metric(self, metric: Mapping[str, Any]) -> None:
        """Write a learnt metric as JSON values, in one step; errors as for `write_training`."""
        self._files.replace(_METRIC, dict(metric))

    def place_for_sums(self, parts: int) -> Path | str:
        """Return where to write the sums over the rows of the training and of `parts` appended parts."""
        own = f"-{secrets.token_hex(4)}" if parts and isinstance(self._files, RemoteFiles) else ""
        return self._files.child(f"{_numbered(parts)}{own}")

    def publish_sums(self, parts: int, place: Path | str) -> None:
        """Make what was written at a place of `place_for_sums` the sums of the run, and remove those of fewer parts.

        Raises
        ------
        RunError
            ``superseded``: another process has appended a part of this number; what was written is removed.
        """
        name = os.fspath(place).rpartition("/")[2]
        if isinstance(self._files, RemoteFiles) and parts:
            if self._version < RUN_VERSION:
                self._version = RUN_VERSION
                self._describe()
            pointer, text = f"{_numbered(parts)}.json", dump_json({"part": name}).encode()
            # A repeated request is refused by the object that the first one wrote.
            if not self._files.folder.create(pointer, text) and self._files.read(pointer) != text:
                self._files.remove_part(name)
                raise self.superseded()
        found, pointers = self._listed_sums()
        for number, other in found:
            if number < parts or (number == parts and other != name):
                self._files.remove_part(other)
        for number in pointers:
            if number < parts:
                self._files.remove(f"{_numbered(number)}.json")

    def superseded(self) -> RunError:
        """Return the error of a process that appends rows after another one did."""
        return RunError(
            f"another process has appended rows to the run in {self.path}: load the run again and continue from there",
            kind="superseded",
        )

    def sums(self) -> tuple[int, Path | str] | None:
        """Return the number of appended parts in the newest sums, and their place; None where the run keeps none."""
        listed, pointers = self._listed_sums()
        found = {number: name for number, name in listed if name == _numbered(number)}
        for number in sorted({*pointers, *found}, reverse=True):
            if number in pointers:
                named = self._files.read_json(f"{_numbered(number)}.json")
                name = named.get("part") if isinstance(named, dict) else None
                if not isinstance(name, str) or number != _number_of(name):
                    raise RunError(
                        f"{self.path} is damaged: {_numbered(number)}.json names no sums; train again", kind="corrupt"
                    )
                return number, self._files.child(name)
            # A process that was killed while it wrote under a URL has left no marker.
            if isinstance(self._files, LocalFiles) or self._files.holds(f"{found[number]}/{_SUMS_MARKER}"):
                return number, self._files.child(found[number])
        return None

    def _listed_sums(self) -> tuple[list[tuple[int, str]], set[int]]:
        """Return the numbers and names of all parts with sums, also incomplete ones, and the numbers of named parts."""
        sizes, names = self._files.listing()
        parts = [(number, name) for name in names if (number := _number_of(name)) is not None]
        if isinstance(self._files, LocalFiles):
            return parts, set()
        stems = [name.removesuffix(".json") for name in sizes if name.endswith(".json")]
        return parts, {n for stem in stems if (n := _number_of(stem)) is not None and stem == _numbered(n)}

    def record(self, event: Mapping[str, Any]) -> None:
        """Append one event, numpy scalars allowed, as a line of JSON; errors as for `write_training`.

        Under a URL, the events of a second are written together.
        """
        line = dump_json(redact_values(dict(event)), indent=None) + "\n"
        if self._parts is not None:
            self._parts.append(line)
            return
        assert isinstance(self._files, LocalFiles)
        try:
            with (self._files.place / _EVENTS).open("a+b") as stream:
                # The event begins a line of its own after a torn last line of a killed process.
                if stream.tell() and not _ends_line(stream):
                    line = "\n" + line
                stream.write(line.encode())
        except OSError as cause:
            raise self._files.not_writable(_EVENTS, cause, len(line)) from cause

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the recorded events in order; a torn line is skipped."""
        if self._parts is not None:
            self._parts.flush()
            # A run that was copied from a disk begins with the events of its file.
            yield from _events_of(self._files.read(_EVENTS) if isinstance(self._files, RemoteFiles) else None)
        part = f"events-{self._files.token}"
        reads = [
            partial(self._files.read_range, f"{part}/{name}", 0, min(size, MAX_JSON_BYTES))
            for name, size in sorted(self._files.listing(part)[0].items())
        ]
        for text in in_order(self._files, reads):
            yield from _events_of(text)
        if isinstance(self._files, RemoteFiles):
            return
        try:
            stream = (self._files.place / _EVENTS).open("rb")
        except OSError:
            return
        with stream:
            while line := stream.readline(MAX_JSON_BYTES):
                yield from _events_of(line)

    def tail(self) -> EventTail | PartTail:
        """Return a reader of the events so far and those that are recorded later, each once."""
        return PartTail(self._files) if isinstance(self._files, RemoteFiles) else EventTail(self._files.place / _EVENTS)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write the summary of the ended run, numpy scalars allowed, in one step; errors as for `write_training`."""
        if self._parts is not None:
            self._parts.flush()
        self._files.replace(_SUMMARY, redact_values(dict(summary)))

    @property
    def summary(self) -> dict[str, Any] | None:
        """Summary of the ended run; None while it runs or where it was cut short."""
        summary = self._files.read_json(_SUMMARY)
        return summary if isinstance(summary, dict) else None

    def __repr__(self) -> str:
        return f"<RunDirectory {self.name!r}: {'running or cut short' if self.summary is None else 'done'}>"


def _create_remote(url: str, job: dict[str, Any], overwrite: bool) -> None:
    """Write the description of a run under a URL, by which the run exists, unless another process was first."""
    folder = check_remote(url, overwrite, RunError, "run")
    folder.require_conditional_writes()
    if overwrite:
        folder.clear()
    # Whatever a driver of a replaced run still sends has another name than the parts of this run.
    description = _description(job, secrets.token_hex(8))
    if not folder.create(JOB, dump_json(description).encode()):
        raise RunError(f"another process has made a run at {url}: name another place, or resume it", kind="exists")


def _numbered(parts: int) -> str:
    return f"{_SUMS}{parts:04d}"


def _number_of(name: str) -> int | None:
    """Return the number of parts in the sums of a name; None for other names."""
    found = _SUMS_NAME.fullmatch(name)
    return int(found.group(1)) if found else None


def _description(job: dict[str, Any], token: str | None = None, version: int = 1) -> dict[str, Any]:
    # Credentials in URLs are not recorded.
    found = {"format_version": version, "kind": "run", "job": redact_values(job)}
    return found if token in (None, "0") else {**found, "token": token}


def _events_of(text: bytes | None) -> Iterator[dict[str, Any]]:
    yield from filter(None, map(parsed, (text or b"").splitlines()))


def _ends_line(stream: Any) -> bool:
    stream.seek(-1, os.SEEK_END)
    return bool(stream.read(1) == b"\n")

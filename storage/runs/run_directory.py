"""Run directories: what was asked for, what happened, and how it ended.

``job.json`` says what was asked for and ``training.json`` what decides the model, ``search.json`` what a search before
it found, ``events.jsonl`` grows by a line an event, ``summary.json`` appears at the end;
`distkern.storage.runs.journal` keeps the exchanges. A process that is killed leaves at most one torn line, which
readers skip and the next writer closes.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from distkern.errors import DistkernError, RunError
from distkern.redaction import redact_values

from ..io.formats import appearance, has_kind, require_version
from ..io.json_files import MAX_JSON_BYTES, dump_json, read_json, write_json
from ..io.publish import disk_full, is_disk_full, publish_directory
from ..io.urls import is_url, place_of
from .event_tail import EventTail

__all__ = ["RunDirectory", "is_run", "run_place"]

RUN_VERSION = 1
_JOB, _TRAINING, _EVENTS, _SUMMARY = "job.json", "training.json", "events.jsonl", "summary.json"
_SEARCH = "search.json"


def is_run(path: str | os.PathLike[str]) -> bool:
    """Tell whether a run directory is at a local path."""
    return has_kind(run_place(path), "run")


def run_place(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path of a run directory.

    Raises
    ------
    RunError
        ``not-local``: a URL. The record is appended to and synced after every exchange, and names are claimed so that
        only one driver has them; an object store can do none of these.
    """
    if is_url(path):
        raise RunError(
            f"{os.fspath(path)} is a URL, and the record of a run is kept in a local directory, where it is appended "
            "to, synced and claimed: name one as [output] run (run_dir), on a file system that outlives the machine if "
            "the run shall be resumed elsewhere, and copy it when the run has ended",
            kind="not-local",
        )
    return Path(place_of(path))


class RunDirectory:
    """The directory of one training; made by `create` or `open`.

    Parameters
    ----------
    path : pathlib.Path
        The directory.
    job : dict
        What was asked for.

    Attributes
    ----------
    path : pathlib.Path
        The directory.
    job : dict
        What was asked for.
    """

    def __init__(self, path: Path, job: dict[str, Any]) -> None:
        self.path = path
        self.job = job

    @classmethod
    def create(cls, path: str | os.PathLike[str], job: dict[str, Any], overwrite: bool = False) -> Self:
        """Make a run directory.

        Parameters
        ----------
        path : path-like
            Where it shall be.
        job : dict
            JSON values that say what is asked for; credentials in them are not recorded.
        overwrite : bool
            Whether to replace a run directory at `path`.

        Returns
        -------
        RunDirectory
            The new run, without events.

        Raises
        ------
        RunError
            ``exists``, ``foreign``, ``not-writable`` or ``disk-full``.
        """
        path = run_place(path)
        with publish_directory(path, overwrite, RunError, is_run) as folder:
            write_json(folder / _JOB, _description(job))
            (folder / _EVENTS).touch()
        return cls.open(path)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Open a run directory, to read it or to go on with it.

        Parameters
        ----------
        path : path-like
            The directory.

        Returns
        -------
        RunDirectory
            The run.

        Raises
        ------
        RunError
            ``missing``, ``not-a-run``, ``newer-version`` or ``corrupt``.
        """
        folder = run_place(path)
        if not folder.exists():
            raise RunError(f"there is no run at {path}: check the name", kind="missing")
        if not is_run(folder):
            raise RunError(f"{path} is {appearance(folder)}, not a run directory", kind="not-a-run")
        for name in (_JOB, _EVENTS, _SUMMARY, _SEARCH):
            if (folder / name).is_symlink():
                raise RunError(f"{path} is damaged: {name} is a link to another file", kind="corrupt")
        description = read_json(folder / _JOB)
        if not isinstance(description, dict) or not isinstance(description.get("job"), dict):
            raise RunError(f"{path} is damaged: {_JOB} cannot be read; start the run again", kind="corrupt")
        require_version(path, description, RUN_VERSION, RunError)
        return cls(folder, description["job"])

    def restart(self) -> None:
        """Note that the run goes on, with the job that `job` says now.

        Raises
        ------
        RunError
            ``not-writable``.
        """
        try:
            (self.path / _SUMMARY).unlink(missing_ok=True)
        except OSError as cause:
            raise self._not_writable(_SUMMARY, cause, 0) from cause
        self._replace(_JOB, _description(self.job))

    def discard(self) -> bool:
        """Remove the directory if no round of a training has ended in it; return whether it was removed."""
        if any(event.get("event") == "RoundDone" for event in self.events()):
            return False
        shutil.rmtree(self.path, ignore_errors=True)
        return True

    @property
    def training(self) -> dict[str, Any] | None:
        """What decides the model, as the first driver wrote it; None where no training has begun."""
        if not (self.path / _TRAINING).exists():
            return None
        training = read_json(self.path / _TRAINING)
        if not isinstance(training, dict):
            raise RunError(
                f"{self.path} is damaged: {_TRAINING} cannot be read; start the run again with --overwrite",
                kind="corrupt",
            )
        return training

    def write_training(self, training: Mapping[str, Any]) -> None:
        """Write what decides the model, in one step.

        Parameters
        ----------
        training : mapping
            JSON values.

        Raises
        ------
        RunError
            ``not-writable``.
        """
        self._replace(_TRAINING, dict(training))

    @property
    def search(self) -> dict[str, Any] | None:
        """What a search for settings found before the training; None where there was none, or it cannot be read."""
        search = read_json(self.path / _SEARCH)
        return search if isinstance(search, dict) else None

    def write_search(self, search: Mapping[str, Any]) -> None:
        """Write what a search found, in one step.

        Parameters
        ----------
        search : mapping
            JSON values, numpy arrays allowed.

        Raises
        ------
        RunError
            ``not-writable`` or ``disk-full``.
        """
        self._replace(_SEARCH, dict(search))

    def record(self, event: Mapping[str, Any]) -> None:
        """Append one event as a line of JSON.

        Parameters
        ----------
        event : mapping
            JSON values, numpy scalars allowed.

        Raises
        ------
        RunError
            ``not-writable`` or ``disk-full``.
        """
        line = dump_json(redact_values(dict(event)), indent=None) + "\n"
        try:
            with (self.path / _EVENTS).open("a+b") as stream:
                # A torn last line of a killed process must not swallow this event.
                if stream.tell() and not _ends_line(stream):
                    line = "\n" + line
                stream.write(line.encode())
        except OSError as cause:
            raise self._not_writable(_EVENTS, cause, len(line)) from cause

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the recorded events in order; a torn line is skipped."""
        try:
            stream = (self.path / _EVENTS).open("rb")
        except OSError:
            return
        with stream:
            while line := stream.readline(MAX_JSON_BYTES):
                try:
                    event = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(event, dict):
                    yield event

    def tail(self) -> EventTail:
        """Return what reads the events now and those that are recorded later, each once."""
        return EventTail(self.path / _EVENTS)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write how the run ended, in one step.

        Parameters
        ----------
        summary : mapping
            JSON values, numpy scalars allowed.

        Raises
        ------
        RunError
            ``not-writable`` or ``disk-full``.
        """
        self._replace(_SUMMARY, redact_values(dict(summary)))

    @property
    def summary(self) -> dict[str, Any] | None:
        """How the run ended; None while it runs or where it was cut short."""
        summary = read_json(self.path / _SUMMARY)
        return summary if isinstance(summary, dict) else None

    def _replace(self, name: str, value: Any) -> None:
        try:
            write_json(self.path / name, value)
        except OSError as cause:
            raise self._not_writable(name, cause, len(dump_json(value))) from cause

    def _not_writable(self, name: str, cause: OSError, nbytes: int) -> DistkernError:
        if is_disk_full(cause):
            return disk_full(RunError, self.path / name, self.path, cause, nbytes)
        return RunError(f"cannot write {self.path / name}: {cause.strerror}", kind="not-writable")

    def __repr__(self) -> str:
        return f"<RunDirectory {self.path.name!r}: {'running or cut short' if self.summary is None else 'done'}>"


def _description(job: dict[str, Any]) -> dict[str, Any]:
    # Credentials in URLs stay where they came from.
    return {"format_version": RUN_VERSION, "kind": "run", "job": redact_values(job)}


def _ends_line(stream: Any) -> bool:
    stream.seek(-1, os.SEEK_END)
    return bool(stream.read(1) == b"\n")

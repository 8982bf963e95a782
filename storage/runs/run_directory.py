"""Run directories: the job of a run, its events and its summary.

``job.json`` holds the job, ``training.json`` the settings that decide the model, ``search.json`` the results of a
search before the training, ``metric.json`` a learnt metric. ``events.jsonl`` has a line for each event, and
``summary.json`` appears at the end, beside ``sums-0000``, the sums of the centres over all rows in the form of a model
store; ``sums-0001`` and so on replace it when rows are appended. `distkern.storage.runs.journal` keeps the exchanges. A
process that is killed leaves at most one torn line, which readers skip and the next writer ends.
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
_SEARCH, _METRIC = "search.json", "metric.json"
_SUMS = "sums-"


def is_run(path: str | os.PathLike[str]) -> bool:
    """Return whether a run directory is at a local path."""
    return has_kind(run_place(path), "run")


def run_place(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path of a run directory.

    Raises
    ------
    RunError
        ``not-local``: a URL. A record is appended and synced after every exchange, and one driver claims a file name;
        an object store can do none of these.
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
    """The directory of one training, made by `create` or `open`.

    Attributes
    ----------
    path : pathlib.Path
        The directory.
    job : dict
        JSON values that state what to train.
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
            Path of the directory.
        job : dict
            JSON values that state what to train; credentials in them are not recorded.
        overwrite : bool, default False
            Whether to replace a run directory at `path`.

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
        """Open a run directory, to read it or to resume the run.

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
        for name in (_JOB, _EVENTS, _SUMMARY, _SEARCH, _METRIC):
            if (folder / name).is_symlink():
                raise RunError(f"{path} is damaged: {name} is a link to another file", kind="corrupt")
        description = read_json(folder / _JOB)
        if not isinstance(description, dict) or not isinstance(description.get("job"), dict):
            raise RunError(f"{path} is damaged: {_JOB} cannot be read; start the run again", kind="corrupt")
        require_version(path, description, RUN_VERSION, RunError)
        return cls(folder, description["job"])

    def restart(self) -> None:
        """Record that the run is resumed, with the present `job`.

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
        """Remove the directory if no round of its training has ended; return whether it was removed."""
        if any(event.get("event") == "RoundDone" for event in self.events()):
            return False
        shutil.rmtree(self.path, ignore_errors=True)
        return True

    @property
    def training(self) -> dict[str, Any] | None:
        """Settings that decide the model, as the first driver wrote them; None before a training."""
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
        """Write the settings that decide the model, in one step; `RunError` ``not-writable`` or ``disk-full``."""
        self._replace(_TRAINING, dict(training))

    @property
    def search(self) -> dict[str, Any] | None:
        """Results of the search before the training; None where there was none, or the file cannot be read."""
        search = read_json(self.path / _SEARCH)
        return search if isinstance(search, dict) else None

    def write_search(self, search: Mapping[str, Any]) -> None:
        """Write the results of a search, numpy arrays allowed, in one step; errors as for `write_training`."""
        self._replace(_SEARCH, dict(search))

    @property
    def metric(self) -> dict[str, Any] | None:
        """A learnt metric; None where there was none, or the file cannot be read."""
        metric = read_json(self.path / _METRIC)
        return metric if isinstance(metric, dict) else None

    def write_metric(self, metric: Mapping[str, Any]) -> None:
        """Write a learnt metric as JSON values, in one step; errors as for `write_training`."""
        self._replace(_METRIC, dict(metric))

    def sums_place(self, parts: int) -> Path:
        """Return the place of the sums over the rows of the training and of `parts` appended parts."""
        return self.path / f"{_SUMS}{parts:04d}"

    @property
    def appended(self) -> int | None:
        """Number of parts of rows in the newest sums; None where the run keeps no sums."""
        names = [place.name[len(_SUMS) :] for place in self.path.glob(f"{_SUMS}*")]
        return max((int(name) for name in names if name.isascii() and name.isdigit()), default=None)

    def drop_sums(self, before: int) -> None:
        """Remove the sums of fewer than `before` parts, which newer ones replace."""
        for parts in range(before):
            shutil.rmtree(self.sums_place(parts), ignore_errors=True)

    def record(self, event: Mapping[str, Any]) -> None:
        """Append one event, numpy scalars allowed, as a line of JSON; errors as for `write_training`."""
        line = dump_json(redact_values(dict(event)), indent=None) + "\n"
        try:
            with (self.path / _EVENTS).open("a+b") as stream:
                # The event begins a line of its own after a torn last line of a killed process.
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
        """Return a reader of the events so far and those that are recorded later, each once."""
        return EventTail(self.path / _EVENTS)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write the summary of the ended run, numpy scalars allowed, in one step; errors as for `write_training`."""
        self._replace(_SUMMARY, redact_values(dict(summary)))

    @property
    def summary(self) -> dict[str, Any] | None:
        """Summary of the ended run; None while it runs or where it was cut short."""
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
    # Credentials in URLs are not recorded.
    return {"format_version": RUN_VERSION, "kind": "run", "job": redact_values(job)}


def _ends_line(stream: Any) -> bool:
    stream.seek(-1, os.SEEK_END)
    return bool(stream.read(1) == b"\n")

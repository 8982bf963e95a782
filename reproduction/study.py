"""State that all protocols of one reproduction share: the data folder, the number of runs, and results so far."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import TypeVar

from distkern.errors import DataError

from .sets import Partition, SetFacts, partitions, path_of

DATA_VARIABLE = "DISTKERN_DATA"
"""Environment variable that names the data folder."""

T = TypeVar("T")


def data_folder(given: str | None, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the data sets.

    Parameters
    ----------
    given : str or None
        Value of ``--data``.
    environment : mapping
        Environment variables with `DATA_VARIABLE`, those of the process by default.

    Raises
    ------
    DataError
        Neither names a folder, or the named path is no folder.
    """
    named = given or environment.get(DATA_VARIABLE)
    if not named:
        raise DataError(
            f"no data folder is given: give --data DIR or set {DATA_VARIABLE} to the folder of the .npz files",
            kind="no-data-folder",
        )
    folder = Path(named)
    if not folder.is_dir():
        source = "--data" if given else DATA_VARIABLE
        raise DataError(f"{source} is {named}, which is no folder", kind="missing")
    return folder


class Study:
    """One reproduction.

    Parameters
    ----------
    folder : Path or None
        Folder of the ``.npz`` files; None where no entry needs any.
    runs : int, optional
        Largest number of partitions or repetitions of each protocol; all by default.
    log : callable, optional
        Called with a sentence about each step; no function by default.
    """

    def __init__(self, folder: Path | None, runs: int | None = None, log: Callable[[str], None] | None = None) -> None:
        self._folder = folder
        self._runs = runs
        self._log = log
        self._done: dict[tuple[object, ...], object] = {}

    def log(self, sentence: str) -> None:
        """Log a sentence about the current step."""
        if self._log is not None:
            self._log(sentence)

    def runs(self, published: int) -> int:
        """Return the number of repetitions, of the published number at most."""
        return published if self._runs is None else min(self._runs, published)

    def is_present(self, facts: SetFacts) -> bool:
        """Return whether a set is in the folder."""
        return self._folder is not None and path_of(facts, self._folder).is_file()

    def partitions(self, facts: SetFacts, limit: int | None = None) -> list[Partition]:
        """Return the partitions of a set, at most `limit` if it is given.

        Raises
        ------
        DataError
            The set's file is unusable.
        """
        assert self._folder is not None
        parts = list(islice(partitions(facts, self._folder), limit))
        return parts[: self.runs(len(parts))]

    def once(self, key: tuple[object, ...], work: Callable[[], T]) -> T:
        """Return the result of `work`, which is called once for each key, because tables share columns."""
        if key not in self._done:
            self._done[key] = work()
        result: T = self._done[key]  # type: ignore[assignment]
        return result

"""What all protocols of one reproduction share: the data folder, the number of runs, and models already trained."""

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
        Where `DATA_VARIABLE` is looked for.

    Raises
    ------
    DataError
        Neither names a folder, or it is none.
    """
    named = given or environment.get(DATA_VARIABLE)
    if not named:
        raise DataError(
            f"no data folder is named: give --data DIR or set {DATA_VARIABLE} to the folder of the .npz files",
            kind="no-data-folder",
        )
    folder = Path(named)
    if not folder.is_dir():
        source = "--data" if given else DATA_VARIABLE
        raise DataError(f"{source} names {named}, which is no folder", kind="missing")
    return folder


class Study:
    """One reproduction.

    Parameters
    ----------
    folder : Path or None
        Where the ``.npz`` files lie; None where nothing that is asked for needs any.
    runs : int or None
        At most so many partitions or repetitions of each protocol; None for all.
    tell : callable
        Called with a sentence about what is being done.
    """

    def __init__(self, folder: Path | None, runs: int | None = None, tell: Callable[[str], None] | None = None) -> None:
        self._folder = folder
        self._runs = runs
        self._tell = tell
        self._done: dict[tuple[object, ...], object] = {}

    def tell(self, sentence: str) -> None:
        """Say what is being done."""
        if self._tell is not None:
            self._tell(sentence)

    def runs(self, published: int) -> int:
        """Return how many of the published repetitions are made."""
        return published if self._runs is None else min(self._runs, published)

    def is_present(self, facts: SetFacts) -> bool:
        """Tell whether a set lies in the folder."""
        return self._folder is not None and path_of(facts, self._folder).is_file()

    def partitions(self, facts: SetFacts, limit: int | None = None) -> list[Partition]:
        """Return the partitions of a set that are used, at most `limit`.

        Raises
        ------
        DataError
            The set's file is unusable.
        """
        assert self._folder is not None
        parts = list(islice(partitions(facts, self._folder), limit))
        return parts[: self.runs(len(parts))]

    def once(self, key: tuple[object, ...], work: Callable[[], T]) -> T:
        """Return the result of `work`, which is done once for each key: tables share columns."""
        if key not in self._done:
            self._done[key] = work()
        result: T = self._done[key]  # type: ignore[assignment]
        return result

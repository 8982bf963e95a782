"""The data a job names: dataset stores, or plain arrays that behave alike."""

from __future__ import annotations

import logging
from bisect import bisect_left
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...errors import DataError

if TYPE_CHECKING:
    from distkern.storage import BlockSource, Dataset

    from .job_file import DataSection

logger = logging.getLogger(__name__)


class PlainArrays:
    """Two arrays of a user with the face of a `Dataset`.

    Parameters
    ----------
    x_path, y_path : str
        Paths of zarr arrays.

    Attributes
    ----------
    X, y : zarr.Array
        The arrays.
    task : None
        Plain arrays do not say what they are for.
    """

    task: None = None

    def __init__(self, x_path: str, y_path: str) -> None:
        from distkern.storage import as_source, open_arrays

        self.X, self.y = open_arrays(x_path, y_path)
        self._source = as_source(self.X, self.y)
        self.n_rows, self.n_features = self._source.n_rows, self._source.n_features

    def targets(self, start: int, stop: int) -> NDArray[Any]:
        """Return the targets of some rows as the user gave them."""
        bounds = self._source.boundaries
        block = bisect_left(bounds, start)
        if bounds[block : block + 2] == (start, stop):
            return self._source.read_targets(block)
        return np.asarray(self.y[start:stop])


def open_rows(section: DataSection) -> tuple[Dataset | PlainArrays, Dataset | PlainArrays | None]:
    """Open training and test data and hold their shapes against each other.

    Parameters
    ----------
    section : DataSection
        ``[data]`` of a job.

    Returns
    -------
    train : Dataset or PlainArrays
        Nothing but metadata has been read.
    test : Dataset, PlainArrays or None
        None where the job names no test data.

    Raises
    ------
    DataError
        Something is missing or the numbers of features differ.
    """
    train = _opened(section.train, section.x, section.y)
    test = _opened(section.test, section.test_x, section.test_y)
    assert train is not None
    if test is not None and test.n_features != train.n_features:
        raise DataError(
            f"the test data {section.test or section.test_x} has {test.n_features} features, "
            f"the training data {section.train or section.x} has {train.n_features}",
            kind="feature-count",
        )
    return train, test


def _opened(store: str | None, x: str | None, y: str | None) -> Dataset | PlainArrays | None:
    if store is not None:
        from distkern.storage import open_dataset

        return open_dataset(store)
    return None if x is None or y is None else PlainArrays(x, y)


def source_of(rows: Dataset | PlainArrays) -> BlockSource:
    """Return the blocks of the rows; nothing is read."""
    from distkern.storage import as_source

    return as_source(rows.X, rows.y) if isinstance(rows, PlainArrays) else as_source(rows)


def task_of(section: DataSection, rows: Dataset | PlainArrays) -> str:
    """Return what to train for: as the job says, as the store says, or as the type of y tells."""
    named = section.task or rows.task
    if named is not None:
        return named
    task = "regression" if rows.y.dtype.kind == "f" else "classification"
    logger.info("y holds %s and the job names no task in [data]: training for %s", rows.y.dtype, task)
    return task

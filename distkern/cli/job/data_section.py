"""The data that a job names: dataset stores or plain arrays, with the task."""

from __future__ import annotations

import logging
from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from ...errors import DataError

if TYPE_CHECKING:
    from distkern.storage import BlockSource, Dataset

    from .job_file import DataSection

logger = logging.getLogger(__name__)


class PlainArrays:
    """Two arrays of a user with the attributes of a `Dataset`.

    Parameters
    ----------
    x_path, y_path : str
        Paths of zarr arrays.

    Attributes
    ----------
    X, y : zarr.Array
        The arrays.
    task : None
        Plain arrays have no task.
    """

    task: None = None

    def __init__(self, x_path: str, y_path: str) -> None:
        from distkern.storage import as_source, open_arrays

        self.X, self.y = open_arrays(x_path, y_path)
        self._source = as_source(self.X, self.y)
        self.n_rows, self.n_features = self._source.n_rows, self._source.n_features

    def targets(self, start: int, stop: int) -> NDArray[Any]:
        """Return the targets of some rows as the user gave them."""
        from distkern.storage.arrays.chunks import read_slab

        bounds = self._source.boundaries
        block = bisect_left(bounds, start)
        if bounds[block : block + 2] == (start, stop):
            return self._source.read_targets(block)
        return read_slab(self.y, start, stop, "y")


def open_rows(section: DataSection) -> tuple[Dataset | PlainArrays, Dataset | PlainArrays | None]:
    """Open training and test data, and check that they have the same number of features.

    Parameters
    ----------
    section : DataSection
        ``[data]`` of a job.

    Returns
    -------
    train : Dataset or PlainArrays
        Training data; only metadata are read.
    test : Dataset, PlainArrays or None
        Test data; None where the job names none.

    Raises
    ------
    DataError
        Data are missing, or the numbers of features differ.
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
    """Return the blocks of the rows, without reading any."""
    from distkern.storage import as_source

    return as_source(rows.X, rows.y) if isinstance(rows, PlainArrays) else as_source(rows)


def task_of(section: DataSection, rows: Dataset | PlainArrays) -> str:
    """Return the task: that of the job, else that of the store, else by the type of y."""
    named = section.task or rows.task
    if named is not None:
        return named
    from distkern.storage.arrays.conventions import value_dtype

    dtype = value_dtype(rows.y, "y")
    task = "regression" if dtype.kind == "f" else "classification"
    logger.info("y holds %s and the job names no task in [data]: training for %s", dtype, task)
    return task

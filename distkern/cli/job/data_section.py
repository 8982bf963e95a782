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
    weight_path : str, optional
        Path of a zarr array of row weights.

    Attributes
    ----------
    X, y : zarr.Array
        The arrays.
    weights : zarr.Array or None
        The row weights; None where every weight is one.
    task : None
        Plain arrays have no task.
    """

    task: None = None

    def __init__(self, x_path: str, y_path: str, weight_path: str | None = None) -> None:
        from distkern.storage import as_source, open_array, open_arrays

        self.X, self.y = open_arrays(x_path, y_path)
        self.weights = None if weight_path is None else open_array(weight_path)
        self._source = as_source(self.X, self.y, self.weights)
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
    """Open training and test data, and check that they have the same columns.

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
        Data are missing, or the columns differ.
    """
    from ...estimators.base.encoded_rows import require_schema

    train = _opened(section.train, section.x, section.y, section.weight)
    test = open_test_rows(section)
    assert train is not None
    if test is not None:
        place, whose = section.test or section.test_x, section.train or section.x
        what = f"the test data {place}"
        # Before the names, which another schema may change.
        require_schema(test, getattr(train, "table_schema", None), what, str(whose))
        require_columns(test, what, train.n_features, feature_names(train), f"the training data {whose}")
    return train, test


def open_test_rows(section: DataSection) -> Dataset | PlainArrays | None:
    """Open the test data alone; None where the job names none."""
    return _opened(section.test, section.test_x, section.test_y)


def feature_names(rows: Dataset | PlainArrays) -> list[str] | None:
    """Return the names of the columns; None for plain arrays and stores without names."""
    names = getattr(rows, "feature_names", None)
    return None if names is None else list(names)


def require_columns(
    rows: Dataset | PlainArrays, what: str, n_features: int, names: list[str] | None, whose: str
) -> None:
    """Refuse rows whose columns are not those of a training; log that they have another order, which is allowed.

    Parameters
    ----------
    rows : Dataset or PlainArrays
        Rows to predict.
    what, whose : str
        The rows and the training, for messages.
    n_features, names : int, list of str or None
        Columns of the training.

    Raises
    ------
    DataError
        ``feature-names`` or ``feature-count``.
    """
    from distkern.storage import require_names

    own = feature_names(rows)
    require_names(own, names, what, whose, any_order=True)
    if rows.n_features != n_features:
        raise DataError(f"{what} has {rows.n_features} features, {whose} has {n_features}", kind="feature-count")
    if own is not None and names is not None and own != names:
        logger.info("%s has the columns of %s in another order: they are matched by name", what, whose)


def require_columns_of(model: Any, rows: Dataset | PlainArrays, what: str, place: str) -> None:
    """Refuse rows whose columns are not those of a model, which is at `place`; see `require_columns`."""
    from ...estimators.base.encoded_rows import require_schema

    names = getattr(model, "feature_names_in_", None)
    known = None if names is None else [str(name) for name in names]
    require_schema(rows, getattr(model, "table_schema_", None), what, place)
    require_columns(rows, what, model.n_features_in_, known, f"the model {place}")


def _opened(store: str | None, x: str | None, y: str | None, weight: str | None = None) -> Dataset | PlainArrays | None:
    if store is not None:
        from distkern.storage import open_array, open_dataset

        data = open_dataset(store).require_targets()
        return data if weight is None else data.with_weights(open_array(weight))
    return None if x is None or y is None else PlainArrays(x, y, weight)


def source_of(rows: Dataset | PlainArrays) -> BlockSource:
    """Return the blocks of the rows, without reading any."""
    from distkern.storage import as_source

    return as_source(rows.X, rows.y, rows.weights) if isinstance(rows, PlainArrays) else as_source(rows)


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

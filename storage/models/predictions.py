"""Prediction stores: written block by block, as by ``distkern predict``, and read back."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import zarr
from numpy.typing import NDArray

from distkern.errors import DataError, DistkernError

from ..arrays.absent import stored_bytes
from ..arrays.blocks import chunk_rows_for
from ..arrays.chunks import ChunkAppender, create_array, read_slab, require_room
from ..arrays.labels import CODE_DTYPE
from ..io.destinations import publish_place
from ..io.formats import ATTRIBUTE, appearance, has_kind, identify, require_version, store_attributes
from ..io.guarded_reads import RegularFiles
from ..io.remote_folders import RemoteFolder
from ..io.staged_writer import StagedWriter
from ..io.trust import labels_of, trusted
from ..io.urls import is_url, open_store, place_of

__all__ = ["PredictionSink", "PredictionWriter", "Predictions", "read_predictions"]

PREDICTIONS_VERSION = 1


class PredictionSink(StagedWriter):
    """Context manager that writes predictions in row order; the place appears when it is complete, or not at all.

    Parameters
    ----------
    path : path-like
        Place of the predictions.
    n_rows : int
        Number of rows.
    n_targets : int, optional
        Columns of a regression with several targets; a one-dimensional prediction by default.
    class_labels : numpy.ndarray, optional
        Sorted labels of a classification.
    probability : bool, default False
        Whether class probabilities are written too, one column for each class.
    interval : float, optional
        Coverage of intervals that are written too; none by default.
    dtype : dtype-like, default float64
        dtype of the numbers.
    overwrite : bool, default False
        Whether to replace predictions at `path`.

    Raises
    ------
    DataError
        ``exists`` or ``foreign`` for the path; ``shape-mismatch`` where the rows do not fit; ``disk-full``.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        n_rows: int,
        *,
        n_targets: int | None = None,
        class_labels: NDArray[Any] | None = None,
        probability: bool = False,
        interval: float | None = None,
        dtype: npt.DTypeLike = np.float64,
        overwrite: bool = False,
    ) -> None:
        if probability and class_labels is None:
            raise ValueError("probabilities need class_labels")
        super().__init__()
        self._path, self._overwrite = path, overwrite
        self._n_rows = n_rows
        self._labels = class_labels
        self._shared = class_labels if probability else None
        """Labels whose probabilities are written."""
        self._coverage = interval
        self._dtype = np.dtype(dtype)
        self._tail = () if n_targets is None else (n_targets,)
        self._rows = 0

    def append(self, prediction: Any, probability: Any = None, interval: Any = None) -> None:
        """Add the predictions of the next rows.

        Parameters
        ----------
        prediction : array-like, shape (n,) or (n, n_targets)
            Numbers, or class labels.
        probability : array-like, shape (n, n_classes), optional
            Class probabilities; required where they are written, and refused elsewhere.
        interval : array-like, shape (n, 2) or (n, n_targets, 2), optional
            Lower and upper ends; required where they are written, and refused elsewhere.

        Raises
        ------
        DataError
            ``shape-mismatch``, or ``unknown-label`` for a label that is not a class.
        """
        values = np.asarray(prediction)
        if values.shape[1:] != self._tail:
            raise DataError(
                f"the prediction has shape {values.shape}, the store keeps (n_rows, *{self._tail})",
                kind="shape-mismatch",
            )
        if (probability is not None) != (self._shared is not None):
            raise ValueError("probability must be given exactly where the store was made with it")
        shares = None if probability is None else np.asarray(probability)
        if shares is not None and self._shared is not None and shares.shape != (len(values), len(self._shared)):
            raise DataError(
                f"the probability has shape {shares.shape}, not {(len(values), len(self._shared))}",
                kind="shape-mismatch",
            )
        if (interval is not None) != (self._coverage is not None):
            raise ValueError("interval must be given exactly where the store was made with it")
        ends = None if interval is None else np.asarray(interval)
        if ends is not None and self._tail == (1,):
            ends = ends.reshape(len(ends), 1, 2)
        if ends is not None and ends.shape != (*values.shape, 2):
            raise DataError(f"the interval has shape {ends.shape}, not {(*values.shape, 2)}", kind="shape-mismatch")
        self._add(values, shares, ends)
        self._rows += len(values)

    def _finish(self) -> None:
        if self._rows != self._n_rows:
            raise DataError(f"{self._rows} rows were predicted, not {self._n_rows}", kind="shape-mismatch")
        self._complete()

    @abstractmethod
    def _add(self, values: NDArray[Any], shares: NDArray[Any] | None, ends: NDArray[Any] | None) -> None:
        """Write predictions of some rows, with probabilities, or lower and upper ends of intervals."""

    @abstractmethod
    def _complete(self) -> None:
        """Write what is left."""


class PredictionWriter(PredictionSink):
    """Writer of a store of predictions at a local path or URL; see `PredictionSink`.

    The store is a zarr group with an array ``prediction`` and, on request, ``probability`` or ``interval``, whose last
    axis has lower and upper ends. Class labels are stored as codes into the attribute ``class_labels``.
    """

    def __enter__(self) -> Self:
        place = self._stack.enter_context(
            publish_place(self._path, self._overwrite, DataError, "predictions", self._needed_bytes)
        )
        where = place.store if isinstance(place, RemoteFolder) else place
        self._group = zarr.open_group(where, mode="w", zarr_format=3)
        self._prediction = self._appender("prediction", self._tail, self._stored)
        self._probability: ChunkAppender | None = None
        if self._shared is not None:
            self._probability = self._appender("probability", (len(self._shared),), self._dtype)
        self._interval = None if self._coverage is None else self._appender("interval", (*self._tail, 2), self._dtype)
        self._describe(False)
        return self

    @property
    def _stored(self) -> np.dtype[Any]:
        return self._dtype if self._labels is None else CODE_DTYPE

    def _add(self, values: NDArray[Any], shares: NDArray[Any] | None, ends: NDArray[Any] | None) -> None:
        self._prediction.append(values if self._labels is None else _codes(values, self._labels))
        if self._probability is not None and shares is not None:
            self._probability.append(shares)
        if self._interval is not None and ends is not None:
            self._interval.append(ends)

    def _complete(self) -> None:
        self._prediction.finish()
        if self._probability is not None:
            self._probability.finish()
        if self._interval is not None:
            self._interval.finish()
        self._describe(True)

    def _needed_bytes(self) -> int:
        row_bytes = int(np.prod(self._tail, dtype=int)) * self._stored.itemsize
        row_bytes += 0 if self._shared is None else len(self._shared) * self._dtype.itemsize
        row_bytes *= 1 if self._coverage is None else 3
        return self._n_rows * row_bytes

    def _appender(self, name: str, tail: tuple[int, ...], dtype: np.dtype[Any]) -> ChunkAppender:
        row_bytes = dtype.itemsize * int(np.prod(tail, dtype=np.int64))
        chunk_rows = max(1, min(chunk_rows_for(row_bytes, self._n_rows), self._n_rows))
        return ChunkAppender(create_array(self._group, name, (self._n_rows, *tail), chunk_rows, dtype))

    def _describe(self, complete: bool) -> None:
        self._group.attrs[ATTRIBUTE] = {
            "kind": "predictions",
            "format_version": PREDICTIONS_VERSION,
            "complete": complete,
            "n_rows": self._n_rows,
            "class_labels": None if self._labels is None else self._labels.tolist(),
            "interval_coverage": self._coverage,
            "class_labels_dtype": None if self._labels is None else self._labels.dtype.str,
        }


@dataclass(frozen=True, eq=False)
class Predictions:
    """A prediction store read into memory."""

    prediction: NDArray[Any]
    """Numbers or class labels, shape (n_rows,) or (n_rows, n_targets)."""
    probability: NDArray[Any] | None
    """Class probabilities, shape (n_rows, n_classes), None where the store has none."""
    class_labels: NDArray[Any] | None
    """Labels of the columns of `probability`, None for a regression."""
    interval: NDArray[Any] | None = None
    """Lower and upper ends, shape (n_rows, 2) or (n_rows, n_targets, 2); default None, where the store has none."""


def read_predictions(path: str | os.PathLike[str]) -> Predictions:
    """Read a prediction store.

    Raises
    ------
    DataError
        ``missing``, ``not-predictions``, ``incomplete``, ``newer-version`` or ``unreadable``.
    """
    if identify(path) == "missing":
        raise DataError(f"there are no predictions at {path}: check the name", kind="missing")
    facts = store_attributes(path) if has_kind(path, "predictions") else None
    if facts is None:
        raise DataError(f"{path} is {appearance(path)}, not a prediction store", kind="not-predictions")
    require_version(path, facts, PREDICTIONS_VERSION, DataError)
    if facts.get("complete") is not True:
        raise DataError(
            f"{path} was not written to its end: run distkern predict again with --overwrite",
            kind="incomplete",
        )
    try:
        return _read(path, facts)
    except DistkernError:
        raise
    except Exception as cause:  # a damaged description may lead to any error
        raise DataError(
            f"{path} is a damaged prediction store ({cause!r}): run distkern predict again", kind="unreadable"
        ) from cause


def _read(path: str | os.PathLike[str], facts: Mapping[str, Any]) -> Predictions:
    place = place_of(path)
    group = zarr.open_group(
        open_store(place) if is_url(place) else RegularFiles(place, own=True), mode="r", use_consolidated=False
    )
    labels = facts["class_labels"]
    classes = None if labels is None else labels_of(labels, facts["class_labels_dtype"])
    prediction = _read_array(group, "prediction", facts["n_rows"])
    if prediction is None:
        raise ValueError("it lacks the array prediction")
    if classes is None:
        ends = _read_array(group, "interval", facts["n_rows"])
        if ends is not None and ends.shape != (*prediction.shape, 2):
            raise ValueError("its intervals have other targets than its predictions")
        return Predictions(prediction, None, None, ends)
    if prediction.size and not (prediction.min() >= 0 and prediction.max() < len(classes)):
        raise ValueError("it holds codes without a class")
    probability = _read_array(group, "probability", facts["n_rows"])
    if probability is not None and probability.shape != (len(prediction), len(classes)):
        raise ValueError("its probabilities have other classes than its predictions")
    return Predictions(classes[prediction], probability, classes)


def _read_array(group: zarr.Group, name: str, n_rows: int) -> NDArray[Any] | None:
    array = group.get(name)
    if not isinstance(array, zarr.Array):
        return None
    array = trusted(array, name)
    if array.shape[0] != n_rows or array.chunks[1:] != array.shape[1:] or array.dtype.kind not in "iuf":
        raise ValueError(f"the array {name} is not what was written")
    place = str(array.store_path)
    for chunk in range(array.cdata_shape[0]):
        require_room(stored_bytes(array, (chunk, *(0,) * (array.ndim - 1)), name), array, chunk, name, place)
    return read_slab(array, 0, n_rows, name)


def _codes(values: NDArray[Any], labels: NDArray[Any]) -> NDArray[Any]:
    codes = np.minimum(np.searchsorted(labels, values), len(labels) - 1)
    unknown = labels[codes] != values
    if unknown.any():
        raise DataError(
            f"the prediction {values[unknown][:1].tolist()[0]!r} is none of the {len(labels)} class labels",
            kind="unknown-label",
        )
    return codes

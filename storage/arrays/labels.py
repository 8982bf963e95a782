"""Targets as they are stored: numbers as given, or integer codes into sorted class labels.

Labels get codes in order of appearance, and the codes are put in the order of the labels at the end: a stream is read
once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.errors import DataError, JobError

from .checks import require_finite, to_numeric
from .plain import is_missing, plain_array

__all__ = ["CODE_DTYPE", "MAX_CLASSES", "MAX_INTEGER_CLASSES", "TargetRecorder", "as_targets", "plain_labels"]

CODE_DTYPE = np.dtype(np.int32)

MAX_INTEGER_CLASSES = 100
"""Integer targets with more distinct values than this are a regression, unless the task is given."""

MAX_CLASSES = 65_536
"""Most classes of a data set; a column with more labels is refused as an identifier."""

_WORDS = {"U": "text", "b": "bool", "i": "integers", "f": "floats", "O": "large integers"}

TASKS = ("classification", "regression")


def as_targets(y: Any, first_row: int = 0) -> NDArray[Any]:
    """Return targets of any container as an array of any dtype, see `plain_array`; `first_row` has the default 0."""
    return plain_array(y, "y", first_row)


def plain_labels(y: Any, first_row: int = 0) -> NDArray[Any]:
    """Return targets as an array of text, bool or numbers.

    Parameters
    ----------
    y : array-like
        Targets of any dtype; objects must be all text, all bool or all numbers, bytes are read as UTF-8.
    first_row : int, default 0
        Row number of ``y[0]``, for messages.

    Returns
    -------
    numpy.ndarray
        Array of dtype kind U, b, i, u or f.

    Raises
    ------
    DataError
        ``missing-label``, ``mixed-labels``, ``bad-label`` or ``not-numeric``.
    """
    array = as_targets(y, first_row)
    if array.dtype.kind == "S":
        try:
            return np.char.decode(array, "utf-8")
        except UnicodeDecodeError as cause:
            raise DataError(
                f"y holds bytes that are not UTF-8 text: {cause}; decode them first", kind="bad-label"
            ) from cause
    if array.dtype.kind in "Ubiuf":
        return _native(array)
    if array.dtype.kind == "T":
        array = array.astype(object)
    if array.dtype.kind != "O":
        return to_numeric(array, "y", first_row)
    values = array.ravel().tolist()
    width = max(1, array.size // max(1, len(array))) if array.ndim else 1
    for row, value in enumerate(values):
        if is_missing(value):
            raise DataError(
                f"y has no label ({value}) in row {first_row + row // width} (counted from 0): leave the row out",
                kind="missing-label",
            )
    for types in (str, (bool, np.bool_), (int, np.integer), (int, float, np.integer, np.floating)):
        if all(isinstance(value, types) for value in values):
            return _native(np.array(values).reshape(array.shape))
    found = sorted({type(value).__name__ for value in values})
    raise DataError(f"y mixes labels of the types {', '.join(found)}: use one type for all labels", kind="mixed-labels")


def _native(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind not in "Ubiu":
        return to_numeric(array, "y")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


class TargetRecorder:
    """Converts pieces of the target into stored values, and decides the task.

    Text, bool and object targets are classes; other targets are classes where `task` is "classification". Integers are
    classes also where `task` is None and they have at most `MAX_INTEGER_CLASSES` distinct values.

    Parameters
    ----------
    task : {"classification", "regression"} or None
        Task that the target is for.
    """

    def __init__(self, task: str | None) -> None:
        if task is not None and task not in TASKS:
            raise JobError(
                f"task is {task!r}: it must be 'classification', 'regression' or left out",
                kind="invalid-task",
            )
        self._task = task
        self._group: str | None = None
        self._dtype: np.dtype[Any] | None = None
        self._coded = False
        self._codes: dict[Any, int] = {}
        self._counted: set[int] | None = None

    def record(self, y: Any, first_row: int) -> NDArray[Any]:
        """Return a piece of the target as codes or numbers, which are kept until `finish`.

        Parameters
        ----------
        y : array-like, shape (n,) or (n, T)
            The next targets.
        first_row : int
            Row number of ``y[0]``, from 0.

        Returns
        -------
        numpy.ndarray
            Codes by first appearance, or numbers.

        Raises
        ------
        DataError
            The labels cannot be used, are too many, or differ in type from earlier ones.
        """
        labels = plain_labels(y, first_row)
        if labels.ndim not in (1, 2):
            raise DataError(
                f"y has {labels.ndim} dimensions: it must have shape (n_rows,) or (n_rows, n_targets)",
                kind="shape-mismatch",
            )
        is_object = isinstance(y, np.ndarray) and y.dtype.kind == "O"
        self._settle(labels, is_object)
        require_finite(labels, "y", first_row)
        assert self._dtype is not None
        if self._dtype.kind != "U":
            self._dtype = np.result_type(self._dtype, labels.dtype)
        if self._coded:
            return self._encode(labels)
        if self._counted is not None:
            self._counted.update(np.unique(labels).tolist())
            if len(self._counted) > MAX_INTEGER_CLASSES:
                self._counted = None
        return labels

    def _settle(self, labels: NDArray[Any], is_object: bool) -> None:
        group = labels.dtype.kind.replace("u", "i")
        if self._group is None:
            self._group, self._dtype = group, labels.dtype
            textual = group in "Ub" or is_object
            if textual and self._task == "regression":
                raise DataError(
                    "y holds labels, not numbers, and task is 'regression': use task 'classification' or "
                    "another target",
                    kind="not-numeric",
                )
            self._coded = textual or self._task == "classification"
            self._counted = set() if group == "i" and self._task is None and labels.ndim == 1 else None
        if group != self._group:
            raise DataError(
                f"y begins as {_WORDS[self._group]} and continues as {_WORDS[group]}: use one type for all labels",
                kind="mixed-labels",
            )
        if self._coded and labels.ndim != 1:
            raise DataError(
                f"y has shape {labels.shape} and is a classification: give one label for each row",
                kind="shape-mismatch",
            )

    def _encode(self, labels: NDArray[Any]) -> NDArray[Any]:
        distinct, inverse = np.unique(labels, return_inverse=True)
        codes = [self._codes.setdefault(label, len(self._codes)) for label in distinct.tolist()]
        if len(self._codes) > MAX_CLASSES:
            raise DataError(
                f"y has more than {MAX_CLASSES} different labels: choose another target, or task "
                f"'regression' for numbers",
                kind="too-many-classes",
            )
        return np.asarray(codes, dtype=CODE_DTYPE)[inverse]

    def finish(self) -> tuple[str, NDArray[Any] | None, NDArray[Any] | None]:
        """Return the task, the sorted labels, and the recorded value of each label.

        Returns
        -------
        task : str
            ``classification`` or ``regression``.
        labels : numpy.ndarray or None
            Sorted distinct labels in their own dtype; None for a regression.
        recorded : numpy.ndarray or None
            The value that `record` returned for each entry of `labels`.

        Raises
        ------
        DataError
            ``single-class``.
        """
        if not self._coded and self._counted is None:
            return "regression", None, None
        values = list(self._codes) if self._coded else list(self._counted or ())
        dtype = None if self._dtype is None or self._dtype.kind == "U" else self._dtype
        labels = np.array(values, dtype=dtype)
        order = np.argsort(labels, kind="stable")
        labels = labels[order]
        if len(labels) == 1:
            raise DataError(
                f"y has only one class, {labels.tolist()[0]!r}: a classification needs at least two",
                kind="single-class",
            )
        return "classification", labels, order.astype(CODE_DTYPE) if self._coded else labels

"""Predictions of a saved model, written block by block."""

from __future__ import annotations

import glob
import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from ...errors import DataError, JobError
from ...estimators.scoring import ModelScore, is_classifier, score_blocks, score_model, scored_coverage

if TYPE_CHECKING:
    from distkern.storage import RowFiles


def open_rows(model: Any, place: str, places: Sequence[str], reading: Mapping[str, Any]) -> Any:
    """Open the rows to predict.

    Parameters
    ----------
    model : fitted estimator
        Its columns are taken from files by name, where both have names.
    place : str
        Place of the model, for messages.
    places : sequence of str
        A dataset store, a plain zarr array, or files, folders of files and patterns.
    reading : mapping
        Options of `RowFiles`; they have no meaning for stores. Rows with targets are read where `no_target` is False.

    Returns
    -------
    Dataset, zarr.Array or RowFiles

    Raises
    ------
    DataError
        The rows cannot be read, or have another number of features than the model.
    JobError
        ``unused-option``.
    """
    from distkern.storage import RowFiles, open_array, open_dataset, store_kind

    from ..job.data_section import require_columns_of

    kind = store_kind(places[0])
    with_targets = reading.get("no_target") is False
    rows: Any
    if len(places) > 1 or kind in ("file", "directory") or (kind == "missing" and glob.has_magic(places[0])):
        names = getattr(model, "feature_names_in_", None)
        schema = getattr(model, "table_schema_", None)
        known = None if names is None else list(map(str, names))
        rows = RowFiles(places, model.n_features_in_, known, schema=schema, **reading)
        count, what = rows.n_features, rows.place
    else:
        what = places[0]
        given = [name for name, value in reading.items() if name != "no_target" and value not in ((), None)]
        if given:
            option = given[0].replace("_", "-")
            raise JobError(
                f"--{option} says how files are read, and {what} is none: leave it out", kind="unused-option"
            )
        if kind != "zarr-array" or with_targets:
            rows = open_dataset(what)
            require_columns_of(model, rows, what, place)
            return rows
        rows = open_array(what)
        # The estimator refuses an array of another dimension.
        count = rows.shape[1] if rows.ndim == 2 else model.n_features_in_
    if count != model.n_features_in_:
        raise DataError(
            f"{what} has {count} features, the model {place} has {model.n_features_in_}", kind="feature-count"
        )
    return rows


def write_predictions(
    model: Any, rows: Any, out: str, *, proba: bool, overwrite: bool, interval: float | None = None
) -> int:
    """Write the predictions for all rows, and return the number of rows.

    With `proba` there are class probabilities too, with `interval` (default None) the ends of intervals of that
    coverage.

    `out` becomes a CSV or Parquet file by its ending, else a prediction store.
    """
    from distkern.storage import RowFiles, open_predictions

    classes = model.classes_ if is_classifier(model) else None
    if proba and classes is None:
        raise JobError("--proba needs a classifier, this model is a regression", kind="no-probabilities")
    if interval is not None and classes is not None:
        raise JobError("--interval needs a regression, this model is a classifier: use --proba", kind="no-intervals")
    n_rows = int(rows.shape[0] if hasattr(rows, "shape") else rows.n_rows)
    predicted: Generator[tuple[Any, Any, Any]] = (
        _of_files(model, rows, proba, interval)
        if isinstance(rows, RowFiles)
        else model.iter_predictions(rows, proba=proba, interval=interval)
    )
    # The blocks are closed before the client of the caller: an interrupted prediction cancels its tasks.
    with closing(predicted) as blocks:
        first = next(blocks)
        values = first[1]
        with open_predictions(
            out,
            n_rows,
            n_targets=values.shape[1] if values.ndim == 2 else None,
            class_labels=classes,
            probability=proba,
            interval=interval,
            dtype=values.dtype if classes is None else "float64",
            overwrite=overwrite,
        ) as writer:
            for _, labels, beside in chain([first], blocks):
                writer.append(labels, beside if proba else None, None if interval is None else beside)
    return n_rows


def score(model: Any, rows: Any) -> ModelScore:
    """Compare the predictions for all rows with their targets."""
    from distkern.storage import RowFiles

    if not isinstance(rows, RowFiles):
        return score_model(model, rows)
    return score_blocks(model, _of_files(model, rows, is_classifier(model), scored_coverage(model)))


def _of_files(
    model: Any, rows: RowFiles, proba: bool, interval: float | None
) -> Generator[tuple[Any, NDArray[Any], NDArray[Any] | None]]:
    """Predict rows of files piece by piece, in this process.

    Yield targets or None, predictions, and probabilities, intervals or None.
    """
    for piece, targets in rows.pieces():
        with warnings.catch_warnings():
            # The columns were taken by name, or have none.
            warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
            parts = list(model.iter_predictions(piece, proba=proba, interval=interval))
        for start, *made in parts:
            yield None if targets is None else targets[start : start + len(made[0])], made[0], made[1]

"""Predictions of a saved model, written block by block."""

from __future__ import annotations

from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING, Any

from ...errors import JobError
from ...estimators.scoring import is_classifier

if TYPE_CHECKING:
    from distkern.storage import Dataset


def write_predictions(model: Any, data: Dataset, out: str, *, proba: bool, overwrite: bool) -> None:
    """Write the predictions for all rows of a dataset to a store, with class probabilities if `proba` is set."""
    from distkern.storage import PredictionWriter

    classes = model.classes_ if is_classifier(model) else None
    if proba and classes is None:
        raise JobError("--proba needs a classifier, this model is a regression", kind="no-probabilities")
    # The blocks are closed before the client of the caller: an interrupted prediction cancels its tasks.
    with closing(model.iter_predictions(data, proba=proba)) as blocks:
        first = next(blocks)
        values = first[1]
        with PredictionWriter(
            out,
            data.n_rows,
            n_targets=values.shape[1] if values.ndim == 2 else None,
            class_labels=classes,
            probability=proba,
            dtype=values.dtype if classes is None else "float64",
            overwrite=overwrite,
        ) as writer:
            for _, predicted, probabilities in chain([first], blocks):
                writer.append(predicted, probabilities if proba else None)

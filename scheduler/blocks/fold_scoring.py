"""Errors of a cross-validation on one block: each model predicts the rows of the fold that it was not trained on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.models.kernel_model import KernelModel
from distkern.probability.decisions import decide

from ..protocol.answers import Answer, ProblemAnswer
from ..protocol.messages import Begin, FoldModel, Score
from ..protocol.problems import folds_of
from ..rows.label_encoding import LabelEncoding
from ..rows.problem_rows import SelectedFeatures, cut_tiles
from ..runtime.threads import workspace
from .block import Block


def score(block: Block, message: Score) -> Answer:
    """Compute the error of every model on the rows of its fold in one block.

    Parameters
    ----------
    block : Block
        A block that was loaded with folds and holds features; its state does not change.
    message : Score
        The models.

    Returns
    -------
    Answer
        A `ProblemAnswer` for each model: ``error``, the weight of the wrong labels or the weighted squared error, and
        ``weight``, the weight of the rows.
    """
    begin = block.begin
    assert begin is not None
    data, targets = block.kept_rows()
    encoding = LabelEncoding.of(block.source, begin.classes)
    codes = encoding.codes(targets)
    expected = encoding.columns(targets) if codes is None else codes
    answer = Answer()
    for model in message.models:
        chosen = np.flatnonzero(folds_of(model.fold.folds, data.rows) == model.fold.fold)
        error, weight = 0.0, 0.0
        prepared = _model(model, begin).prepare()
        assert data.features is not None
        features = SelectedFeatures(data.features, chosen)
        for tile in cut_tiles(len(chosen), 0):
            rows = chosen[tile.rows]
            outputs = prepared.evaluate(features.borrow(tile.rows), scratch=workspace.array)
            weights = np.ones(len(rows)) if data.weights is None else data.weights[rows]
            error += float(weights @ _losses(outputs, expected[rows], begin, model.multiclass))
            weight += float(weights.sum())
        answer.problems.append(ProblemAnswer({"error": np.array([error]), "weight": np.array([weight])}))
    return answer


def _model(model: FoldModel, begin: Begin) -> KernelModel:
    return KernelModel(model.kernel, begin.scaling, model.features, model.coef, model.intercept, begin.dtype)


def _losses(outputs: NDArray[np.float64], expected: NDArray[Any], begin: Begin, multiclass: str) -> NDArray[np.float64]:
    """Return the loss of each row: 0 or 1 for labels, else the squared error summed over targets, in their units."""
    if begin.classes is None:
        units = begin.problems[0].target_units
        errors = outputs - expected if units is None else (outputs - expected) / np.array(units)
        losses: NDArray[np.float64] = np.square(errors).sum(axis=1)
        return losses
    return np.asarray(decide(outputs, len(begin.classes), multiclass) != expected, dtype=np.float64)

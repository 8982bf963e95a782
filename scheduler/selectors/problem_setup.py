"""Set-up of the problems of a training, from the settings of a job and the statistics of its rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array
from distkern.errors import DataError
from distkern.kernels import Kernel
from distkern.numerics.target_scales import target_units
from distkern.probability.pairwise import class_pairs

from ..protocol.answers import LoadAnswer
from ..protocol.problems import ClassPair, OtherFolds, Problem
from ..protocol.selection_settings import SelectionSettings
from ..rows.label_encoding import LabelEncoding


@dataclass(frozen=True)
class Posed:
    """A problem, and how its centres are selected."""

    problem: Problem
    settings: SelectionSettings
    outputs: tuple[int, ...]
    """Outputs of the model that the problem determines."""


def pose(
    multiclass: str,
    settings: SelectionSettings,
    loaded: LoadAnswer,
    encoding: LabelEncoding,
    kernel: Kernel,
    within: tuple[OtherFolds, ...] = (),
    intercept: bool = True,
    units: tuple[float, ...] | None = None,
) -> list[Posed]:
    """Set up the problems of one training.

    Parameters
    ----------
    multiclass : {"shared", "one-vs-rest", "one-vs-one"}
        One problem of all targets, one for each target, or one for each pair of classes.
    settings : SelectionSettings
        Settings of a problem of all rows.
    loaded : LoadAnswer
        Statistics of the rows on which centres are selected.
    encoding : LabelEncoding
        Encoding of the targets.
    kernel : Kernel
        Kernel of every problem.
    within : tuple of OtherFolds
        Conditions of the rows of the statistics; all rows by default.
    intercept : bool
        Whether there is a constant column, and targets are centred (default).
    units : tuple of float, optional
        Units of the targets of a regression; None, the default, for those of the user.

    Raises
    ------
    DataError
        ``too-few-rows``: two classes have too few rows together.
    """
    means, weight_sum, classes = encoding.means(loaded), loaded.features.count, encoding.classes
    if not intercept:
        means = np.zeros_like(means)
    if multiclass == "one-vs-one" and classes is not None and len(classes) > 2:
        weights = encoding.class_weights(loaded)
        assert weights is not None
        return _pairs(settings, weights, classes, kernel, within, intercept)
    groups = [(t,) for t in range(len(means))] if multiclass == "one-vs-rest" else [tuple(range(len(means)))]
    draw = settings.draw(0)
    return [
        Posed(Problem(columns, means[list(columns)], weight_sum, kernel, within, draw, units), settings, columns)
        for columns in groups
    ]


def units_of(loaded: LoadAnswer) -> tuple[float, ...] | None:
    """Return the units of the targets of a regression, by the statistics of all its rows."""
    targets = loaded.targets
    if targets is None or not targets.count > 0:
        return None
    return target_units(np.sqrt(targets.m2 / targets.count))


def _pairs(
    settings: SelectionSettings,
    weights: Array,
    classes: NDArray[Any],
    kernel: Kernel,
    within: tuple[OtherFolds, ...],
    intercept: bool,
) -> list[Posed]:
    posed = []
    for output, (first, second) in enumerate(class_pairs(len(classes))):
        together = weights[first] + weights[second]
        if together <= 2:
            raise DataError(
                f"the classes {classes[first]!r} and {classes[second]!r} have rows of weight {together:g} together, "
                "and a problem of one pair needs more than 2: leave the classes out, merge them, or use "
                "multiclass='shared'",
                kind="too-few-rows",
            )
        means = np.array([(weights[second] - weights[first]) / together if intercept else 0.0])
        # Where a pair has fewer rows than the pool has slots, every row is a candidate, and nothing is drawn.
        few = settings.criterion != "residual" and together * settings.n_widths <= settings.pool
        own = replace(settings, all_rows=True) if few else settings
        conditions: tuple[OtherFolds | ClassPair, ...] = (*within, ClassPair(first, second))
        problem = Problem((second,), means, together, kernel, conditions, own.draw(0))
        posed.append(Posed(problem, own, (output,)))
    return posed

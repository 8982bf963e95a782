"""The Ho-Kashyap procedure (slides 5.9)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from distkern.scheduler.passes.first_pass import Statistics
from distkern.scheduler.passes.fit import Fit
from distkern.scheduler.passes.ho_kashyap import MarginSetup, run_ho_kashyap
from distkern.scheduler.passes.linear_plan import keeps_rows
from distkern.scheduler.prediction.local import OutputFunction

from ...arrays import Array
from ...numerics.scaling import FeatureScaling
from ..base.documentation import described
from ..base.parameter_checks import FROM_ZERO, real
from . import documentation as linear_documentation
from .linear_classifier import LinearClassifier, Solution
from .output_functions import shares_of_sides

_PARAMETERS = {
    **linear_documentation.SHARED,
    "learning_rate": """
        float
            eta, above 0 and below 1: how far b follows a row that lies beyond it.""",
    "max_iter": """
        int
            Most iterations; each reads X once, unless it fits in memory.""",
    "tol": """
        float
            The rows count as not separable when those beyond their b are beyond by at most this fraction of what the
            others fall short, in sum: a hyperplane that separates them would have its nearest row 1 / tol times closer
            than its farthest.""",
    "b_min": """
        float
            First value of every number of b; none ever falls.""",
}

_ATTRIBUTES = (
    linear_documentation.LINEAR_ATTRIBUTES
    + linear_documentation.AUGMENTED
    + """
    separable_ : bool or None
        Whether hyperplanes separate the classes, with several classes each from the rest: True if the hyperplanes found
        do, False if there is evidence that none can, None if neither was known after `max_iter` iterations.
    separable_classes_ : list of bool or None
        The same for each hyperplane.
    n_iter_ : int
        Iterations."""
)


@described(_PARAMETERS, _ATTRIBUTES)
@dataclass(kw_only=True, eq=False, repr=False)
class HoKashyapClassifier(LinearClassifier):
    """Ho-Kashyap procedure: Y a = b > 0 for both a and b, which separates the classes if any hyperplane does.

    Minimises |Y a - b|^2 over both (slides 5.9). It starts at the minimum squared error solution with b the same for
    all rows. Then b grows where a row lies beyond it, b <- b + 2 eta e+ with e = Y a - b, and a = Y+ b follows, until
    all rows are on their side or e+ is zero. Several classes are separated one against the rest. The block of a row
    keeps its number of b.
    """

    _constraints: ClassVar = {
        "learning_rate": real("a number above 0 and below 1", lambda value: 0 < value < 1),
        "tol": FROM_ZERO,
    }
    _with_margins = True

    learning_rate: float = 0.9
    max_iter: int = 1000
    tol: float = 1e-6
    b_min: float = 1.0
    standardize: bool = False

    def _passes_again(self) -> int:
        return int(self.max_iter)

    def _solve(self, fit: Fit, statistics: Statistics, scaling: FeatureScaling) -> Solution:
        assert statistics.scatter is not None
        n_classes = len(statistics.labels)
        signs = np.array([[-1.0], [1.0]]) if n_classes == 2 else 2 * np.eye(n_classes) - 1
        result = run_ho_kashyap(
            fit.tasks,
            MarginSetup(statistics.labels, signs, scaling, float(self.b_min)),
            statistics.scatter.scaled(scaling),
            learning_rate=float(self.learning_rate),
            max_iter=int(self.max_iter),
            tol=float(self.tol),
            center=self._norm_center(scaling),
            first=statistics.reads,
            keep=keeps_rows(fit.plan),
        )
        self.rank_ = result.fit.rank
        self._set_separable(result.separable)
        self.n_iter_ = result.iterations
        fit.rounds = result.iterations
        fit.passes, fit.bytes_read = fit.passes + result.passes, fit.bytes_read + result.bytes_read
        return Solution(result.fit.weights, result.fit.intercept)

    def _set_separable(self, separable: list[bool | None]) -> None:
        self.separable_classes_ = separable
        self.separable_: bool | None = None
        if False in separable:
            self.separable_ = False
        elif None not in separable:
            self.separable_ = True

    def _probabilities(self) -> OutputFunction[Array]:
        return partial(shares_of_sides, margin=float(self.b_min))

    def _stored_values(self) -> dict[str, Any]:
        return {**super()._stored_values(), "separable": self.separable_classes_, "iterations": self.n_iter_}

    def _restore(self, stored: dict[str, Any], arrays: dict[str, Any]) -> None:
        super()._restore(stored, arrays)
        self._set_separable([None if known is None else bool(known) for known in stored["separable"]])
        self.n_iter_ = int(stored["iterations"])

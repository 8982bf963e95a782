"""Minimum squared error by the pseudoinverse (slides 5.8, 5.12; thesis 3.2)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from distkern.scheduler.passes.first_pass import Statistics
from distkern.scheduler.passes.fit import Fit
from distkern.scheduler.prediction.local import OutputFunction

from ...arrays import Array
from ...methods.linear_discriminants import class_targets, least_squares
from ...numerics.scaling import FeatureScaling
from ..base.documentation import described
from . import documentation as linear_documentation
from .linear_classifier import LinearClassifier, Solution
from .output_functions import shares_of_indicators


@described(
    {**linear_documentation.SHARED, "margin": linear_documentation.MARGIN_PARAMETER},
    linear_documentation.LINEAR_ATTRIBUTES + linear_documentation.AUGMENTED,
)
@dataclass(kw_only=True, eq=False, repr=False)
class MSEClassifier(LinearClassifier):
    """Minimum squared error classifier: Y a = b by the pseudoinverse, with b the same for all rows.

    Minimises |Y a - b|^2 (slides 5.8; thesis 3.20-3.22). The rows of Y are (1, x), those of the second class negated;
    several classes have 1-of-c targets and a column of A each (slides 5.12). One pass over the rows: least squares
    needs a triangular factor of the scatter within the classes and their means, which blocks merge by QR, so that
    nothing is squared. Where several solutions are equally good, a is the shortest of them: the pseudoinverse's.
    """

    margin: float = 1.0
    standardize: bool = False

    def _solve(self, fit: Fit, statistics: Statistics, scaling: FeatureScaling) -> Solution:
        assert statistics.scatter is not None
        targets = class_targets(len(statistics.labels), float(self.margin))
        scatter = statistics.scatter.scaled(scaling)
        found = least_squares(scatter, targets, self._norm_center(scaling))
        self.rank_ = found.rank
        return Solution(found.weights, found.intercept)

    def _probabilities(self) -> OutputFunction[Array]:
        return partial(shares_of_indicators, margin=float(self.margin))

"""The Widrow-Hoff or LMS procedure (slides 5.8)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from distkern.scheduler.passes.class_statistics import class_statistics
from distkern.scheduler.passes.first_pass import Reads, Statistics
from distkern.scheduler.passes.fit import Fit
from distkern.scheduler.passes.linear_plan import keeps_rows
from distkern.scheduler.passes.lms import LMSSetup, run_lms
from distkern.scheduler.prediction.local import OutputFunction
from distkern.scheduler.rows.data_checks import weight_scale
from distkern.storage import BlockSource

from ...arrays import Array
from ...errors import DataError, JobError
from ...methods.linear_discriminants import class_targets
from ...methods.lms import LMSRule, LMSState
from ...numerics.scaling import FeatureScaling
from ..base.documentation import described
from ..base.parameter_checks import ABOVE_ZERO, one_of, refuse
from ..base.probability_arrays import class_weights_of
from . import documentation as linear_documentation
from .linear_classifier import LinearClassifier, Solution
from .output_functions import shares_of_indicators

_PARAMETERS = {
    **linear_documentation.SHARED,
    "learning_rate": """
        float or "auto"
            eta; "auto" is half of the inverse mean of |y|^2, or 0.5 for normalised steps and 1 for ``schedule="row"``.
            A row's step is cut where it would pass the row's target.""",
    "schedule": """
        {"pass", "row", "constant"}
            eta / k in the k-th pass (or call of `partial_fit`), eta / k at the k-th row (of the literature; counted by
            weight), or the same eta throughout, which does not converge unless all rows meet their targets.""",
    "normalized": """
        bool
            Whether a step is divided by |y|^2, y = (1, x). It then converges to least squares with every row divided
            by its length, which is not the minimum squared error solution.""",
    "passes": """
        int
            Passes over the rows of `fit`.""",
    "margin": linear_documentation.MARGIN_PARAMETER,
}

_ATTRIBUTES = (
    linear_documentation.LINEAR_ATTRIBUTES.replace(
        """
    rank_ : int
        Directions of the feature space that the rows determine; fewer than d for duplicate or constant features.""",
        "",
    )
    + linear_documentation.AUGMENTED
    + """
    learning_rate_ : float
        eta.
    passes_ : int
        Passes so far, each call of `partial_fit` counted as one.
    seen_ : float
        Weight of all rows so far, in all passes."""
)


@described(_PARAMETERS, _ATTRIBUTES)
@dataclass(kw_only=True, eq=False, repr=False)
class WidrowHoffClassifier(LinearClassifier):
    """Widrow-Hoff (LMS) procedure: a <- a + eta (b - a'y) y, row after row, without a matrix.

    Descends |Y a - b|^2 one row at a time (slides 5.8). The rows are taken in the order in which they are stored,
    whatever the chunks and whichever process computes them, and a row of weight r counts as r such rows one after
    another. With a decreasing eta it converges to the minimum squared error solution, slowly, which need not separate
    classes that can be separated.
    """

    _constraints: ClassVar = {"learning_rate": ABOVE_ZERO | one_of("auto")}

    _with_scatter = False
    # The procedure depends on the origin of the coordinates.
    _center_allowed = False

    learning_rate: float | str = "auto"
    schedule: str = "pass"
    normalized: bool = False
    passes: int = 20
    margin: float = 1.0

    def _passes_again(self) -> int:
        return int(self.passes)

    def _solve(self, fit: Fit, statistics: Statistics, scaling: FeatureScaling) -> Solution:
        self._begin(statistics, scaling)
        targets = class_targets(len(statistics.labels), float(self.margin))
        setup = LMSSetup(statistics.labels, targets, scaling, self._rule(), weight_scale(statistics.loaded))
        start = np.zeros((fit.tasks.source.n_features + 1, targets.shape[1]))
        fit.rounds = int(self.passes)
        state = self._take_steps(fit, setup, start, statistics.reads, keep=keeps_rows(fit.plan))
        self.seen_, self.passes_ = state.seen, fit.rounds
        return Solution(state.weights[1:], state.weights[0])

    def _take_steps(self, fit: Fit, setup: LMSSetup, start: Array, first: Reads, *, keep: bool) -> LMSState:
        """Continue from the weights `start` with as many passes as the fit has rounds."""
        numbers = range(self.passes_ + 1, self.passes_ + fit.rounds + 1)
        state, reads, bytes_read = run_lms(fit.tasks, setup, LMSState.start(start, self.seen_), numbers, first, keep)
        fit.passes, fit.bytes_read = fit.passes + reads, fit.bytes_read + bytes_read
        return state

    def _begin(self, statistics: Statistics, scaling: FeatureScaling) -> None:
        """Set the learning rate, and the counts to zero."""
        self.passes_, self.seen_ = 0, 0.0
        if not isinstance(self.learning_rate, str):
            self.learning_rate_ = float(self.learning_rate)
        elif self.normalized or self.schedule == "row":
            self.learning_rate_ = 1.0 if self.schedule == "row" else 0.5
        else:
            moments = statistics.loaded.features
            around = np.square(moments.std() / scaling.scale) + np.square(
                (moments.mean - scaling.shift) / scaling.scale
            )
            self.learning_rate_ = float(0.5 / (1.0 + around.sum()))

    def _rule(self) -> LMSRule:
        return LMSRule(self.learning_rate_, self.schedule, bool(self.normalized))

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> Self:
        """Take the steps of more rows, in one pass.

        Parameters
        ----------
        X : array-like, zarr.Array, dask array or DataFrame, xarray rows or Dataset, shape (n_rows, n_features)
            The next rows of a stream, two at least. The first rows decide how features are standardised.
        y : array-like, shape (n_rows,), optional
            Labels; a dataset brings its own.
        classes : array-like, shape (n_classes,), optional
            All labels of the stream; required in the first call.
        sample_weight : array-like, shape (n_rows,), optional
            Row weights; a weight counts as repeated rows, zero as absent.

        Returns
        -------
        self

        Raises
        ------
        JobError
            A parameter is wrong, or `classes` is missing or another than before.
        DataError
            The rows cannot be trained on.
        """
        self._check_parameters()
        fresh = not hasattr(self, "_model")
        known = _all_classes(classes, None if fresh else self._labels())
        with self._rows_to_train(X, y, sample_weight, more=not fresh) as (source, client):
            self._continue(source, client, known, fresh)
        return self

    def _continue(self, source: BlockSource, client: Any, classes: NDArray[Any], fresh: bool) -> None:
        targets = class_targets(len(classes), float(self.margin))
        with self._fitting(source, client) as fit:
            first = Reads()
            if fresh:
                statistics = class_statistics(fit.tasks, with_scatter=False, any_classes=True)
                scaling, first = self._scaling(statistics, source), statistics.reads
                self._begin(statistics, scaling)
                start = np.zeros((source.n_features + 1, targets.shape[1]))
            else:
                scaling = self._model.scaling
                start = np.concatenate([self._model.intercept[None], self._model.centers.T])
            labels, own = _known_labels(source, classes, targets)
            setup = LMSSetup(labels, own, scaling, self._rule())
            fit.n_targets, fit.rounds, fit.exchanges = targets.shape[1], 1, 1 + int(fresh)
            fit.passes, fit.bytes_read = int(fresh), first.bytes_read
            state = self._take_steps(fit, setup, start, first, keep=False)
            self._keep(scaling, Solution(state.weights[1:], state.weights[0]))
        more = class_weights_of(source, classes)
        self._set_class_weights(more if fresh else self._class_weights + more)
        self.classes_ = classes
        self.seen_, self.passes_ = state.seen, self.passes_ + 1

    def _probabilities(self) -> OutputFunction[Array]:
        return partial(shares_of_indicators, margin=float(self.margin))

    def _stored_values(self) -> dict[str, Any]:
        counts = {"learning_rate": self.learning_rate_, "passes": self.passes_, "seen": self.seen_}
        return {**super()._stored_values(), **counts}

    def _restore(self, stored: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        super()._restore(stored, arrays)
        self.learning_rate_, self.seen_ = float(stored["learning_rate"]), float(stored["seen"])
        self.passes_ = int(stored["passes"])


def _all_classes(given: Any, before: NDArray[Any] | None) -> NDArray[Any]:
    """Return the classes of a stream; raise `JobError` where they are missing, or not those of the first call."""
    if given is None:
        if before is None:
            raise JobError("classes is missing: the first call of partial_fit needs all labels", kind="missing-classes")
        return before
    classes = np.unique(np.asarray(given))
    if len(classes) < 2:
        raise refuse("classes", given, "at least two labels")
    if before is not None and not np.array_equal(classes, before):
        raise refuse("classes", given, f"as in the first call, {before.tolist()}")
    return classes


def _known_labels(source: BlockSource, classes: NDArray[Any], targets: Array) -> tuple[NDArray[Any], Array]:
    """Return the possible values of the source's labels, sorted, and the targets of each; refuse other labels."""
    if source.classes is None:
        return classes, targets
    unknown = np.setdiff1d(source.classes, classes)
    if len(unknown):
        raise DataError(
            f"y holds the label {unknown.tolist()[0]!r}, which is not among classes: name all labels in the first call",
            kind="unknown-label",
        )
    return np.arange(len(source.classes)), targets[np.searchsorted(classes, source.classes)]

"""Intervals and standard deviations of the regressors of the OROLS family, from leave-one-out residuals and factors."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.scheduler import TrainingResult
from distkern.scheduler.planning.large_plan import CONJUGATE_GRADIENTS
from distkern.scheduler.runtime.threads import single_threaded_blas
from distkern.scheduler.training.calibration_rows import draw_rows, rows_of_path
from distkern.storage import ArraySource, BlockSource

from ...arrays import Array
from ...probability.intervals import SCALE_CENTERS, Intervals, LocalScale, ResidualQuantiles, choice_of_centers
from ...probability.leverage import Leverage
from ...selection.losses import SQUARED
from ...selection.regularization import effective_trace, residual_sum_of_squares
from ...selection.rkhs_refit import CHARGE
from ..base.estimator import BlockEstimator
from ..base.parameter_checks import AUTO
from ..base.probability_arrays import require_numbers
from .rkhs_refit import fitted_parameters

_SCALE = "interval_scale_"
_SIZES = ("interval_local", "interval_constant")
_DEVIATIONS = "deviation_"

CHOSEN = 1.25
"""Degrees of freedom for each fitted one where width and regularisation have the largest evidence, for intervals."""


class Uncertainty(BlockEstimator):
    """Part of the base of the family: what a regressor keeps for intervals."""

    _result: Any
    _prefixes: list[int]
    _sample: Any
    _stored_leverage: Leverage | None = None
    solver_: str
    loss_: str

    def _wants_intervals(self, source: BlockSource | None = None) -> bool:
        """Return whether `fit` keeps residuals; by default of rows in memory, which are not read again."""
        wanted = getattr(self, "intervals", False)
        if self._classification or not wanted:
            return False
        return isinstance(source, ArraySource) if wanted == AUTO else True

    def _note_residuals(self, result: TrainingResult, source: BlockSource, client: Any) -> None:
        """Draw the rows whose residuals make intervals, if these are wanted and the weights have factors."""
        self._sample = None
        if not (self._wants_intervals(source) and self._has_closed_form()):
            return
        # Rows in memory need no workers.
        here = isinstance(source, ArraySource)
        sample = draw_rows(source, None, np.ones(1), seed=self._seed, client=None if here else client)
        self._sample = replace(sample, weights=sample.weights * result.weight_scale)
        if self._wants_intervals():
            for name, added in (("passes", 1), ("bytes_read", sample.bytes_read)):
                self.summary_[name] += added

    def _make_intervals(self, outputs: Array) -> Intervals | None:
        """Fit intervals to the outputs of the sample that were left out, shape (n, T)."""
        sample, result = self._sample, self._result
        path, count = result.paths[0], self._prefixes[0]
        first = min(count, SCALE_CENTERS)
        q = rows_of_path(result, path, first, sample)
        usable = np.isfinite(outputs).all(axis=1) & np.isfinite(q).all(axis=1)
        if not usable.any():
            return None
        s, lam = path.s[: count + 1], path.lambdas[count]
        n_rows = result.summary["n_rows"]
        share = min(1.0, result.summary.get("selection_rows", n_rows) / n_rows)
        correction = choice_of_centers(effective_trace(s, lam, s[0]), effective_trace(s, lam, s[0], CHARGE), share)
        if path.mu is not None:
            # The fit is nearly that of all rows as centres, whatever the choice of some; but width and mu were chosen.
            free, charged = (s[0] - 1.0 - charge * (fitted_parameters(path, count) - 1.0) for charge in (1.0, CHOSEN))
            correction = choice_of_centers(np.full_like(lam, free), np.full_like(lam, charged), 1.0)
        with single_threaded_blas():
            return Intervals.fit(
                q[usable],
                path.u[: first + 1, : first + 1],
                (sample.targets - outputs)[usable],
                sample.mass[usable],
                correction,
            )

    def _leverage(self) -> Leverage:
        if self._stored_leverage is not None:
            return self._stored_leverage
        if getattr(self, "_result", None) is None or not self._has_closed_form():
            return super()._leverage()
        path, k = self._result.paths[0], self._prefixes[0] + 1
        s, z, lam = path.s[:k], path.z[:k], path.lambdas[k - 1]
        squares = residual_sum_of_squares(s, z, path.target_norms, lam)
        freedom = np.maximum(effective_trace(s, lam, s[0], CHARGE), 1.0)
        if path.mu is not None:
            # The noise of largest restricted evidence: the squares contain the penalty.
            freedom = s[:1] - 1.0
        return Leverage.of(path.u[:k, :k], s, lam, squares / freedom, intercept=self._result.intercept)

    def _has_closed_form(self) -> bool:
        """Return whether the weights are those of the factors, which give residuals and deviations."""
        return self._plain_refit() is None and self.solver_ != CONJUGATE_GRADIENTS and self.loss_ == SQUARED

    def _plain_refit(self) -> str | None:
        value = getattr(self, "refit", None)
        return None if value == "none" else value

    def _advice(self) -> str:
        if self.solver_ == CONJUGATE_GRADIENTS:
            return "its weights were solved by conjugate gradients; train with solver='factors' and intervals=True"
        if self.loss_ != SQUARED:
            return f"its weights are those of the {self.loss_} loss; train with loss='squared' and intervals=True"
        if self._plain_refit():
            return "its weights were fitted again; train with refit=None and intervals=True"
        return "train with intervals=True; by default only trainings on arrays in memory keep what they need"


def uncertainty_arrays(estimator: Any) -> dict[str, NDArray[Any]]:
    """Return the stored arrays of intervals, and with ``intervals=True`` those of standard deviations."""
    arrays: dict[str, NDArray[Any]] = {}
    intervals: Intervals | None = estimator._calibrated()
    if intervals is not None:
        arrays |= {_SCALE + field.name: getattr(intervals.scale, field.name) for field in fields(LocalScale)}
        for name, quantiles in zip(_SIZES, (intervals.local, intervals.constant), strict=True):
            arrays |= {f"{name}_sizes": quantiles.sizes, f"{name}_masses": quantiles.masses}
    if intervals is not None and estimator._wants_intervals():
        leverage = estimator._leverage()
        arrays |= {_DEVIATIONS + field.name: getattr(leverage, field.name) for field in fields(Leverage)}
    return arrays


def restore_uncertainty(estimator: Any, arrays: dict[str, NDArray[Any]]) -> None:
    """Set the attributes of `uncertainty_arrays`, which most stores lack; ValueError where the arrays do not fit."""
    m, n_targets = len(arrays["coef"]), len(arrays["intercept"])
    if any(name.startswith("interval_") for name in arrays):
        scale = LocalScale(**{field.name: arrays[_SCALE + field.name] for field in fields(LocalScale)})
        quantiles = [ResidualQuantiles(arrays[f"{name}_sizes"], arrays[f"{name}_masses"]) for name in _SIZES]
        for array in (scale.intercept, scale.low, scale.high):
            require_numbers("interval_scale", array, (n_targets,))
        require_numbers("interval_scale", scale.coef, (min(m, len(scale.coef)), n_targets))
        for part in quantiles:
            for array in (part.sizes, part.masses):
                require_numbers("interval sizes", array, (max(1, len(part.sizes)), n_targets))
                if (array < 0).any() or (np.diff(array, axis=0) < 0).any():
                    raise ValueError("interval sizes do not ascend")
        estimator._calibration = Intervals(scale, *quantiles)
    if any(name.startswith(_DEVIATIONS) for name in arrays):
        leverage = Leverage(**{field.name: arrays[_DEVIATIONS + field.name] for field in fields(Leverage)})
        require_numbers("deviation_inverse", leverage.inverse, (m + 1, m + 1))
        require_numbers("deviation_factors", leverage.factors, (m + 1, n_targets))
        require_numbers("deviation_variance", leverage.variance, (n_targets,))
        if (leverage.factors < 0).any() or (leverage.variance < 0).any():
            raise ValueError("deviations are not of numbers from 0 on")
        estimator._stored_leverage = leverage

"""Models with many centres: further centres in one draw, and weights by conjugate gradients, in the driver.

The first centres are those of a path, selected one after another. The others are drawn in one pass over all rows, in
proportion to the squared residual of the path's model; another pass draws rows for the preconditioner. Every iteration
is one pass in which the workers compute the kernel columns again, so neither they nor the driver hold a matrix of rows
times centres, and no Gram matrix of all rows is summed. The driver holds triangles of the order of the centres.

Covers the exchanges. The equations are in `distkern.selection.penalised_fit`, the passes over a block in
`..blocks.center_products`; which trainings are solved so is decided in `solver`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array, Rows
from distkern.kernels import kernel_of_centers
from distkern.selection.penalised_fit import PenalisedFit, PenalisedSystem, RightSums, fit_weights
from distkern.selection.stopping import StopReason

from ..blocks.center_products import CENTER_STREAM, PRECONDITIONER_STREAM
from ..execution.executor import Executor
from ..protocol.large_models import CenterDraw, CenterProducts, DrawCenters, Multiply, ResidualModel, RightSides
from ..protocol.messages import Begin
from ..protocol.path import Path
from ..protocol.problems import Problem
from ..runtime.threads import map_tiles
from .refit import ProblemPasses, Refitted, require_finite
from .solver import MOST_ITERATIONS, lambdas_of, probes_of
from .time_limit import TimeLimit

logger = logging.getLogger(__name__)


class LargeFits:
    """Draws and solutions of the problems of a training, one problem after another.

    Parameters
    ----------
    executor : Executor
        Executor after the selection.
    begin : Begin
        Scaling, dtype and epsilon of the training.
    regularization : str or float
        As for `..training.driver_loop.TrainingJob`.
    selected, max_centers : int
        Most centres of a path, and centres of each problem.
    n_rows : int
        Number of rows of the data.
    seed : int
        Key of the row draws.
    limit : TimeLimit
        Ends the iterations.
    live : callable
        Returns whether the last answer took time, and did not come from a record.
    """

    def __init__(
        self,
        executor: Executor,
        begin: Begin,
        *,
        regularization: str | float,
        selected: int,
        max_centers: int,
        n_rows: int,
        seed: int,
        limit: TimeLimit,
        live: Callable[[], bool],
    ) -> None:
        self._begin = begin
        self._regularization, self._selected, self._max_centers = regularization, selected, max_centers
        self._n_rows, self._seed, self._limit, self._live = n_rows, seed, limit, live
        self._passes = ProblemPasses(executor, len(begin.problems))

    def fit(self, paths: Sequence[Path], histories: Sequence[NDArray[Any]], problems: Sequence[Problem]) -> Refitted:
        """Extend every path and fit its weights to all rows.

        Parameters
        ----------
        paths : sequence of Path
            Paths of the selection.
        histories : sequence of structured array
            History of each path.
        problems : sequence of Problem
            Problems over all rows.

        Raises
        ------
        DataError
            Products overflow, or the kernel is not positive definite.
        """
        fitted, rewritten = [], []
        for i, (path, history) in enumerate(zip(paths, histories, strict=True)):
            if path.n_centers:
                path, history = self._fit(i, path, history, problems[i])
            fitted.append(path)
            rewritten.append(history)
        return self._passes.refitted(fitted, rewritten)

    def _fit(self, i: int, path: Path, history: NDArray[Any], problem: Problem) -> tuple[Path, NDArray[Any]]:
        # A rule that has not ended the path has found no minimum, whatever the lowest score so far was.
        whole = len(path.rows) >= self._selected and path.reason is not StopReason.TIME_LIMIT
        means, n = problem.target_means, len(path.rows) if whole else path.n_centers
        history, reason = history[:n], StopReason.MAX_CENTERS if whole else path.reason
        weights = path.weights(n)
        rows, widths, features = path.rows[:n], path.widths[:n], path.features[:n]
        if whole and (more := self._max_centers - n):
            model = ResidualModel(features, weights, means)
            drawn, found = self._draw(
                i, CenterDraw(path.candidates(self._n_rows), model, more, self._seed, CENTER_STREAM)
            )
            rows, features = np.concatenate([rows, drawn]), np.concatenate([features, found])
            widths = np.concatenate([widths, np.zeros(len(drawn), dtype=np.int64)])
            history = _extended(history, drawn)
        m = len(rows)
        nothing = np.empty(0, dtype=np.int64)
        # For the preconditioner, as many rows as centres.
        _, sample = self._draw(i, CenterDraw(nothing, None, m, self._seed, PRECONDITIONER_STREAM))
        fit = self._solve(i, rows, widths, features, sample, weights[1:], problem)
        if self._limit.passed and not fit.converged:
            reason = StopReason.TIME_LIMIT
        history["lambda_"], history["gcv"] = fit.lambdas.max(), fit.gcv
        T = fit.weights.shape[1]
        path = replace(
            path,
            n_centers=m,
            reason=reason,
            rows=rows,
            widths=widths,
            features=features,
            u=np.empty((0, 0)),
            s=np.empty(0),
            z=np.empty((0, T)),
            lambdas=np.tile(fit.lambdas, (m + 1, 1)),
            gcv=np.full(m, fit.gcv),
            solved=fit.weights,
        )
        return path, history

    def _draw(self, i: int, draw: CenterDraw) -> tuple[Rows, NDArray[Any]]:
        """Return the rows of a draw in the order in which they were drawn, and their raw features."""
        drawn = self._passes.exchange(DrawCenters(self._passes.only(i, draw)), i).drawn
        assert drawn is not None
        assert drawn.features is not None
        rows = drawn.race.rows
        return rows, drawn.features[np.searchsorted(drawn.rows, rows)]

    def _solve(
        self,
        i: int,
        rows: Rows,
        widths: Rows,
        features: NDArray[Any],
        sample: NDArray[Any],
        weights: Array,
        problem: Problem,
    ) -> PenalisedFit:
        begin, m = self._begin, len(rows)
        dtype = np.dtype(begin.dtype)
        lambdas = lambdas_of(self._regularization)
        start = np.zeros((m, weights.shape[1]))
        start[: len(weights)] = weights
        numbers = widths * self._n_rows + rows
        sides = RightSides(problem.target_means, probes_of(self._regularization), self._seed)
        sums = require_finite(
            self._passes.exchange(Multiply(self._passes.only(i, CenterProducts(numbers, features, start, sides)), 0), i)
        )
        # Made after the first pass: workers that are lost do not wait for it, and a record that ends here costs little.
        system = PenalisedSystem(
            begin.scaling.apply(features, dtype),
            kernel_of_centers(problem.kernel, widths),
            begin.scaling.apply(sample, dtype),
            np.array(lambdas),
            problem.weight_sum,
            epsilon=begin.epsilon,
            spread=map_tiles,
        )
        right = RightSums(sums["products"], sums["target_norms"], sums["target_sums"], sums["probe_sums"])
        iteration, began = 0, perf_counter()

        def product(P: Array) -> Array:
            nonlocal iteration
            iteration += 1
            # A copy: the log keeps the message, and the iterations change P in place.
            message = Multiply(self._passes.only(i, CenterProducts(numbers, features, P.copy())), iteration)
            return require_finite(self._passes.exchange(message, i))["products"]

        def watch(number: int, excess: float) -> bool:
            nonlocal began
            logger.info("iteration %d of the weights: at most %.2g above the least penalised error", number, excess)
            seconds, began = perf_counter() - began, perf_counter()
            return not (self._live() and self._limit.over(seconds))

        fit = fit_weights(
            system,
            right,
            product,
            start,
            problem.weight_sum,
            intercept=begin.intercept,
            per_target=str(self._regularization).endswith("per-target"),
            most=MOST_ITERATIONS,
            watch=watch,
        )
        logger.info(
            "weights of %d centres in %d iterations: lambda %s of %s", m, fit.iterations, fit.lambdas, fit.tried[:, 0]
        )
        return fit


def _extended(history: NDArray[Any], rows: Rows) -> NDArray[Any]:
    """Return a history with an entry for every drawn centre, in one more round."""
    more = np.zeros(len(rows), dtype=history.dtype)
    more["center"], more["residual_max"] = rows, np.nan
    more["q_norm"] = np.nan
    more["problem"] = history["problem"][0]
    more["round"] = history["round"].max() + 1
    return np.concatenate([history, more])

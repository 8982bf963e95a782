"""Weights of the selected centres by a loss other than the square, in the driver.

Centres are those of the path by squares. One pass draws rows for a sample, on which lambda is chosen by held-out rows
and the loss is minimised; from there, every evaluation of the loss is a pass in which the workers add up its value and
its slope over all rows. With all rows in the sample few passes follow. Neither message changes the state of a block, so
a record, lost workers and sums over the fixed trees are those of every other pass.

Where lambda of a logistic loss is chosen, its log odds and those of calibrated squares are averaged in the end: both
are linear in the columns of the same centres, and their errors differ.

Covers the exchanges; the minimisation is in `distkern.selection.loss_fit`, the passes over a block in
`..blocks.loss_sums`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from distkern.arrays import Array
from distkern.kernels import Kernel, kernel_of_centers
from distkern.numerics.row_draws import uniforms_for_rows
from distkern.probability.calibration import LARGEST_OUTPUT, Calibration
from distkern.probability.leave_one_out import left_out_outputs, rows_of_q, shrunk_norms
from distkern.selection.gram_refit import preconditioner_of
from distkern.selection.loss_fit import (
    LOSS_LAMBDAS,
    LossBasis,
    LossFit,
    LossSample,
    choose,
    minimise,
    n_folds,
    residual_scales,
)
from distkern.selection.losses import LOGISTIC, Loss, LossChoice
from distkern.selection.stopping import StopReason

from ..blocks.loss_sums import LOSS_STREAM
from ..execution.executor import Executor
from ..planning.loss_plan import MOST_PASSES, sample_size
from ..protocol.answers import CandidateRows
from ..protocol.losses import LossModel, RowSample, SampleRows, SumLoss
from ..protocol.messages import Begin
from ..protocol.path import Path
from ..protocol.problems import Problem
from ..rows.tiles import positions
from ..runtime.threads import map_tiles
from .refit import ProblemPasses, Refitted, require_finite
from .time_limit import TimeLimit

logger = logging.getLogger(__name__)

DESIGN_ROWS = 1024
"""Rows of the sample of which each thread computes kernel columns at a time."""

PASS_PRECISION = 1e-6
"""Relative change of the penalised loss at which the passes end."""

SQUARES_SHARES = (0.5, 0.25, 0.75)
"""Shares of calibrated squares in the log odds that are tried on held-out rows. Outputs of squares that are left out by
formula look better than they are, as their rows have chosen the centres: so neither 0 nor 1."""


class LossFits:
    """Minimisations of a loss for the problems of a training, one problem after another.

    Parameters
    ----------
    choice : LossChoice
        The loss.
    executor : Executor
        Executor after the selection.
    begin : Begin
        Scaling, dtype and epsilon of the training.
    regularization : str or float
        "gcv" to choose lambda, "none", or lambda.
    n_rows : int
        Number of rows of the data.
    seed : int
        Key of the row draws.
    limit : TimeLimit
        Ends the passes.
    live : callable
        Returns whether the last answer took time, and did not come from a record.
    """

    def __init__(
        self,
        choice: LossChoice,
        executor: Executor,
        begin: Begin,
        *,
        regularization: str | float,
        n_rows: int,
        seed: int,
        limit: TimeLimit,
        live: Callable[[], bool],
    ) -> None:
        self._choice, self._begin = choice, begin
        self._lambdas: tuple[float, ...] = LOSS_LAMBDAS
        if regularization == "none":
            self._lambdas = (0.0,)
        elif not isinstance(regularization, str):
            self._lambdas = (float(regularization),)
        # Calibrated log odds have a constant.
        self._pools = choice.name == LOGISTIC and len(self._lambdas) > 1 and begin.intercept
        self._n_rows, self._seed, self._limit, self._live = n_rows, seed, limit, live
        self._passes = ProblemPasses(executor, len(begin.problems))

    def fit(self, paths: Sequence[Path], histories: Sequence[NDArray[Any]], problems: Sequence[Problem]) -> Refitted:
        """Fit the weights of every path's centres to all rows.

        Parameters
        ----------
        paths : sequence of Path
            Paths with factors over all rows.
        histories : sequence of structured array
            History of each path, which is cut to the centres of the model.
        problems : sequence of Problem
            Problems over all rows.

        Raises
        ------
        DataError
            Sums overflow.
        JobError
            ``indefinite-kernel``.
        """
        fitted = [self._fit(i, path, problems[i]) for i, path in enumerate(paths)]
        histories = [history[: path.n_centers] for history, path in zip(histories, paths, strict=True)]
        return self._passes.refitted(fitted, histories)

    def _fit(self, i: int, path: Path, problem: Problem) -> Path:
        m = path.n_centers
        u, s = path.u[: m + 1, : m + 1], path.s[: m + 1]
        centers = self._begin.scaling.apply(path.features[:m], np.dtype(np.float64))
        kernel = kernel_of_centers(problem.kernel, path.widths[:m])
        gram = np.empty((0, 0))
        if m:
            gram = np.asarray(kernel.block(centers, centers.copy()), dtype=np.float64)
            gram[np.diag_indices(m)] += self._begin.epsilon
        basis = LossBasis.of(u, s, gram, intercept=self._begin.intercept)
        # Signs of the targets distinguish the classes; numbers are centred as in the selection.
        means = np.zeros(len(problem.columns)) if self._choice.name == LOGISTIC else problem.target_means
        sample, rows, left_out = self._sample(i, path, problem, basis, means, (kernel, centers))
        scales, start = np.ones(len(means)), None
        if self._choice.name != LOGISTIC:
            scales, start = residual_scales(sample, basis.penalties)
        loss = Loss(self._choice.name, self._choice.constant, scales)
        folds = (uniforms_for_rows(self._seed, LOSS_STREAM + 1, rows) * n_folds(loss)).astype(np.intp)
        chosen = choose(sample, loss, basis.penalties, folds, self._lambdas, start)
        model = LossModel(
            path.candidates(self._n_rows)[:m], path.features[:m], preconditioner_of(u, s), np.empty((0, 0)), means, loss
        )
        ended, orthogonal = self._over_all_rows(i, model, u, basis, sample, chosen.coordinates, chosen.lam)
        share = 0.0
        if self._pools:
            squares, odds = _log_odds_of_squares(path, problem, sample, left_out)
            share = share_of_squares(loss, sample, chosen, odds)
            orthogonal = (1.0 - share) * orthogonal + share * squares
        weights = np.asarray(solve_triangular(u, orthogonal, unit_diagonal=True)) * scales
        # The model adds the means of the encoded targets to its intercepts.
        weights[0] += means - problem.target_means
        logger.info(
            "%s loss of %d centres: lambda %g of %s, share of squares %g, %d passes",
            loss.name,
            m,
            chosen.lam,
            chosen.tried.tolist(),
            share,
            self._passes.count,
        )
        return replace(
            path,
            reason=StopReason.TIME_LIMIT if ended else path.reason,
            rows=path.rows[:m],
            widths=path.widths[:m],
            features=path.features[:m],
            u=u,
            s=s,
            z=path.z[: m + 1],
            lambdas=np.full((m + 1, 1), chosen.lam),
            gcv=np.full(m, chosen.held_out),
            solved=weights,
        )

    def _sample(
        self,
        i: int,
        path: Path,
        problem: Problem,
        basis: LossBasis,
        means: Array,
        centers: tuple[Kernel, Array],
    ) -> tuple[LossSample, NDArray[np.int64], Array]:
        """Draw rows; return their columns of the basis, their numbers, and their left-out outputs if they are needed.

        The outputs are of squares, (n, T), each from the model without its row, see `left_out_outputs`.
        """
        m, T = path.n_centers, len(problem.columns)
        wanted = sample_size(m, path.features.shape[1], T)
        asked = RowSample(min(wanted / self._n_rows, 1.0), self._seed)
        drawn = self._passes.exchange(SampleRows(self._passes.only(i, asked)), i).candidates
        assert isinstance(drawn, CandidateRows)
        weights, targets, features = np.split(drawn.values, [1, 1 + T], axis=1)
        columns, left_out = np.empty((len(drawn.rows), m + 1)), np.empty((len(drawn.rows), T * self._pools))
        factors = path.s[: m + 1], path.z[: m + 1], path.lambdas[m]
        kernel, chosen = centers

        def columns_of(start: int) -> None:
            part = slice(start, start + DESIGN_ROWS)
            design = np.ones((len(weights[part]), m + 1))
            if m:
                own = self._begin.scaling.apply(features[part], np.dtype(np.float64))
                design[:, 1:] = kernel.block(own, chosen)
                where, which = positions(drawn.rows[part], path.rows[:m])
                design[where, 1 + which] += self._begin.epsilon
            q = rows_of_q(design, path.u[: m + 1, : m + 1])
            if self._pools:
                left_out[part] = left_out_outputs(q, targets[part], problem.target_means, *factors, weights[part, 0])
            columns[part] = basis.columns(q)

        for _ in map_tiles(columns_of, range(0, len(columns), DESIGN_ROWS)):
            pass
        mass = weights[:, 0] * (problem.weight_sum / weights.sum())
        return LossSample(columns, targets - means, mass), drawn.rows, left_out

    def _over_all_rows(
        self, i: int, model: LossModel, u: Array, basis: LossBasis, sample: LossSample, start: Array, lam: float
    ) -> tuple[bool, Array]:
        """Return whether the time limit ended the passes, and the weights of Q's columns."""
        # Columns of a pass are [1 K] inv(P) = Q (U inv(P)): with P near U their relation to Q is nearly the identity,
        # where sums over [1 K] would lose the digits of columns that depend on each other.
        given = model.preconditioner
        relation = u if given is None else np.asarray(solve_triangular(given, u.T, trans="T", unit_diagonal=True).T)
        evaluations, ended, began = 0, False, perf_counter()

        def evaluate(coordinates: Array) -> tuple[float, Array]:
            nonlocal evaluations, ended, began
            if ended:
                raise StopIteration
            weights = np.asarray(solve_triangular(relation, basis.orthogonal(coordinates), unit_diagonal=True))
            asked = replace(model, weights=np.ascontiguousarray(weights))
            sums = require_finite(self._passes.exchange(SumLoss(self._passes.only(i, asked), evaluations), i))
            slopes = np.asarray(solve_triangular(relation, sums["slope"], trans="T", unit_diagonal=True))
            evaluations, seconds, began = evaluations + 1, perf_counter() - began, perf_counter()
            ended = self._live() and self._limit.over(seconds)
            return float(sums["loss"][0]), basis.slopes(slopes)

        metric = sample.joint(model.loss, start, lam * basis.penalties)
        penalties = lam * basis.penalties
        found = minimise(evaluate, start, penalties, metric, precision=PASS_PRECISION, most=MOST_PASSES)
        return ended, basis.orthogonal(found)


def _log_odds_of_squares(path: Path, problem: Problem, sample: LossSample, left_out: Array) -> tuple[Array, Array]:
    """Calibrate squares; return weights of Q's columns whose outputs are log odds, and those of left-out rows."""
    codes = sample.targets.argmax(axis=1) if left_out.shape[1] > 1 else (sample.targets[:, 0] > 0).astype(np.intp)
    calibration = Calibration.fit(left_out, codes, sample.weights)
    m = path.n_centers
    weights = (path.z[: m + 1] / shrunk_norms(path.s[: m + 1], path.lambdas[m])) @ calibration.slopes
    weights[0] += problem.target_means @ calibration.slopes + calibration.offsets
    clipped = np.clip(left_out, -LARGEST_OUTPUT, LARGEST_OUTPUT)
    return np.asarray(weights), clipped @ calibration.slopes + calibration.offsets


def share_of_squares(loss: Loss, sample: LossSample, fit: LossFit, odds: Array) -> float:
    """Return the share of squares with which the mean of the log odds has the lowest loss on held-out rows.

    Parameters
    ----------
    loss : Loss
        The logistic loss.
    sample : LossSample
        The rows.
    fit : LossFit
        The fit, with its held-out scores.
    odds : array, shape (n, T)
        Log odds of squares, each row's without it.
    """
    targets, masses = sample.targets[fit.held], sample.weights[fit.held]
    means = [
        masses @ loss.exact((1.0 - share) * fit.scores + share * odds[fit.held], targets) for share in SQUARES_SHARES
    ]
    return SQUARES_SHARES[int(np.argmin(means))]

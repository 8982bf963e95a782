"""The selection loop of one problem as a state machine: `next_step` returns a step, `receive` takes its answer.

Two machines share the factors and the stop rules. `PoolSelector` keeps a pool of orthogonalised candidates and accepts
the best few in each round by error reduction. It takes two exchanges for a panel, since the blocks draw new candidates
while they apply the last panel. `LookaheadSelector`, in `lookahead_selector`, is the paper's Algorithm 1. Covers no
rows and no sending: the rows are in `..blocks`, and `..training.driver_loop` sends the steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array
from distkern.numerics.row_draws import combine_draws
from distkern.selection.candidate_pool import Panel, Pool
from distkern.selection.extrapolation import LambdaOverRows
from distkern.selection.factors import PER_TARGET, Factors, PanelUpdate, finish_panel
from distkern.selection.stopping import StopReason

from ..protocol.answers import Drawn, ProblemAnswer
from ..protocol.messages import Append, Columns, Eliminate, Form, LookaheadStep, ProblemStep, Project
from ..protocol.selection_settings import SelectionSettings
from ..rows.numeric_ranges import require_finite_sums

IDLE_ROUNDS = 16
"""Consecutive rounds without an independent candidate before all others count as dependent too."""

REFRESH_ROUNDS = 8
"""Rounds after which S and R are computed again from the rows in single precision."""

HISTORY_DTYPE = np.dtype(
    [
        ("center", np.int64),
        ("lambda_", np.float64),
        ("gcv", np.float64),
        ("residual_max", np.float64),
        ("q_norm", np.float64),
        ("round", np.int64),
        ("problem", np.int64),
    ]
)
"""One row for each accepted centre; residual_max is the largest absolute residual when its panel was chosen."""


@dataclass
class _Queue:
    """Drawn rows without a kernel column."""

    rows: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    features: NDArray[Any] = field(default_factory=lambda: np.empty((0, 0)))

    def take(self, count: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
        rows, features = self.rows[:count], self.features[:count]
        self.rows, self.features = self.rows[count:], self.features[count:]
        return rows, features


@dataclass
class _Forming:
    """A panel that the blocks form."""

    panel: Panel
    rows: NDArray[np.int64]
    features: list[NDArray[Any]]
    norms: Array
    coefficients: Array


@dataclass(frozen=True)
class Unappended:
    """Accepted columns that the blocks formed and did not append to Q, since the path ended: F combine - Q correct."""

    combine: Array
    """(width of F, k)."""
    correct: Array | None
    """(columns of Q, k); None where it is zero."""


class Selector(ABC):
    """Base of both machines: factors, history and stopping.

    Parameters
    ----------
    settings : SelectionSettings
        Settings, which may be shared by problems.
    problem : int
        Number of the problem, for the history.
    weight_sum : float
        Sum of the row weights.
    held_out : int
        Number of held-out rows, for the validation stop rule.
    all_rows : float, optional
        Sum of the weights of all rows, where the path is selected on a sample and then fitted to all: the stop rule
        observes its estimate over all rows. None by default.
    """

    def __init__(
        self,
        settings: SelectionSettings,
        problem: int,
        weight_sum: float,
        held_out: int,
        all_rows: float | None = None,
    ) -> None:
        self.settings = settings
        self.problem = problem
        self.round = 0
        self.reason: StopReason | None = None
        self.rows: list[int] = []
        self.features: list[NDArray[Any]] = []
        self.history: list[tuple[Any, ...]] = []
        self.gcv = float("nan")
        self.residual_max = float("inf")
        self.validation: float | None = None
        self._all_rows = all_rows
        self._rule = settings.stop_rule(sampled=all_rows is not None)
        by_gcv = str(settings.regularization).removesuffix(PER_TARGET) == "gcv"
        self._lambda_over = LambdaOverRows(all_rows) if all_rows is not None and by_gcv else None
        self._weight_sum = weight_sum
        self._held_out = held_out
        self._factors: Factors | None = None
        self._idle = 0
        self._formed: Unappended | None = None
        self._n_appended = 1

    @property
    def unappended(self) -> Unappended | None:
        """The last columns of the factors, where the blocks lack them."""
        count = self.factors.n_columns - self._n_appended
        if self._formed is None or not count:
            return None
        correct = self._formed.correct
        return Unappended(self._formed.combine[:, :count], None if correct is None else correct[:, :count])

    def _appended(self) -> None:
        """Note that the blocks have all columns of the factors."""
        self._formed, self._n_appended = None, self.factors.n_columns

    @property
    def factors(self) -> Factors:
        """The factors so far."""
        assert self._factors is not None
        return self._factors

    @property
    def n_centers(self) -> int:
        """Centres accepted so far."""
        return len(self.rows)

    @property
    def best(self) -> int:
        """Number of centres to keep when the path has ended."""
        return self._rule.best(self.n_centers)

    @property
    def final_reason(self) -> StopReason:
        """The reason for the length of the kept model: a path with a minimum before its end is cut there."""
        assert self.reason is not None
        if self.reason is StopReason.MAX_CENTERS and self.best < self.n_centers and self._all_rows is None:
            return self._rule.reason or self.reason
        return self.reason

    def begin(self, answer: ProblemAnswer) -> None:
        """Take the answer to `Begin`: target norms and the first draw."""
        self._factors = Factors(
            self._weight_sum,
            answer.sums["target_norms"],
            self.settings.max_centers,
            self.settings.regularization,
        )
        require_finite_sums(answer)
        self._start(len(self._factors.target_norms))
        self._take_first_draw(answer)
        if not self._factors.target_norms.any():
            self.residual_max, self.reason = 0.0, StopReason.RESIDUAL_BELOW

    @abstractmethod
    def _start(self, n_targets: int) -> None:
        """Allocate the candidates."""

    @abstractmethod
    def _take_first_draw(self, answer: ProblemAnswer) -> None:
        """Take the draw in the answer to `Begin`."""

    @property
    @abstractmethod
    def mid_round(self) -> bool:
        """Whether a panel was formed whose columns the blocks have not appended yet."""

    @abstractmethod
    def next_step(self) -> ProblemStep | LookaheadStep | None:
        """Return the next step, or None when the path has ended for a `reason`."""

    @abstractmethod
    def receive(self, answer: ProblemAnswer) -> None:
        """Take the answer to the last step."""

    def _append(self, row: int, features: NDArray[Any], column: Array, s: float, z: Array) -> Array:
        factors, settings = self.factors, self.settings
        if np.sqrt(max(factors.s.max(), s)) / np.sqrt(min(factors.s.min(), s)) > settings.condition_limit:
            self.reason = StopReason.ILL_CONDITIONED
            return np.zeros_like(z)
        regularizes = settings.regularization != "none"
        if regularizes and self._weight_sum <= factors.n_columns + 1:
            # GCV is undefined without a degree of freedom.
            self.reason = StopReason.CANDIDATES_EXHAUSTED
            return np.zeros_like(z)
        step, gcv = factors.append(column, s, z)
        if regularizes and not np.isfinite(gcv):
            factors.n_columns -= 1
            self.reason = StopReason.CANDIDATES_EXHAUSTED
            return np.zeros_like(z)
        self.gcv = gcv
        self.rows.append(int(row))
        self.features.append(features)
        self._idle = 0
        self.history.append(
            (
                row,
                float(factors.lambda_.max()),
                gcv,
                self.residual_max,
                float(np.sqrt(s)),
                self.round,
                self.problem,
            )
        )
        score = factors.score(settings.stop, self._all_rows)
        if settings.stop == "lambda":
            over = self._lambda_over
            score = float(factors.lambda_.max()) if over is None else factors.lambda_over(over)
        if score is not None:
            self.reason = self._rule.observe(self.n_centers, score)
        return step

    def _finish_panel(self, cross: Array, sums: dict[str, Array], lower: Array, norms: Array) -> PanelUpdate:
        """Second orthogonalisation pass over a formed panel, whose products with Q are `cross`."""
        n, factors, settings = len(norms), self.factors, self.settings
        return finish_panel(
            cross,
            sums["gram"][:n, :n],
            sums["products"][:n],
            factors.s.copy(),
            factors.residual_products.copy(),
            lower,
            norms,
            settings.dependent,
            settings.orthogonal,
        )

    def _count_idle(self, limit: int) -> None:
        """End the path after more than `limit` candidates or rounds without independent columns; `_append` resets."""
        self._idle += 1
        if self._idle > limit and self.reason is None:
            self.reason = StopReason.CANDIDATES_EXHAUSTED

    def _watch_validation(self, answer: ProblemAnswer) -> None:
        squares = answer.sums.get("validation")
        if squares is None or not self._held_out:
            return
        for i, square in enumerate(squares):
            self.validation = float(square / self._held_out)
            if self._rule.watches_validation and self.reason is None:
                n_centers = self.n_centers - len(squares) + i + 1
                self.reason = self._rule.observe(n_centers, self.validation)
        if self.n_centers >= self.settings.max_centers:
            self.reason = self.reason or StopReason.MAX_CENTERS


class PoolSelector(Selector):
    """Accepts the best candidates of a pool by error reduction, one panel in each round."""

    def _start(self, n_targets: int) -> None:
        settings = self.settings
        self._pool = Pool(settings.pool, settings.max_centers + 1, n_targets, settings.dependent, settings.reliable)
        self._queue = _Queue()
        self._forming: _Forming | None = None
        self._appending: Append | None = None
        self._eliminating: Eliminate | None = None
        self._filling = True
        self._finishing = False
        self._batch: tuple[NDArray[np.int64], NDArray[Any], NDArray[np.int64]] | None = None
        self._projecting: tuple[Array, Array] | None = None
        self._refreshing = False

    @property
    def mid_round(self) -> bool:
        """Whether the next step is the second half of a round."""
        return self._finishing

    def next_step(self) -> ProblemStep | None:
        """Return alternately a step that forms a panel with new kernel columns, and one that applies both."""
        if self.reason is not None:
            return None
        return self._finish_step() if self._finishing else self._form_step()

    def _form_step(self) -> ProblemStep | None:
        form, pool = None, self._pool
        if not self._filling:
            pool.drop_dependent()
            panel = self._pick(min(self.settings.accept, self.settings.max_centers - self.n_centers))
            if len(panel.slots):
                form = self._form(panel)
        columns = None
        if len(self._queue.rows):
            rows, features = self._queue.take(self.settings.batch)
            slots, released = pool.free_slots(len(rows))
            self._batch = rows, features, slots
            columns = Columns(rows, features, released)
        if form is None and columns is None and pool.needs_refresh:
            self._finishing = True
            return self._finish_step()
        if form is None and columns is None:
            self.reason = StopReason.CANDIDATES_EXHAUSTED
            return None
        return ProblemStep(form=form, columns=columns)

    def _pick(self, count: int) -> Panel:
        return self._pool.pick(count)

    def _finish_step(self) -> ProblemStep:
        settings, append, eliminate, project = self.settings, self._appending, self._eliminating, None
        self._appending = self._eliminating = None
        if self._batch is not None and self._projecting is not None:
            slots = self._batch[2]
            project = Project(self._projecting[0], slots)
        drained = not len(self._queue.rows)
        # Elimination updates S and R. In single precision they drift; a candidate that lost most of its norm needs S
        # from the rows in either precision.
        due = settings.single_precision and self.round % REFRESH_ROUNDS == 0
        self._refreshing = not self._filling and (due or self._pool.needs_refresh)
        draw = settings.draw(self.round + 1) if drained else None
        return ProblemStep(append=append, eliminate=eliminate, project=project, draw=draw, refresh=self._refreshing)

    def receive(self, answer: ProblemAnswer) -> None:
        """Take the answer to the last step."""
        if self._finishing:
            self._receive_finish(answer)
        else:
            self._receive_form(answer)
        self._finishing = not self._finishing

    def _receive_form(self, answer: ProblemAnswer) -> None:
        require_finite_sums(answer)
        width, factors = self.settings.panel, self.factors
        cross, gram = answer.sums["cross"][width:].T, answer.sums["gram"][:, width:]
        s = factors.s.copy()
        coefficients = cross / s[:, None]
        if self._forming is not None:
            n = len(self._forming.rows)
            update = self._accept(answer)
            if self.reason is not None:
                return
            if update.kept:
                products = update.combine.T @ gram[:n] - update.correct.T @ cross
                coefficients = np.concatenate([coefficients, products / update.s[:, None]])
        if self._batch is not None:
            self._projecting = coefficients, answer.sums["norms"]

    def _receive_finish(self, answer: ProblemAnswer) -> None:
        require_finite_sums(answer)
        self._appended()
        self._watch_validation(answer)
        if self._batch is not None and self._projecting is not None:
            rows, features, slots = self._batch
            coefficients, norms = self._projecting
            n = len(rows)
            self._pool.insert(slots, rows, features, norms[:n], coefficients[:, :n])
            self._pool.merge_gram(slots, answer.sums["pool_gram"][:, :n], answer.sums["pool_products"][:n])
        if self._refreshing:
            self._pool.replace_gram(answer.sums["all_gram"], answer.sums["all_products"])
        self._batch = self._projecting = None
        if not len(self._queue.rows):
            self.round += 1
            self._filling = False
            self._count_idle(IDLE_ROUNDS)
            if self.reason is None:
                self._enqueue(answer.drawn)

    def _take_first_draw(self, answer: ProblemAnswer) -> None:
        self._enqueue(answer.drawn)

    def _enqueue(self, drawn: Drawn | None) -> None:
        assert drawn is not None
        assert drawn.features is not None
        self.residual_max = drawn.largest
        request = self.settings.draw(self.round)
        size = max(request.n_top, request.n_race)
        rows = combine_draws(drawn.top, drawn.race, request.n_top, size)
        self._queue = _Queue(rows, drawn.features[np.searchsorted(drawn.rows, rows)])
        tol = self.settings.tol
        if tol is not None and self.settings.stop != "lambda" and drawn.largest <= tol:
            self.reason = StopReason.RESIDUAL_BELOW

    def _form(self, panel: Panel) -> Form:
        pool, width = self._pool, self.settings.panel
        n = len(panel.slots)
        features = [pool.features[slot] for slot in panel.slots]
        assert all(f is not None for f in features)
        self._forming = _Forming(
            panel,
            pool.rows[panel.slots].copy(),
            [f for f in features if f is not None],
            pool.norms[panel.slots].copy(),
            pool.coefficients[: self.factors.n_columns, panel.slots].copy(),
        )
        pool.clear(panel.slots)
        combine = np.zeros((n, width))
        combine[:, :n] = np.linalg.inv(panel.lower)
        return Form(panel.slots, combine)

    def _accept(self, answer: ProblemAnswer) -> PanelUpdate:
        """Finish the formed panel: append to the factors and the history, and update the pool's coefficients."""
        assert self._forming is not None
        forming, self._forming = self._forming, None
        sums, factors, settings = answer.sums, self.factors, self.settings
        cross = sums["cross"][: len(forming.rows)].T
        update = self._finish_panel(cross, sums, forming.panel.lower, forming.norms)
        correct = update.correct if update.correct.any() else None
        self._formed = Unappended(_pad_rows(update.combine, settings.panel), correct)
        steps = np.zeros((len(update.kept), len(factors.target_norms)))
        for i, position in enumerate(update.kept):
            column = np.concatenate([forming.coefficients[:, position] + update.u_top[:, i], update.u_new[:i, i]])
            steps[i] = self._append(
                forming.rows[position], forming.features[position], column, update.s[i], update.z[i]
            )
            if self.reason is not None:
                return update
        lost = forming.panel.multipliers
        if update.restore is not None:
            restored = update.restore @ forming.panel.multipliers
            self._pool.restore(restored, forming.panel)
            lost = lost - restored
        self._pool.absorb(forming.panel.multipliers, update.correct, update.survivors)
        if update.kept:
            inverse = None
            if settings.criterion == "loo-error":
                inverse = 1.0 / (factors.lambda_[0] + factors.s[-len(update.kept) :])
            self._appending = Append(len(update.correct), self._formed.combine, correct, steps, inverse)
        self._eliminating = Eliminate(_pad_rows(lost, settings.panel)) if lost.any() else None
        if self.n_centers >= settings.max_centers and not self._rule.watches_validation:
            self.reason = StopReason.MAX_CENTERS
        return update


def _pad_rows(matrix: Array, rows: int) -> Array:
    return np.pad(matrix, ((0, rows - len(matrix)), (0, 0)))

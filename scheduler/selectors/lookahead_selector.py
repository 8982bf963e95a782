"""Selection by the largest residual (the paper's Algorithm 1), several exact steps in each panel.

The driver predicts the next steps among a pool of candidates. The blocks form the predicted columns, compute the
residuals after each step, and answer with their largest rows. The driver accepts the longest prefix of steps in which
every predicted row had the largest residual. The first step is always right: its row had the largest residual when the
last panel ended. A panel takes three exchanges, and the centres and their order are those of the loop that takes one
row at a time. The prediction is in `distkern.selection.lookahead`, the part of the blocks in
`..blocks.lookahead_tiles`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array, Rows
from distkern.selection.lookahead import LookaheadCandidates, orthogonal_coefficients, predict_steps
from distkern.selection.stopping import StopReason

from ..protocol.answers import CandidateRows, Leaders, ProblemAnswer
from ..protocol.messages import Columns, Commit, Enter, FormAhead, LookaheadStep, Trial, padded_width
from ..protocol.selection_settings import LOOKAHEAD_NEW, LOOKAHEAD_WATCHED
from ..rows.numeric_ranges import require_finite_sums
from .pool_selector import Selector, Unappended

IDLE_ROWS = 1000
"""Consecutive rows that depend on the selected ones before all others count as dependent too."""

NEAR = 0.9
"""A block does not report a row whose residual stays below this times that of the last candidate."""


class CandidatePool:
    """Candidates in slots, with their products with each other, with Q and with E, and the watched rows.

    Parameters
    ----------
    capacity : int
        Number of slots B.
    columns : int
        Most columns of Q.
    n_targets : int
        Columns of E.
    """

    def __init__(self, capacity: int, columns: int, n_targets: int) -> None:
        self.rows: Rows = np.full(capacity, -1, dtype=np.int64)
        self.watched: Rows = np.empty(0, dtype=np.int64)
        self.features: list[NDArray[Any] | None] = [None] * capacity
        self._gram = np.zeros((capacity, capacity))
        self._cross = np.zeros((columns, capacity))
        self._products = np.zeros((capacity, n_targets))
        most = capacity + LOOKAHEAD_WATCHED
        self._kernel = np.zeros((most, capacity))
        self._q = np.zeros((most, columns))
        self._residual = np.zeros((most, n_targets))

    def remove(self, rows: Rows) -> None:
        """Empty the slots of selected rows."""
        self.rows[np.isin(self.rows, rows)] = -1

    def enter(self, rows: Rows, norms: Array, features: NDArray[Any], most: int) -> NDArray[np.intp]:
        """Put the rows with the largest residuals in place of candidates with smaller ones; watch the others.

        Parameters
        ----------
        rows : array, shape (k,)
            Rows that may soon have the largest residual, candidates included.
        norms : array, shape (k,)
            Their residuals.
        features : array, shape (k, d)
            Their raw features.
        most : int
            Most new candidates.

        Returns
        -------
        array
            Slots of the new candidates.
        """
        known = {int(row): float(norm) for row, norm in zip(rows, norms, strict=True)}
        held = np.array([-1.0 if row < 0 else known.get(int(row), 0.0) for row in self.rows])
        order = np.lexsort((rows, -norms))
        order = order[~np.isin(rows[order], self.rows) & (norms[order] >= 0.0)]
        slots = np.argsort(held, kind="stable")[: min(most, len(order))]
        slots = slots[held[slots] < norms[order[: len(slots)]]]
        for slot, i in zip(slots, order, strict=False):
            self.rows[slot] = rows[i]
            self.features[slot] = features[i]
        self.watched = rows[order[len(slots) :]][:LOOKAHEAD_WATCHED]
        return slots

    def take(
        self, sums: dict[str, Array], values: CandidateRows, slots: NDArray[np.intp], start: int, n_old: int
    ) -> None:
        """Store the answer of the blocks after columns were appended to Q and new candidates entered.

        Parameters
        ----------
        sums, values
            The answer.
        slots : array
            Slots of the new candidates.
        start, n_old : int
            First appended column, and number of appended columns.
        """
        n_new, n_targets, capacity = len(slots), self._residual.shape[1], len(self.rows)
        cross, gram = sums["cross"], sums["gram"]
        self._cross[start : start + n_old] = gram[:, :n_old].T
        fresh = slice(n_old, n_old + n_new)
        self._cross[: start + n_old, slots] = cross[fresh].T
        self._gram[:, slots] = gram[:, fresh]
        self._gram[slots] = gram[:, fresh].T
        self._products = gram[:, len(cross) : len(cross) + n_targets]
        rows = np.concatenate([self.rows, self.watched])
        sorter = np.argsort(rows)
        where = sorter[np.searchsorted(rows, values.rows, sorter=sorter)]
        self._residual[where] = values.values[:, :n_targets]
        self._kernel[where] = values.values[:, n_targets : n_targets + capacity]
        self._q[where, : start + n_old] = values.values[:, n_targets + capacity :]

    def candidates(self, n_columns: int) -> tuple[NDArray[np.intp], LookaheadCandidates]:
        """Return the slots in use, and the candidates and watched rows for a prediction."""
        slots = np.flatnonzero(self.rows >= 0)
        where = np.concatenate([slots, len(self.rows) + np.arange(len(self.watched))])
        return slots, LookaheadCandidates(
            rows=np.concatenate([self.rows, self.watched])[where],
            gram=self._gram[np.ix_(slots, slots)],
            cross=self._cross[:n_columns, slots],
            products=self._products[slots],
            kernel=self._kernel[np.ix_(where, slots)],
            q=self._q[where, :n_columns],
            residual=self._residual[where],
        )


@dataclass
class _Panel:
    """A predicted panel."""

    slots: NDArray[np.intp]
    rows: Rows
    features: list[NDArray[Any]]
    norms: Array
    """(n,): |k|^2."""
    coefficients: Array
    """(m + 1, n): coefficients of the kernel columns on the columns of Q."""
    lower: Array
    """(n, n): the orthogonalised columns are F @ lower."""
    columns: dict[int, tuple[Array, float, Array]]
    """Position to (column of U, s, z) of the columns that are independent."""
    steps: Array
    """(n, T): z / (lambda + s), zero for a column that depends on the others."""

    @property
    def width(self) -> int:
        """Number of columns with padding."""
        return padded_width(len(self.rows))


class LookaheadSelector(Selector):
    """Accepts the row with the largest residual in each step, as many in a panel as were predicted right."""

    def _start(self, n_targets: int) -> None:
        settings = self.settings
        self._candidates = CandidatePool(settings.pool, settings.max_centers + 1, n_targets)
        self._phase = "enter"
        self._entered = np.empty(0, dtype=np.intp)
        self._commit: Commit | None = None
        self._panel: _Panel | None = None
        self._leader = -1
        self._floor = 0.0
        self._leaning = np.zeros((settings.max_centers + 1, settings.max_centers + 1))
        self._ending: StopReason | None = None

    def _take_first_draw(self, answer: ProblemAnswer) -> None:
        drawn = answer.drawn
        assert drawn is not None
        assert drawn.features is not None
        order = np.argsort(drawn.top.rows)
        rows, norms = drawn.top.rows[order], drawn.top.residuals[order]
        self._look_at(drawn.largest, rows, norms, drawn.features, len(rows))
        self.reason = self._ending

    @property
    def mid_round(self) -> bool:
        """Whether a panel was predicted or accepted whose columns the blocks have not appended yet."""
        return self._phase != "form"

    def next_step(self) -> LookaheadStep | None:
        """Return a step that forms a predicted panel, one that tries it, or one that commits it with new candidates."""
        if self.reason is not None:
            return None
        if self._phase == "form":
            return LookaheadStep(form=self._predict())
        if self._phase == "trial":
            return LookaheadStep(trial=self._trial)
        if self._ending is not None or self.n_centers >= self.settings.max_centers:
            return LookaheadStep(commit=self._commit)
        pool, columns = self._candidates, None
        if len(self._entered):
            features = np.array([pool.features[slot] for slot in self._entered])
            columns = Columns(pool.rows[self._entered], features, np.empty(0, dtype=np.int64))
        rows = np.concatenate([pool.rows[pool.rows >= 0], pool.watched])
        return LookaheadStep(commit=self._commit, columns=columns, enter=Enter(self._entered, rows))

    def receive(self, answer: ProblemAnswer) -> None:
        """Take the answer to the last step."""
        require_finite_sums(answer)
        if self._phase == "form":
            self._finish(answer)
            self._phase = "trial"
        elif self._phase == "trial":
            assert answer.leaders is not None
            self._accept(answer.leaders)
            self._phase = "enter"
        else:
            self._appended()
            self._watch_validation(answer)
            if self._commit is not None:
                self.round += 1
            self.reason = self.reason or self._ending
            if self.reason is None:
                self._take_candidates(answer)
            self._commit = None
            self._phase = "form"

    def _take_candidates(self, answer: ProblemAnswer) -> None:
        assert answer.candidates is not None
        n_columns = self.factors.n_columns
        n_old = 0 if self._commit is None else len(self._commit.keep)
        start = n_columns - n_old
        self._candidates.take(answer.sums, answer.candidates, self._entered, start, n_old)
        products = answer.sums["cross"][:n_old]
        self._leaning[start:n_columns, :n_columns] = products
        self._leaning[:n_columns, start:n_columns] = products.T
        np.fill_diagonal(self._leaning[:n_columns, :n_columns], 0.0)

    def _predict(self) -> FormAhead:
        factors, settings = self.factors, self.settings
        slots, candidates = self._candidates.candidates(factors.n_columns)
        prediction = predict_steps(
            candidates,
            factors.s,
            factors.residual_products,
            factors.preview,
            first=int(np.flatnonzero(candidates.rows == self._leader)[0]),
            limit=min(settings.panel, settings.max_centers - self.n_centers),
            reliable=settings.predictable,
            # A dependent row changes no residual. After one dependent row, the next ones often are dependent too.
            through_dependent=self._idle > 0,
        )
        n_columns = factors.n_columns
        order = list(prediction.order)
        features = [self._candidates.features[slot] for slot in slots[order]]
        panel = self._panel = _Panel(
            slots=slots[order],
            rows=candidates.rows[order],
            features=[f for f in features if f is not None],
            norms=candidates.gram.diagonal()[order],
            coefficients=orthogonal_coefficients(
                candidates.cross[:, order], factors.s, self._leaning[:n_columns, :n_columns]
            ),
            lower=prediction.lower,
            columns={},
            steps=np.zeros((len(order), len(factors.target_norms))),
        )
        combine = np.zeros((len(order), panel.width))
        combine[:, : len(order)] = np.linalg.inv(panel.lower)
        check = bool(prediction.share < settings.one_pass)
        return FormAhead(panel.slots, combine, panel.coefficients @ combine, check)

    def _finish(self, answer: ProblemAnswer) -> None:
        """Compute the second orthogonalisation pass, and exact s, z and steps of the predicted panel."""
        panel, factors, sums = self._panel, self.factors, answer.sums
        assert panel is not None
        n = len(panel.rows)
        cross = sums["cross"][:n].T if "cross" in sums else np.zeros((factors.n_columns, n))
        update = self._finish_panel(cross, sums, panel.lower, panel.norms)
        combine = np.zeros((panel.width, panel.width))
        correct = np.zeros((factors.n_columns, panel.width))
        for i, position in enumerate(update.kept):
            combine[:n, position] = update.combine[:, i]
            correct[:, position] = update.correct[:, i]
            column = np.concatenate([panel.coefficients[:, position] + update.u_top[:, i], update.u_new[:i, i]])
            panel.columns[position] = column, float(update.s[i]), update.z[i]
            panel.steps[position] = factors.preview(i, float(update.s[i]), update.z[i])
        self._trial = Trial(
            combine,
            correct if correct.any() else None,
            panel.steps,
            panel.rows,
            self._floor,
            self.settings.pool + LOOKAHEAD_WATCHED,
        )

    def _accept(self, leaders: Leaders) -> None:
        """Accept the steps whose row had the largest residual after the step before."""
        panel = self._panel
        assert panel is not None
        count = 0
        keep: list[int] = []
        # The blocks hold the tried columns.
        self._formed = Unappended(np.eye(panel.width)[:, list(panel.columns)], None)
        for i, row in enumerate(panel.rows):
            if i and (leaders.leader(i - 1) != row or self._is_small(leaders.largest[i - 1])):
                break
            if i:
                self.residual_max = float(leaders.largest[i - 1])
            count += 1
            if i not in panel.columns:
                self._count_idle(IDLE_ROWS)
            else:
                self._append(int(row), panel.features[i], *panel.columns[i])
                keep.append(i)
            if self.reason is not None:
                return
        if self.n_centers >= self.settings.max_centers and not self._rule.watches_validation:
            self.reason = StopReason.MAX_CENTERS
            return
        self._commit = Commit(
            self.factors.n_columns - len(keep),
            np.array(keep, dtype=np.int64),
            panel.steps[keep],
            panel.rows[:count],
        )
        self._candidates.remove(panel.rows[:count])
        last = count - 1
        assert leaders.features is not None
        self._look_at(
            float(leaders.largest[last]), leaders.rows, leaders.norms[:, last], leaders.features, LOOKAHEAD_NEW
        )

    def _look_at(self, largest: float, rows: Rows, norms: Array, features: NDArray[Any], most: int) -> None:
        """Choose new candidates by the residuals at the start of the next panel."""
        self.residual_max = largest
        if self._is_small(largest):
            self._ending = StopReason.RESIDUAL_BELOW
        elif not (norms >= 0.0).any():
            self._ending = StopReason.CANDIDATES_EXHAUSTED
        if self._ending is not None:
            return
        self._leader = int(rows[norms.argmax()])
        self._entered = self._candidates.enter(rows, norms, features, most)
        descending = np.sort(norms[norms >= 0.0])[::-1]
        self._floor = NEAR * float(descending[: self.settings.pool + LOOKAHEAD_WATCHED // 2][-1])

    def _is_small(self, largest: float) -> bool:
        tol = self.settings.tol
        return tol is not None and self.settings.stop != "lambda" and largest <= tol

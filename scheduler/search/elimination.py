"""Successive elimination: the settings and folds of a cross-validated search that still need a training.

Errors are not negative. So a setting whose errors on some folds already add up to more than those of another setting on
all folds cannot have the lowest mean, whatever its errors on the other folds: leaving these out does not change the
choice. Covers the order of models only; `cross_validation` trains them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Model = tuple[int, int]
"""A setting, and the fold that its training leaves out."""


class SuccessiveElimination:
    """The state of a search.

    Parameters
    ----------
    n_settings, n_folds : int
        Shape of the search.
    leave_out : bool
        Whether settings that cannot have the lowest mean are eliminated (default).

    Attributes
    ----------
    errors : array, shape (n_settings, n_folds)
        Errors so far; NaN elsewhere, and where a fold has no rows.
    trained : array of bool, shape (n_settings, n_folds)
        Models that were trained.
    """

    def __init__(self, n_settings: int, n_folds: int, *, leave_out: bool = True) -> None:
        self.errors = np.full((n_settings, n_folds), np.nan)
        self.trained = np.zeros((n_settings, n_folds), dtype=bool)
        self._leave_out = leave_out

    def note(self, models: Sequence[Model], errors: NDArray[np.float64]) -> None:
        """Store the errors of some models."""
        for (setting, fold), error in zip(models, errors, strict=True):
            self.errors[setting, fold] = error
            self.trained[setting, fold] = True

    @property
    def sums(self) -> NDArray[np.float64]:
        """Sum of the errors so far, shape (n_settings,)."""
        return np.asarray(np.nansum(self.errors, axis=1))

    def means(self) -> NDArray[np.float64]:
        """Return the mean errors so far, shape (n_settings,); that of an eliminated setting is not the lowest."""
        counts = np.count_nonzero(~np.isnan(self.errors), axis=1)
        means = np.full(len(counts), np.nan)
        return np.asarray(np.divide(self.sums, counts, out=means, where=counts > 0))

    def waiting(self, settings: Sequence[int]) -> list[Model]:
        """Return the models of some settings that still need a training, in the order of settings and folds."""
        complete = self.trained.all(axis=1)
        bound = self.sums[complete].min(initial=np.inf) if self._leave_out else np.inf
        able = self.sums <= bound
        return [(s, int(fold)) for s in settings if able[s] for fold in np.flatnonzero(~self.trained[s])]

    def next_models(self, settings: Sequence[int], most: int) -> list[Model]:
        """Return the models to train in the next pass.

        These are all that wait, if memory allows. Otherwise one fold of every setting comes first. Then come the other
        folds of the leading setting, whose sum is the bound, with one more fold of each setting that may still be
        better.

        Parameters
        ----------
        settings : sequence of int
            Settings to choose from.
        most : int
            Most models of a pass.
        """
        waiting = self.waiting(settings)
        if len(waiting) <= most or not self._leave_out:
            return waiting[:most]
        first = dict(reversed(waiting))
        new = [(s, fold) for s, fold in sorted(first.items()) if not self.trained[s].any()]
        if new:
            return new[:most]
        means = self.means()
        ranked = sorted(first, key=lambda s: (means[s], s))
        leader = ranked[0]
        expected = means[leader] * self.trained.shape[1]
        others = [(s, first[s]) for s in ranked[1:] if self.sums[s] <= expected]
        return [*(model for model in waiting if model[0] == leader), *others][:most]

"""Which settings and folds of a cross-validated search are still worth a training.

Errors are not negative. So a setting whose errors on some folds already add up to more than those of another on all
folds cannot have the lowest mean, whatever its other folds would come to: leaving these out changes no choice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Model = tuple[int, int]
"""A setting and the fold it is trained outside of."""


class Race:
    """The state of a search.

    Parameters
    ----------
    n_settings, n_folds : int
        Shape of the search.
    leave_out : bool
        Whether settings that cannot win lose their other folds.

    Attributes
    ----------
    errors : array, shape (n_settings, n_folds)
        Found so far; NaN elsewhere, and where a fold has no rows.
    trained : array of bool, shape (n_settings, n_folds)
        Which were found.
    """

    def __init__(self, n_settings: int, n_folds: int, *, leave_out: bool = True) -> None:
        self.errors = np.full((n_settings, n_folds), np.nan)
        self.trained = np.zeros((n_settings, n_folds), dtype=bool)
        self._leave_out = leave_out

    def note(self, models: Sequence[Model], errors: NDArray[np.float64]) -> None:
        """Take the errors of some models."""
        for (setting, fold), error in zip(models, errors, strict=True):
            self.errors[setting, fold] = error
            self.trained[setting, fold] = True

    @property
    def sums(self) -> NDArray[np.float64]:
        """Sum of the errors so far, shape (n_settings,)."""
        return np.asarray(np.nansum(self.errors, axis=1))

    def means(self) -> NDArray[np.float64]:
        """Mean of the errors so far, shape (n_settings,); that of a setting that was left out is above the lowest."""
        counts = np.count_nonzero(~np.isnan(self.errors), axis=1)
        means = np.full(len(counts), np.nan)
        return np.asarray(np.divide(self.sums, counts, out=means, where=counts > 0))

    def waiting(self, settings: Sequence[int]) -> list[Model]:
        """Models of some settings that are still to be trained, in the order of settings and folds."""
        complete = self.trained.all(axis=1)
        bound = self.sums[complete].min(initial=np.inf) if self._leave_out else np.inf
        able = self.sums <= bound
        return [(s, int(fold)) for s in settings if able[s] for fold in np.flatnonzero(~self.trained[s])]

    def next_models(self, settings: Sequence[int], most: int) -> list[Model]:
        """Models to train next, side by side.

        All that wait if there is room for them. Otherwise one fold of every setting comes first; then what is left of
        the setting that leads, which makes the bound, beside one more fold of those that may still beat it.

        Parameters
        ----------
        settings : sequence of int
            Those to choose from.
        most : int
            How many have room.
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

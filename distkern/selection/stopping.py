"""Stop reasons, and the stop rules that end a path. The scores that rules observe are in `criteria`."""

from __future__ import annotations

from enum import StrEnum


class StopReason(StrEnum):
    """The reason for which selection ended."""

    MAX_CENTERS = "max-centers"
    LAMBDA_CONVERGED = "lambda-converged"
    GCV_RISEN = "gcv-risen"
    VALIDATION_RISEN = "validation-risen"
    LOO_RISEN = "loo-risen"
    BIC = "bic"
    MDL = "mdl"
    ILL_CONDITIONED = "ill-conditioned"
    CANDIDATES_EXHAUSTED = "candidates-exhausted"
    RESIDUAL_BELOW = "residual-below"
    UNEXPLAINED_BELOW = "unexplained-below"
    ALL_ROWS_REACHED = "all-rows-reached"
    TIME_LIMIT = "time-limit"
    ROUNDING = "rounding"

    @property
    def advice(self) -> str:
        """One sentence of advice for the user."""
        return _ADVICE[self]


_ADVICE = {
    StopReason.MAX_CENTERS: "The limit max_centers was reached; raise it if the error is still falling.",
    StopReason.LAMBDA_CONVERGED: "The regularisation stopped changing, the stop rule of the paper.",
    StopReason.GCV_RISEN: "Generalised cross validation passed its minimum; the model at the minimum is kept.",
    StopReason.VALIDATION_RISEN: "The held-out error passed its minimum; the model at the minimum is kept.",
    StopReason.LOO_RISEN: "No further centre lowers the leave-one-out misclassification rate.",
    StopReason.BIC: (
        "The Bayesian information criterion passed its minimum and the model there is kept, a small one; "
        "stop='gcv' keeps more centres and is more accurate where the target is intricate."
    ),
    StopReason.MDL: (
        "The description length passed its minimum and the model there is kept, a very small one; "
        "stop='bic' and stop='gcv' keep more centres and are more accurate where the target is intricate."
    ),
    StopReason.ILL_CONDITIONED: "The factors passed the condition limit; a smaller sigma or fewer centres helps.",
    StopReason.CANDIDATES_EXHAUSTED: (
        "No row was found whose kernel column is independent of the selected ones; if that came early, sigma is too "
        "large for the data, or most rows are duplicates."
    ),
    StopReason.RESIDUAL_BELOW: "The largest residual fell below tol, or all targets are equal and leave none.",
    StopReason.UNEXPLAINED_BELOW: (
        "The part of the targets' squares that no centre explains fell below tolerance, or all targets are equal."
    ),
    StopReason.ALL_ROWS_REACHED: (
        "The rows are few: width and regularisation have the largest evidence with every row as a centre, and the "
        "model has as many centres as come within 1 % of that fit."
    ),
    StopReason.TIME_LIMIT: (
        "The time of max_seconds was used up, and the model of the centres so far is kept; a run that has a directory "
        "resumes from there, with --resume or by another fit."
    ),
    StopReason.ROUNDING: (
        "With more centres the rounding of the kernel values spoils the predictions, so the model ends before; "
        "dtype='float64', a smaller sigma or a smaller max_centers helps."
    ),
}


class StopRule:
    """Base of the stop rules, which observe one number along the path; this rule never stops."""

    watches_validation: bool = False
    reason: StopReason | None = None

    def observe(self, n_centers: int, value: float) -> StopReason | None:
        """Record the observed number of the model with `n_centers` centres; return a reason to stop, or None."""
        return None

    def best(self, n_centers: int) -> int:
        """Return the number of centres to keep of a path that ended at `n_centers`."""
        return n_centers


class MinimumPassed(StopRule):
    """Stops after too many centres without a new minimum of the observed number, and keeps the model at the minimum.

    Parameters
    ----------
    reason : StopReason
        The reason to return.
    patience : int, optional
        Centres without a new minimum; ``max(20, 0.2 m)`` by default.
    """

    def __init__(self, reason: StopReason, patience: int | None = None) -> None:
        self.reason = reason
        self.patience = patience
        self.watches_validation = reason is StopReason.VALIDATION_RISEN
        self._lowest = float("inf")
        self._best = 0

    def observe(self, n_centers: int, value: float) -> StopReason | None:
        """Stop when `value` has not fallen below its minimum for `patience` centres."""
        if value < self._lowest:
            self._lowest, self._best = value, n_centers
        patience = max(20.0, 0.2 * n_centers) if self.patience is None else self.patience
        return self.reason if n_centers - self._best >= patience else None

    def best(self, n_centers: int) -> int:
        """Return the number of centres at the minimum."""
        return min(self._best, n_centers)


class LambdaConverged(StopRule):
    """Stops when lambda stops changing significantly, the rule of the paper's Algorithm 1.

    Parameters
    ----------
    tol : float
        Largest relative change of a step that counts as converged.
    patience : int
        Number of converged steps in a row.
    beyond : float, default 0.0
        The path goes on to so many times the centres at which lambda converged, where a later fit decides at which of
        them it ends.
    """

    reason = StopReason.LAMBDA_CONVERGED

    def __init__(self, tol: float, patience: int, *, beyond: float = 0.0) -> None:
        self.tol = tol
        self.patience = patience
        self._beyond = beyond
        self._ends_at: float | None = None
        self._last = 0.0
        self._converged = 0

    def observe(self, n_centers: int, value: float) -> StopReason | None:
        """Stop after `patience` steps with a relative change of at most `tol`."""
        converged = value > 0 and abs(value - self._last) <= self.tol * value
        self._converged = self._converged + 1 if converged else 0
        self._last = value
        if self._ends_at is None and self._converged >= self.patience:
            self._ends_at = self._beyond * n_centers
        return self.reason if self._ends_at is not None and n_centers >= self._ends_at else None

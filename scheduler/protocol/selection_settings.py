"""Settings of the selection: batch widths, rules, tolerances and limits, shared by all problems of a training.

Covers numbers only; the rules themselves are in `distkern.selection` and `..selectors`.
"""

from __future__ import annotations

from dataclasses import dataclass

from distkern.selection.stopping import LambdaConverged, MinimumPassed, StopReason, StopRule

from .problems import Draw

LOOKAHEAD_POOL = 128
"""Candidates with `criterion="residual"`."""

LOOKAHEAD_PANEL = 32
"""Most steps of a panel with `criterion="residual"`."""

LOOKAHEAD_NEW = 24
"""Most new candidates in a panel with `criterion="residual"`, after the first panel."""

LOOKAHEAD_WATCHED = 384
"""Most rows whose residual is followed without being candidates."""

LOOKAHEAD_STEPS = 4
"""Steps of a panel with `criterion="residual"` for which memory is planned; panels had 7 to 30 in trainings."""

COMPARED_ROWS = 2048
"""Rows on which the model of one target is compared with its fit, about; all of fewer rows."""

COMPARED_COLUMNS = 48
"""Columns of weights, one for each prefix and target, that are compared in an exchange; two prefixes at least."""

COMPARED_PROBLEMS = 16
"""Most problems whose models are compared in an exchange: of very many pairs of classes few are, as a rule."""


def compared_rows(n_targets: int) -> int:
    """Return the rows on which a problem's model is compared with its fit, fewer with many targets."""
    return max(256, COMPARED_ROWS * COMPARED_COLUMNS // max(COMPARED_COLUMNS, 2 * n_targets))


_MINIMUM = {
    "gcv": StopReason.GCV_RISEN,
    "bic": StopReason.BIC,
    "mdl": StopReason.MDL,
    "validation": StopReason.VALIDATION_RISEN,
}
"""Reasons of the stop rules that find the minimum of a number along the path."""


@dataclass(frozen=True)
class SelectionSettings:
    """Rules and limits of a selection; the widths of batches fit the number of rows."""

    max_centers: int
    criterion: str
    sampler: str
    pool: int
    """Pool slots B."""
    accept: int
    """Most centres accepted in a round."""
    panel: int
    """Width of a formed panel, 2 at least: for one column numpy calls gemv, which rounds differently from gemm."""
    batch: int
    """Width of a batch of new candidates."""
    all_rows: bool
    """Whether every row is a candidate from the start, with every width, without draws."""
    regularization: str | float
    stop: str | None
    tol: float | None
    patience: int | None
    seed: int
    single_precision: bool
    n_widths: int = 1
    """Number of widths that a candidate may have."""

    @property
    def dependent(self) -> float:
        """A column with |q|^2 below this times |k|^2 depends on the others."""
        return 1e-10 if self.single_precision else 1e-14

    @property
    def reliable(self) -> float:
        """A candidate's squared norm below this times its last exact value is dominated by rounding."""
        return 1e-3 if self.single_precision else 1e-8

    @property
    def predictable(self) -> float:
        """A candidate's squared norm below this times |k|^2 is lost in the rounding of N - G'(G/s)."""
        return 1e-5 if self.single_precision else 1e-11

    @property
    def one_pass(self) -> float:
        """A column that keeps this share of its squared norm is sufficiently orthogonal after one pass."""
        return float("inf") if self.single_precision else 1e-8

    @property
    def orthogonal(self) -> float:
        """A panel whose cosines with Q are all below this needs no second pass."""
        return 1e-6 if self.single_precision else 1e-12

    @property
    def condition_limit(self) -> float:
        """Largest condition number of Q."""
        return 1e6 if self.single_precision else 1e10

    def stop_rule(self, *, sampled: bool = False) -> StopRule:
        """Return a new stop rule for one problem.

        Parameters
        ----------
        sampled : bool
            Whether it observes estimates from a sample, and the model is cut to its length over all rows; False by
            default.
        """
        if self.stop in _MINIMUM:
            return MinimumPassed(_MINIMUM[self.stop], self.patience)
        if self.stop == "lambda":
            return LambdaConverged(1e-2 if self.tol is None else self.tol, self.patience or 5, beyond=2.0 * sampled)
        return StopRule()

    def draw(self, round_: int) -> Draw:
        """Return the draw of new candidates for a round."""
        size = self.pool if round_ == 0 else self.batch
        if self.criterion == "residual":
            return Draw(self.seed, round_, size, 0, True)
        if self.all_rows:
            return Draw(self.seed, round_, self.pool if round_ == 0 else 0, 0, True)
        n_top = {"top-residual": size, "mixture": size // 2}.get(self.sampler, 0)
        n_weighted = 0 if self.sampler == "top-residual" else size
        return Draw(self.seed, round_, n_top, n_weighted, self.sampler != "uniform")

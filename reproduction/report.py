"""What a reproduction says: a row for each published number, verdicts, notes and what a figure is drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from math import sqrt
from typing import Any

from .panels import Panel

ROUNDING = 1e-9
"""Largest difference between values that count as equal."""


class Verdict(StrEnum):
    """How a measured value stands to the published one."""

    BETTER = "better"
    """At or below the published value, or equal to one that must be met."""
    WITHIN = "within"
    """Above it by no more than the margin."""
    WORSE = "worse"
    """Above it by more than the margin."""
    ABSENT = "absent"
    """Not measured: the data are not there."""
    UNJUDGED = "unjudged"
    """Nothing was published to hold it against."""

    @property
    def as_good(self) -> bool | None:
        """Whether it is at least as good within the margin; None where nothing is judged."""
        return {"better": True, "within": True, "worse": False}.get(self.value)


@dataclass(frozen=True)
class Row:
    """One published number and ours."""

    data: str
    """Set."""
    method: str
    """As the source calls it."""
    measure: str
    """What the numbers are."""
    published: float | None = None
    """Published value."""
    published_deviation: float | None = None
    """Its standard deviation over the partitions."""
    ours: float | None = None
    """Mean over our partitions."""
    deviation: float | None = None
    """Our standard deviation over the partitions, None for one."""
    margin: float | None = None
    """How far above the published value is still as good."""
    runs: int = 0
    """Partitions that ours is the mean of."""
    centers: float | None = None
    """Mean number of centres of ours."""
    evaluations: float | None = None
    """Kernel evaluations a prediction, ours."""
    published_evaluations: float | None = None
    """Kernel evaluations a prediction, as the published fraction of centres implies."""
    settings: str = ""
    """What cross-validation chose."""
    judged: bool = True
    """Whether ours can be held against the published value."""
    equality: bool = False
    """Whether ours must equal the published value, up to rounding, instead of being no higher."""

    @property
    def verdict(self) -> Verdict:
        """Hold ours against the published value."""
        if self.ours is None:
            return Verdict.ABSENT
        if self.equality and self.published is not None:
            return Verdict.BETTER if abs(self.ours - self.published) <= ROUNDING else Verdict.WORSE
        return judge(self.ours, self.published if self.judged else None, self.margin)

    def record(self) -> dict[str, Any]:
        """Return the row as JSON values."""
        return asdict(self) | {"verdict": str(self.verdict), "as_good": self.verdict.as_good}


@dataclass(frozen=True)
class Report:
    """What one table or figure came to."""

    rows: Sequence[Row]
    notes: Sequence[str] = ()
    """Sentences: how it was done where that differs from the source, and what separates the numbers."""
    panels: Sequence[Panel] = ()
    """What to draw, for figures."""


def judge(ours: float, published: float | None, margin: float | None) -> Verdict:
    """Hold a value against a published one; lower is better.

    Parameters
    ----------
    ours : float
        Measured value.
    published : float or None
        Published value.
    margin : float or None
        Standard deviation or standard error; None counts as 0.
    """
    if published is None:
        return Verdict.UNJUDGED
    if ours <= published + ROUNDING:
        return Verdict.BETTER
    return Verdict.WITHIN if ours <= published + (margin or 0.0) + ROUNDING else Verdict.WORSE


def binomial_error(percent: float, n_rows: int) -> float:
    """Return the standard error of a percentage that was counted on `n_rows` rows, in percent.

    Parameters
    ----------
    percent : float
        Rows that are wrong, 0 to 100.
    n_rows : int
        Test rows.
    """
    share = percent / 100
    return 100 * sqrt(share * (1 - share) / n_rows)

"""The result of a reproduction: a row and a verdict for each published number, notes, and the data of figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from math import hypot, sqrt
from typing import Any

from .panels import Panel

ROUNDING = 1e-9
"""Largest difference of values that count as equal."""

ERRORS = 2.0
"""Standard errors of the difference that a difference must exceed to count."""


class Verdict(StrEnum):
    """Result of the comparison of a measured value with the published one; lower is better."""

    BETTER = "better"
    """Below the published value by more than `ERRORS` standard errors of the difference."""
    EQUAL = "equal"
    """Within `ERRORS` standard errors of the difference; where both must be equal, equal to it."""
    WORSE = "worse"
    """Above the published value by more than `ERRORS` standard errors of the difference."""
    ONE_PARTITION = "one partition"
    """No verdict: the published value is a mean over many partitions, and ours is of one of them."""
    ABSENT = "absent"
    """Not measured: the data are not present."""
    NOT_COMPARED = "not-compared"
    """No comparable value was published."""

    @property
    def as_good(self) -> bool | None:
        """Whether the measured value is not worse; None without a verdict."""
        return {"better": True, "equal": True, "worse": False}.get(self.value)


@dataclass(frozen=True)
class Row:
    """One published number and ours."""

    data: str
    """Set."""
    method: str
    """Name of the method in the source."""
    measure: str
    """Quantity of the numbers."""
    published: float | None = None
    """Published value."""
    published_deviation: float | None = None
    """Its standard deviation over the partitions."""
    ours: float | None = None
    """Mean over our partitions."""
    deviation: float | None = None
    """Our standard deviation over the partitions, None for one."""
    error: float | None = None
    """Standard error of our mean; None where it is not known, as of one partition of many."""
    published_error: float | None = None
    """Standard error of the published mean."""
    runs: int = 0
    """Number of partitions, or of seeds on one split, in our mean."""
    centers: float | None = None
    """Our mean number of centres."""
    evaluations: float | None = None
    """Our kernel evaluations for one prediction."""
    published_evaluations: float | None = None
    """Kernel evaluations for one prediction, from the published fraction of centres."""
    settings: str = ""
    """Settings that cross-validation chose."""
    comparable: bool = True
    """Whether ours can be compared with the published value."""
    equality: bool = False
    """Whether ours must equal the published value, up to rounding, instead of being no higher."""

    @property
    def verdict(self) -> Verdict:
        """Result of the comparison of ours with the published value."""
        if self.ours is None:
            return Verdict.ABSENT
        if self.equality and self.published is not None:
            return Verdict.EQUAL if abs(self.ours - self.published) <= ROUNDING else Verdict.WORSE
        return compare(self.ours, self.published if self.comparable else None, self.error, self.published_error)

    def record(self) -> dict[str, Any]:
        """Return the row as JSON values."""
        return asdict(self) | {"verdict": str(self.verdict), "as_good": self.verdict.as_good}


@dataclass(frozen=True)
class Report:
    """Result of one table or figure."""

    rows: Sequence[Row]
    notes: Sequence[str] = ()
    """Sentences on the protocol where it differs from the source, and on the reasons for different numbers."""
    panels: Sequence[Panel] = ()
    """Data of the figure."""


def compare(ours: float, published: float | None, error: float | None, published_error: float | None) -> Verdict:
    """Compare a value with a published one; lower is better.

    Parameters
    ----------
    ours : float
        Measured value.
    published : float or None
        Published value.
    error : float or None
        Standard error of ours; None where one partition of many gave it.
    published_error : float or None
        Standard error of the published value; None counts as 0.
    """
    if published is None:
        return Verdict.NOT_COMPARED
    if error is None:
        return Verdict.ONE_PARTITION
    limit = ERRORS * hypot(error, published_error or 0.0) + ROUNDING
    if abs(ours - published) <= limit:
        return Verdict.EQUAL
    return Verdict.BETTER if ours < published else Verdict.WORSE


def mean_error(deviation: float | None, runs: int) -> float | None:
    """Return the standard error of a mean, None where the deviation is unknown."""
    return None if deviation is None else deviation / sqrt(runs)


def binomial_error(percent: float, n_rows: int) -> float:
    """Return the standard error of a percentage that was counted on `n_rows` rows, in percent.

    Parameters
    ----------
    percent : float
        Share of wrong rows, 0 to 100.
    n_rows : int
        Number of test rows.
    """
    share = percent / 100
    return 100 * sqrt(share * (1 - share) / n_rows)

"""The number of rows that row weights count as."""

from __future__ import annotations

__all__ = ["factor_of_weights"]


def factor_of_weights(total: float, roots: float) -> float:
    """Return the factor by which small row weights are multiplied, at least 1.

    A weight counts as repeated rows, but weights may also be shares, as of boosting, whose sum says nothing of the
    number of rows. Weights r count as (sum sqrt(r))^2 / sum r rows, the number of n equal ones whatever their size, if
    their own sum is lower. Weights of at least 1, zeros and ones, and weights of mean 1 or more stay as they are.

    Parameters
    ----------
    total : float
        Sum of the weights.
    roots : float
        Sum of their square roots.
    """
    return max(1.0, (roots / total) ** 2) if total else 1.0

"""Probabilities from fitted targets of linear methods: plain functions, which are sent to workers."""

from __future__ import annotations

from ...arrays import Array
from ..base import output_functions as outputs


def shares_of_sides(values: Array, margin: float) -> Array:
    """Return probabilities from targets of +-margin."""
    return outputs.probabilities(values / margin)


def shares_of_indicators(values: Array, margin: float) -> Array:
    """Return probabilities from targets of +-margin for two classes, and of margin or 0 for more."""
    sides = values / margin
    return outputs.probabilities(sides if values.shape[1] == 1 else 2 * sides - 1)

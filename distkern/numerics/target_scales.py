"""Units in which targets of different scale are fitted together.

Targets share centres, and often lambda, so the largest one would decide alone. The units are powers of two: they change
no digit of a number, and targets whose deviations differ by less than the square root of two keep theirs.
"""

from __future__ import annotations

import numpy as np

from ..arrays import Array

__all__ = ["target_units"]

_LEAST = -500
"""Least exponent of a unit: squares of numbers in it stay above the smallest float64."""


def target_units(deviations: Array) -> tuple[float, ...] | None:
    """Return the unit of each target, relative to that of the largest; None where all are one.

    Parameters
    ----------
    deviations : array, shape (T,)
        Standard deviation of each target; a constant target, or one that is not finite, has the unit one.
    """
    usable = np.isfinite(deviations) & (deviations > 0.0)
    if np.count_nonzero(usable) < 2:
        return None
    exponents = np.log2(deviations[usable])
    exponents = np.maximum(np.rint(exponents - exponents.max()), _LEAST)
    if not exponents.any():
        return None
    units = np.ones(len(deviations))
    units[usable] = np.exp2(exponents)
    return tuple(units.tolist())

"""The data of figures: arrays and labels. `figures` draws them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Fit:
    """A function of one variable, a fit to noisy rows of it, and its centres."""

    title: str
    x: Array
    """(n,): points of the curves."""
    truth: Array
    """(n,)"""
    fitted: Array
    """(n,)"""
    rows: Array
    """(M, 2): training inputs and targets."""
    centers: Array
    """(m, 2): the centres among these rows."""


@dataclass(frozen=True)
class Curve:
    """Means and standard deviations over runs along a setting."""

    title: str
    label: str
    """Label of the x axis."""
    x: Array
    """(n,)"""
    mean: Array
    """(n,)"""
    deviation: Array
    """(n,)"""


@dataclass(frozen=True)
class Boundary:
    """A decision function of two variables, the training rows and the centres."""

    title: str
    first: Array
    """(n,): first feature of the grid."""
    second: Array
    """(p,): second feature of the grid."""
    values: Array
    """(p, n): decision function."""
    X: Array
    """(M, 2)"""
    y: NDArray[Any]
    """(M,): two labels."""
    centers: Array
    """(m, 2)"""


Panel = Fit | Curve | Boundary
"""A part of a figure."""

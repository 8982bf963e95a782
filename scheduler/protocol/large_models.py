"""Messages of models with many centres: the draw of further centres, and products for conjugate gradients.

Both read all rows again and change no state. The products never form a Gram matrix: every answer has a few columns as
long as the centres. Covers no arithmetic, see `..blocks.center_products`, and no iterations, see
`..training.large_models`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from distkern.arrays import Array, Rows


@dataclass(frozen=True)
class CenterDraw:
    """A draw of rows without replacement, in proportion to weight times squared residual of a model, or to weight."""

    rows: Rows
    """(m,): numbers of the centres of the model, which are not drawn."""
    model: ResidualModel | None
    """The model; None to draw in proportion to the row weight."""
    count: int
    """Rows to draw."""
    seed: int
    """Key of the row draws."""
    stream: int
    """Stream of the row draws."""


@dataclass(frozen=True)
class ResidualModel:
    """A model whose residuals decide a draw."""

    features: NDArray[Any]
    """(m, d): raw features of the centres."""
    weights: Array
    """(m + 1, T): the intercept on centred targets first."""
    target_means: Array
    """(T,): subtracted from the encoded targets."""


@dataclass(frozen=True)
class DrawCenters:
    """Read all rows again and answer with rows that become centres; changes no state."""

    problems: tuple[CenterDraw | None, ...]


@dataclass(frozen=True)
class RightSides:
    """Columns over all rows: what P, (m, T), leaves of the centred targets; ones; and rows of random signs."""

    target_means: Array
    """(T,): subtracted from the encoded targets."""
    probes: int
    """Columns of random signs, divided by the root weights."""
    seed: int
    """Key of the signs."""


@dataclass(frozen=True)
class CenterProducts:
    """Products with the kernel columns K of all rows and given centres, which are never stored."""

    rows: Rows
    """(m,): numbers of the centres."""
    features: NDArray[Any]
    """(m, d): raw features of those rows."""
    vectors: Array
    """(m, k): P. The answer holds K'W K P; or, with `right_sides`, K'W times the columns that it names."""
    right_sides: RightSides | None = None


@dataclass(frozen=True)
class Multiply:
    """Read all rows again and answer with products for conjugate gradients; changes no state."""

    problems: tuple[CenterProducts | None, ...]
    iteration: int
    """Number of the iteration; 0 for the right-hand sides."""

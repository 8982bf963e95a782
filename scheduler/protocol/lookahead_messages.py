"""What a problem does in an exchange with `criterion="residual"`: predict, check, commit.

A panel takes three exchanges: the predicted columns are formed, then tried step by step, and the steps that were
right are committed beside the kernel columns of new candidates.
"""

from __future__ import annotations

from dataclasses import dataclass

from distkern.arrays import Array, Rows

WIDTH_UNIT = 4
"""Batches of columns are padded with zero columns to a multiple of this."""


def padded_width(n: int) -> int:
    """Width of a batch of `n` columns."""
    return max(1, -(-n // WIDTH_UNIT)) * WIDTH_UNIT


@dataclass(frozen=True)
class FormAhead:
    """Form the predicted columns, F = K T - Q C, from the candidates' kernel columns K."""

    slots: Rows
    """(n,): slots of the candidates."""
    combine: Array
    """(n, w): T."""
    coefficients: Array
    """(m + 1, w): C."""
    check: bool
    """Whether to answer with Q'F."""


@dataclass(frozen=True)
class Trial:
    """Finish the formed columns, Q_new = F W - Q C, and go through the steps one at a time without keeping E."""

    combine: Array
    """(w, w): W; the column of a candidate that depends on the others is zero."""
    correct: Array | None
    """(m + 1, w): C, the second orthogonalisation pass; None where the first was good enough."""
    steps: Array
    """(n, T): z / (lambda + s) of each step."""
    rows: Rows
    """(n,): the row that each step takes."""
    floor: float
    """Answer with the rows whose residual is at least this after any step,"""
    most: int
    """and with this many at most."""


@dataclass(frozen=True)
class Commit:
    """Add tried columns to Q; E follows (thesis 3.82)."""

    start: int
    """Columns of Q so far."""
    keep: Rows
    """(k,): which of the tried columns."""
    steps: Array
    """(k, T): z / (lambda + s) of each step."""
    rows: Rows
    """Rows that were chosen, with those whose columns depend on the others."""


@dataclass(frozen=True)
class Enter:
    """Put the new kernel columns into slots, and answer with what a simulation needs."""

    slots: Rows
    """(n,): slot of each new candidate."""
    rows: Rows
    """(R,): rows to answer with values of E, K and Q for."""

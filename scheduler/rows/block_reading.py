"""Reading of a block: its rows, those that select centres, and the statistics of a set of rows.

With `selection_rows`, centres are selected on a sample of the rows. Every block draws a share in proportion to its
length, so the draw needs no other block; the statistics are of all rows. Covers one block; `data_checks` checks
the merged statistics, `distkern.storage` reads arrays and retries.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distkern.errors import DataError
from distkern.numerics.moments import Moments
from distkern.numerics.row_draws import Shortlist, draw_keys, row_uniforms, uniforms_for_rows
from distkern.storage import ReadReport, collect_report, differing_arrays, plain_labels, rows_checksum, to_numeric
from distkern.storage.arrays.source import BlockSource

from ..protocol.answers import Labels, LoadAnswer, Sample
from ..protocol.messages import Load

HOLDOUT_STREAM = 1 << 40
"""Stream of the row draws that decides which rows are held out."""

SAMPLE_STREAM = HOLDOUT_STREAM + 1
"""Stream of the row draws for the median distance."""

SELECTION_STREAM = HOLDOUT_STREAM + 2
"""Stream of the row draws that decides which rows select centres."""


RARE = 0.25
"""Rows of a class with less than this part of an equal share of its block are drawn more often, up to this part."""


class BlockRows(NamedTuple):
    """Rows of a block as read from its source; unpack it, so that arrays that are replaced can be freed."""

    rows: NDArray[np.int64]
    """(n,): global row numbers."""
    features: NDArray[Any] | None
    """(n, d): raw features; None where they were not read."""
    targets: NDArray[Any]
    """(n,) or (n, T): numbers, or labels."""
    weights: NDArray[np.float64] | None
    """(n,): row weights."""
    nbytes: int
    """Bytes that were read."""
    checksum: int
    """Checksum of all arrays that were read (`rows_checksum`)."""
    report: ReadReport
    """Retries and absent chunks."""

    def present(self) -> BlockRows:
        """Return the rows with a weight above zero."""
        if self.weights is None or (kept := self.weights > 0).all():
            return self
        return self._replace(
            rows=self.rows[kept],
            features=None if self.features is None else self.features[kept],
            targets=self.targets[kept],
            weights=self.weights[kept],
        )


def read_block(source: BlockSource, number: int, classification: bool, *, with_features: bool = True) -> BlockRows:
    """Read one block.

    Parameters
    ----------
    source : BlockSource
        Source of the rows.
    number : int
        Block number.
    classification : bool
        Whether targets are labels.
    with_features : bool
        Whether to read features; True by default.

    Raises
    ------
    DataError
        The targets are not numbers, or not labels.
    """
    first, last = source.boundaries[number : number + 2]
    with collect_report() as report:
        features = source.read_features(number) if with_features else None
        targets, weights = source.read_targets(number), source.read_weights(number)
    nbytes = sum(a.nbytes for a in (features, targets, weights) if a is not None)
    targets = plain_labels(flat_labels(targets), first) if classification else to_numeric(targets, "y", first)
    rows = np.arange(first, last, dtype=np.int64)
    return BlockRows(rows, features, targets, weights, nbytes, rows_checksum(features, targets, weights), report)


def require_unchanged(source: BlockSource, number: int, expected: int | None, found: int) -> None:
    """Refuse a block whose data changed since an earlier read.

    Parameters
    ----------
    source : BlockSource
        Source of the rows.
    number : int
        Block number.
    expected : int or None
        Checksum of the earlier read; None where unknown.
    found : int
        Checksum of this read.

    Raises
    ------
    DataError
        ``changed``.
    """
    changed = [] if expected is None else differing_arrays(expected, found)
    if changed:
        first, last = source.boundaries[number : number + 2]
        raise DataError(
            f"{' and '.join(changed)} changed while the training ran: rows {first} to {last - 1} (block {number}) of "
            f"{source.place} are not what was read before; train on data that nothing writes to, and persist a dask "
            "array that does not give the same numbers each time",
            kind="changed",
        )


def flat_labels(targets: NDArray[Any]) -> NDArray[Any]:
    """Return labels of shape (n,), also from a single column of shape (n, 1).

    Raises
    ------
    DataError
        There are several columns.
    """
    if targets.ndim == 2 and targets.shape[1] == 1:
        return targets[:, 0]
    if targets.ndim != 1:
        raise DataError(f"y has {targets.shape[1]} columns: a classifier takes one label a row", kind="shape-mismatch")
    return targets


def selecting_rows(
    message: Load,
    present: NDArray[np.bool_],
    first_row: int,
    n_rows: int,
    labels: NDArray[Any] | None = None,
) -> NDArray[np.bool_]:
    """Draw a block's share of the selection sample.

    Parameters
    ----------
    message : Load
        Size of the sample, and key of the draw.
    present : array, shape (rows of the block,)
        Rows that may be drawn.
    first_row : int
        Global number of the block's first row.
    n_rows : int
        Rows of all blocks.
    labels : array, shape (rows of the block,), optional
        Labels; rows of a class that is rare in the block are then more likely to be drawn. None by default.

    Returns
    -------
    array, shape (rows of the block,)
        Mask of the drawn rows. Their number is a function of the block's boundaries, and the numbers of all blocks add
        up to the sample; where fewer rows are present, all of them are drawn.
    """
    share = _up_to(message, first_row + len(present), n_rows) - _up_to(message, first_row, n_rows)
    keys = row_uniforms(message.seed, SELECTION_STREAM, first_row, len(present))
    if labels is not None:
        odds = _odds(labels, present)
        if odds.max(initial=1.0) > 1.0:
            # Exponential times with these rates; with equal rates they have the order of the uniform numbers.
            keys = -np.log1p(-keys) / odds
    order = np.argsort(np.where(present, keys, np.inf), kind="stable")
    drawn = np.zeros(len(present), dtype=bool)
    drawn[order[:share]] = True
    return drawn & present


def _odds(labels: NDArray[Any], present: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the odds of every row of a block: above 1 in a class with less than `RARE` of an equal share."""
    odds = np.ones(len(labels))
    values, classes = np.unique(labels[present], return_inverse=True)
    counts = np.bincount(classes.ravel(), minlength=len(values))
    if len(values):
        odds[present] = np.maximum(1.0, RARE * counts.sum() / (len(values) * counts))[classes.ravel()]
    return odds


def _up_to(message: Load, row: int, n_rows: int) -> int:
    """Return the number of sample rows before `row`, rounded to the nearest integer."""
    return (2 * message.selection_rows * row + n_rows) // (2 * n_rows)


def row_statistics(
    message: Load,
    rows: NDArray[np.int64],
    features: NDArray[Any] | None,
    targets: NDArray[Any],
    weights: NDArray[np.float64] | None,
    *,
    labels: Labels | None = None,
    n_held: int = 0,
    bytes_read: int = 0,
) -> LoadAnswer:
    """Compute moments, and draw the sample for the median distance.

    Parameters
    ----------
    message : Load
        Size and key of the sample, and whether targets are labels.
    rows : array, shape (n,)
        Ascending global row numbers.
    features : array, shape (n, d), or None
        Raw features; None where another process holds them.
    targets : array, shape (n,) or (n, T)
        Numbers, or labels.
    weights : array, shape (n,), or None
        Row weights; a row of weight zero is ignored.
    labels, n_held, bytes_read : optional
        Fields of `LoadAnswer`; by default the labels of these rows, and zero.
    """
    sample = None
    if message.sample_rows and features is not None:
        mass = np.ones(len(rows)) if weights is None else weights
        keys = draw_keys(uniforms_for_rows(message.seed, SAMPLE_STREAM, rows), mass)
        drawn = Shortlist.top(keys, rows, np.zeros(len(rows)), message.sample_rows)
        where = np.searchsorted(rows, drawn.rows)
        sample = Sample(drawn, features[where], mass[where], message.sample_rows)
    if message.classification and labels is None:
        labels = Labels.of(targets, weights)
    columns = targets if targets.ndim == 2 else targets[:, None]
    return LoadAnswer(
        features=Moments.empty(0) if features is None else Moments.from_rows(features, weights),
        targets=None if message.classification else Moments.from_rows(columns, weights),
        labels=labels,
        sample=sample,
        n_fit=len(rows) if weights is None else int(np.count_nonzero(weights > 0)),
        n_held=n_held,
        bytes_read=bytes_read,
        weight_roots=float(len(rows)) if weights is None else float(np.sqrt(weights).sum()),
    )


def block_statistics(block: BlockRows, message: Load) -> LoadAnswer:
    """Compute the statistics of all rows of a block."""
    with np.errstate(over="ignore", invalid="ignore"):
        return row_statistics(message, *block[:4], bytes_read=block.nbytes)

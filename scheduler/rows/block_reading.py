"""What a block notes when it reads its rows: which of them select centres, and the statistics of a set of rows.

With `selection_rows`, centres are chosen on a sample of the rows. Every block draws its share in proportion to its
length, so that no block has to know of another; statistics are of all rows all the same.
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


class BlockRows(NamedTuple):
    """Rows of a block as its source has them; unpack it, so that nothing keeps what is replaced."""

    rows: NDArray[np.int64]
    """(n,): global row numbers."""
    features: NDArray[Any] | None
    """(n, d): raw features; None where they were not asked for."""
    targets: NDArray[Any]
    """(n,) or (n, T): numbers, or labels."""
    weights: NDArray[np.float64] | None
    """(n,): row weights."""
    nbytes: int
    """Bytes that were read."""
    checksum: int
    """Of everything that was read, as `rows_checksum` makes it."""
    report: ReadReport
    """Retries, and absent chunks."""

    def present(self) -> BlockRows:
        """Return the block without the rows of weight zero; itself where it has none."""
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
        Where the rows come from.
    number : int
        Block number.
    classification : bool
        Whether targets are labels.
    with_features : bool
        Whether to read features.

    Raises
    ------
    DataError
        The targets are not what they must be.
    """
    first, last = source.boundaries[number : number + 2]
    with collect_report() as report:
        features = source.read_features(number) if with_features else None
        targets, weights = source.read_targets(number), source.read_weights(number)
    nbytes = sum(a.nbytes for a in (features, targets, weights) if a is not None)
    targets = plain_labels(flat_labels(targets), first) if classification else to_numeric(targets, "y")
    rows = np.arange(first, last, dtype=np.int64)
    return BlockRows(rows, features, targets, weights, nbytes, rows_checksum(features, targets, weights), report)


def require_unchanged(source: BlockSource, number: int, expected: int | None, found: int) -> None:
    """Refuse a block that reads other than it did before.

    Parameters
    ----------
    source : BlockSource
        Where the rows come from.
    number : int
        Block number.
    expected : int or None
        Checksum of what was read before; None where that is not known.
    found : int
        Checksum of what was read now.

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
    """Labels as one dimension; a single column is taken as such.

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


def selecting_rows(message: Load, present: NDArray[np.bool_], first_row: int, n_rows: int) -> NDArray[np.bool_]:
    """Draw a block's share of the selection sample.

    Parameters
    ----------
    message : Load
        Size of the sample, and the key of the draw.
    present : array, shape (rows of the block,)
        Rows that may be drawn.
    first_row : int
        Global number of the block's first row.
    n_rows : int
        Rows of all blocks.

    Returns
    -------
    array, shape (rows of the block,)
        The rows that are drawn: the share is a function of the block's boundaries, and blocks' shares add up to
        the sample. Where fewer are present, all of those.
    """
    share = _up_to(message, first_row + len(present), n_rows) - _up_to(message, first_row, n_rows)
    uniforms = row_uniforms(message.seed, SELECTION_STREAM, first_row, len(present))
    order = np.argsort(np.where(present, uniforms, np.inf), kind="stable")
    drawn = np.zeros(len(present), dtype=bool)
    drawn[order[:share]] = True
    return drawn & present


def _up_to(message: Load, row: int, n_rows: int) -> int:
    """Sample rows before `row`, rounded."""
    return (2 * message.selection_rows * row + n_rows) // (2 * n_rows)


def row_statistics(
    message: Load,
    rows: NDArray[np.int64],
    features: NDArray[Any] | None,
    targets: NDArray[Any],
    weights: NDArray[np.float64] | None,
    *,
    labels: Labels | None,
    n_fit: int,
    n_held: int,
    bytes_read: int,
) -> LoadAnswer:
    """Compute moments, and draw the sample for the median distance.

    Parameters
    ----------
    message : Load
        What is asked for.
    rows : array, shape (n,)
        Ascending global row numbers.
    features : array, shape (n, d), or None
        Raw features; None where another process has them.
    targets : array, shape (n,) or (n, T)
        Numbers, or labels.
    weights : array, shape (n,), or None
        Row weights; a row of weight zero counts as absent.
    labels, n_fit, n_held, bytes_read
        As `LoadAnswer` has them.
    """
    sample = None
    if message.sample_rows and features is not None:
        mass = np.ones(len(rows)) if weights is None else weights
        keys = draw_keys(uniforms_for_rows(message.seed, SAMPLE_STREAM, rows), mass)
        drawn = Shortlist.top(keys, rows, np.zeros(len(rows)), message.sample_rows)
        where = np.searchsorted(rows, drawn.rows)
        sample = Sample(drawn, features[where], mass[where], message.sample_rows)
    columns = targets if targets.ndim == 2 else targets[:, None]
    return LoadAnswer(
        features=Moments.empty(0) if features is None else Moments.from_rows(features, weights),
        targets=None if message.classification else Moments.from_rows(columns, weights),
        labels=labels,
        sample=sample,
        n_fit=n_fit,
        n_held=n_held,
        bytes_read=bytes_read,
    )


def block_statistics(block: BlockRows, message: Load) -> LoadAnswer:
    """Compute the statistics of all rows of a block."""
    with np.errstate(over="ignore", invalid="ignore"):
        return row_statistics(
            message,
            *block[:4],
            labels=Labels.of(block.targets, block.weights) if message.classification else None,
            n_fit=len(block.rows) if block.weights is None else int(np.count_nonzero(block.weights > 0)),
            n_held=0,
            bytes_read=block.nbytes,
        )

"""Tasks of kernel recursive least squares: pure functions of a block of rows. The driver's part is `krls`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distkern.errors import DataError
from distkern.methods.krls import ReducedSums, Snapshot
from distkern.storage import ReadReport
from distkern.storage.arrays.source import BlockSource

from ..protocol.answers import Labels, LoadAnswer
from ..protocol.messages import Load
from ..rows.block_reading import BlockRows, block_statistics, read_block
from ..rows.label_encoding import KnownLabels


def count_labels(source: BlockSource, number: int) -> Labels:
    """Count the labels of one block; its features are not read."""
    block = read_block(source, number, True, with_features=False)
    return Labels.of(block.targets, block.weights)


class Survivors(NamedTuple):
    """Rows of a block that may join the dictionary, with checksum and statistics of the block."""

    rows: NDArray[np.int64]
    """(n,): row numbers within the source."""
    features: NDArray[Any]
    """(n, d): raw features."""
    checksum: int
    """Checksum of the block."""
    nbytes: int
    """Bytes read."""
    report: ReadReport
    loaded: LoadAnswer | None
    """Statistics of the block, where `find_survivors` got a `load`."""


def find_survivors(block: BlockRows, dictionary: Snapshot | None, looking: bool, load: Load | None) -> Survivors:
    """Find the rows of a block whose distance from the span of a dictionary may be too large.

    Parameters
    ----------
    block : BlockRows
        Rows with their features.
    dictionary : Snapshot or None
        The dictionary some rows earlier; None for an empty one.
    looking : bool
        Whether rows can join at all; otherwise there are no survivors.
    load : Load, optional
        Statistics of the block to compute; None for none.
    """
    rows, features, _, weights = block[:4]
    assert features is not None
    loaded = None if load is None else block_statistics(block, load)
    kept = np.zeros(len(rows), dtype=bool)
    if looking:
        present = np.ones(len(rows), dtype=bool) if weights is None else weights > 0
        kept = present.copy()
        if dictionary is not None:
            with np.errstate(over="ignore", invalid="ignore"):
                kept[present] = dictionary.outside(features if present.all() else features[present])
    return Survivors(rows[kept], features[kept], block.checksum, block.nbytes, block.report, loaded)


def sum_rows(
    block: BlockRows, checksum: int, dictionary: Snapshot | None, encoding: KnownLabels, first_row: int, dtype: str
) -> ReducedSums:
    """Sum over the rows of a block, each expanded in the dictionary at its time.

    Parameters
    ----------
    block : BlockRows
        Rows with their features.
    checksum : int
        Checksum of the block when it was searched; after the failure of a worker it is read again.
    dictionary : Snapshot or None
        The dictionary after all rows of the block; None for an empty one.
    encoding : KnownLabels
        Encoding of the targets.
    first_row : int
        Number of the source's first row in the dictionary's count of rows.
    dtype : {"float64", "float32"}
        Precision of the kernel values.

    Raises
    ------
    DataError
        ``changed``: the block has changed since the search; ``unknown-class``.
    """
    if block.checksum != checksum:
        raise DataError(
            f"rows {block.rows[0]} to {block.rows[-1]} changed while the training ran: train on data that nothing "
            "writes to",
            kind="changed",
        )
    if dictionary is None:
        return ReducedSums.empty(encoding.n_targets)
    rows, features, targets, weights = block.present()[:4]
    assert features is not None
    with np.errstate(over="ignore", invalid="ignore"):
        return ReducedSums.of(dictionary, rows + first_row, features, encoding.columns(targets), weights, dtype)

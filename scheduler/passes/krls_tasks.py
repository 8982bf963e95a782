"""What kernel recursive least squares does with a block of rows: pure functions for `block_tasks`."""

from __future__ import annotations

from dataclasses import dataclass
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
from ..rows.label_encoding import LabelEncoding


@dataclass(frozen=True)
class Encoding:
    """From targets as a source has them to columns of numbers."""

    n_targets: int
    """Columns."""
    classes: NDArray[Any] | None = None
    """Sorted labels of the model; None for regression."""
    codes: NDArray[np.int64] | None = None
    """Place in `classes` of each class that the source's codes point into, -1 where it has none; None where targets are
    labels."""

    @classmethod
    def of(cls, source: BlockSource, classes: NDArray[Any] | None) -> Encoding:
        """Match a source with the model's labels."""
        if classes is None:
            return cls(source.target_shape[0] if source.target_shape else 1)
        n_targets = 1 if len(classes) == 2 else len(classes)
        return cls(n_targets, classes, None if source.classes is None else _places(source.classes, classes))

    def encode(self, targets: NDArray[Any]) -> NDArray[np.float64]:
        """Encode the targets of rows, shape (n,) or (n, T), as an array of shape (n, T).

        Raises
        ------
        DataError
            ``unknown-class``: a label is none of the model's.
        """
        if self.classes is None:
            return LabelEncoding().columns(targets)
        codes = _places(targets, self.classes) if self.codes is None else self.codes[targets]
        if (codes < 0).any():
            where = int(np.argmax(codes < 0))
            named = f" {targets[where]!r}" if self.codes is None else ""
            raise DataError(
                f"y holds a label{named} that is none of the {len(self.classes)} classes the model began with: give "
                "all of them to the first partial_fit (classes)",
                kind="unknown-class",
            )
        return LabelEncoding(self.classes, True).columns(codes)


def _places(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """Index of each label in `classes`, -1 where it is not there."""
    where = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
    return np.where(classes[where] == labels, where, -1)


def count_labels(source: BlockSource, number: int) -> Labels:
    """Labels of one block; its features are not read."""
    block = read_block(source, number, True, with_features=False)
    return Labels.of(block.targets, block.weights)


class Survivors(NamedTuple):
    """Rows of a block that may join, and what is worth knowing about the block."""

    rows: NDArray[np.int64]
    """(n,): row numbers within the source."""
    features: NDArray[Any]
    """(n, d): raw."""
    checksum: int
    """Of the block as read."""
    nbytes: int
    """Bytes that were read."""
    report: ReadReport
    loaded: LoadAnswer | None
    """Statistics of the block, if asked for."""


def find_survivors(block: BlockRows, dictionary: Snapshot | None, looking: bool, load: Load | None) -> Survivors:
    """Find the rows of a block that a dictionary does not certainly cover.

    Parameters
    ----------
    block : BlockRows
        Rows with their features.
    dictionary : Snapshot or None
        As it was some rows ago; None for an empty one.
    looking : bool
        Whether rows can join at all; none survives otherwise.
    load : Load, optional
        Statistics to take of the block.
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
    block: BlockRows, checksum: int, dictionary: Snapshot | None, encoding: Encoding, first_row: int, dtype: str
) -> ReducedSums:
    """Sum over the rows of a block, each in terms of the dictionary at its time.

    Parameters
    ----------
    block : BlockRows
        Rows with their features.
    checksum : int
        Of the block when it was searched; where a worker was lost, it has been read again.
    dictionary : Snapshot or None
        After all rows of the block had their chance; None for an empty one.
    encoding : Encoding
        Of the targets.
    first_row : int
        Number of the source's first row in the dictionary's count of rows.
    dtype : {"float64", "float32"}
        Of the kernel values.

    Raises
    ------
    DataError
        ``changed``: the block reads other than it did; ``unknown-class``.
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
        return ReducedSums.of(dictionary, rows + first_row, features, encoding.encode(targets), weights, dtype)

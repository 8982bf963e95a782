"""Sending of rows in the driver's process to workers, a few blocks at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.storage import ReadReport, collect_report, note_report
from distkern.storage.arrays.source import BlockSource


class InlineBlocks:
    """Rows of a few blocks, as a block source that is pickled and sent to a worker."""

    inline = True

    def __init__(self, source: BlockSource) -> None:
        self.n_rows, self.n_features, self.target_shape = source.n_rows, source.n_features, source.target_shape
        self.boundaries, self.feature_dtype = source.boundaries, source.feature_dtype
        self.classes, self.place = source.classes, source.place
        self.pieces: dict[int, tuple[NDArray[Any], NDArray[Any], NDArray[np.float64] | None]] = {}
        self._reports: dict[int, ReadReport] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of the rows."""
        return sum(array.nbytes for piece in self.pieces.values() for array in piece if array is not None)

    def add(self, source: BlockSource, block: int) -> None:
        """Read one block."""
        with collect_report() as self._reports[block]:
            self.pieces[block] = (
                source.read_features(block),
                source.read_targets(block),
                source.read_weights(block),
            )

    def read_features(self, block: int) -> NDArray[Any]:
        """Return the rows of X; the report of their read is added once."""
        note_report(self._reports.pop(block, ReadReport()))
        return np.require(self.pieces[block][0], requirements=["C", "A"])

    def read_targets(self, block: int) -> NDArray[Any]:
        """Return the targets."""
        return np.require(self.pieces[block][1], requirements=["C", "A"])

    def read_weights(self, block: int) -> NDArray[np.float64] | None:
        """Return the row weights."""
        return self.pieces[block][2]


def shipments(source: BlockSource, blocks: Sequence[int], most_bytes: int) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Yield blocks with a source that a worker can read; rows of this process are sent in shipments of a few blocks.

    Parameters
    ----------
    source : BlockSource
        The rows.
    blocks : sequence of int
        Block numbers.
    most_bytes : int
        A shipment is complete once it holds more bytes.
    """
    if not source.inline:
        yield tuple(blocks), source
        return
    shipment = InlineBlocks(source)
    for block in blocks:
        shipment.add(source, block)
        if shipment.nbytes > most_bytes:
            yield tuple(shipment.pieces), shipment
            shipment = InlineBlocks(source)
    if shipment.pieces:
        yield tuple(shipment.pieces), shipment

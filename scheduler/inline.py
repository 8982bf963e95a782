"""Blocks that live in the driver's process, on their way to a worker."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.storage.source import BlockSource


class InlineBlocks:
    """Rows of a few blocks on their way to a worker, a block source of those."""

    inline = True

    def __init__(self, header: dict[str, Any]) -> None:
        self.__dict__.update(header)
        self.pieces: dict[int, tuple[NDArray[Any], NDArray[Any], NDArray[np.float64] | None]] = {}

    @classmethod
    def of(cls, source: BlockSource) -> InlineBlocks:
        """Make an empty shipment with the shapes of `source`."""
        names = ("n_rows", "n_features", "target_shape", "boundaries", "feature_dtype", "classes")
        return cls({name: getattr(source, name) for name in names})

    def fingerprint(self) -> None:
        """Say nothing: what is on its way has no name."""

    @property
    def nbytes(self) -> int:
        """Bytes of the rows on board."""
        return sum(array.nbytes for piece in self.pieces.values() for array in piece if array is not None)

    def add(self, source: BlockSource, block: int) -> None:
        """Read one block on board."""
        self.pieces[block] = (
            source.read_features(block),
            source.read_targets(block),
            source.read_weights(block),
        )

    def read_features(self, block: int) -> NDArray[Any]:
        """Rows of X."""
        return np.require(self.pieces[block][0], requirements=["C", "A"])

    def read_targets(self, block: int) -> NDArray[Any]:
        """Targets."""
        return np.require(self.pieces[block][1], requirements=["C", "A"])

    def read_weights(self, block: int) -> NDArray[np.float64] | None:
        """Row weights."""
        return self.pieces[block][2]

"""Encoding of targets as columns of numbers. `data_checks` decides which labels there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array
from distkern.storage import BlockSource

from ..protocol.answers import LoadAnswer


@dataclass(frozen=True)
class LabelEncoding:
    """Values for regression; for classification a column of +-1 for each class, or one column for two classes."""

    classes: NDArray[Any] | None = None
    """(n_classes,): sorted labels; None for regression."""
    are_codes: bool = False
    """Whether the targets are already positions among `classes`."""

    @classmethod
    def of(cls, source: BlockSource, classes: NDArray[Any] | None) -> LabelEncoding:
        """Return the encoding of a source's targets."""
        return cls(classes, source.classes is not None)

    def codes(self, targets: NDArray[Any]) -> NDArray[np.int64] | None:
        """Return the position of each label among the classes, shape (n,); None for regression."""
        if self.classes is None:
            return None
        return np.asarray(targets if self.are_codes else np.searchsorted(self.classes, targets), dtype=np.int64)

    def columns(self, targets: NDArray[Any]) -> Array:
        """Encode targets of shape (n,) or (n, T) as an array of shape (n, T)."""
        codes = self.codes(targets)
        if self.classes is None or codes is None:
            return (targets if targets.ndim == 2 else targets[:, None]).astype(np.float64)
        if len(self.classes) == 2:
            return np.where(codes == 1, 1.0, -1.0)[:, None]
        encoded = np.full((len(codes), len(self.classes)), -1.0)
        encoded[np.arange(len(codes)), codes] = 1.0
        return encoded

    def class_weights(self, loaded: LoadAnswer) -> Array | None:
        """Return the sum of the row weights of every class, shape (n_classes,); None for regression."""
        if self.classes is None:
            return None
        assert loaded.labels is not None
        weights = np.zeros(len(self.classes))
        weights[self.codes(loaded.labels.values)] = loaded.labels.weights
        return weights

    def means(self, loaded: LoadAnswer) -> Array:
        """Return the weighted mean of every column, shape (T,)."""
        weights = self.class_weights(loaded)
        if weights is None:
            assert loaded.targets is not None
            return loaded.targets.mean
        means: Array = 2 * weights / weights.sum() - 1
        return means[1:] if len(weights) == 2 else means

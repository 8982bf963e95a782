"""Encoding of targets as columns of numbers. `data_checks` decides which labels there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array
from distkern.errors import DataError
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


@dataclass(frozen=True)
class KnownLabels:
    """Encoding of a source's targets by the labels of a model, which the source may lack or add to."""

    n_targets: int
    """Number of columns."""
    classes: NDArray[Any] | None = None
    """Sorted labels of the model; None for regression."""
    places: NDArray[np.int64] | None = None
    """Position in `classes` of each class of the source's codes, -1 where it is missing; None where targets are
    labels."""

    @classmethod
    def of(cls, source: BlockSource, classes: NDArray[Any] | None) -> KnownLabels:
        """Return the encoding of a source by the labels of the model."""
        if classes is None:
            return cls(source.target_shape[0] if source.target_shape else 1)
        n_targets = 1 if len(classes) == 2 else len(classes)
        return cls(n_targets, classes, None if source.classes is None else _places(source.classes, classes))

    def codes(self, targets: NDArray[Any]) -> NDArray[np.int64] | None:
        """Return the position of each label among the classes of the model, shape (n,); None for regression.

        Raises
        ------
        DataError
            ``unknown-class``: the model has no such label.
        """
        if self.classes is None:
            return None
        codes = _places(targets, self.classes) if self.places is None else self.places[targets]
        if (codes < 0).any():
            where = int(np.argmax(codes < 0))
            named = f" {targets[where]!r}" if self.places is None else ""
            raise DataError(
                f"y holds a label{named} that is none of the {len(self.classes)} classes the model began with: give "
                "all of them to the first fit, or to the first partial_fit (classes), or leave such rows out",
                kind="unknown-class",
            )
        return codes

    def columns(self, targets: NDArray[Any]) -> Array:
        """Encode the targets of rows, shape (n,) or (n, T), as an array of shape (n, T); errors as for `codes`."""
        codes = self.codes(targets)
        return LabelEncoding().columns(targets) if codes is None else LabelEncoding(self.classes, True).columns(codes)


def _places(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """Return the position of each label in `classes`, -1 where it is missing."""
    where = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
    return np.where(classes[where] == labels, where, -1)

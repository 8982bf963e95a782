"""Row weights that follow from labels: factors of the classes, and a source whose weights are multiplied by them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array
from distkern.errors import JobError
from distkern.storage import plain_labels
from distkern.storage.arrays.source import BlockSource

from ..protocol.answers import Labels
from ..runtime.threads import map_tiles
from .block_reading import flat_labels, read_block


def label_weights(source: BlockSource) -> Labels:
    """Return the labels of a source, or its codes, and the row weight of each, by a read of the labels alone."""

    def count(number: int) -> Labels:
        block = read_block(source, number, True, with_features=False)
        return Labels.of(block.targets, block.weights)

    # In the order of the blocks, so that the sums have the same bits for any number of threads.
    return reduce(Labels.merge, map_tiles(count, range(len(source.boundaries) - 1)))


def factors_of_classes(given: str | Mapping[Any, float], classes: NDArray[Any], weights: Array) -> Array:
    """Return the factor of each class, shape (n_classes,).

    Parameters
    ----------
    given : "balanced" or mapping
        Factors by label; a label that is missing has 1. Labels that only texts can name, as keys of a file, are found
        by their text. "balanced" gives every class the same weight, and all together that of the rows.
    classes : array, shape (n_classes,)
        Labels of the rows.
    weights : array, shape (n_classes,)
        Row weight of each class, above zero.

    Raises
    ------
    JobError
        ``invalid-parameter``: a label that no row has.
    """
    if isinstance(given, str):
        return np.asarray(weights.sum() / (len(classes) * weights))
    known = classes.tolist()
    texts = [str(label) for label in known]
    factors = np.ones(len(known))
    for label, factor in given.items():
        if label in known:
            factors[known.index(label)] = factor
        elif isinstance(label, str) and label in texts:
            factors[texts.index(label)] = factor
        else:
            shown = ", ".join(map(repr, known[:10])) + (", ..." if len(known) > 10 else "")
            raise JobError(
                f"class_weight names {label!r}, and no row has this label: the labels are {shown}",
                kind="invalid-parameter",
            )
    return factors


class ClassWeighted:
    """Rows of a source whose weights are multiplied by a factor of their class.

    Parameters
    ----------
    source : BlockSource
        The rows.
    classes : array, shape (n_classes,)
        Sorted labels.
    factors : array, shape (n_classes,)
        Factor of each class; other labels have 1.
    """

    def __init__(self, source: BlockSource, classes: NDArray[Any], factors: Array) -> None:
        self._source = source
        self._labels = classes
        self._factors = factors
        self.n_rows, self.n_features = source.n_rows, source.n_features
        self.boundaries, self.target_shape = source.boundaries, source.target_shape
        self.feature_dtype, self.classes = source.feature_dtype, source.classes
        self.inline, self.place = source.inline, source.place

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # not before pickle has set the attributes
            raise AttributeError(name)
        return getattr(self._source, name)

    def read_features(self, block: int) -> NDArray[Any]:
        """Return the rows of X of one block."""
        return self._source.read_features(block)

    def read_targets(self, block: int) -> NDArray[Any]:
        """Return the labels of one block."""
        return self._source.read_targets(block)

    def read_weights(self, block: int) -> NDArray[np.float64] | None:
        """Return the weights of one block times the factors of its labels, which are read for it."""
        targets = flat_labels(self._source.read_targets(block))
        labels = plain_labels(targets) if self.classes is None else np.asarray(self.classes)[targets]
        where = np.minimum(np.searchsorted(self._labels, labels), len(self._labels) - 1)
        factors = np.where(self._labels[where] == labels, self._factors[where], 1.0)
        weights = self._source.read_weights(block)
        return factors if weights is None else weights * factors

    def fingerprint(self) -> str | None:
        """Return a hash of the content and of the factors; None where that of the content is not known."""
        content = self._source.fingerprint()
        if content is None:
            return None
        digest = hashlib.blake2b(digest_size=8)
        digest.update(repr((self._labels.tolist(), self._factors.tolist())).encode())
        return f"{content} class_weight {digest.hexdigest()}"

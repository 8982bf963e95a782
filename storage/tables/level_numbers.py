"""Numbers of the levels of a category, looked up for all levels of a batch at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = ["LevelNumbers"]

MOST_HASHED = 4
"""Most known levels for each level of a batch that Arrow looks up: it hashes all known ones at every call, which takes
about as long as four look-ups in a dictionary of Python."""


class LevelNumbers:
    """Numbers of levels, from 0 in the order in which they were given.

    Parameters
    ----------
    levels : sequence of str, default ()
        Levels.
    """

    def __init__(self, levels: Sequence[str] = ()) -> None:
        self._numbers = {level: number for number, level in enumerate(levels)}
        self._array: Any = pa.array(levels, pa.string())

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def levels(self) -> list[str]:
        """Levels in the order of their numbers."""
        return list(self._numbers)

    def known(self, levels: Any) -> NDArray[np.int64]:
        """Return the number of each level of an Arrow array of text, -1 for unknown ones."""
        if len(self) > MOST_HASHED * len(levels):
            return np.fromiter(map(self._numbers.get, levels.to_pylist(), repeat(-1)), np.int64, len(levels))
        numbers = pc.fill_null(pc.index_in(levels, value_set=self._array), -1)
        return np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.int64)

    def added(self, levels: Any) -> NDArray[np.int64]:
        """Return the number of each level of an Arrow array of different texts; unknown ones get the next numbers."""
        numbers = self.known(levels)
        unknown = numbers < 0
        if unknown.any():
            numbers[unknown] = np.arange(len(self), len(self) + np.count_nonzero(unknown))
            fresh = levels.filter(pa.array(unknown))
            self._numbers.update(zip(fresh.to_pylist(), numbers[unknown].tolist(), strict=True))
            self._array = pa.concat_arrays([self._array, fresh])
        return numbers

"""Arrays gathered in memory from parts of any size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from distkern.storage import memory_array
from distkern.storage.arrays import rows


@pytest.mark.parametrize("sizes", [[50], [1] * 50, [7, 0, 13, 30], [16, 16, 16, 2], [33, 17]])
@pytest.mark.parametrize("tail", [(), (3,)])
@pytest.mark.parametrize("dtype", ["f8", "<U3", "i4"])
def test_parts_come_together(sizes: list[int], tail: tuple[int, ...], dtype: str, monkeypatch: Any) -> None:
    values = np.arange(50 * int(np.prod(tail, dtype=int))).reshape(50, *tail).astype(dtype)
    monkeypatch.setattr(rows, "MAX_MEMORY_BYTES", 16 * values.nbytes // 50)
    parts = np.split(values, np.cumsum(sizes)[:-1])
    result = memory_array(parts, 50, tail, np.dtype(dtype))
    assert result.chunks == (16, *tail)
    assert result.dtype == values.dtype
    np.testing.assert_array_equal(result[:], values)


def test_no_parts() -> None:
    assert memory_array([], 0, (2,), np.dtype("f8")).shape == (0, 2)

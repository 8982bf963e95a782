"""Centres as images, where the features are the pixels of square ones."""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

SMALLEST_SIDE = 8
"""Side from which squares are taken for images where names do not say so."""

LARGEST_SIDE = 256
"""Side up to which centres are shown as images."""

_NAMED = re.compile(r"(?i)^\W*(pixel|pix|px)s?\W?_?\d")
_SMOOTH = 0.75


def image_side(values: NDArray[Any], names: Sequence[str] | None = None) -> int | None:
    """Return the side of the images that rows are, None where they seem to be none.

    The names of the features say so, or a square number of features of which neighbours, to the side and below,
    differ by much less than any two do.

    Parameters
    ----------
    values : array, shape (n, d)
        Rows.
    names : sequence of str, optional
        Names of the features.
    """
    side = math.isqrt(values.shape[1]) if values.ndim == 2 else 0
    if side < 2 or side > LARGEST_SIDE or side * side != values.shape[1]:
        return None
    if names is not None and all(_NAMED.match(name) for name in names):
        return side
    if side < SMALLEST_SIDE or len(values) < 5:
        return None
    images = np.asarray(values[:500], dtype=np.float64).reshape(-1, side, side)
    spread = 2.0 * float(np.mean(np.var(images.reshape(len(images), -1), axis=1)))
    if not spread > 0:
        return None
    across, down = (float(np.mean(np.square(np.diff(images, axis=axis)))) for axis in (2, 1))
    return side if max(across, down) < _SMOOTH * spread else None


def image_address(row: NDArray[Any], side: int, low: float, high: float) -> str:
    """Return a row as a grey PNG image in a ``data:`` address: `low` is white, `high` black."""
    from PIL import Image

    share = (np.asarray(row, dtype=np.float64).reshape(side, side) - low) / ((high - low) or 1.0)
    grey = (255 - 255 * np.clip(share, 0.0, 1.0)).round().astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(grey).save(stream, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()

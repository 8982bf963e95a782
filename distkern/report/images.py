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
"""Least side of images whose features have no names of pixels."""

LARGEST_SIDE = 256
"""Largest side of images."""

_NAMED = re.compile(r"(?i)^\W*(pixel|pix|px)s?\W?_?\d")
_SMOOTH = 0.75


def image_side(values: NDArray[Any], names: Sequence[str] | None = None) -> int | None:
    """Return the side of square images that the rows seem to be; None where they do not.

    Rows are images if their features have the names of pixels, or if neighbours in the square, to the side or below,
    differ much less than any two features.

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

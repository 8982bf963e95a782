"""Names of the array types that most modules speak of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
"""Numbers."""

Rows = NDArray[np.int64]
"""Numbers of rows."""

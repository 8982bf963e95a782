"""Names of the array types in the signatures of most modules."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
"""Array of float64."""

Rows = NDArray[np.int64]
"""Array of row numbers."""

"""Overflow and underflow checks, and warnings about scales, before anything is computed from the rows.

Covers the moments of the rows, and the sums of answers. Other refusals of data are in `data_checks`.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from functools import partial

import numpy as np

from distkern.arrays import Array
from distkern.errors import DataError, ScaleWarning
from distkern.kernels import Gaussian, Gaussians, Kernel
from distkern.numerics.moments import Moments
from distkern.numerics.scaling import FeatureScaling
from distkern.storage import column_name
from distkern.storage.arrays.source import BlockSource

from ..protocol.answers import LoadAnswer, ProblemAnswer

logger = logging.getLogger(__name__)

SMALLEST = {"float64": 1e-140, "float32": 1e-30}
"""Smallest standard deviation whose square, and products of squares, do not underflow."""

LARGEST = {"float64": 1e150, "float32": 1e15}
"""Largest spread of features that are not standardised: squared distances do not overflow."""

LARGEST_TARGET = {"float64": 1e140, "float32": 1e30}
"""Largest standard deviation of a target, which is only multiplied by kernel columns."""

LARGEST_WEIGHT = 1e100
"""Largest sum of row weights."""

SMALLEST_WEIGHT = 1e-100
"""Smallest sum of row weights: weighted squares do not underflow."""

SCALE_RATIO = 1e3
"""Largest ratio of standard deviations of features without a warning."""

NARROW = 0.1
"""A width below this fraction of the spread, divided by the number of rows, reaches single rows only."""

overflow_ignored = np.errstate(over="ignore", invalid="ignore")
"""Decorates what computes products: overflow is found in the sums, and named there, not in a warning for each tile."""


def feature_names(source: BlockSource) -> Sequence[str] | None:
    """Return the names of the features, None where the source has none."""
    names: Sequence[str] | None = getattr(source, "feature_names", None)
    return names


def feature_scales(source: BlockSource) -> Array | None:
    """Return the scales that a source gives its features, NaN for the standard deviation; None where it gives none."""
    scales: Array | None = getattr(source, "feature_scales", None)
    return scales


def check_ranges(loaded: LoadAnswer, dtype: str, *, standardize: bool, names: Sequence[str] | None) -> None:
    """Refuse data whose squares overflow or underflow.

    Parameters
    ----------
    loaded : LoadAnswer
        Statistics of all rows.
    dtype : {"float64", "float32"}
        Precision of the arithmetic.
    standardize : bool
        Whether features are divided by their standard deviations first.
    names : sequence of str or None
        Names of the features.

    Raises
    ------
    DataError
        ``overflow`` or ``underflow``; names the feature or the target.
    """
    if not loaded.features.count <= LARGEST_WEIGHT:
        raise DataError(
            f"the row weights sum to {loaded.features.count:g}, and {LARGEST_WEIGHT:g} is the most: "
            "multiply sample_weight by a common factor",
            kind="overflow",
        )
    for moments, name in ((loaded.features, partial(column_name, names=names)), (loaded.targets, _target_name)):
        if moments is not None and not np.isfinite(moments.m2).all():
            column = int(np.flatnonzero(~np.isfinite(moments.m2))[0])
            raise DataError(
                f"{name(column)} holds values so far apart that their squares overflow: scale it to ordinary sizes",
                kind="overflow",
            )
    if loaded.targets is not None:
        for target, spread in enumerate(loaded.targets.std()):
            _check(_target_name(target), loaded.targets, target, spread, dtype, LARGEST_TARGET[dtype])
    features = loaded.features
    if standardize:
        for feature in np.flatnonzero(features.std() < SMALLEST["float64"]):
            _check(column_name(int(feature), names), features, int(feature), features.std()[feature], "float64", np.inf)
        return
    widest = int(np.argmax(features.std()))
    spread = float(np.linalg.norm(features.std()))
    hint = "; standardize=True does that" if spread >= SMALLEST["float64"] else ""
    _check(column_name(widest, names), features, widest, spread, dtype, LARGEST[dtype], hint)


def _target_name(target: int) -> str:
    return f"target {target} (counted from 0)"


def _check(what: str, moments: Moments, column: int, spread: float, dtype: str, largest: float, hint: str = "") -> None:
    if moments.m2[column] == 0.0 or SMALLEST[dtype] <= spread <= largest:
        return
    small = spread < SMALLEST[dtype]
    limit = f"{SMALLEST[dtype]:g} is the least" if small else f"{largest:g} is the most"
    # Where squares underflow, the standard deviation is only known not to be zero.
    extent = f"of about {spread:.1g}" if spread > 1e-150 else "below 1e-150"
    kind = "underflow" if small else "overflow"
    raise DataError(
        f"{what} has a standard deviation {extent}, and {limit} before products {kind} in {dtype}: "
        f"scale it to ordinary sizes{hint}",
        kind=kind,
    )


def warn_about_scales(moments: Moments, scaling: FeatureScaling, kernel: Kernel, names: Sequence[str] | None) -> None:
    """Warn where one feature dominates the distances, or a centre reaches no other row.

    Parameters
    ----------
    moments : Moments
        Moments of the raw features.
    scaling : FeatureScaling
        From raw features to kernel space.
    kernel : Kernel
        Kernel with its width.
    names : sequence of str or None
        Names of the features.

    Warns
    -----
    ScaleWarning
        Standard deviations in the kernel's space differ by more than a factor of 1000.
    """
    spread = moments.std() / scaling.scale
    varying = np.flatnonzero(spread > 0.0)
    if not len(varying):
        return
    small, large = (int(varying[pick(spread[varying])]) for pick in (np.argmin, np.argmax))
    if spread[large] / spread[small] > SCALE_RATIO:
        warnings.warn(
            f"{column_name(large, names)} has a standard deviation of {spread[large]:.4g} and "
            f"{column_name(small, names)} one of {spread[small]:.4g}: the kernel hardly sees the second; "
            "standardize=True puts both on one scale",
            ScaleWarning,
            stacklevel=2,
        )
    total = float(np.linalg.norm(spread))
    if isinstance(kernel, (Gaussian, Gaussians)) and np.max(kernel.sigma) < NARROW * total / moments.count:
        # Not a Python warning: a search over widths tries such widths on purpose.
        logger.warning(
            "sigma=%g is far below the spread %.3g of the rows in the kernel's space, so that a centre hardly reaches "
            "another row: raise sigma, or leave it to the rule sigma='median'",
            np.max(kernel.sigma),
            total,
        )


def require_finite_sums(answer: ProblemAnswer) -> None:
    """Refuse sums that overflowed, and so residuals and values at rows of candidates."""
    found = list(answer.sums.values())
    if answer.leaders is not None:
        found += [answer.leaders.largest, answer.leaders.norms]
    if answer.candidates is not None:
        found.append(answer.candidates.values)
    if not all(np.isfinite(array).all() for array in found):
        raise overflow()


def overflow() -> DataError:
    """Return the error for a training whose numbers became too large."""
    return DataError(
        "the products of kernel columns or targets overflow: scale the targets, the features (standardize=True) or "
        "sample_weight to ordinary sizes, or use dtype='float64'",
        kind="overflow",
    )

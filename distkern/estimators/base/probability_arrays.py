"""Weights of the classes, and calibrations in model stores."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.scheduler.rows.block_reading import flat_labels
from distkern.storage import BlockSource, plain_labels

from ...probability.calibration import Calibration, PairCalibration
from ...probability.pair_gaussians import PairGaussians

_NAMES = ("calibration_slopes", "calibration_offsets")
_GAUSSIANS, _MOMENTS = "gaussian_", ("means", "deviations", "log_priors")


def probability_arrays(classifier: Any) -> dict[str, NDArray[Any]]:
    """Return the stored arrays of a classifier's probabilities: class weights, and the calibration if there is one."""
    arrays = {}
    if getattr(classifier, "class_prior_", None) is not None:
        arrays["class_weights"] = classifier._class_weights
    calibration = classifier._calibrated()
    if isinstance(calibration, PairGaussians):
        arrays |= {_GAUSSIANS + name: getattr(calibration, name) for name in _MOMENTS}
    elif calibration is not None:
        arrays |= dict(zip(_NAMES, (calibration.slopes, calibration.offsets), strict=True))
    return arrays


def restore_probabilities(classifier: Any, arrays: dict[str, NDArray[Any]]) -> None:
    """Set the attributes of `probability_arrays`, which old stores lack; ValueError where the arrays do not fit."""
    n_outputs, n_classes = len(classifier.intercept_), len(arrays["classes"])
    weights = arrays.get("class_weights")
    if weights is not None:
        require_numbers("class_weights", weights, (n_classes,))
        if (weights < 0).any() or not weights.any():
            raise ValueError("class_weights are negative, or all zero")
        classifier._set_class_weights(weights)
    if _GAUSSIANS + _MOMENTS[0] in arrays:
        _restore_gaussians(classifier, arrays, n_classes)
        return
    slopes, offsets = (arrays.get(name) for name in _NAMES)
    if slopes is None or offsets is None:
        if slopes is not None or offsets is not None:
            raise ValueError("half a calibration")
        return
    pairs = n_classes > 2 and classifier._scheme() in ("one-vs-one", "dag")
    require_numbers(_NAMES[0], slopes, (n_outputs,) if pairs else (n_outputs, n_outputs))
    require_numbers(_NAMES[1], offsets, (n_outputs,))
    classifier._calibration = PairCalibration(slopes, offsets) if pairs else Calibration(slopes, offsets)


def _restore_gaussians(classifier: Any, arrays: dict[str, NDArray[Any]], n_classes: int) -> None:
    n_pairs = n_classes * (n_classes - 1) // 2
    means, deviations, priors = (arrays[_GAUSSIANS + name] for name in _MOMENTS)
    for name, array, shape in (
        ("gaussian_means", means, (n_pairs, 2)),
        ("gaussian_deviations", deviations, (n_pairs, 2)),
        ("gaussian_log_priors", priors, (n_classes,)),
    ):
        require_numbers(name, array, shape)
    if not (deviations > 0.0).all():
        raise ValueError("gaussian_deviations are not above zero")
    own = n_classes == 2 or classifier._scheme() in ("one-vs-one", "dag")
    classifier._calibration = PairGaussians(means, deviations, priors, own)


def require_numbers(name: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
    """Raise ValueError for a stored array of another shape, of other values than floats, or with NaN or infinity."""
    if array.shape != shape or array.dtype.kind != "f" or not np.isfinite(array).all():
        raise ValueError(f"{name} is no array of {shape} finite numbers")


def class_weights_of(source: BlockSource, classes: NDArray[Any]) -> NDArray[np.float64]:
    """Sum the row weights of every class by a pass over the labels alone, shape (n_classes,)."""
    found = np.zeros(len(classes))
    for block in range(len(source.boundaries) - 1):
        labels, weights = flat_labels(source.read_targets(block)), source.read_weights(block)
        if source.classes is None:
            labels = plain_labels(labels)
            codes = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
        else:
            codes = np.minimum(np.searchsorted(classes, source.classes[labels]), len(classes) - 1)
        found += np.bincount(codes, weights, len(classes))
    return found

"""Calibrations in model stores."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.calibration import Calibration, PairCalibration

_NAMES = ("calibration_slopes", "calibration_offsets")


def probability_arrays(classifier: Any) -> dict[str, NDArray[Any]]:
    """Return what a store keeps of a classifier's probabilities: class shares, and the calibration if there is one."""
    arrays = {}
    if getattr(classifier, "class_prior_", None) is not None:
        arrays["class_prior"] = classifier.class_prior_
    calibration = classifier._calibrated()
    if calibration is not None:
        arrays |= dict(zip(_NAMES, (calibration.slopes, calibration.offsets), strict=True))
    return arrays


def restore_probabilities(classifier: Any, arrays: dict[str, NDArray[Any]]) -> None:
    """Set what `probability_arrays` returned; a model from before there was any does without.

    Raises
    ------
    ValueError
        The arrays do not fit the model.
    """
    n_outputs, n_classes = len(classifier.intercept_), len(arrays["classes"])
    priors = arrays.get("class_prior")
    if priors is not None:
        _require_numbers("class_prior", priors, (n_classes,))
        if (priors < 0).any():
            raise ValueError("class_prior is negative")
        classifier.class_prior_ = priors
    slopes, offsets = (arrays.get(name) for name in _NAMES)
    if slopes is None or offsets is None:
        if slopes is not None or offsets is not None:
            raise ValueError("half a calibration")
        return
    pairs = n_classes > 2 and classifier._scheme() in ("one-vs-one", "dag")
    _require_numbers(_NAMES[0], slopes, (n_outputs,) if pairs else (n_outputs, n_outputs))
    _require_numbers(_NAMES[1], offsets, (n_outputs,))
    classifier._calibration = PairCalibration(slopes, offsets) if pairs else Calibration(slopes, offsets)


def _require_numbers(name: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
    if array.shape != shape or array.dtype.kind != "f" or not np.isfinite(array).all():
        raise ValueError(f"{name} is no array of {shape} finite numbers")

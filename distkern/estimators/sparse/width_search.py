"""The widths that ``sigma="cv"`` tries, and the results of a search over settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.scheduler import SearchResult, TrainingJob

SIGMA_FACTORS = 2.0 ** (np.arange(-6, 4) / 2)
"""Multiples of the median distance, the narrowest first."""


def width_jobs(job: TrainingJob) -> list[TrainingJob]:
    """Return a job for each width."""
    return [replace(job, sigma_factor=float(factor)) for factor in SIGMA_FACTORS]


def sigma_results(found: SearchResult) -> dict[str, NDArray[Any]]:
    """Return the results of a search over widths."""
    sigma = np.array([kernel.parameters()["sigma"] for kernel in found.kernels])
    return {"sigma": sigma, **summarise(found)}


def summarise(found: SearchResult) -> dict[str, NDArray[Any]]:
    """Return arrays with an entry for each setting."""
    return {
        "mean_error": found.mean_errors,
        "std_error": np.ma.masked_invalid(found.errors).std(axis=1).filled(np.nan),
        "n_centers": found.n_centers.sum(axis=1) / found.trained.sum(axis=1),
        "errors": found.errors,
    }

"""Parameters that estimators of the OROLS family share; `documentation` has their texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...kernels import Kernel
from ...monitoring.events import Subscriber


@dataclass(kw_only=True, eq=False, repr=False)
class SparseParameters:
    """Parameters of all estimators of the family, see `documentation`."""

    kernel: str | Kernel = "gaussian"
    sigma: float | str | Sequence[float] = "median"
    folds: int = 5
    max_centers: int = 1000
    stop: str | None = "gcv"
    standardize: bool = True
    dtype: Any = "float64"
    factors: str = "auto"
    client: Any = None
    memory_limit: int | str | None = None
    max_seconds: float | None = None
    run_dir: Any = None
    random_state: Any = 0
    callbacks: Sequence[Subscriber] = ()


@dataclass(kw_only=True, eq=False, repr=False)
class PoolParameters(SparseParameters):
    """Parameters of the estimators that choose centres from a pool of candidates, see `documentation`."""

    criterion: str = "error-reduction"
    sampler: str = "mixture"
    candidates: int | str = "auto"
    panel: int = 32
    tol: float | None = None
    patience: int | None = None
    epsilon: float = 0.0
    fit_intercept: bool = True
    selection_rows: int | str | None = "auto"
    solver: str = "auto"
    metric: str = "isotropic"
    metric_rounds: int | None = None
    metric_rank: int | None = None

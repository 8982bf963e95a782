"""The engine: executors, rounds over a run log, and the driver. The only room that imports dask."""

from __future__ import annotations

import importlib
from typing import Any

_EXPORTS = {
    "TrainingJob": "training",
    "TrainingResult": "training",
    "Path": "training",
    "TrainingPlan": "plan",
    "WorkerFacts": "workers",
    "Workload": "memory",
    "PassPlan": "pass_plan",
    "count_targets": "running",
    "plan_job": "running",
    "SearchResult": "searching",
    "problem_counts": "running",
    "search_settings": "searching",
    "run_training": "running",
    "worker_facts": "workers",
    "workload": "running",
    "TlsFiles": "clients",
    "worker_wait": "clients",
    "connect": "clients",
    "current_client": "clients",
    "local_client": "clients",
    "DaskArraySource": "dask_arrays",
    "is_dask_array": "dask_arrays",
    "map_rows": "dask_arrays",
    "evaluate": "prediction",
    "predict_blocks": "prediction",
    "published": "publishing",
}


def __getattr__(name: str) -> Any:
    # Lazy, so that a serial training never imports dask.
    if name in _EXPORTS:
        return getattr(importlib.import_module(f"distkern.scheduler.{_EXPORTS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

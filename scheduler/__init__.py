"""The engine: executors, rounds over a run log, and the driver. The only room that imports dask."""

from __future__ import annotations

import importlib
from typing import Any

_EXPORTS = {
    "ReadAhead": "read_ahead",
    "TimeLimit": "time_limit",
    "ahead_of": "read_ahead",
    "TrainingJob": "training",
    "TrainingResult": "training",
    "Path": "training",
    "TrainingPlan": "plan",
    "WorkerFacts": "workers",
    "Workload": "memory",
    "PassPlan": "pass_plan",
    "count_targets": "running",
    "plan_job": "running",
    "SearchRoom": "search_plan",
    "Finish": "cross_validation",
    "SearchResult": "searching",
    "problem_counts": "running",
    "search_once": "search_record",
    "search_settings": "searching",
    "run_training": "running",
    "worker_facts": "workers",
    "workload": "running",
    "TlsFiles": "clients",
    "worker_wait": "clients",
    "connect": "clients",
    "connect_by_file": "clients",
    "current_client": "clients",
    "local_client": "clients",
    "queue_client": "queues",
    "QUEUE_WAIT_SECONDS": "queues",
    "ssh_client": "hosts",
    "kubernetes_client": "kubernetes",
    "WorkerSize": "worker_settings",
    "await_workers": "arrivals",
    "DaskArraySource": "dask_arrays",
    "is_dask_array": "dask_arrays",
    "frame_array": "dask_frames",
    "series_array": "dask_frames",
    "is_dask_frame": "dask_frames",
    "is_dask_series": "dask_frames",
    "map_rows": "dask_arrays",
    "row_chunks": "dask_arrays",
    "evaluate": "prediction",
    "evaluate_batches": "prediction",
    "predict_blocks": "prediction",
    "published": "publishing",
}


def __getattr__(name: str) -> Any:
    # Lazy, so that a serial training never imports dask.
    if name in _EXPORTS:
        return getattr(importlib.import_module(f"distkern.scheduler.{_EXPORTS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""The engine: executors, rounds over a run log, and the driver. The only room that imports dask."""

from __future__ import annotations

import importlib
from typing import Any

_EXPORTS = {
    "Drift": "training.appended_rows",
    "ReadAhead": "runtime.read_ahead",
    "TimeLimit": "training.time_limit",
    "ahead_of": "runtime.read_ahead",
    "TrainingJob": "training.driver_loop",
    "TrainingResult": "training.driver_loop",
    "Path": "training.driver_loop",
    "Plan": "planning.plan",
    "WorkerFacts": "clusters.worker_queries",
    "Workload": "planning.workload",
    "plan_job": "training.run",
    "LearntMetric": "metric.learning",
    "MetricJob": "metric.metric_job",
    "MetricRoom": "metric.metric_plan",
    "learn_once": "metric.metric_record",
    "read_metric": "metric.metric_record",
    "FewRowsChoice": "metric.few_rows",
    "FewRowsRoom": "metric.few_rows",
    "choose_once": "metric.few_rows",
    "may_choose": "metric.few_rows",
    "SearchRoom": "search.search_plan",
    "Finish": "search.cross_validation",
    "SearchResult": "search.search",
    "problem_counts": "planning.workload",
    "search_once": "search.search_record",
    "search_settings": "search.search",
    "run_training": "training.run",
    "worker_facts": "clusters.worker_queries",
    "workload": "training.run",
    "TlsFiles": "clusters.clients",
    "worker_wait": "clusters.clients",
    "connect": "clusters.clients",
    "connect_by_file": "clusters.clients",
    "found_client": "clusters.client_choice",
    "outside_pool": "clusters.client_choice",
    "predicting_client": "clusters.client_choice",
    "local_client": "clusters.clients",
    "queue_client": "clusters.batch_queue",
    "QUEUE_WAIT_SECONDS": "clusters.batch_queue",
    "ssh_client": "clusters.ssh",
    "kubernetes_client": "clusters.kubernetes",
    "WorkerSize": "clusters.worker_settings",
    "await_workers": "clusters.clients",
    "DaskArraySource": "prediction.dask_arrays",
    "is_dask_array": "prediction.dask_arrays",
    "frame_array": "prediction.dask_frames",
    "partition_lengths": "prediction.dask_frames",
    "series_array": "prediction.dask_frames",
    "map_rows": "prediction.dask_arrays",
    "row_chunks": "prediction.dask_arrays",
    "evaluate": "prediction.local",
    "evaluate_batches": "prediction.local",
    "predict_blocks": "prediction.local",
    "predict_on_workers": "prediction.on_workers",
    "published": "dashboard.publisher",
}


def __getattr__(name: str) -> Any:
    # Lazy, so that a serial training never imports dask.
    if name in _EXPORTS:
        return getattr(importlib.import_module(f"distkern.scheduler.{_EXPORTS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

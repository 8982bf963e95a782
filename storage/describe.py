"""Facts about any store or run directory, for ``distkern info``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.errors import DataError
from distkern.monitoring.event_checks import usable
from distkern.monitoring.run_state import LEARNING, RunFigures

from .datasets.dataset import Dataset, open_dataset
from .datasets.opening import open_arrays
from .io.formats import appearance, identify, store_attributes
from .io.urls import is_url, local_place, place_of
from .models.model_store import read_model
from .runs.run_directory import RunDirectory
from .tables.schema import TableSchema

__all__ = ["describe"]

LEADING_FEATURES = 10
"""Most features in the description of a learnt metric."""


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the kind of a store and its facts, as JSON values.

    Parameters
    ----------
    path : path-like
        A dataset, model, run, prediction store or plain zarr array.

    Returns
    -------
    dict
        ``kind`` (``dataset``, ``model``, ``run``, ``predictions`` or ``zarr-array``), ``path``, and the
        facts of that kind; sizes in bytes.

    Raises
    ------
    DataError
        ``missing`` or ``unknown-store``; errors of opening a dataset or an array.
    StoreError, RunError
        Errors of opening a model or a run.
    """
    kind = identify(path)
    facts = {"kind": kind, "path": place_of(path)}
    if kind == "dataset":
        return facts | _dataset(path)
    if kind == "model":
        return facts | _model(path)
    if kind == "run":
        return facts | _run(path)
    if kind == "predictions":
        attributes = store_attributes(path) or {}
        return facts | {
            "complete": attributes.get("complete") is True,
            "n_rows": attributes.get("n_rows"),
            "class_labels": attributes.get("class_labels"),
        }
    if kind == "zarr-array":
        return facts | _array(path)
    if kind == "missing":
        raise DataError(f"there is nothing at {path}: check the name", kind="missing")
    raise DataError(
        f"{path} is {appearance(path)}: distkern info shows datasets, models, runs, prediction stores and zarr arrays",
        kind="unknown-store",
    )


def _dataset(path: str | os.PathLike[str]) -> dict[str, Any]:
    dataset = open_dataset(path)
    labels = dataset.class_labels
    return {
        "n_rows": dataset.n_rows,
        "n_features": dataset.n_features,
        "n_targets": _targets(dataset),
        "task": dataset.task,
        "weights": dataset.weights is not None,
        "dtype": str(dataset.X.dtype),
        "chunk_rows": int(dataset.X.chunks[0]),
        "n_chunks": int(dataset.X.cdata_shape[0]),
        "bytes": dataset.nbytes,
        "stored_bytes": _stored_bytes(path),
        "class_labels": None if labels is None else labels.tolist(),
        "class_counts": None if dataset.class_counts is None else list(dataset.class_counts),
        "feature_names": None if dataset.feature_names is None else list(dataset.feature_names),
        "feature_mean": dataset.feature_mean.tolist(),
        "feature_std": dataset.feature_std.tolist(),
        "notes": dict(dataset.notes),
        **_columns(dataset.table_schema),
    }


def _targets(dataset: Dataset) -> int:
    if not dataset.has_targets:
        return 0
    return 1 if dataset.y.ndim == 1 else int(dataset.y.shape[1])


def _model(path: str | os.PathLike[str]) -> dict[str, Any]:
    meta, arrays = read_model(path)
    stored = arrays.get("table_schema")
    schema = None if stored is None else TableSchema.from_bytes(stored, str(path))
    return {
        **_metric(meta, arrays, schema),
        **_columns(schema),
        "meta": meta,
        "arrays": {name: {"shape": list(array.shape), "dtype": str(array.dtype)} for name, array in arrays.items()},
        "stored_bytes": _stored_bytes(path),
    }


def _columns(schema: TableSchema | None) -> dict[str, Any]:
    """Return the raw columns in words, by name."""
    return {} if schema is None else {"columns": {column.name: column.words for column in schema.columns}}


def _metric(meta: dict[str, Any], arrays: dict[str, NDArray[Any]], schema: TableSchema | None) -> dict[str, Any]:
    """Return the learnt metric of a model: its kind, the kernel, the number of rounds, and the leading features."""
    importances, metric = arrays.get("feature_importances"), arrays.get("metric")
    if importances is None or metric is None or importances.ndim != 1:
        return {}
    names = meta.get("feature_names")
    if not isinstance(names, list) or len(names) != len(importances):
        names = [f"feature {index}" for index in range(len(importances))]
    # Files of others may hold any numbers.
    mapped = [
        str(names[column])
        for column in arrays.get("arcsinh_columns", np.empty(0)).ravel().tolist()
        if isinstance(column, int) and 0 <= column < len(names)
    ]
    if schema is not None and schema.n_encoded == len(importances):
        sums = schema.summed(importances)
        names, importances = list(sums), np.array(list(sums.values()))
    changed = metric.ndim == 2 or bool((metric != metric[:1]).any())
    leading = np.argsort(-importances, kind="stable")[:LEADING_FEATURES]
    kernel, rounds, directions = meta.get("kernel"), meta.get("metric_rounds"), arrays.get("feature_directions")
    return {
        "metric": {
            "kind": "isotropic" if not changed else "diagonal" if directions is None else "full",
            **({} if directions is None else {"directions": len(directions)}),
            **({"arcsinh": mapped} if mapped else {}),
            "kernel": kernel.get("name") if isinstance(kernel, dict) else None,
            "rounds": len(rounds) if isinstance(rounds, list) else 0,
            "importances": {str(names[index]): float(importances[index]) for index in leading},
        }
    }


def _run(path: str | os.PathLike[str]) -> dict[str, Any]:
    run = RunDirectory.open(path)
    last: dict[str, Any] | None = None
    progress: dict[str, Any] = {}
    learnt = RunFigures()
    count = 0
    for last in run.events():
        count += 1
        if last.get("event") == "MetricRoundDone" and usable(last):
            learnt.take(last)
        if last.get("event") == "RoundDone":
            progress = {name: last.get(name) for name in ("n_centers", "gcv", "lambda_", "seconds")}
    places, drivers = run.recorded()
    return {
        "state": _state(run, last),
        "progress": progress,
        **(
            {"metric": {"rounds": learnt.metric_rounds, "lowest_error": learnt.metric_error}}
            if learnt.metric_rounds
            else {}
        ),
        "job": run.job,
        "n_events": count,
        "last_event": last,
        "recorded": {
            "exchanges": len(places),
            "bytes": sum(place.size for place in places),
            "drivers": len(drivers),
        },
        "summary": run.summary,
    }


def _state(run: RunDirectory, last: dict[str, Any] | None) -> str:
    driver, summary = run.driver(), run.summary
    alive = None if driver is None else driver.alive
    if alive:
        return LEARNING if last is not None and last.get("event") == "MetricRoundDone" else "running"
    if summary is not None:
        return "out of time, can go on" if summary.get("stop_reason") == "time-limit" else "finished"
    ended = last is not None and last.get("event") == "RunCutShort"
    return "cut short" if ended or alive is False else "running or cut short"


def _array(path: str | os.PathLike[str]) -> dict[str, Any]:
    array, _ = open_arrays(path, path)
    return {
        "shape": list(array.shape),
        "dtype": str(array.dtype),
        "chunks": list(array.chunks),
        "zarr_format": int(array.metadata.zarr_format),
        "bytes": int(array.nbytes),
        "stored_bytes": _stored_bytes(path),
    }


def _stored_bytes(path: str | os.PathLike[str]) -> int | None:
    """Return the bytes of all files; None under a URL, where it would take a request for each object."""
    if is_url(path):
        return None
    return sum(file.stat().st_size for file in Path(local_place(path)).rglob("*") if file.is_file())

"""A learnt metric in a run directory, so that a resumed run does not learn it again."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import numpy as np

from distkern.arrays import Array
from distkern.errors import JobError
from distkern.kernels import Kernel, kernel_from_parameters
from distkern.numerics.arcsinh_columns import ArcsinhColumns
from distkern.numerics.learnt_metric import LinearMap
from distkern.numerics.scaling import FeatureScaling
from distkern.storage import RunDirectory
from distkern.storage.arrays.source import BlockSource

from ..search.search_record import driving
from ..training.run_identity import EXTENSIBLE, hash_of, identity_of, journal_note
from .learning import LearntMetric, learn_metric
from .metric_job import MetricJob

_ROUND: dict[str, Callable[[Any], Any]] = {
    "kernel": str,
    "shape": str,
    "round": int,
    "factor": float,
    "error": float,
    "kept": bool,
}
"""Facts of a round, and their types."""


def learn_once(run: RunDirectory | None, search: MetricJob, source: BlockSource, **how: Any) -> LearntMetric:
    """Return the same metric from a run directory, or learn it and write it there.

    Parameters
    ----------
    run : RunDirectory or None
        Run directory; with None the metric is always learnt.
    search, source, **how
        As for `learn_metric`.
    """
    if run is None:
        return learn_metric(search, source, **how)
    name = _name(search, source)
    kept = run.metric
    found = None if kept is None or kept.get("of") != name else _restored(kept, source.n_features)
    if found is None:
        with driving(run, journal_note(search.job)):
            found = learn_metric(search, source, **how)
        run.write_metric({"of": name, **_described(found)})
    return found


def read_metric(run: RunDirectory) -> LearntMetric | None:
    """Return the learnt metric of a run; None where there is none, or its file is damaged."""
    return None if run.metric is None else _restored(run.metric)


def _name(search: MetricJob, source: BlockSource) -> str:
    """Return a hash of all that decides the result."""
    job = search.job
    facts = identity_of(job, source), getattr(job, EXTENSIBLE)
    return hash_of([facts, search.metric, search.rounds, search.rank])


def _described(found: LearntMetric) -> dict[str, Any]:
    kernel = {"name": found.kernel.name, "parameters": found.kernel.parameters()}
    return {
        "map": None if found.map is None else _text(found.map.factors),
        "shift": _text(found.standardized.shift),
        "scale": _text(found.standardized.scale),
        "arcsinh": _described_columns(found.standardized.arcsinh),
        "importances": _text(found.importances),
        "kernel": kernel,
        "rounds": found.rounds,
        "bytes_read": found.bytes_read,
        "seconds": found.seconds,
    }


def _restored(kept: dict[str, Any], n_features: int | None = None) -> LearntMetric | None:
    try:
        kept_shift = _array(kept["shift"])
        space = None if kept["map"] is None else LinearMap(_array(kept["map"]))
        mapped = _restored_columns(kept.get("arcsinh"), len(kept_shift))
        standardized = FeatureScaling(kept_shift, _array(kept["scale"]), arcsinh=mapped)
        kernel: Kernel = kernel_from_parameters(kept["kernel"]["name"], kept["kernel"]["parameters"])
        importances = _array(kept["importances"])
        rounds = [{name: kind(row[name]) for name, kind in _ROUND.items()} for row in kept["rounds"]]
        costs = (int(kept["bytes_read"]), float(kept["seconds"]))
    except (KeyError, TypeError, ValueError, OverflowError, JobError):
        return None
    if not rounds:
        return None
    columns = [array.shape for array in (standardized.shift, standardized.scale, importances)]
    columns += [] if space is None else [space.factors.shape[-1:]]
    if set(columns) != {(len(importances) if n_features is None else n_features,)}:
        return None
    return LearntMetric(space, standardized, kernel, importances, rounds, *costs)


def _described_columns(mapped: ArcsinhColumns | None) -> dict[str, Any] | None:
    if mapped is None:
        return None
    return {
        "columns": mapped.columns.tolist(),
        "centers": _text(mapped.centers),
        "widths": _text(mapped.widths),
    }


def _restored_columns(kept: Any, n_features: int) -> ArcsinhColumns | None:
    # Runs of version 0.2 have no entry.
    if kept is None:
        return None
    mapped = ArcsinhColumns(np.array(kept["columns"], dtype=np.int64), _array(kept["centers"]), _array(kept["widths"]))
    mapped.require_features(n_features)
    return mapped


def _text(array: Array) -> dict[str, Any]:
    # All bits, in a third of the length of decimal numbers.
    data = base64.b64encode(np.ascontiguousarray(array, dtype="<f8").tobytes()).decode()
    return {"shape": list(array.shape), "data": data}


def _array(text: dict[str, Any]) -> Array:
    found = np.frombuffer(base64.b64decode(text["data"], validate=True), dtype="<f8")
    array = found.reshape([int(size) for size in text["shape"]]).astype(np.float64)
    if array.ndim not in (1, 2) or not np.isfinite(array).all():
        raise ValueError("an array of a metric is damaged")
    return array

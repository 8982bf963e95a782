"""The sums of a training in its run directory: plain arrays and JSON, which rows that come later continue.

They are the factors of every path over all rows, and the rows that calibrate. A directory of them appears in one step
under the number of parts that were appended, and older ones are removed after it: a process that is killed leaves the
sums of before or those of after.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.scheduler import Path, TrainingResult
from distkern.scheduler.training.calibration_rows import CalibrationRows
from distkern.storage import RunDirectory, plain_labels, read_model, write_model
from distkern.storage.tables.schema import TableSchema

from ...errors import RunError, StoreError
from ...kernels import kernel_from_parameters
from ...selection.stopping import StopReason
from .persistence import is_known_kernel, plain_parameters, scaling_arrays, scaling_version, stored_scaling

_PATH = ("rows", "widths", "features", "s", "z", "lambdas", "gcv", "target_norms")
_SAMPLE = ("rows", "features", "codes", "weights", "shares", "targets")


def keep_sums(estimator: Any, run: RunDirectory) -> None:
    """Write the sums of a fitted estimator; those of kernels of the user's own, or without factors, are not kept.

    Raises
    ------
    RunError
        ``superseded``: another process appended rows to the run.
    StoreError
        ``not-writable`` or ``disk-full``; the sums of before are kept.
    """
    result: TrainingResult = estimator._result
    if not is_known_kernel(result.kernel) or any(path.solved is not None for path in result.paths):
        return
    arrays: dict[str, NDArray[Any]] = {
        **scaling_arrays(result.scaling),
        "target_means": result.target_means,
        "history": result.history,
    }
    for name in ("metric_", "feature_importances_", "class_weight_"):
        found = getattr(estimator, name, None)
        if found is not None:
            arrays[name] = found
    if result.classes is not None:
        assert result.class_weights is not None
        labels = estimator.classes_
        arrays["classes"] = plain_labels(labels) if labels.dtype == object else labels
        arrays["class_weights"] = result.class_weights
    if hasattr(estimator, "table_schema_"):
        arrays["table_schema"] = estimator.table_schema_.to_bytes()
    for i, path in enumerate(result.paths):
        path = path.selected or path
        arrays |= {f"path{i}_{name}": getattr(path, name) for name in _PATH}
        arrays[f"path{i}_u"] = path.u[np.triu_indices(len(path.u), 1)]
    sample = getattr(estimator, "_sample", None)
    for name in _SAMPLE if sample is not None else ():
        if getattr(sample, name) is not None:
            arrays[f"sample_{name}"] = getattr(sample, name)
    names = getattr(estimator, "feature_names_in_", None)
    meta = {
        "estimator": type(estimator).__name__,
        "parameters": plain_parameters(estimator),
        "seed": estimator._seed,
        "kernel": {"name": result.kernel.name, "parameters": _plain(result.kernel.parameters())},
        "paths": [
            {"n_centers": path.n_centers, "reason": str(path.reason), "target_units": path.target_units}
            for path in result.paths
        ],
        "prefixes": list(estimator._prefixes),
        "outputs": [list(columns) for columns in result.outputs],
        "multiclass": result.multiclass,
        "reason": str(result.reason),
        "weight_scale": result.weight_scale,
        "weight_roots": result.weight_roots,
        "intercept": result.intercept,
        "summary": result.summary,
        "n_features": estimator.n_features_in_,
        "feature_names": None if names is None else [str(name) for name in names],
        "flat": bool(getattr(estimator, "_flat", False)),
        "object_labels": result.classes is not None and estimator.classes_.dtype == object,
        "metric_rounds": getattr(estimator, "metric_rounds_", None),
        "usual": None if sample is None else sample.usual,
    }
    parts = len(result.summary.get("appended", []))
    place = run.place_for_sums(parts)
    try:
        write_model(place, meta, arrays, overwrite=parts == 0, version=scaling_version(result.scaling))
    except StoreError as error:
        if error.kind != "exists":
            raise
        raise run.superseded() from error
    run.publish_sums(parts, place)


def read_sums(path: str | os.PathLike[str], known: Mapping[str, Any]) -> Any:
    """Return the fitted estimator of a run, of one of the known classes, given by name; its `run_dir` is the run.

    Raises
    ------
    RunError
        ``no-sums``: the run has not ended, is of an earlier version, or its training kept no factors.
    StoreError
        The sums are damaged, or of a newer format.
    """
    run = RunDirectory.open(path)
    sums = run.sums()
    if sums is None:
        raise RunError(
            f"the run in {path} keeps no sums to continue: it has not ended, an earlier version or another method "
            "made it, or its weights do not follow from sums (conjugate gradients, another loss than squares); resume "
            "it (train --resume), or train again with solver='factors' and loss='squared'",
            kind="no-sums",
        )
    place = sums[1]
    meta, arrays = read_model(place)
    try:
        return _estimator(meta, arrays, known[meta["estimator"]], os.fspath(run.path))
    except StoreError:
        raise
    except Exception as error:  # a damaged description may lead to any error
        raise StoreError(f"{place} holds no sums of this version: {error!r}; train again", kind="corrupt") from None


def _estimator(meta: dict[str, Any], arrays: dict[str, NDArray[Any]], cls: Any, place: str) -> Any:
    kernel = kernel_from_parameters(meta["kernel"]["name"], _unlisted(meta["kernel"]["parameters"]))
    parameters = dict(meta["parameters"])
    if parameters.get("kernel") is None:
        parameters["kernel"] = kernel
    estimator = cls(**parameters, run_dir=place)
    paths = [_path(i, found, arrays) for i, found in enumerate(meta["paths"])]
    labels = arrays.get("classes")
    result = TrainingResult(
        paths=paths,
        outputs=tuple(tuple(columns) for columns in meta["outputs"]),
        kernel=kernel,
        scaling=stored_scaling(arrays),
        target_means=arrays["target_means"],
        classes=labels,
        class_weights=arrays.get("class_weights"),
        multiclass=meta["multiclass"],
        history=arrays["history"],
        reason=StopReason(meta["reason"]),
        summary=meta["summary"],
        weight_scale=meta["weight_scale"],
        weight_roots=meta["weight_roots"],
        intercept=meta["intercept"],
    )
    if any(not 0 <= count <= len(path.rows) for count, path in zip(meta["prefixes"], paths, strict=True)):
        raise ValueError("prefixes do not fit the paths")
    estimator._drawn_seed = meta["seed"]
    estimator.n_features_in_, estimator._flat = meta["n_features"], meta["flat"]
    if meta["feature_names"] is not None:
        estimator.feature_names_in_ = np.array(meta["feature_names"], dtype=object)
    if "table_schema" in arrays:
        estimator.table_schema_ = TableSchema.from_bytes(arrays["table_schema"], place)
    for name in ("metric_", "feature_importances_", "class_weight_"):
        if name in arrays:
            setattr(estimator, name, arrays[name])
    if meta["metric_rounds"] is not None:
        estimator.metric_rounds_ = meta["metric_rounds"]
    result = estimator._penalised(result)
    for path, found in zip(result.paths, meta["paths"], strict=True):
        if path.selected is not None:
            result = replace(result, paths=[replace(path, n_centers=found["n_centers"])])
    result = replace(result, reason=StopReason(meta["reason"]))
    estimator._take(result, list(meta["prefixes"]))
    if labels is not None:
        estimator.classes_ = labels.astype(object) if meta["object_labels"] else labels
        estimator._set_class_weights(result.class_weights)
    estimator._sample = None
    if "sample_rows" in arrays:
        kept = {name: arrays.get(f"sample_{name}") for name in _SAMPLE}
        estimator._sample = CalibrationRows(**kept, bytes_read=0, usual=meta["usual"])  # type: ignore[arg-type]
    return estimator


def _path(number: int, found: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Path:
    """Return one path; raise ValueError where its arrays do not fit each other."""
    fields = {name: arrays[f"path{number}_{name}"] for name in _PATH}
    m = len(fields["rows"])
    u = np.eye(m + 1)
    u[np.triu_indices(m + 1, 1)] = arrays[f"path{number}_u"]
    lengths = {"widths": m, "features": m, "gcv": m, "s": m + 1, "z": m + 1, "lambdas": m + 1}
    if any(len(fields[name]) != length for name, length in lengths.items()) or not 0 <= found["n_centers"] <= m:
        raise ValueError("the arrays of a path do not fit each other")
    if not all(np.isfinite(fields[name]).all() for name in ("features", "s", "z", "lambdas")):
        raise ValueError("the factors of a path are not finite")
    units = found.get("target_units")
    return Path(
        **fields,
        u=u,
        n_centers=found["n_centers"],
        reason=StopReason(found["reason"]),
        target_units=None if units is None else tuple(units),
    )


def _plain(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a kernel as JSON values."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in parameters.items()}


def _unlisted(parameters: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in parameters.items()}

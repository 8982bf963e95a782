"""Estimators in model stores: written as arrays and JSON, and read back as the same estimator."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.storage import plain_labels, read_model, write_model
from distkern.storage.tables.schema import TableSchema

from ...errors import JobError, StoreError
from ...kernels import Gaussians, Kernel, kernel_from_parameters
from ...models.kernel_model import KernelModel
from ...numerics.arcsinh_columns import ArcsinhColumns
from ...numerics.scaling import DirectionScaling, FeatureScaling
from ...probability.decisions import output_count
from .parameter_checks import DTYPES, plain_parameter
from .probability_arrays import probability_arrays, restore_probabilities
from .table_encoder import TableEncoder

_NOT_STORED = ("client", "callbacks", "run_dir", "max_seconds", "center_rows")


def save_estimator(estimator: Any, path: str | os.PathLike[str], *, overwrite: bool) -> None:
    """Write a fitted estimator to a model store.

    Raises
    ------
    StoreError
        The store exists or cannot be written, or the estimator has a kernel of the user's own.
    """
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(estimator)
    model: KernelModel = estimator._model
    _require_known_kernel(model.kernel)
    arrays: dict[str, Any] = {
        "centers": model.centers,
        "center_indices": getattr(estimator, "center_indices_", np.full(len(model.centers), -1)),
        "coef": model.coef,
        "intercept": model.intercept,
        **scaling_arrays(model.scaling),
        **estimator._stored_arrays(),
        **({"table_schema": estimator.table_schema_.to_bytes()} if hasattr(estimator, "table_schema_") else {}),
        **(probability_arrays(estimator) if hasattr(estimator, "classes_") else {}),
    }
    kernel_parameters = model.kernel.parameters()
    if isinstance(model.kernel, Gaussians):
        arrays["center_sigmas"] = np.array(kernel_parameters.pop("sigma"), dtype=np.float64)
    classes = getattr(estimator, "classes_", None)
    if classes is not None:
        arrays["classes"] = _plain_labels(classes)
    names = getattr(estimator, "feature_names_in_", None)
    meta = {
        "estimator": type(estimator).__name__,
        "parameters": plain_parameters(estimator),
        "kernel": {"name": model.kernel.name, "parameters": kernel_parameters},
        "dtype": model.dtype,
        **estimator._stored_values(),
        "n_features": estimator.n_features_in_,
        "feature_names": None if names is None else [str(name) for name in names],
        "flat": bool(getattr(estimator, "_flat", False)),
        "object_labels": classes is not None and classes.dtype == object,
        "summary": estimator.summary_,
        "plan": estimator.plan_,
    }
    newer = (
        bool({"feature_directions", "gaussian_means"} & arrays.keys())
        or {"norm", "exponent"} & kernel_parameters.keys()
    )
    version = max(scaling_version(model.scaling), 2 if newer else 1)
    write_model(path, meta, arrays, overwrite=overwrite, version=version)


def read_estimator(path: str | os.PathLike[str], known: Mapping[str, Any]) -> Any:
    """Read a model store into an estimator of one of the known classes, given by name.

    Raises
    ------
    StoreError
        There is no model, or it is damaged, incomplete or of a newer format.
    """
    meta, arrays = read_model(path)
    try:
        if meta.get("estimator") == TableEncoder.__name__:
            return TableEncoder._of_store(meta, arrays, str(path))
        _require_consistent(meta, arrays)
        cls = known[meta["estimator"]]
        kernel = _stored_kernel(meta, arrays)
        parameters = {
            name: value
            for name, value in meta["parameters"].items()
            if name in cls._get_param_names() and name not in _NOT_STORED
        }
        if "kernel" in cls._get_param_names() and meta["parameters"].get("kernel") is None:
            parameters["kernel"] = kernel
        estimator = cls(**parameters)
        if meta["dtype"] not in DTYPES:
            raise ValueError(f"dtype {meta['dtype']!r}")
        scaling = stored_scaling(arrays)
        model = KernelModel(kernel, scaling, arrays["centers"], arrays["coef"], arrays["intercept"], meta["dtype"])
        estimator._set_model(model, arrays["center_indices"])
        estimator._restore(meta, arrays)
        if "classes" in arrays:
            restore_probabilities(estimator, arrays)
        estimator.n_features_in_ = meta["n_features"]
        estimator.summary_ = meta["summary"]
        estimator.plan_ = meta["plan"]
        estimator._flat = meta["flat"]
        if "table_schema" in arrays:
            estimator.table_schema_ = TableSchema.from_bytes(arrays["table_schema"], str(path))
            if estimator.table_schema_.encoded_names != meta["feature_names"]:
                raise ValueError("table_schema does not fit the rest")
        if meta["feature_names"] is not None:
            estimator.feature_names_in_ = np.array(meta["feature_names"], dtype=object)
        if "classes" in arrays:
            labels = arrays["classes"]
            estimator.classes_ = labels.astype(object) if meta["object_labels"] else labels
    except StoreError:
        raise
    except Exception as error:  # a damaged description may lead to any error
        raise StoreError(
            f"{path} is not the description of a model of this version: {error!r}", kind="corrupt"
        ) from None
    return estimator


def _stored_kernel(meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Kernel:
    """Return the kernel that a store describes; widths of the centres are an array."""
    name, parameters = meta["kernel"]["name"], meta["kernel"]["parameters"]
    if name == Gaussians.name:
        parameters = {"sigma": arrays["center_sigmas"]}
    return kernel_from_parameters(name, parameters)


def stored_scaling(arrays: dict[str, NDArray[Any]]) -> FeatureScaling:
    """Return the map to the kernel's space; with learnt directions these are an array."""
    shift, scale, directions = (arrays.get(f"feature_{name}") for name in ("shift", "scale", "directions"))
    assert shift is not None
    assert scale is not None
    mapped = None
    if "arcsinh_columns" in arrays:
        mapped = ArcsinhColumns(*(arrays[f"arcsinh_{field.name}"] for field in fields(ArcsinhColumns)))
        mapped.require_features(len(shift))
    if directions is None:
        return FeatureScaling(shift, scale, arcsinh=mapped)
    return DirectionScaling(shift, scale, directions, arcsinh=mapped)


def scaling_arrays(scaling: FeatureScaling) -> dict[str, NDArray[Any]]:
    """Return the arrays of a map to the kernel's space, which `stored_scaling` reads."""
    arrays: dict[str, NDArray[Any]] = {"feature_shift": scaling.shift, "feature_scale": scaling.scale}
    if isinstance(scaling, DirectionScaling):
        arrays["feature_directions"] = scaling.directions
    if scaling.arcsinh is not None:
        arrays |= {f"arcsinh_{field.name}": getattr(scaling.arcsinh, field.name) for field in fields(ArcsinhColumns)}
    return arrays


def scaling_version(scaling: FeatureScaling) -> int:
    """Return the oldest format version of a model store that has a map to the kernel's space."""
    return 1 if scaling.arcsinh is None else 3


def _require_consistent(meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Compare the shapes and dtypes of a model's arrays; raise ValueError or KeyError where they do not fit."""
    m, d = arrays["centers"].shape
    (n_outputs,) = arrays["intercept"].shape
    shapes = {
        "center_indices": (m,),
        "coef": (m, n_outputs),
        "feature_shift": (d,),
        "feature_scale": (d,),
    }
    if meta["kernel"]["name"] == Gaussians.name:
        shapes["center_sigmas"] = (m,)
    numbers = {"centers": "iuf"} | dict.fromkeys(("coef", "intercept", "feature_shift", "feature_scale"), "f")
    directions = arrays.get("feature_directions")
    if directions is not None:
        shapes["feature_directions"] = (len(directions) if directions.ndim else 0, d)
        numbers["feature_directions"] = "f"
    wrong = [name for name, shape in shapes.items() if arrays[name].shape != shape]
    wrong += [name for name, kinds in numbers.items() if arrays[name].dtype.kind not in kinds]
    wrong += [name for name in numbers if name not in wrong and not np.isfinite(arrays[name]).all()]
    if "feature_scale" not in wrong and not (arrays["feature_scale"] > 0.0).all():
        wrong.append("feature_scale")
    if arrays["center_indices"].dtype.kind not in "iu":
        wrong.append("center_indices")
    classes = arrays.get("classes")
    if classes is not None and not (
        classes.ndim == 1
        and len(classes) >= 2
        and n_outputs == output_count(len(classes), meta["parameters"].get("multiclass", "shared"))
    ):
        wrong.append("classes")
    names = meta["feature_names"]
    if names is not None and not (len(names) == d and all(isinstance(name, str) for name in names)):
        wrong.append("feature_names")
    if not all(_is_plain(name, value) for name, value in meta["parameters"].items()):
        wrong.append("parameters")
    if d == 0 or n_outputs == 0 or meta["n_features"] != d:
        wrong.append("n_features")
    if wrong:
        raise ValueError(f"{' and '.join(dict.fromkeys(wrong))} do not fit the rest")


def _is_plain(name: str, value: object) -> bool:
    """Return whether a stored parameter has a type that `plain_parameters` returns."""
    if name == "sigma" and isinstance(value, list):
        return all(type(item) is float for item in value)
    if name == "class_weight" and isinstance(value, dict):
        return all(type(item) is float for item in value.values())
    return isinstance(value, (str, int, float, bool, type(None)))


def is_known_kernel(kernel: Kernel) -> bool:
    """Return whether a kernel is one of distkern's own, which its name and parameters describe."""
    try:
        return type(kernel_from_parameters(kernel.name, kernel.parameters())) is type(kernel)
    except JobError:
        return False


def _require_known_kernel(kernel: Kernel) -> None:
    if not is_known_kernel(kernel):
        raise StoreError(
            f"the kernel {kernel.name!r} is not one of distkern's own; a store keeps no code: "
            "pickle the estimator instead, or use a built-in kernel",
            kind="kernel",
        )


def plain_parameters(estimator: Any) -> dict[str, Any]:
    """Return the parameters of an estimator as JSON values, without those of a process or run."""
    parameters = {}
    for name, value in estimator.get_params(deep=False).items():
        if name in _NOT_STORED:
            continue
        value = plain_parameter(value)
        if isinstance(value, Kernel | np.random.RandomState):
            value = None
        if name == "sigma" and not isinstance(value, (str, Real)):
            value = [float(item) for item in value]
        if name == "class_weight" and isinstance(value, Mapping):
            value = {str(plain_parameter(label)): float(factor) for label, factor in value.items()}
        parameters[name] = value
    return parameters


def _plain_labels(classes: Any) -> Any:
    return plain_labels(classes) if classes.dtype == object else classes

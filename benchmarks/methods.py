"""Every method on the same rows, with the same kernel width and at most as many centres: error, centres and time."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from time import perf_counter
from typing import Any

import distkern
from benchmarks.baselines import error_of
from benchmarks.datasets import Split

SETS = ("ripley", "satimage", "abalone", "boston")

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "OROLS, shared centres": ("OROLS", {}),
    "OROLS, one-vs-rest": ("OROLS", {"multiclass": "one-vs-rest"}),
    "OROLS, one-vs-one": ("OROLS", {"multiclass": "one-vs-one"}),
    "OROLS, residual": ("OROLS", {"criterion": "residual"}),
    "OROLS, loo-error": ("OROLS", {"criterion": "loo-error"}),
    "NPD": ("NPD", {}),
    "LOO forward": ("LOOForward", {}),
    # Each step uses the whole kernel matrix.
    "OLS forward": ("OLSForward", {"max_centers": 100}),
    "QR forward": ("QRForward", {}),
    "KRLS, nu 0.01": ("KRLS", {"nu": 0.01}),
    "LS-SVM": ("LSSVM", {"gamma": 10.0}),
    "kernel Fisher": ("KernelFisherDiscriminant", {}),
    "kernel MSE": ("KernelMSE", {"ridge": 0.1}),
    "Fisher": ("FisherDiscriminant", {}),
    "MSE": ("MSE", {}),
    "Widrow-Hoff": ("WidrowHoff", {}),
    "Ho-Kashyap": ("HoKashyap", {"max_iter": 200}),
}
"""Rows of the table: name, stem of the estimators' names, and parameters other than the defaults."""


MOST_ROWS = {"LOO forward": 3000}
"""Largest number of rows of a method that stores several numbers for each pair of rows."""


def estimator_of(stem: str, *, classification: bool) -> type[Any] | None:
    """Return the estimator class of a method for a task, None if the method has none."""
    names = (stem, f"{stem}Classifier") if classification else (f"{stem}Regressor",)
    for name in names:
        if name in distkern.__all__:
            found: type[Any] = getattr(distkern, name)
            return found
    return None


def measure(split: Split, name: str) -> dict[str, Any] | None:
    """Train one method on one set; None if it does not support the task or the number of rows.

    Parameters
    ----------
    split : Split
        Training and test rows.
    name : str
        A key of `METHODS`.
    """
    recipe, (stem, changes) = split.recipe, METHODS[name]
    kind = estimator_of(stem, classification=recipe.classification)
    if kind is None:
        return None
    known = kind().get_params()
    counts_classes = changes.get("criterion") == "loo-error"
    if not all(parameter in known for parameter in changes) or (counts_classes and not recipe.classification):
        return None
    if len(split.X) > MOST_ROWS.get(name, len(split.X)):
        return None
    options: dict[str, Any] = {"sigma": recipe.sigma or "median", "standardize": recipe.standardize}
    if stem not in ("KRLS", "KernelMSE"):
        options["max_centers"] = recipe.centers
    options = {key: value for key, value in options.items() if key in known} | changes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", distkern.DistkernWarning)
        started = perf_counter()
        model = kind(**options).fit(split.X, split.y)
        seconds = perf_counter() - started
    return {
        "set": recipe.name,
        "method": name,
        "error": error_of(split)(model.predict(split.X_test)),
        "centres": model.summary_["n_centers"],
        "seconds": seconds,
    }


def run(splits: Iterable[Split], names: Iterable[str] = METHODS) -> Iterator[dict[str, Any]]:
    """Measure every method on every split."""
    names = list(names)
    for split in splits:
        for name in names:
            row = measure(split, name)
            if row is not None:
                yield row


def noted(rows: Iterable[dict[str, Any]], notes: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield each row, and append it to `notes`."""
    for row in rows:
        notes.append(row)
        yield row


def pivoted(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a table with one line for each method: the error, and centres in brackets."""
    table: dict[str, dict[str, Any]] = {}
    for row in rows:
        cell = f"{row['error']:.4f} ({row['centres']})" if row["centres"] else f"{row['error']:.4f}"
        table.setdefault(row["method"], {"method": row["method"]})[row["set"]] = cell
    return list(table.values())

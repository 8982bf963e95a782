"""The benchmark sets: their files, splits, numbers of centres and kernel widths."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Recipe:
    """Settings for the training of one set."""

    name: str
    classification: bool
    centers: int
    sigma: float | None = None
    """Kernel width; half the median distance if None."""
    standardize: bool = True


@dataclass(frozen=True)
class Split:
    """Training and test rows of one set."""

    recipe: Recipe
    X: NDArray[np.float64]
    y: NDArray[np.generic]
    X_test: NDArray[np.float64]
    y_test: NDArray[np.generic]


RECIPES = (
    Recipe("letter", True, 2500, 2.5),
    Recipe("pendigits", True, 600, 80.0, standardize=False),
    Recipe("optdigits", True, 800, 20.8, standardize=False),
    Recipe("satimage", True, 600, 3.0),
    Recipe("ripley", True, 60, 1.0),
    Recipe("raetsch_banana", True, 100, 1.0),
    Recipe("raetsch_breast_cancer", True, 50, 5.0),
    Recipe("raetsch_diabetis", True, 60, 4.5),
    Recipe("raetsch_heart", True, 50, 10.0),
    Recipe("raetsch_splice", True, 500, 8.0),
    Recipe("raetsch_titanic", True, 20, 2.0),
    Recipe("raetsch_twonorm", True, 100, 6.0),
    Recipe("spirals", True, 90, 1.0, standardize=False),
    Recipe("magic", True, 500),
    Recipe("shuttle", True, 400),
    Recipe("skin", True, 300, 0.5),
    Recipe("a9a", True, 500),
    Recipe("kdd99", True, 300),
    Recipe("kin40k", False, 500, 2.5),
    Recipe("abalone", False, 200),
    Recipe("boston", False, 150),
    Recipe("california", False, 500),
    Recipe("diamonds", False, 500),
    Recipe("protein", False, 500),
    Recipe("wine_white", False, 300),
)


def data_folder() -> Path:
    """Return DISTKERN_DATA, or shared/data beside the checkout."""
    given = os.environ.get("DISTKERN_DATA")
    return Path(given) if given else Path(__file__).parents[2] / "shared" / "data"


def present(names: tuple[str, ...] = ()) -> Iterator[Split]:
    """Load the sets that are present, in the order of the recipes; only those in `names` if it is not empty."""
    for recipe in RECIPES:
        path = data_folder() / f"{recipe.name}.npz"
        if path.exists() and (not names or recipe.name in names):
            yield load(recipe, path)


def load(recipe: Recipe, path: Path) -> Split:
    """Load one set with its own split, its first realisation, or a seeded 75/25 split."""
    with np.load(path, allow_pickle=False) as archive:
        if "X_train" in archive:
            arrays = [archive[key] for key in ("X_train", "y_train", "X_test", "y_test")]
        elif "train_idx" in archive:
            train, test = archive["train_idx"][0], archive["test_idx"][0]
            arrays = [archive["X"][train], archive["y"][train], archive["X"][test], archive["y"][test]]
        else:
            X, y = archive["X"], archive["y"]
            rows = np.random.default_rng(0).permutation(len(y))
            cut = int(0.75 * len(y))
            arrays = [X[rows[:cut]], y[rows[:cut]], X[rows[cut:]], y[rows[cut:]]]
    X, y, X_test, y_test = arrays
    X, X_test = X.astype(np.float64), X_test.astype(np.float64)
    if recipe.name == "kdd99":
        # The features are counts over many orders of magnitude.
        X, X_test = np.log1p(np.maximum(X, 0)), np.log1p(np.maximum(X_test, 0))
    if not recipe.classification:
        scale = y.std()
        y, y_test = y / scale, y_test / scale
    return Split(recipe, X, y, X_test, y_test)

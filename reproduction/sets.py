"""The data sets of the sources: their sizes, and the splits that they were published with."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.errors import DataError

Array = NDArray[np.float64]


@dataclass(frozen=True)
class SetFacts:
    """Sizes of a set in the sources, and its file."""

    file: str
    """Name in the data folder, without ``.npz``."""
    n_train: int
    """Training rows of a partition."""
    n_test: int
    """Test rows of a partition."""
    n_classes: int = 2
    """Number of classes, 0 for regression."""
    published_partitions: int = 1
    """Number of partitions in the source's mean."""
    random_partitions: int = 0
    """Number of seeded random partitions, where the file holds no split."""


OCR: dict[str, SetFacts] = {
    "usps": SetFacts("usps", 7291, 2007, 10),
    "letter": SetFacts("letter", 16000, 4000, 26),
    "optdigits": SetFacts("optdigits", 3823, 1797, 10),
    "pendigits": SetFacts("pendigits", 7494, 3498, 10),
    "satimage": SetFacts("satimage", 4435, 2000, 6),
}
"""Thesis, Table 5.1."""

RAETSCH: dict[str, SetFacts] = {
    "banana": SetFacts("raetsch_banana", 400, 4900, 2, 100),
    "breast_cancer": SetFacts("raetsch_breast_cancer", 200, 77, 2, 100),
    "diabetis": SetFacts("raetsch_diabetis", 468, 300, 2, 100),
    "flare_solar": SetFacts("raetsch_flare_solar", 666, 400, 2, 100),
    "german": SetFacts("raetsch_german", 700, 300, 2, 100),
    "heart": SetFacts("raetsch_heart", 170, 100, 2, 100),
    "image": SetFacts("raetsch_image", 1300, 1010, 2, 20),
    "ringnorm": SetFacts("raetsch_ringnorm", 400, 7000, 2, 100),
    "splice": SetFacts("raetsch_splice", 1000, 2175, 2, 20, 10),
    "thyroid": SetFacts("raetsch_thyroid", 140, 75, 2, 100),
    "titanic": SetFacts("raetsch_titanic", 150, 2051, 2, 100),
    "twonorm": SetFacts("raetsch_twonorm", 400, 7000, 2, 100),
    "waveform": SetFacts("raetsch_waveform", 400, 4600, 2, 100),
}
"""The 13 sets of Raetsch's collection; random splits of the original sizes for splice, whose file holds none."""

REGRESSION: dict[str, SetFacts] = {
    "boston": SetFacts("boston", 481, 25, 0, 100, 100),
    "abalone": SetFacts("abalone", 3000, 1177, 0, 10, 10),
}
"""Thesis, section 5.2: random partitions."""

RIPLEY = SetFacts("ripley", 250, 1000)
SPIRALS = SetFacts("spirals", 194, 0)

SETS: dict[str, SetFacts] = OCR | RAETSCH | REGRESSION | {"ripley": RIPLEY, "spirals": SPIRALS}


@dataclass(frozen=True)
class Partition:
    """Training and test rows."""

    X: Array
    y: NDArray[Any]
    X_test: Array
    y_test: NDArray[Any]
    note: str = ""
    """Difference of its sizes from the published ones, default "": none."""


def path_of(facts: SetFacts, folder: Path) -> Path:
    """Return the path of a set's file, which need not exist."""
    return folder / f"{facts.file}.npz"


def partitions(facts: SetFacts, folder: Path) -> Iterator[Partition]:
    """Yield the partitions of a set: the splits in its file, or seeded random splits of the published sizes.

    Parameters
    ----------
    facts : SetFacts
        The set.
    folder : Path
        Folder of the files.

    Raises
    ------
    DataError
        The file is no archive of arrays, or rows and targets are not equally many.
    """
    arrays = _read(path_of(facts, folder))
    if "X_train" in arrays:
        yield _checked(facts, folder, *(arrays[name] for name in ("X_train", "y_train", "X_test", "y_test")))
        return
    X, y = arrays["X"], arrays["y"]
    if "train_idx" in arrays:
        for train, test in zip(arrays["train_idx"], arrays["test_idx"], strict=True):
            yield _checked(facts, folder, X[train], y[train], X[test], y[test])
        return
    if not facts.random_partitions:
        yield _checked(facts, folder, X, y, X[:0], y[:0])
        return
    for number in range(facts.random_partitions):
        rows = np.random.default_rng([0, number]).permutation(len(y))
        train, test = rows[: facts.n_train], rows[facts.n_train :]
        yield _checked(facts, folder, X[train], y[train], X[test], y[test])


def _read(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, zipfile.BadZipFile, AttributeError, TypeError) as error:
        raise DataError(f"{path} cannot be read as arrays: {error}", kind="unreadable") from error
    if not ({"X_train", "y_train", "X_test", "y_test"} <= arrays.keys() or {"X", "y"} <= arrays.keys()):
        raise DataError(
            f"{path} holds {', '.join(sorted(arrays))}: it must hold X_train, y_train, X_test and y_test, or X and y",
            kind="missing-array",
        )
    return arrays


def _checked(
    facts: SetFacts, folder: Path, X: NDArray[Any], y: NDArray[Any], X_test: NDArray[Any], y_test: NDArray[Any]
) -> Partition:
    if len(X) != len(y) or len(X_test) != len(y_test):
        raise DataError(
            f"{path_of(facts, folder)} has {len(X)} and {len(X_test)} rows of features in a split, and {len(y)} and "
            f"{len(y_test)} targets",
            kind="split-size",
        )
    note = ""
    if (len(X), len(X_test)) != (facts.n_train, facts.n_test):
        # Copies of the collection differ by a few rows from the sizes in the tables.
        note = (
            f"{facts.file}: {len(X)} training and {len(X_test)} test rows; the published split has {facts.n_train} "
            f"and {facts.n_test}"
        )
    return Partition(X.astype(np.float64), y, X_test.astype(np.float64), y_test, note)


def scaled_continuous(part: Partition) -> Partition:
    """Give the continuous features mean 0 and variance 1 over the training rows; features of 0 and 1 stay.

    Parameters
    ----------
    part : Partition
        Rows to scale; the test rows with the means and deviations of the training rows.
    """
    X, X_test = part.X.copy(), part.X_test.copy()
    for column in range(X.shape[1]):
        if np.isin(X[:, column], (0.0, 1.0)).all():
            continue
        mean, deviation = X[:, column].mean(), X[:, column].std()
        X[:, column] = (X[:, column] - mean) / deviation
        X_test[:, column] = (X_test[:, column] - mean) / deviation
    return Partition(X, part.y, X_test, part.y_test, part.note)

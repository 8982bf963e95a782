"""Datasets on disk: a zarr group with X, y and everything learned about them while they were written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from distkern.errors import DataError
from distkern.storage.chunks import checksum, read_slab
from distkern.storage.formats import ATTRIBUTE, appearance, identify, is_url, require_version
from distkern.storage.source import BlockSource
from distkern.storage.sources import DatasetSource

__all__ = ["FORMAT_VERSION", "Dataset", "open_dataset"]

FORMAT_VERSION = 1


class Dataset:
    """A complete dataset store; made by `open_dataset`, `write_dataset` or ``distkern ingest``.

    Parameters
    ----------
    path : str
        Where the store is.
    group : zarr.Group
        The opened store.
    facts : mapping
        Its ``distkern`` attributes.

    Attributes
    ----------
    path : str
        Absolute path or URL.
    X : zarr.Array
        Features, shape (n_rows, n_features).
    y : zarr.Array
        Targets, shape (n_rows,) or (n_rows, n_targets); codes into `class_labels` for a classification.
    n_rows, n_features : int
        Shape of X.
    task : str
        ``classification`` or ``regression``.
    class_labels : numpy.ndarray or None
        Sorted labels in their own dtype; None for a regression.
    class_counts : tuple of int or None
        Rows of each class.
    feature_names : tuple of str or None
        Names of the columns of X.
    feature_mean, feature_std : array, shape (n_features,)
        Mean and population standard deviation of each column, float64.
    notes : mapping
        What the writer noted, such as the rows that ingest dropped.
    """

    def __init__(self, path: str, group: zarr.Group, facts: Mapping[str, Any]) -> None:
        self.path = path
        self.X: zarr.Array[Any] = _array(group, "X", path)
        self.y: zarr.Array[Any] = _array(group, "y", path)
        self.n_rows, self.n_features = (int(size) for size in self.X.shape)
        self.task: str = facts["task"]
        labels, counts, names = facts["class_labels"], facts["class_counts"], facts["feature_names"]
        self.class_labels: NDArray[Any] | None = (
            None if labels is None else np.array(labels, dtype=facts["class_labels_dtype"])
        )
        self.class_counts: tuple[int, ...] | None = None if counts is None else tuple(counts)
        self.feature_names: tuple[str, ...] | None = None if names is None else tuple(names)
        self.feature_mean: NDArray[np.float64] = np.array(facts["feature_mean"], dtype=np.float64)
        self.feature_std: NDArray[np.float64] = np.array(facts["feature_std"], dtype=np.float64)
        self.notes: Mapping[str, Any] = dict(facts.get("notes", {}))
        self._checksums: Mapping[str, list[str]] = facts["checksums"]

    @property
    def nbytes(self) -> int:
        """Bytes of X and y without compression."""
        return int(self.X.nbytes + self.y.nbytes)

    def fingerprint(self) -> str:
        """Name the content by the checksums made when it was written."""
        return blake2b(repr(sorted(self._checksums.items())).encode(), digest_size=16).hexdigest()

    def targets(self, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """Read targets, class labels as they were given.

        Parameters
        ----------
        start, stop : int, optional
            First row and the row after the last; all rows by default.

        Returns
        -------
        array, shape (stop - start,) or (stop - start, n_targets)
            Labels or numbers.

        Raises
        ------
        DataError
            ``unreadable``: a chunk is damaged.
        """
        start, stop, _ = slice(start, stop).indices(self.n_rows)
        values = read_slab(self.y, start, max(start, stop), "y")
        return values if self.class_labels is None else self.class_labels[values]

    def source(self) -> BlockSource:
        """Return the rows as blocks for training; `BlockSource.classes` are the labels of the codes."""
        return DatasetSource(self)

    def verify(self) -> None:
        """Read everything and compare the content with the checksums made when it was written.

        Raises
        ------
        DataError
            ``corrupt`` or ``unreadable``, naming the array and the chunk.
        """
        for name, array in (("X", self.X), ("y", self.y)):
            size = array.chunks[0]
            for chunk, expected in enumerate(self._checksums[name]):
                start, stop = chunk * size, min((chunk + 1) * size, self.n_rows)
                if checksum(read_slab(array, start, stop, name)) != expected:
                    raise DataError(
                        f"chunk {chunk} of {name} (rows {start} to {stop - 1}) of {self.path} differs from "
                        f"what was written: ingest the data again",
                        kind="corrupt",
                    )

    def __repr__(self) -> str:
        task = self.task if self.class_labels is None else f"{self.task}, {len(self.class_labels)} classes"
        name = os.path.basename(self.path)
        return f"<Dataset {name!r}: {self.n_rows} rows x {self.n_features} features {self.X.dtype}, {task}>"


def open_dataset(path: str | os.PathLike[str]) -> Dataset:
    """Open a dataset store for reading.

    Parameters
    ----------
    path : path-like
        Local path, or URL such as ``s3://bucket/name`` where fsspec knows it.

    Returns
    -------
    Dataset
        The store; nothing but its metadata has been read.

    Raises
    ------
    DataError
        ``missing``, ``not-a-dataset``, ``incomplete`` or ``newer-version``.
    """
    place = os.fspath(path) if is_url(path) else os.path.abspath(path)
    if not is_url(place):
        kind = identify(place)
        if kind == "missing":
            raise DataError(
                f"there is no dataset at {path}: check the name, or make it with distkern ingest",
                kind="missing",
            )
        if kind != "dataset":
            raise DataError(
                f"{path} is {appearance(path)}, not a dataset: make one of your data with distkern ingest"
                + _advice(kind),
                kind="not-a-dataset",
            )
    facts, group = _open_group(place)
    require_version(path, facts, FORMAT_VERSION, DataError)
    if facts.get("complete") is not True:
        raise DataError(f"{path} was not written to its end: ingest the data again with --overwrite", kind="incomplete")
    try:
        dataset = Dataset(place, group, facts)
        consistent = dataset.X.shape[0] == dataset.y.shape[0] == facts["n_rows"]
    except (KeyError, TypeError, ValueError) as cause:
        if isinstance(cause, DataError):
            raise
        raise _damaged(path, f"its description cannot be used ({cause!r})") from cause
    if not consistent:
        raise _damaged(path, f"X has {dataset.X.shape[0]} rows, y {dataset.y.shape[0]}, not {facts['n_rows']}")
    return dataset


def _advice(kind: str) -> str:
    return ", or name plain arrays as x = and y = of a job file" if kind == "zarr-array" else ""


def _damaged(path: str | os.PathLike[str], why: str) -> DataError:
    return DataError(f"{path} is a damaged dataset: {why}; ingest the data again", kind="corrupt")


def _open_group(place: str) -> tuple[Mapping[str, Any], zarr.Group]:
    try:
        group = zarr.open_group(place, mode="r")
    except (OSError, ValueError, ImportError) as cause:
        raise DataError(f"there is no readable dataset at {place}: {cause}", kind="missing") from cause
    facts = group.attrs.get(ATTRIBUTE)
    if not isinstance(facts, Mapping) or facts.get("kind") != "dataset":
        raise DataError(f"{place} is a zarr group of another program, not a dataset", kind="not-a-dataset")
    return facts, group


def _array(group: zarr.Group, name: str, path: str) -> zarr.Array[Any]:
    member = group.get(name)
    if not isinstance(member, zarr.Array):
        raise _damaged(Path(path).name, f"array {name} is missing")
    return member

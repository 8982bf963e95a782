"""Dataset stores, opened for reading: a zarr group with X, y and their facts, which are checked against the arrays."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from copy import copy
from hashlib import blake2b
from typing import Any, Self

import numpy as np
import zarr
from numpy.typing import NDArray

from distkern.errors import DataError, DistkernError
from distkern.redaction import displayed_cause, redact

from ..arrays.checks import check_rows_agree
from ..arrays.chunks import read_slab
from ..arrays.source import BlockSource
from ..io.formats import ATTRIBUTE, appearance, identify, require_version
from ..io.guarded_reads import RegularFiles
from ..io.retries import RetryPolicy, read_patiently
from ..io.trust import labels_of, trusted
from ..io.urls import Refused, is_url, open_store, place_of, shown_cause, shown_line
from ..tables.schema import TableSchema
from .sources import DatasetSource

__all__ = ["DATASET_VERSION", "Dataset", "open_dataset"]

DATASET_VERSION = 2
"""Version of stores without targets or with weights; other stores are of version 1."""

MAX_CODEC_BYTES = 2**31 - 1
"""Most bytes of a chunk of X or y; the codec of datasets takes no more."""


MAX_SCHEMA_BYTES = 1 << 30
"""Longest table schema that is read."""


class Dataset:
    """A complete dataset store; made by `open_dataset`, `write_dataset` or ``distkern ingest``.

    Parameters
    ----------
    path : str
        Path of the store.
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
    weights : zarr.Array or None
        Row weights, shape (n_rows,), float64; None where every weight is one.
    n_rows, n_features : int
        Shape of X.
    task : str or None
        ``classification`` or ``regression``; None for rows without targets.
    class_labels : numpy.ndarray or None
        Sorted labels in their own dtype; None for a regression.
    class_counts : tuple of int or None
        Rows of each class.
    feature_names : tuple of str or None
        Names of the columns of X.
    table_schema : TableSchema or None
        Schema of the raw columns, where the store was made of a table whose columns are not all numbers.
    feature_mean, feature_std : array, shape (n_features,)
        Mean and population standard deviation of each column, float64.
    notes : mapping
        Notes of the writer, such as the number of rows that ingest dropped.
    checksums : mapping of str to list of str
        A hash of every chunk of ``X``, ``y`` and ``weights``.
    crcs : mapping of str to list of int, or None
        Their CRC-32, which every read is compared with; stores of earlier versions have none.
    """

    def __init__(self, path: str, group: zarr.Group, facts: Mapping[str, Any]) -> None:
        self.path = path
        self.X: zarr.Array[Any] = _array(group, "X")
        stored = facts["checksums"]
        self._y: zarr.Array[Any] | None = _array(group, "y") if "y" in stored or facts["task"] is not None else None
        self.weights: zarr.Array[Any] | None = _array(group, "weights") if "weights" in stored else None
        self.n_rows, self.n_features = (int(size) for size in self.X.shape)
        self.task: str | None = facts["task"]
        labels, counts, names = facts["class_labels"], facts["class_counts"], facts["feature_names"]
        self.class_labels: NDArray[Any] | None = (
            None if labels is None else labels_of(labels, facts["class_labels_dtype"])
        )
        self.class_counts: tuple[int, ...] | None = None if counts is None else tuple(counts)
        self.feature_names: tuple[str, ...] | None = None if names is None else tuple(names)
        self.feature_mean: NDArray[np.float64] = np.array(facts["feature_mean"], dtype=np.float64)
        self.feature_std: NDArray[np.float64] = np.array(facts["feature_std"], dtype=np.float64)
        self.table_schema: TableSchema | None = _schema(group, path) if "table_schema" in facts else None
        self.notes: Mapping[str, Any] = dict(facts.get("notes", {}))
        self.checksums: Mapping[str, list[str]] = facts["checksums"]
        self.crcs: Mapping[str, list[int]] | None = facts.get("crc32")
        _require_consistent(self, facts)

    @property
    def y(self) -> zarr.Array[Any]:
        """Targets, or `DataError` ``no-targets`` where the store has none."""
        if self._y is None:
            raise DataError(
                f"{self.path} has no targets: such rows can be predicted, not trained on or evaluated; ingest the data "
                "with its targets",
                kind="no-targets",
            )
        return self._y

    def require_targets(self) -> Self:
        """Return the dataset; `DataError` ``no-targets`` where it has no targets."""
        _ = self.y
        return self

    def with_weights(self, weights: zarr.Array[Any]) -> Dataset:
        """Return the dataset with other row weights, a zarr array of shape (n_rows,) that the store does not hold.

        Raises
        ------
        DataError
            ``shape-mismatch``.
        """
        check_rows_agree(self.n_rows, weights.shape[0] if weights.ndim == 1 else 0, "weight")
        weighted = copy(self)
        weighted.weights = weights
        weighted.checksums = {name: digests for name, digests in self.checksums.items() if name != "weights"}
        return weighted

    @property
    def has_targets(self) -> bool:
        """Whether the rows have targets."""
        return self._y is not None

    @property
    def nbytes(self) -> int:
        """Bytes of X, y and weights without compression."""
        return sum(int(array.nbytes) for array in (self.X, self._y, self.weights) if array is not None)

    def fingerprint(self) -> str:
        """Return a hash of the content, made of the checksums of its chunks."""
        return blake2b(repr(sorted(self.checksums.items())).encode(), digest_size=16).hexdigest()

    def targets(self, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """Read targets, class labels as they were given.

        Parameters
        ----------
        start : int, default 0
            First row.
        stop : int, optional
            Row after the last; all rows by default.

        Returns
        -------
        array, shape (stop - start,) or (stop - start, n_targets)
            Labels or numbers.

        Raises
        ------
        DataError
            ``unreadable`` or ``corrupt``: a chunk is damaged.
        """
        start, stop, _ = slice(start, stop).indices(self.n_rows)
        values = read_slab(self.y, start, max(start, stop), "y")
        if self.class_labels is None:
            return values
        if values.size and not (values.min() >= 0 and values.max() < len(self.class_labels)):
            raise _damaged(self.path, f"rows {start} to {stop - 1} of y hold codes without a class")
        labels: NDArray[Any] = self.class_labels[values]
        return labels

    def source(self, columns: Sequence[str] | None = None) -> BlockSource:
        """Return the rows as blocks; `BlockSource.classes` are the labels of the codes.

        Parameters
        ----------
        columns : sequence of str, optional
            As for `DatasetSource`.
        """
        return DatasetSource(self, columns=columns)

    def verify(self) -> None:
        """Read all rows and compare them with the checksums made when they were written.

        Raises
        ------
        DataError
            ``corrupt`` or ``unreadable``, naming the array and the chunk.
        """
        source = DatasetSource(self, thorough=True)
        for block in range(len(source.boundaries) - 1):
            source.read_features(block)
            if self.has_targets:
                source.read_targets(block)
            source.read_weights(block)

    def __repr__(self) -> str:
        task = self.task or "no targets"
        if self.class_labels is not None:
            task = f"{self.task}, {len(self.class_labels)} classes"
        name = os.path.basename(redact(self.path))
        return f"<Dataset {name!r}: {self.n_rows} rows x {self.n_features} features {self.X.dtype}, {task}>"


def open_dataset(path: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None) -> Dataset:
    """Open a dataset store for reading.

    Parameters
    ----------
    path : path-like
        Local path, or URL such as ``s3://bucket/name``.
    storage_options : mapping, optional
        For a URL, settings that are not in the environment, such as ``{"endpoint": "https://storage.example"}``.

    Returns
    -------
    Dataset
        The store; only its metadata has been read.

    Raises
    ------
    DataError
        ``missing``, ``not-a-dataset``, ``incomplete`` or ``newer-version``; for a URL also ``denied``, ``unreachable``,
        ``missing-package`` or ``storage-options``.
    """
    place = place_of(path)
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
                + (
                    ", or name plain arrays as x = and y = of a job file (distkern predict takes such an array)"
                    if kind == "zarr-array"
                    else ""
                ),
                kind="not-a-dataset",
            )
    facts, group = _open_group(place, storage_options)
    require_version(path, facts, DATASET_VERSION, DataError)
    if facts.get("complete") is not True:
        raise DataError(f"{path} was not written to its end: ingest the data again with --overwrite", kind="incomplete")
    try:
        dataset = Dataset(place, group, facts)
    except DistkernError:
        raise
    except Exception as cause:  # a damaged description may lead to any error
        raise _damaged(path, f"its description cannot be used ({cause!r})") from displayed_cause(cause)
    return dataset


def _require_consistent(dataset: Dataset, facts: Mapping[str, Any]) -> None:
    """Compare the facts of a store with each other and with its arrays; raise ValueError where they differ."""
    n_rows, n_features, X = dataset.n_rows, dataset.n_features, dataset.X
    labels, counts = dataset.class_labels, dataset.class_counts
    y = dataset.y if dataset.has_targets else None
    beside = {name: array for name, array in (("y", y), ("weights", dataset.weights)) if array is not None}
    for name, array in beside.items():
        if not X.shape[0] == array.shape[0] == facts["n_rows"]:
            raise ValueError(f"X has {X.shape[0]} rows, {name} {array.shape[0]}, not {facts['n_rows']}")
    chunk_rows, n_chunks = X.chunks[0], len(dataset.checksums["X"])
    arrays = {"X": X, **beside}
    dtypes = {name: array.dtype.str for name, array in arrays.items()}
    weights = dataset.weights
    checks = {
        "rows": n_rows == facts["n_rows"],
        "task": dataset.task in ("classification", "regression") if y is not None else dataset.task is None,
        "shapes": min(X.shape) > 0
        and (y is None or (y.ndim in (1, 2) and min(y.shape) > 0))
        and (weights is None or weights.ndim == 1),
        "dtypes": X.dtype.kind in "iuf"
        and (y is None or y.dtype.kind in ("iu" if labels is not None else "iuf"))
        and (weights is None or weights.dtype == np.float64)
        and facts.get("dtypes", dtypes) == dtypes,
        "chunks": X.chunks[1:] == X.shape[1:]
        and all(array.shards is None for array in arrays.values())
        and all(array.chunks == (chunk_rows, *array.shape[1:]) for array in beside.values())
        and max(X.dtype.itemsize * n_features, *(array.dtype.itemsize for array in arrays.values())) * chunk_rows
        <= MAX_CODEC_BYTES,
        "checksums": n_chunks == -(-n_rows // chunk_rows)
        and dataset.checksums.keys() == arrays.keys()
        and all(len(digests) == n_chunks for digests in dataset.checksums.values())
        and all(isinstance(digest, str) for digests in dataset.checksums.values() for digest in digests),
        "crc32": dataset.crcs is None
        or all(
            len(dataset.crcs[name]) == n_chunks and all(type(crc) is int for crc in dataset.crcs[name])
            for name in arrays
        ),
        "labels": (labels is None) == (dataset.task != "classification")
        and (labels is None or (y is not None and y.ndim == 1 and counts is not None and len(counts) == len(labels))),
        "counts": counts is None or all(type(count) is int and 0 <= count <= n_rows for count in counts),
        "schema": dataset.table_schema is None
        or (dataset.feature_names is not None and dataset.table_schema.encoded_names == [*dataset.feature_names]),
        "names": dataset.feature_names is None
        or (len(dataset.feature_names) == n_features and all(isinstance(name, str) for name in dataset.feature_names)),
        "statistics": dataset.feature_mean.shape == dataset.feature_std.shape == (n_features,),
    }
    wrong = [name for name, valid in checks.items() if not valid]
    if wrong:
        raise ValueError(f"its {' and '.join(wrong)} do not fit together")


def _damaged(path: str | os.PathLike[str], why: str) -> DataError:
    return DataError(f"{path} is a damaged dataset: {why}; ingest the data again", kind="corrupt")


def _open_group(place: str, options: Mapping[str, Any] | None) -> tuple[Mapping[str, Any], zarr.Group]:
    where = open_store(place, options) if is_url(place) else RegularFiles(place, own=True)
    try:
        # Consolidated metadata would be a second description, which might differ.
        group = read_patiently(
            lambda: zarr.open_group(where, mode="r", use_consolidated=False),
            "the dataset",
            redact(place),
            RetryPolicy.default().at_start(),
        )
    except DistkernError:
        raise
    except Refused as cause:
        raise DataError(f"the dataset {place} cannot be opened: {cause}", kind=cause.kind) from None
    except Exception as cause:
        raise DataError(
            f"there is no readable dataset at {place}: {shown_line(cause, place)}", kind="missing"
        ) from shown_cause(cause, place)
    facts = group.attrs.get(ATTRIBUTE)
    if not isinstance(facts, Mapping) or facts.get("kind") != "dataset":
        raise DataError(f"{place} is a zarr group of another program, not a dataset", kind="not-a-dataset")
    return facts, group


def _schema(group: zarr.Group, path: str) -> TableSchema:
    stored = _array(group, "table_schema")
    if stored.ndim != 1 or stored.dtype != np.uint8 or stored.shape[0] > MAX_SCHEMA_BYTES:
        raise ValueError("table_schema")
    return TableSchema.from_bytes(read_slab(stored, 0, stored.shape[0], "table_schema"), redact(path))


def _array(group: zarr.Group, name: str) -> zarr.Array[Any]:
    member = read_patiently(lambda: group.get(name), f"array {name}", str(group.store_path))
    if not isinstance(member, zarr.Array):
        raise ValueError(f"array {name} is missing")
    return trusted(member, name)

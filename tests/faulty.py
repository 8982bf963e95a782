"""Arrays and datasets behind stores that count or fail, for the tests of this folder and of the engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.storage import LocalStore

from distkern.storage import Fault, FaultyStore, RetryPolicy

SOON = RetryPolicy(attempts=5, first_wait=0.001)
"""Retries without the waiting."""


def write_array(path: Path, values: NDArray[Any], chunks: tuple[int, ...], **options: Any) -> Path:
    """Write a plain zarr array and return its path."""
    array = zarr.create_array(LocalStore(path), shape=values.shape, chunks=chunks, dtype=values.dtype, **options)
    array[...] = values
    return path


def faulty(path: Path, faults: Sequence[Fault] = (), seed: int = 0) -> tuple[zarr.Array[Any], FaultyStore]:
    """Open an array through a store with faults."""
    store = FaultyStore(LocalStore(path, read_only=True), faults, seed=seed)
    return zarr.open_array(store, mode="r"), store


def rows(n: int = 64, d: int = 3, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return smooth regression data."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, d))
    return X, np.sin(2 * X.sum(axis=1)) + 0.1 * rng.standard_normal(n)

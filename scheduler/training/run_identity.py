"""What decides a model's bits, in plain values: the job, the data and the software.

Two runs with equal identities give equal models.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields
from typing import Any

import numpy as np

from distkern.errors import RunError
from distkern.kernels import Kernel
from distkern.storage.arrays.source import BlockSource

from ..runtime.environment import difference, process_facts
from .driver_loop import TrainingJob

NUMERICS = 3
"""Counts the changes of distkern that changed a model's bits, or the messages of a training."""

EXTENSIBLE = "max_centers"
"""The one setting that may change between a run and its continuation, as the path is nested."""

AFTERWARDS = "refit"
"""The one setting that a training has no part in: it follows from the path."""


def journal_note(job: TrainingJob) -> dict[str, Any]:
    """Return what a driver's journal says of its training: where it is another, the run was extended."""
    return {EXTENSIBLE: job.max_centers}


def identity_of(job: TrainingJob, source: BlockSource) -> dict[str, Any]:
    """Describe a training by what decides its result.

    Parameters
    ----------
    job : TrainingJob
        What to train; its `max_centers` and `refit` are left out.
    source : BlockSource
        The rows.

    Returns
    -------
    dict
        JSON values in the sections "model", "data" and "software".
    """
    names = [field.name for field in fields(job) if field.name not in (EXTENSIBLE, AFTERWARDS)]
    settings = {name: getattr(job, name) for name in names}
    if isinstance(job.sigma, tuple):
        settings["sigma"] = list(job.sigma)
    if isinstance(job.kernel, Kernel):
        settings["kernel"] = {"name": job.kernel.name, **job.kernel.parameters()}
    return {
        "model": settings,
        "data": identity_of_data(source),
        "software": software(),
    }


def identity_of_data(source: BlockSource) -> dict[str, Any]:
    """Describe rows by what can be told without reading them, in JSON values."""
    return {
        "n_rows": source.n_rows,
        "n_features": source.n_features,
        "targets": list(source.target_shape),
        "dtype": np.dtype(source.feature_dtype).str,
        "blocks": len(source.boundaries) - 1,
        "block_rows": source.boundaries[1] - source.boundaries[0] if len(source.boundaries) > 1 else 0,
        "classes": None if source.classes is None else _digest(source.classes),
        "content": source.fingerprint(),
    }


def software() -> dict[str, str]:
    """Name what computes here, as far as it may change a bit."""
    return {**process_facts(), "numerics": str(NUMERICS)}


def require_same(kept: dict[str, Any], now: dict[str, Any], place: str) -> None:
    """Refuse to go on with a run whose model another job, other data or other software would decide.

    Parameters
    ----------
    kept, now : dict
        What `identity_of` gave at the start and gives now.
    place : str
        The run, for the message.

    Raises
    ------
    RunError
        ``changed``: names what differs, with both values.
    """
    differences = []
    for section in ("model", "data", "software"):
        before, after = kept.get(section), now[section]
        if not isinstance(before, dict):
            raise RunError(
                f"the description of the run in {place} is damaged; start the run again with --overwrite",
                kind="corrupt",
            )
        if section == "software" and difference({str(k): str(v) for k, v in before.items()}, after) is None:
            continue  # a process may have loaded more BLAS libraries than another
        differences += [
            f"{section}.{name} was {before.get(name)!r} and is {after.get(name)!r}"
            for name in sorted({*before, *after})
            if before.get(name) != after.get(name)
        ]
    if differences:
        raise RunError(
            f"the run in {place} cannot go on, as something else would be trained: {'; '.join(differences)}. "
            f"Restore that, or train anew under another name or with --overwrite; only {EXTENSIBLE} may change",
            kind="changed",
        )


def _digest(values: np.ndarray[Any, Any]) -> str:
    return hashlib.blake2b(repr(values.tolist()).encode(), digest_size=16).hexdigest()

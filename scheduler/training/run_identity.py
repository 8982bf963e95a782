"""Identity of a run: everything that decides the bits of its model, in plain values.

Job, data and software are covered; two runs with equal identities give equal models. `run_record` compares identities.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from typing import Any

import numpy as np

from distkern.errors import RunError
from distkern.kernels import Kernel
from distkern.numerics.scaling import FeatureScaling
from distkern.storage.arrays.source import BlockSource

from ..runtime.environment import difference, process_facts
from .driver_loop import TrainingJob

NUMERICS = 4
"""Number of changes of distkern that changed a model's bits, or the messages of a training."""

NUMERICS_OF_VERSIONS = {"3": "version 0.1"}
"""Versions that wrote other numbers."""

EXTENSIBLE = "max_centers"
"""The only setting that may change between a run and its continuation, since the path is nested."""

AFTERWARDS = "refit"
"""The only setting that the messages do not depend on: it is applied to the path."""


def journal_note(job: TrainingJob) -> dict[str, Any]:
    """Return the note of a training in the driver's journal; a different note means that the run was extended."""
    return {EXTENSIBLE: job.max_centers}


def identity_of(job: TrainingJob, source: BlockSource) -> dict[str, Any]:
    """Return everything that decides the result of a training.

    Parameters
    ----------
    job : TrainingJob
        The settings, of which `max_centers` and `refit` are left out.
    source : BlockSource
        The rows.

    Returns
    -------
    dict
        JSON values in the sections "model", "data" and "software".
    """
    job = job.resolved(source.n_rows)
    names = [field.name for field in fields(job) if field.name not in (EXTENSIBLE, AFTERWARDS)]
    settings = {name: getattr(job, name) for name in names}
    # The number that "auto" stands for: a run that is extended keeps its sample.
    settings["selection_rows"] = job.sampled_rows(source.n_rows) or None
    # Runs of earlier versions have no entry.
    settings["solver"] = job.solver if job.draws_centers else None
    settings["loss"] = None if job.loss is None else [job.loss.name, job.loss.constant]
    if isinstance(job.sigma, tuple):
        settings["sigma"] = list(job.sigma)
    if job.scaling is not None:
        settings["scaling"] = _digest_of_map(job.scaling)
    if isinstance(job.kernel, Kernel):
        settings["kernel"] = {"name": job.kernel.name, **job.kernel.parameters()}
    return {
        "model": settings,
        "data": identity_of_data(source),
        "software": software(),
    }


def identity_of_data(source: BlockSource) -> dict[str, Any]:
    """Return the properties of rows that are known without reading them, as JSON values."""
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
    """Return the versions of this process that may change a bit."""
    return {**process_facts(), "numerics": str(NUMERICS)}


def require_same(kept: dict[str, Any], now: dict[str, Any], place: str) -> None:
    """Refuse to resume a run with another job, other data or other software.

    Parameters
    ----------
    kept, now : dict
        Identities at the start of the run, and of this process.
    place : str
        Directory of the run, for the message.

    Raises
    ------
    RunError
        ``changed``; the message names the differences, with both values.
    """
    _require_numerics(kept.get("software"), now["software"], place)
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


def hash_of(facts: Any) -> str:
    """Return a hash of JSON values, for the name of a result that depends on them alone."""
    text = json.dumps(facts, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _digest_of_map(scaling: FeatureScaling) -> str:
    """Return a hash of the arrays of a map to kernel space."""
    found = hashlib.blake2b(digest_size=16)
    parts = {field.name: getattr(scaling, field.name) for field in fields(scaling)}
    mapped = parts.pop("arcsinh")
    if mapped is not None:
        parts |= {f"arcsinh {field.name}": getattr(mapped, field.name) for field in fields(mapped)}
    for name, part in parts.items():
        array = np.ascontiguousarray(part)
        found.update(f"{name} {array.shape}".encode() + array.tobytes())
    return found.hexdigest()


def _digest(values: np.ndarray[Any, Any]) -> str:
    return hashlib.blake2b(repr(values.tolist()).encode(), digest_size=16).hexdigest()


def _require_numerics(kept: Any, now: dict[str, str], place: str) -> None:
    """Refuse a run of a version whose values have other last bits: what is replayed would not be what was chosen."""
    before = kept.get("numerics") if isinstance(kept, dict) else None
    if before is not None and str(before) != now["numerics"]:
        versions = NUMERICS_OF_VERSIONS.get(str(before), "another version")
        raise RunError(
            f"the run in {place} was begun by {versions} of distkern, whose kernel values have other last bits "
            f"(numerics {before}, here {now['numerics']}): resume it with that version, or train anew under another "
            "name or with --overwrite",
            kind="changed",
        )

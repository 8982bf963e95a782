"""The result of a search in a run directory, so that a resumed run does not search again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from distkern.errors import JobError
from distkern.kernels import kernel_from_parameters
from distkern.storage import RunDirectory
from distkern.storage.arrays.source import BlockSource

from ..training.driver_loop import TrainingJob
from ..training.run_identity import EXTENSIBLE, hash_of, identity_of, journal_note
from .cross_validation import Finish
from .search import SearchResult, search_settings

__all__ = ["search_once"]


def search_once(
    run: RunDirectory | None, jobs: Sequence[TrainingJob], n_folds: int, source: BlockSource, **how: Any
) -> SearchResult:
    """Return the result of the same search in a run directory, or search and write the result there.

    Parameters
    ----------
    run : RunDirectory or None
        Run directory; with None the search is always made.
    jobs, n_folds, source, **how
        As for `search_settings`.
    """
    if run is None:
        return search_settings(jobs, n_folds, source, **how)
    name = _name(jobs, n_folds, source, how.get("finishes"))
    kept = run.search
    found = None if kept is None or kept.get("of") != name else _restored(kept, (len(jobs), n_folds))
    if found is None:
        with driving(run, journal_note(jobs[0])):
            found = search_settings(jobs, n_folds, source, **how)
        run.write_search({"of": name, **_described(found)})
    return found


@contextmanager
def driving(run: RunDirectory, note: dict[str, Any]) -> Iterator[None]:
    """Claim a run by a journal without records, so that other processes see this one as its driver.

    `note` is the note of the training that follows, which keeps its records.
    """
    journal = run.claim()
    try:
        journal.begin(len(run.recorded()[0]), note)
        yield
    finally:
        journal.close()


def _name(jobs: Sequence[TrainingJob], n_folds: int, source: BlockSource, finishes: Sequence[Finish] | None) -> str:
    """Return a hash of all that decides the result of a search."""
    identities = [(identity_of(job, source), getattr(job, EXTENSIBLE)) for job in jobs]
    decided = None if finishes is None else [finish.multiclass for finish in finishes]
    facts = [identities[0][0]["data"], n_folds, [(identity["model"], most) for identity, most in identities], decided]
    return hash_of(facts)


def _described(found: SearchResult) -> dict[str, Any]:
    return {
        "errors": found.errors,
        "n_centers": found.n_centers,
        "trained": found.trained,
        "mean_errors": found.mean_errors,
        "kernels": [{"name": kernel.name, "parameters": kernel.parameters()} for kernel in found.kernels],
        "passes": found.passes,
        "bytes_read": found.bytes_read,
        "seconds": found.seconds,
    }


def _restored(kept: dict[str, Any], shape: tuple[int, int]) -> SearchResult | None:
    try:
        errors, n_centers = np.array(kept["errors"], dtype=np.float64), np.array(kept["n_centers"], dtype=np.int64)
        trained, means = np.array(kept["trained"], dtype=np.bool_), np.array(kept["mean_errors"], dtype=np.float64)
        kernels = [kernel_from_parameters(kernel["name"], kernel["parameters"]) for kernel in kept["kernels"]]
        costs = int(kept["passes"]), int(kept["bytes_read"]), float(kept["seconds"])
    except (KeyError, TypeError, ValueError, OverflowError, JobError):
        return None
    shapes = {array.shape for array in (errors, n_centers, trained)} | {(*means.shape, shape[1])}
    if shapes != {shape} or len(kernels) != shape[0] or np.isnan(means).all():
        return None
    return SearchResult(errors, n_centers, trained, means, kernels, *costs)

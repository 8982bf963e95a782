"""Complete runs: ``--resume auto`` prints their results again, without reading or writing data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...errors import DataError, StoreError
from ...redaction import redact_values
from ...selection.stopping import StopReason
from ..job.job_file import Job
from .result import recorded_result

if TYPE_CHECKING:
    from distkern.storage import RunDirectory


def finished_result(job: Job) -> dict[str, Any] | None:
    """Return the record of the run that a job names; None where the run is not complete.

    A run is complete if it has ended for another reason than its time limit, the job is the same apart from the cluster
    and the time limit, the model exists, and the training data are the same or do not exist any more.

    Raises
    ------
    RunError
        The place of the run has something else.
    """
    from distkern.storage import RunDirectory, run_exists

    if job.output.run is None or not run_exists(job.output.run):
        return None
    run = RunDirectory.open(job.output.run)
    record = recorded_result(run.summary or {})
    if record is None or record["stop_reason"] == StopReason.TIME_LIMIT:
        return None
    if _decisive(run.job) != _decisive(redact_values(job.model_dump(mode="json", exclude_unset=True))):
        return None
    model = _description_of_model(job)
    if model is None or _has_other_data(job, run, model.get("feature_names")):
        return None
    return record


def _decisive(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a job that decide the model."""
    sections = {name: dict(document.get(name) or {}) for name in ("data", "model", "output")}
    sections["model"].pop("max_seconds", None)
    return sections


def _description_of_model(job: Job) -> Mapping[str, Any] | None:
    """Return the description of the model, empty where the job names none; None where it does not exist."""
    from distkern.storage import read_model

    try:
        return {} if job.output.model is None else read_model(job.output.model)[0]
    except StoreError:
        return None


def _has_other_data(job: Job, run: RunDirectory, names: list[str] | None) -> bool:
    from distkern.scheduler.training.run_identity import identity_of_data

    from ..job.data_section import feature_names, open_rows, source_of

    try:
        rows, _ = open_rows(job.data)
    except DataError:
        return False
    if None not in (names, feature_names(rows)) and names != feature_names(rows):
        return True
    kept = (run.training or {}).get("identity")
    return not isinstance(kept, dict) or kept.get("data") != identity_of_data(source_of(rows))

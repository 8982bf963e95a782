"""``distkern train --append``: the sums of a job's run are continued over a store of new rows, which alone is read."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ...errors import Cancelled, DataError, JobError, RunError
from ...estimators import load_model
from ...estimators.scoring import score_model
from ...redaction import redact, redact_values
from ...text import plain
from ..job.data_section import open_test_rows, require_columns_of, source_of
from ..job.job_file import Job
from .cluster_client import open_client
from .result import JobResult
from .run_job import names_model

if TYPE_CHECKING:
    from distkern.storage import Dataset, RunDirectory

logger = logging.getLogger(__name__)


def append_to_run(job: Job, place: str, *, overwrite: bool = False) -> JobResult:
    """Append the rows of a store to the run of a job; save and test its model.

    A store that is the last part already is not read again: the command was cut short after its sums were written, and
    what is missing, model and summary, follows.

    Parameters
    ----------
    job : Job
        Checked job, with a run that has ended.
    place : str
        Path or URL of a dataset store.
    overwrite : bool, default False
        Whether the model may replace one that is not the run's.

    Raises
    ------
    JobError
        ``no-run``: the job names no run.
    RunError
        ``missing``, ``no-sums``; ``changed``: the job describes another model than the run.
    DataError
        ``appended``: the rows are those of the training, or of an earlier part.
    """
    from distkern.storage import check_model_destination, open_dataset

    run = run_of(job)
    replaced = overwrite or names_model(run.job, job.output.model)
    if job.output.model is not None:
        check_model_destination(job.output.model, replaced)
    model, rows = load_model(run.path), open_dataset(place).require_targets()
    require_columns_of(model, rows, f"the store {redact(place)}", f"of the run {run.path}")
    test_rows = open_test_rows(job.data)
    if is_last_part(run, model, rows, place):
        logger.info("the rows of %s are in the sums of %s already: model and summary are written", place, run.path)
    else:
        model.memory_limit = job.cluster.memory
        with open_client(job.cluster) as client:
            model.client = client
            try:
                model.append(rows)
            except KeyboardInterrupt as error:
                raise Cancelled(
                    f"interrupted; the run in {run.path} is as it was: give the same --append again",
                    kind="interrupted",
                ) from error
            model.client = None
    if job.output.model is not None:
        model.save(job.output.model, overwrite=replaced)
    result = JobResult.of(job, model, None if test_rows is None else score_model(model, test_rows))
    run.write_summary(plain(result.record))
    return result


def run_of(job: Job) -> RunDirectory:
    """Open the run of a job whose rows are continued; errors as for `append_to_run`."""
    from distkern.storage import RunDirectory

    if job.output.run is None:
        raise JobError(
            "[output] run is not set, and rows are appended to a run, which keeps the sums: name it, as in "
            '[output] run = "letter.run"',
            kind="no-run",
        )
    run = RunDirectory.open(job.output.run)
    settings = [
        {name: value for name, value in dict(document.get("model") or {}).items() if name != "max_seconds"}
        for document in (run.job, redact_values(job.model_dump(mode="json", exclude_unset=True)))
    ]
    different = sorted(name for name in {*settings[0], *settings[1]} if settings[0].get(name) != settings[1].get(name))
    if different:
        name = different[0]
        raise RunError(
            f"[model] {name} = {settings[1].get(name)!r}, and the run in {run.path} was trained with "
            f"{settings[0].get(name)!r}: appended rows change no setting; give the job file of the run",
            kind="changed",
        )
    return run


def is_last_part(run: RunDirectory, model: Any, rows: Dataset, place: str) -> bool:
    """Return whether the rows are the last part of a run; refuse those of the training and of earlier parts."""
    content = source_of(rows).fingerprint()
    data = (run.training or {}).get("identity", {}).get("data", {})
    parts = [data.get("content"), *(part.get("content") for part in model.summary_.get("appended", []))]
    if content not in parts:
        return False
    number = len(parts) - 1 - parts[::-1].index(content)
    if number and number == len(parts) - 1:
        return True
    what = f"part {number} of its appended rows" if number else "the rows of its training"
    raise DataError(
        f"the rows of {redact(place)} are {what} in the run {run.path} already: they would count twice; append other "
        "rows, or train anew on all rows with weights",
        kind="appended",
    )

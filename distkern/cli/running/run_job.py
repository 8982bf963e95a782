"""The training of a job: check the outputs, open the data, start workers, train, save and test the model."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ...errors import BudgetError, Cancelled, DataError, JobError, RunError
from ...estimators.scoring import score_model
from ...text import plain
from ..console.interrupts import cancelled_by_signals
from ..console.terminal import Terminal
from ..job.data_section import PlainArrays, open_rows, source_of, task_of
from ..job.job_file import Job
from ..job.model_section import build
from .cluster_client import open_client
from .planned import plan_of
from .progress import show_progress
from .result import JobResult

if TYPE_CHECKING:
    from distkern.storage import RunDirectory

logger = logging.getLogger(__name__)


def run_job(job: Job, terminal: Terminal, *, overwrite: bool = False, resume: bool = False) -> JobResult:
    """Train, save and test the model of a job.

    Parameters
    ----------
    job : Job
        Checked job.
    terminal : Terminal
        Terminal for the progress.
    overwrite : bool, default False
        Whether to replace existing outputs.
    resume : bool, default False
        Whether to resume an existing run.

    Returns
    -------
    JobResult
        The model with record and score.
    """
    from distkern.storage import check_model_destination

    started = perf_counter() - terminal.seconds()
    refuse_nested(job)
    resumed = find_resumed(job, overwrite=overwrite) if resume else None
    replace_model = overwrite or (resumed is not None and names_model(resumed.job, job.output.model))
    if resumed is None:
        refuse_existing_run(job.output.run, overwrite=overwrite)
    else:
        resumed.job = job.model_dump(mode="json", exclude_unset=True)
    if job.output.model is not None:
        check_model_destination(job.output.model, replace_model)
    rows, test_rows = open_rows(job.data)
    task = task_of(job.data, rows)
    runtime: dict[str, Any] = {"memory_limit": job.cluster.memory, "run_dir": job.output.run}
    estimator = build(job.model.method, task, job.model.parameters(), runtime)
    if job.cluster.where != "scheduler":
        # The plan is checked before workers start; on a running cluster the training itself checks it.
        plan_of(job, estimator, estimator.shapes(source_of(rows))).require_fit()
    with (
        open_client(job.cluster) as client,
        _run_directory(job, resumed, overwrite=overwrite) as run,
        show_progress(terminal) as show,
    ):
        runtime |= {"client": client, "run_dir": run}
        with cancelled_by_signals() as watch:
            callbacks = {"callbacks": (show, watch)}
            parameters = job.model.parameters()
            if parameters.get("max_seconds") is not None:
                # The limit includes the start of the command, the opening of data and the start of workers.
                parameters["max_seconds"] = max(parameters["max_seconds"] - (perf_counter() - started), 1e-9)
            model = build(job.model.method, task, parameters, runtime | callbacks)
            model = model.fit(rows.X, rows.y, rows.weights) if isinstance(rows, PlainArrays) else model.fit(rows)
        if job.output.model is not None:
            model.save(job.output.model, overwrite=replace_model)
        score = None if test_rows is None else score_model(model, test_rows)
        result = JobResult.of(job, model, score)
        if run is not None:
            run.write_summary(plain(result.record))
    return result


def refuse_nested(job: Job) -> None:
    """Refuse outputs inside each other or inside the data, which one of them would overwrite."""
    from distkern.storage import place_of

    data = {name: getattr(job.data, name) for name in ("train", "test", "weight", "x", "y", "test_x", "test_y")}
    outputs = {"model": job.output.model, "run": job.output.run}
    places = {name: Path(place_of(place)) for name, place in {**data, **outputs}.items() if place is not None}
    for output in outputs:
        for other in places:
            if output in places and other != output and _overlap(places[output], places[other]):
                raise JobError(
                    f"[output] {output} = {places[output]} and {other} = {places[other]} lie inside each other: "
                    "name separate places",
                    kind="nested-outputs",
                )


def _overlap(first: Path, second: Path) -> bool:
    return first == second or first in second.parents or second in first.parents


def refuse_existing_run(run: str | None, *, overwrite: bool) -> None:
    """Refuse an existing run that may not be overwritten.

    Raises
    ------
    RunError
        ``exists``, or ``foreign``: the place has something that is not a run.
    """
    from distkern.storage import is_run, run_exists

    if run is None or not run_exists(run):
        return
    if not overwrite:
        raise RunError(
            f"{run} exists already: resume it with --resume, name another run, or replace it with --overwrite",
            kind="exists",
        )
    if not is_run(run):
        raise RunError(
            f"{run} exists and is no run directory, so it is not overwritten: name another run", kind="foreign"
        )


def find_resumed(job: Job, *, overwrite: bool) -> RunDirectory | None:
    """Open the run to resume; None where it does not exist.

    Raises
    ------
    JobError
        The job names no run, or the flags contradict each other.
    RunError
        The place has something that is not a run.
    """
    from distkern.storage import RunDirectory, run_exists

    if overwrite:
        raise JobError("--resume and --overwrite exclude each other: resume the run, or replace it", kind="usage")
    if job.output.run is None:
        raise JobError(
            "[output] run is not set, and only a run that has a directory can be resumed: name one, as in "
            '[output] run = "letter.run"',
            kind="no-run",
        )
    if not run_exists(job.output.run):
        return None
    return RunDirectory.open(job.output.run)


def names_model(document: Mapping[str, Any], model: str | None) -> bool:
    """Return whether the job of a run has its model at the same place, so that the resumed run may replace it."""
    output = document.get("output")
    before = output.get("model") if isinstance(output, Mapping) else None
    return isinstance(before, str) and model is not None and os.path.abspath(before) == os.path.abspath(model)


@contextmanager
def _run_directory(job: Job, resumed: RunDirectory | None, *, overwrite: bool) -> Iterator[RunDirectory | None]:
    """Yield the run directory of a job; a new one is removed after an error of the job, the data or the plan."""
    if job.output.run is None:
        try:
            yield None
        except (Cancelled, KeyboardInterrupt) as error:
            raise Cancelled(
                "interrupted; nothing is kept, as the job names no run: with [output] run it could be resumed",
                kind="interrupted",
            ) from error
        return
    from distkern.storage import RunDirectory

    document = job.model_dump(mode="json", exclude_unset=True)
    run = resumed or RunDirectory.create(job.output.run, document, overwrite=overwrite)
    try:
        yield run
    except (JobError, DataError, BudgetError):
        if resumed is None:
            run.discard()
        raise
    except RunError:
        raise
    except (Cancelled, KeyboardInterrupt) as error:
        raise Cancelled(
            f"interrupted; the run is kept in {job.output.run}: resume with --resume", kind="interrupted"
        ) from error
    except BaseException:
        logger.warning("the training was cut short; the run is kept in %s: resume with --resume", job.output.run)
        raise

"""One training from job to result: outputs checked, data opened, workers found, model saved and tested."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from distkern.cli.cluster import open_client
from distkern.cli.job import Job, OutputSection
from distkern.cli.parameters import build
from distkern.cli.plan import plan_of
from distkern.cli.progress import show_progress
from distkern.cli.render import plain
from distkern.cli.result import TrainingResult
from distkern.cli.rows import PlainArrays, open_rows, source_of, task_of
from distkern.cli.scoring import score_model
from distkern.cli.terminal import Terminal
from distkern.errors import BudgetError, DataError, JobError, RunError

if TYPE_CHECKING:
    from distkern.events import Event, Subscriber
    from distkern.storage import RunDirectory

logger = logging.getLogger(__name__)


def run_job(job: Job, terminal: Terminal, *, overwrite: bool = False) -> TrainingResult:
    """Train, save and test as a job says.

    Parameters
    ----------
    job : Job
        Checked job.
    terminal : Terminal
        Where progress goes.
    overwrite : bool
        Replace the outputs where they exist.

    Returns
    -------
    TrainingResult
        The model and what it came to.
    """
    from distkern.scheduler import workload

    refuse_nested(job)
    refuse_existing(job.output, overwrite=overwrite)
    rows, test_rows = open_rows(job.data)
    task = task_of(job.data, rows)
    training = build(job.model.method, task, job.model.parameters(), {}).training_job()
    if job.cluster.scheduler is None:
        # Before workers are started for nothing; a running cluster is asked by the training itself.
        plan_of(job, training, workload(training, source_of(rows))).require_fit()
    with (
        open_client(job.cluster) as client,
        _run_directory(job, overwrite=overwrite) as run,
        show_progress(terminal) as show,
    ):
        subscribers = (show,) if run is None else (show, _recorder(run))
        surroundings = {"client": client, "memory_limit": job.cluster.memory, "callbacks": subscribers}
        model = build(job.model.method, task, job.model.parameters(), surroundings)
        model = model.fit(rows.X, rows.y) if isinstance(rows, PlainArrays) else model.fit(rows)
        if job.output.model is not None:
            model.save(job.output.model, overwrite=overwrite)
        score = None if test_rows is None else score_model(model, test_rows)
        result = TrainingResult(job, model, score)
        if run is not None:
            run.write_summary(plain(result.record()))
    return result


def refuse_nested(job: Job) -> None:
    """Refuse outputs that lie inside each other or inside the data: writing one would destroy the other.

    Raises
    ------
    JobError
        Names both.
    """
    data = {name: getattr(job.data, name) for name in ("train", "test", "x", "y", "test_x", "test_y")}
    outputs = {"model": job.output.model, "run": job.output.run}
    places = {
        name: Path(os.path.abspath(place))
        for name, place in {**data, **outputs}.items()
        if place is not None and "://" not in str(place)
    }
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


def refuse_existing(output: OutputSection, *, overwrite: bool) -> None:
    """Refuse outputs that stand in the way before any work is done.

    Raises
    ------
    StoreError, RunError
        Something exists and may not be overwritten.
    """
    from distkern.storage import check_model_destination, is_run

    if output.model is not None:
        check_model_destination(output.model, overwrite)
    if output.run is None or not Path(output.run).exists():
        return
    if not overwrite:
        raise RunError(f"{output.run} exists already: name another run, or replace it with --overwrite", kind="exists")
    if not is_run(output.run):
        raise RunError(
            f"{output.run} exists and is no run directory, so it is not overwritten: name another run",
            kind="foreign",
        )


@contextmanager
def _run_directory(job: Job, *, overwrite: bool) -> Iterator[RunDirectory | None]:
    """Yield the record of the run; that of a job that could never have run is taken back."""
    if job.output.run is None:
        yield None
        return
    from distkern.storage import RunDirectory

    document = job.model_dump(mode="json", exclude_unset=True)
    run = RunDirectory.create(job.output.run, document, overwrite=overwrite)
    try:
        yield run
    except (JobError, DataError, BudgetError):
        shutil.rmtree(run.path, ignore_errors=True)
        raise
    except BaseException:
        logger.warning("the training was cut short; its record stays in %s", job.output.run)
        raise


def _recorder(run: RunDirectory) -> Subscriber:
    def record(event: Event) -> None:
        run.record(plain(event.as_record()))

    return record

"""``distkern report``: the results of a run as one HTML file."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...errors import DistkernError, StoreError
from ..console.output import pairs, print_table
from ..console.terminal import verbosity_options

if TYPE_CHECKING:
    from distkern.storage import Dataset

    from ...report import RunRecord
    from ..job.data_section import PlainArrays
    from ..job.job_file import Job

logger = logging.getLogger(__name__)

DEFAULT_NAME = "report.html"


@click.command()
@click.argument("run", metavar="RUN")
@click.option(
    "--out",
    metavar="FILE",
    help=f"File to write; {DEFAULT_NAME} in the run directory by default, in the current one for a run under a URL.",
)
@click.option("--model", "model_store", metavar="MODEL", help="Model of the run, where the job does not name it.")
@click.option("--test", "test_store", metavar="STORE", help="Test data, where the job does not name any.")
@click.option("--overwrite", is_flag=True, help="Replace the report where it exists.")
@verbosity_options
def report(run: str, out: str | None, model_store: str | None, test_store: str | None, overwrite: bool) -> None:
    """Write the results of RUN as one HTML file that needs no network.

    It shows the job, planned and measured numbers, the curves of the path, the stop reason, predictions on the test
    data, the centres and a timeline. The command reads the model and the test data that the job names; the report
    names what is missing. A run in work has a report of its results so far.
    """
    from distkern.storage import RunDirectory, is_url
    from distkern.storage.io.publish import publish_text

    from ...report import evaluate_model, read_run, render_report

    directory = RunDirectory.open(run)
    place = Path("" if is_url(directory.path) else directory.path, DEFAULT_NAME) if out is None else out
    with publish_text(place, overwrite, StoreError, is_report) as written:
        record = read_run(directory)
        missing: list[str] = []
        model = _open_model(record, model_store, missing)
        rows = None if model is None else _open_test(record, model, test_store, missing)
        evaluation = None
        if rows is not None:
            logger.info("predicting the test rows")
            try:
                evaluation = evaluate_model(model, rows)
            except DistkernError as error:
                missing.append(f"Predictions on the test data: {error}.")
        trained = _open_train(record)
        page = render_report(
            record,
            model=model,
            evaluation=evaluation,
            planned=None if trained is None else _planned(record, *trained),
            feature_names=None if trained is None else getattr(trained[1], "feature_names", None),
            missing=missing,
        )
        written.append(page)
    print_table(pairs([("wrote", place)]))


def is_report(path: Path) -> bool:
    """Return whether this command wrote a file."""
    from ...report import GENERATOR

    try:
        with path.open("rb") as stream:
            return f'content="{GENERATOR}"'.encode() in stream.read(2048)
    except OSError:
        return False


def _open_model(record: RunRecord, given: str | None, missing: list[str]) -> Any:
    from ...estimators import load_model

    place = _place(record, "output", "model") if given is None else given
    if place is None:
        if record.state == "finished":
            missing.append("Predictions and centres: the job names no model; name one with --model.")
        return None
    try:
        return load_model(place)
    except DistkernError as error:
        if given is not None:
            raise
        if record.state == "finished" or os.path.lexists(place):
            missing.append(f"Predictions and centres: {error}.")
        return None


def _open_test(record: RunRecord, model: Any, given: str | None, missing: list[str]) -> Dataset | PlainArrays | None:
    from distkern.storage import open_dataset

    from ..job.data_section import PlainArrays, require_columns_of

    store, x, y = (_place(record, "data", name) for name in ("test", "test_x", "test_y"))
    store = store if given is None else given
    try:
        if store is not None:
            rows: Dataset | PlainArrays = open_dataset(store)
        elif x is not None and y is not None:
            rows = PlainArrays(x, y)
        else:
            missing.append("Predictions: the job names no test data; name it with --test.")
            return None
        require_columns_of(model, rows, f"the test data {store or x}", "of the run")
    except DistkernError as error:
        if given is not None:
            raise
        missing.append(f"Predictions: {error}.")
        return None
    return rows


def _named(record: RunRecord, section: str, key: str) -> str | None:
    values = record.job.get(section)
    value = values.get(key) if isinstance(values, Mapping) else None
    return value if isinstance(value, str) else None


def _place(record: RunRecord, section: str, key: str) -> str | None:
    named = _named(record, section, key)
    return None if named is None else locate(record, named)


def locate(record: RunRecord, named: str) -> str:
    """Return a path that a job names, from the directory where the job ran, if known, or else from the current one."""
    if "://" in named or os.path.isabs(named):
        return named
    run = _named(record, "output", "run")
    if run is not None and not os.path.isabs(run) and isinstance(record.path, Path):
        parts, own = Path(os.path.normpath(run)).parts, record.path.parts
        if ".." not in parts and own[-len(parts) :] == parts:
            there = Path(*own[: -len(parts)]) / named
            if there.exists():
                return str(there)
    return named


def _open_train(record: RunRecord) -> tuple[Job, Dataset | PlainArrays] | None:
    """Open the training data of the job, for the plan and the feature names; None where that fails."""
    from ..job.data_section import open_rows
    from ..job.job_file import parse_job

    data = record.job.get("data")
    if not isinstance(data, Mapping):
        return None
    here = {
        key: locate(record, value) if isinstance(value, str) else value
        for key, value in data.items()
        if not key.startswith("test")
    }
    try:
        job = parse_job({**record.job, "data": here})
        return job, open_rows(job.data)[0]
    except DistkernError as error:
        logger.info("the training data cannot be opened: %s", error)
        return None


def _planned(record: RunRecord, job: Job, rows: Dataset | PlainArrays) -> dict[str, float] | None:
    """Plan the job again for the workers of the run; None for a method whose plan has no rounds."""
    from distkern.scheduler import WorkerFacts

    from ..job.data_section import source_of, task_of
    from ..running.planned import planned_estimator

    on_cluster = job.cluster.workers is not None or job.cluster.scheduler is not None
    facts = WorkerFacts(record.figures.shapes.get("workers", 1), 1, None, False) if on_cluster else None
    try:
        estimator = planned_estimator(job, task_of(job.data, rows))
        planned = estimator.plan(estimator.shapes(source_of(rows)), facts)
    except DistkernError as error:
        logger.info("the job cannot be planned again: %s", error)
        return None
    if planned.course is None:
        return None
    names = ("rounds", "exchanges", "kernel_columns", "bytes_read")
    return {name: float(getattr(planned.course, name)) for name in names}

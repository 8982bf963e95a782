"""``distkern plan``: memory, bytes, products and exchanges of a training, before any data is read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ...errors import DataError, JobError
from ...text import byte_size, duration
from ..console.output import columns, pairs, print_json, print_table
from ..console.terminal import terminal_of, verbosity_options
from ..running.planned import plan_of, planned_estimator, workers_of

if TYPE_CHECKING:
    from distkern.scheduler import Plan, Workload

    from ..job.job_file import Job

_POSITIVE = click.IntRange(min=1)


@click.command()
@click.argument("job_file", metavar="JOB.toml")
@click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Replace a value of the job file.")
@click.option("--workers", type=_POSITIVE, metavar="N", help="Plan for N worker processes.")
@click.option("--memory", metavar="SIZE", help='Memory of each process that holds rows: "2GiB".')
@click.option("--rows", type=_POSITIVE, metavar="M", help="Plan for M rows, whatever the data has.")
@click.option("--features", type=_POSITIVE, metavar="D", help="Features of data that does not exist yet.")
@click.option("--targets", type=_POSITIVE, metavar="T", help="Targets or classes of such data, 1 by default.")
@click.option("--chunk-rows", type=_POSITIVE, metavar="N", help="Rows of a chunk of such data.")
@click.option("--append", "appended", metavar="STORE", help="Plan train --append of this store.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@verbosity_options
def plan(
    job_file: str,
    overrides: tuple[str, ...],
    workers: int | None,
    memory: str | None,
    rows: int | None,
    features: int | None,
    targets: int | None,
    chunk_rows: int | None,
    appended: str | None,
    as_json: bool,
) -> None:
    """Print memory, bytes, products and exchanges of the training that JOB.toml describes.

    Only the shapes of the data are read. A job that does not fit its memory is refused with exit code 4.
    """
    from ..job.job_file import load_job

    flags = {"workers": workers, "memory": memory}
    job = load_job(job_file, overrides, {name: value for name, value in flags.items() if value is not None})
    if appended is None:
        planned = plan_of(job, *_shapes(job, rows, features, targets, chunk_rows))
    else:
        planned = _append_plan(job, appended)
    if as_json:
        print_json(planned.record())
        # The plan is the one JSON object of this command, also where the job does not fit.
        terminal_of(click.get_current_context()).json_wanted = False
    else:
        show(planned)
    planned.require_fit()


def _append_plan(job: Job, place: str) -> Plan:
    """Plan the passes over rows that are appended to the run of a job."""
    from distkern.storage import open_dataset

    from ...estimators import load_model
    from ..job.data_section import source_of
    from ..running.append_job import run_of

    model = load_model(run_of(job).path)
    model.memory_limit = job.cluster.memory
    source = source_of(open_dataset(place).require_targets())
    planned: Plan = model.plan_append(source, workers_of(job))
    return planned


def _shapes(
    job: Job, rows: int | None, features: int | None, targets: int | None, chunk_rows: int | None
) -> tuple[Any, Workload]:
    from distkern.scheduler import Workload, problem_counts

    from ..job.data_section import open_rows, source_of, task_of

    try:
        data, _ = open_rows(job.data)
    except DataError as error:
        if features is None or rows is None or error.kind != "missing":
            raise
        targets = targets or 1
        task = job.data.task or ("classification" if targets > 1 else "regression")
        estimator = planned_estimator(job, task)
        itemsize = 4 if getattr(estimator, "dtype", "float64") == "float32" else 8
        counts = problem_counts(getattr(estimator, "multiclass", "shared"), targets)
        return estimator, Workload.imagined(rows, features, itemsize, targets, *counts, chunk_rows=chunk_rows)
    for name, value in (("--features", features), ("--targets", targets), ("--chunk-rows", chunk_rows)):
        if value is not None:
            raise JobError(
                f"{name} {value} is for data that does not exist yet, and {job.data.train or job.data.x} exists: "
                f"leave {name} out, or name data that does not exist",
                kind="data-exists",
            )
    estimator = planned_estimator(job, task_of(job.data, data))
    work = estimator.shapes(source_of(data))
    if rows is not None:
        block_rows = min(work.block_rows, rows)
        work = replace(work, n_rows=rows, block_rows=block_rows, n_blocks=-(-rows // block_rows))
    return estimator, work


def show(planned: Plan) -> None:
    """Print a plan as tables."""
    work, course = planned.work, planned.course
    head: list[tuple[str, object]] = [
        ("rows x features", f"{work.n_rows} x {work.n_features}"),
        ("targets", work.n_targets),
        ("blocks", f"{work.n_blocks} of at most {work.block_rows} rows"),
        ("reads of the data", planned.passes),
        ("memory limit", f"{byte_size(planned.limit)} a process that holds rows, beside the interpreter"),
        ("peak, such a process", byte_size(planned.peak)),
        ("peak, driver", byte_size(planned.driver_peak)),
    ]
    if course is not None:
        head += [
            ("rows for selection", course.selected_rows),
            ("workers x threads", f"{course.n_workers} x {course.threads}"),
            ("rounds, exchanges", f"{course.rounds}, {course.exchanges}"),
            ("kernel columns", course.kernel_columns),
            ("bytes read", byte_size(course.bytes_read)),
            ("messages and answers", byte_size(course.bytes_sent)),
            ("scratch written, read", f"{byte_size(course.scratch_written)}, {byte_size(course.scratch_read)}"),
            ("products", f"{course.flops['total'] / 1e12:.3g} Tflop"),
        ]
        if course.read_ahead:
            head.append(("blocks on their way", f"{course.read_ahead}, beside those in work"))
        if course.solver != "factors":
            head.append(("weights by", f"{course.solver.replace('-', ' ')}, about {duration(course.solving_seconds)}"))
        if course.loss_passes:
            head.append(("loss", f"about {course.loss_passes} of the reads"))
        if course.norm_refit:
            head.append(("refit, driver, after the rows", byte_size(course.norm_refit)))
    if planned.search is not None:
        trained = f"{planned.search['models']} models at most, up to {planned.search['at_a_time']} side by side"
        head.append(("search before it", f"{trained}, in the peaks above"))
    rows = [(name.replace("_", " "), byte_size(size)) for name, size in planned.terms.items() if size]
    learning = [row for row in rows if row[0].startswith("metric ")]
    if learning:
        head.append(("metric before it", "rounds in the driver, one of the reads; in the peaks above"))
    if "evidence_rows" in planned.terms:
        head.append(("width before it", "by evidence, in the driver, one of the reads; in the peaks above"))
    training = [row for row in rows if row not in learning]
    tables = [pairs(head), columns("Memory of a process that holds rows", ("term", "bytes"), training)]
    if learning:
        tables.append(columns("Memory of the driver, rounds of the metric", ("term", "bytes"), learning))
    if course is not None:
        products = [(name, f"{value:.3g}") for name, value in course.flops.items() if name != "total"]
        tables.append(columns("Products over all rows", ("of", "flop"), products))
    print_table(*tables)

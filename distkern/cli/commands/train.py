"""``distkern train``: trains the model of a job file; writes model store, run directory and summary."""

from __future__ import annotations

from typing import Any

import click

from ...errors import JobError
from ..console.output import print_json
from ..console.terminal import terminal_of, verbosity_options
from ..running.cluster_client import cluster_options

GO_ON = "go-on"
"""Value of a ``--resume`` without one."""


class _Train(click.Command):
    """Command whose ``--resume`` may have no value, also before the job file."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Give a bare ``--resume`` its value; click would use the job file as the value."""
        words: list[str] = []
        for word in args:
            if words and words[-1] == "--resume":
                words[-1] = "--resume=auto" if word == "auto" else f"--resume={GO_ON}"
                if word == "auto":
                    continue
            words.append(word)
        if words and words[-1] == "--resume":
            words[-1] = f"--resume={GO_ON}"
        return super().parse_args(ctx, words)


@click.command(cls=_Train)
@click.argument("job_file", metavar="JOB.toml")
@click.option(
    "--set",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    help="Replace a value of the job file, as in --set model.sigma=4; may be repeated.",
)
@cluster_options("Train")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line.")
@click.option("--overwrite", is_flag=True, help="Replace the model and the run that the job names.")
@click.option(
    "--max-seconds",
    type=float,
    metavar="N",
    help="Time limit: selection stops so that the model is ready N seconds from now; short for "
    "--set model.max_seconds=N.",
)
@click.option(
    "--resume",
    type=click.Choice([GO_ON, "auto"]),
    metavar="[auto]",
    help="Resume the run that the job names, after its last exchange; max_centers and max_seconds may differ. "
    "A run that does not exist is started. With auto, a complete run is not changed, and its result is printed again.",
)
@click.option(
    "--append",
    "appended",
    metavar="STORE",
    help="Continue the sums of the job's run over the rows of this store, the only ones that are read; run and model "
    "are replaced. Centres and settings stay.",
)
@verbosity_options
@click.pass_context
def train(
    context: click.Context,
    job_file: str,
    overrides: tuple[str, ...],
    cluster: dict[str, Any],
    as_json: bool,
    overwrite: bool,
    max_seconds: float | None,
    resume: str | None,
    appended: str | None,
) -> None:
    """Train the model that JOB.toml describes.

    The job file has the sections [data] (train and test, or x and y), [model] (method and any parameter of
    the estimator), [cluster] (workers with memory and kind, or scheduler) and [output] (model and run). Texts in it may
    refer to environment variables, as in ${NAME} or ${NAME:-default}.

    Ctrl-C or SIGTERM ends the training after the current exchange, and a second one at once. If the job names a run,
    --resume continues it, and --append adds rows that came later.
    """
    from ..job.job_file import load_job
    from ..running.append_job import append_to_run
    from ..running.finished_run import finished_result
    from ..running.result import show_result
    from ..running.run_job import run_job

    if max_seconds is not None:
        overrides = (*overrides, f"model.max_seconds={max_seconds}")
    job = load_job(job_file, overrides, cluster)
    record: dict[str, Any] | None = None
    if appended is not None:
        if resume is not None:
            raise JobError(
                "--append and --resume exclude each other: a part that was cut short needs its --append again",
                kind="usage",
            )
        record = append_to_run(job, appended, overwrite=overwrite).record
    elif resume == "auto" and not overwrite:
        record = finished_result(job)
    if record is None:
        record = run_job(job, terminal_of(context), overwrite=overwrite, resume=resume is not None).record
    print_json(record) if as_json else show_result(record)

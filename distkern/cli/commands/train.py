"""``distkern train``: a job file in, a model store, a run directory and a summary out."""

from __future__ import annotations

from typing import Any

import click

from ..console.output import print_json
from ..console.terminal import terminal_of, verbosity_options
from ..running.cluster_client import cluster_options

GO_ON = "go-on"
"""What ``--resume`` without a value means."""


class _Train(click.Command):
    """Takes ``--resume`` with and without a value, and a job file right after it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Give a bare ``--resume`` its value: click would take the job file for one."""
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
    help="End in time: selection stops so that the model is there N seconds from now; short for "
    "--set model.max_seconds=N.",
)
@click.option(
    "--resume",
    type=click.Choice([GO_ON, "auto"]),
    metavar="[auto]",
    help="Go on with the run that the job names, from its last exchange; max_centers and max_seconds may differ. "
    "A run that is not there yet starts from nothing. With auto, a run that is complete is left alone and its result "
    "printed again.",
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
) -> None:
    """Train the model that JOB.toml describes.

    The job file has the sections [data] (train and test, or x and y), [model] (method and any parameter of
    the estimator), [cluster] (workers, memory and what starts them, or scheduler) and [output] (model and run). Texts
    in it may refer to environment variables, as in ${NAME} or ${NAME:-default}.

    Ctrl-C or SIGTERM ends the training after the exchange under way, and a second one at once; where the job names
    a run, --resume then goes on.
    """
    from ..job.job_file import load_job
    from ..running.finished_run import finished_result
    from ..running.result import show_result
    from ..running.run_job import run_job

    if max_seconds is not None:
        overrides = (*overrides, f"model.max_seconds={max_seconds}")
    job = load_job(job_file, overrides, cluster)
    record = finished_result(job) if resume == "auto" and not overwrite else None
    if record is None:
        record = run_job(job, terminal_of(context), overwrite=overwrite, resume=resume is not None).record
    print_json(record) if as_json else show_result(record)

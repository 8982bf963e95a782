"""``distkern train``: a job file in, a model store, a run directory and a summary out."""

from __future__ import annotations

import click

from distkern.cli.cluster import cluster_options
from distkern.cli.terminal import terminal_of, verbosity_options


@click.command()
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
    "--resume",
    is_flag=True,
    help="Go on with the run that the job names, from its last exchange; max_centers may differ. "
    "A run that is not there yet starts from nothing.",
)
@verbosity_options
@click.pass_context
def train(
    context: click.Context,
    job_file: str,
    overrides: tuple[str, ...],
    scheduler: str | None,
    scheduler_file: str | None,
    workers: int | None,
    memory: str | None,
    as_json: bool,
    overwrite: bool,
    resume: bool,
) -> None:
    """Train the model that JOB.toml describes.

    The job file has the sections [data] (train and test, or x and y), [model] (method and any parameter of
    the estimator), [cluster] (workers, memory and what starts them, or scheduler) and [output] (model and run).

    Ctrl-C or SIGTERM ends the training after the exchange under way, and a second one at once; where the job names
    a run, --resume then goes on.
    """
    from distkern.cli.job import load_job
    from distkern.cli.training import run_job

    flags = {"scheduler": scheduler, "scheduler_file": scheduler_file, "workers": workers, "memory": memory}
    job = load_job(job_file, overrides, {name: value for name, value in flags.items() if value is not None})
    result = run_job(job, terminal_of(context), overwrite=overwrite, resume=resume)
    if as_json:
        from distkern.cli.render import print_json

        print_json(result.record())
    else:
        result.show()

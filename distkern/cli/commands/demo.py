"""``distkern demo``: from data to predictions, on the digits that scikit-learn ships."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from ...errors import StoreError
from ...selection.stopping import StopReason
from ..console.output import pairs, print_table
from ..console.terminal import Terminal, terminal_of, verbosity_options

_SEED = 0
_SIGMA = 20.0
_MAX_CENTERS = 400


@click.command()
@click.option("--out", metavar="DIR", help="Keep the stores, the model and the run in this directory.")
@click.option("--overwrite", is_flag=True, help="Replace the files of an earlier demo.")
@verbosity_options
@click.pass_context
def demo(context: click.Context, out: str | None, overwrite: bool) -> None:
    """Train a classifier of handwritten digits; needs no file and no network.

    Two thirds of scikit-learn's digits train, one third tests. --out keeps the dataset stores, the model, the
    run and the predictions, for a try of the other commands.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="distkern-demo-")) if out is None else out)
        run_demo(folder, terminal_of(context), keep=out is not None, overwrite=overwrite)


def run_demo(folder: Path, terminal: Terminal, *, keep: bool, overwrite: bool) -> None:
    """Write the stores, train, save, predict and print the result, with the folder where `keep` is set."""
    from distkern.storage import open_dataset

    from ...estimators.scoring import ClassificationScore
    from ..job.job_file import parse_job
    from ..running.predicting import write_predictions
    from ..running.run_job import run_job
    from .predict_evaluate import confusion_table

    paths = {name: folder / name for name in ("digits.zarr", "digits-test.zarr", "digits.model", "digits.run")}
    predictions = folder / "digits-predictions.zarr"
    for path in (*paths.values(), predictions):
        if path.exists() and not overwrite:
            raise StoreError(f"{path} exists; --overwrite replaces it", kind="exists")
    train, test, model_path, run_path = (str(path) for path in paths.values())
    n_train, n_test = _write_digits(train, test, overwrite=overwrite)
    job = parse_job(
        {
            "data": {"train": train, "test": test},
            "model": {"method": "orols", "sigma": _SIGMA, "max_centers": _MAX_CENTERS, "standardize": False},
            "output": {"model": model_path, "run": run_path},
        }
    )
    result = run_job(job, terminal, overwrite=overwrite)
    model, score, reason = result.model, result.score, StopReason(result.model.stop_reason_)
    assert isinstance(score, ClassificationScore)
    write_predictions(model, open_dataset(test), str(predictions), proba=True, overwrite=overwrite)
    rows: list[tuple[str, object]] = [
        ("data", "handwritten digits of scikit-learn, 8 x 8 pixels, 10 classes"),
        ("split", f"{n_train} rows train, {n_test} test (stratified, seed {_SEED})"),
        ("model", f"OROLS, Gaussian kernel, sigma {_SIGMA:g}, at most {_MAX_CENTERS} centres"),
        ("centres", model.n_centers_),
        ("lambda", model.lambda_),
        ("stopped", f"{reason}: {reason.advice}"),
    ]
    if keep:
        rows.append(("kept in", folder))
    print_table(pairs(rows), confusion_table(score))
    wrong = round(score.error * n_test)
    click.echo(f"\ntest error {score.error:.4f} ({wrong} of {n_test} digits wrong)")


def _write_digits(train: str, test: str, *, overwrite: bool) -> tuple[int, int]:
    """Write the two dataset stores and return their numbers of rows."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    from distkern.storage import write_dataset

    features, labels = load_digits(return_X_y=True)
    split: list[Any] = train_test_split(features, labels, test_size=1 / 3, random_state=_SEED, stratify=labels)
    train_x, test_x, train_y, test_y = split
    for path, x, y in ((train, train_x, train_y), (test, test_x, test_y)):
        write_dataset(path, x, y, task="classification", overwrite=overwrite)
    return len(train_y), len(test_y)

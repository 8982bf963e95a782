"""``distkern predict`` and ``distkern evaluate``: a saved model on rows, block by block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ...errors import JobError
from ...text import fixed
from ..console.output import columns, pairs, print_json, print_table
from ..console.terminal import verbosity_options
from ..running.cluster_client import cluster_options, open_client
from ..running.file_options import file_options

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ...estimators.scoring import ClassificationScore, ModelScore

_LARGEST_CONFUSION = 30


@click.command()
@click.argument("model_store", metavar="MODEL")
@click.argument("places", metavar="ROWS...", nargs=-1, required=True)
@click.option(
    "--out",
    required=True,
    metavar="OUT",
    help="Where to write the predictions: a .csv or .parquet file by the ending, else a zarr store.",
)
@click.option("--proba", is_flag=True, help="Write the probability of each class too, a column for each.")
@click.option(
    "--interval",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="SHARE",
    help="Write the ends of an interval that this share of new targets falls into, such as 0.9, in columns lower and "
    "upper; for a regression that was trained with intervals.",
)
@file_options
@click.option("--overwrite", is_flag=True, help="Replace the predictions where they exist.")
@cluster_options("Predict")
@verbosity_options
def predict(
    model_store: str,
    places: tuple[str, ...],
    out: str,
    proba: bool,
    interval: float | None,
    reading: dict[str, Any],
    overwrite: bool,
    cluster: dict[str, Any],
) -> None:
    """Predict every row of ROWS and write the predictions to OUT.

    ROWS is a dataset store or a plain zarr array; or CSV, Parquet, npy, npz or svmlight files, folders of them or
    quoted patterns. Columns with names are taken by the names of the training, and others, such as the target, are left
    out. Files are predicted in this process.
    """
    from distkern.storage import check_prediction_destination

    from ..running.predicting import write_predictions

    check_prediction_destination(out, overwrite)
    with _opened(model_store, places, reading, cluster) as (model, rows):
        n_rows = write_predictions(model, rows, out, proba=proba, interval=interval, overwrite=overwrite)
    print_table(pairs([("wrote", out), ("rows", n_rows)]))


@click.command()
@click.argument("model_store", metavar="MODEL")
@click.argument("places", metavar="ROWS...", nargs=-1, required=True)
@click.option(
    "--target",
    metavar="COL",
    multiple=True,
    help="Column of the target in files: a name, for .npy a number; .npz files have a y. Repeated: several targets.",
)
@file_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@cluster_options("Predict")
@verbosity_options
def evaluate(
    model_store: str,
    places: tuple[str, ...],
    target: tuple[str, ...],
    reading: dict[str, Any],
    as_json: bool,
    cluster: dict[str, Any],
) -> None:
    """Compare the predictions of MODEL with the targets of ROWS.

    ROWS is a dataset store; or CSV, Parquet, npy, npz or svmlight files, folders of them or quoted patterns. Files are
    predicted in this process.
    """
    from ..running.predicting import score

    reading = {**reading, "target": target, "no_target": False}
    with _opened(model_store, places, reading, cluster) as (model, rows):
        found = score(model, rows)
    if as_json:
        print_json({"model": model_store, "store": " ".join(places), **found.as_record()})
    else:
        show_score(found)


@contextmanager
def _opened(
    model_store: str, places: tuple[str, ...], reading: dict[str, Any], cluster: dict[str, Any]
) -> Iterator[tuple[Any, Any]]:
    """Yield a model, on the cluster that the flags name, and rows of a store, or of files as `reading` says."""
    from distkern.storage import RowFiles

    from ...estimators import load_model
    from ..job.job_file import cluster_of_flags
    from ..running.predicting import open_rows

    section = cluster_of_flags(**cluster)
    model = load_model(model_store)
    rows = open_rows(model, model_store, places, reading)
    if isinstance(rows, RowFiles) and section.where is not None:
        raise JobError(
            f"{rows.place}: files are predicted in this process, not on workers; leave the options of the cluster out, "
            "or write a store with distkern ingest (--no-target for rows to predict) and name that",
            kind="cluster-of-files",
        )
    with open_client(section) as client:
        model.client = client
        yield model, rows


def show_score(score: ModelScore) -> None:
    """Print a score: errors, and for a classifier a table of the classes and the confusion counts."""
    from ...estimators.scoring import ClassificationScore

    if not isinstance(score, ClassificationScore):
        print_table(pairs(score.as_record().items()))
        return
    classes = columns(
        "classes",
        ("class", "rows", "precision", "recall", "f1"),
        ([item["label"], item["rows"], *(fixed(item[name]) for name in _RATES)] for item in score.per_class()),
    )
    errors = [("error", score.error), ("log loss", score.log_loss), ("Brier score", score.brier)]
    tables = [pairs([("rows", score.n_rows), *((name, fixed(value)) for name, value in errors)]), classes]
    if len(score.labels) <= _LARGEST_CONFUSION:
        tables.append(confusion_table(score))
    print_table(*tables)


_RATES = ("precision", "recall", "f1")


def confusion_table(score: ClassificationScore) -> RenderableType:
    """Return the confusion counts as a table with a row for each true class."""
    labels = [str(label) for label in score.labels]
    counts = score.confusion.tolist()
    return columns(
        "rows: true class, columns: predicted class",
        ("", *labels),
        ([label, *("." if count == 0 else count for count in row)] for label, row in zip(labels, counts, strict=True)),
    )

"""``distkern predict`` and ``distkern evaluate``: a saved model on a dataset store, block by block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from distkern.cli.cluster import cluster_options, open_client
from distkern.cli.terminal import verbosity_options
from distkern.errors import DataError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from distkern.estimators.scoring import ClassificationScore, Score

_LARGEST_CONFUSION = 30


@click.command()
@click.argument("model_store", metavar="MODEL")
@click.argument("store", metavar="STORE")
@click.option("--out", required=True, metavar="OUT", help="Store to write the predictions to.")
@click.option("--proba", is_flag=True, help="Write the probability of each class too.")
@click.option("--overwrite", is_flag=True, help="Replace the predictions where they exist.")
@cluster_options("Predict")
@verbosity_options
def predict(
    model_store: str,
    store: str,
    out: str,
    proba: bool,
    overwrite: bool,
    scheduler: str | None,
    scheduler_file: str | None,
    workers: int | None,
    memory: str | None,
) -> None:
    """Predict every row of STORE and write the predictions to OUT."""
    from distkern.cli.job import cluster_of_flags
    from distkern.cli.predicting import write_predictions
    from distkern.cli.render import pairs, print_table
    from distkern.storage import check_prediction_destination

    cluster = cluster_of_flags(scheduler=scheduler, scheduler_file=scheduler_file, workers=workers, memory=memory)
    check_prediction_destination(out, overwrite)
    model, data = open_pair(model_store, store)
    with open_client(cluster) as client:
        model.client = client
        write_predictions(model, data, out, proba=proba, overwrite=overwrite)
    print_table(pairs([("wrote", out), ("rows", data.n_rows)]))


@click.command()
@click.argument("model_store", metavar="MODEL")
@click.argument("store", metavar="STORE")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@cluster_options("Predict")
@verbosity_options
def evaluate(
    model_store: str,
    store: str,
    as_json: bool,
    scheduler: str | None,
    scheduler_file: str | None,
    workers: int | None,
    memory: str | None,
) -> None:
    """Compare the predictions of MODEL with the targets of STORE."""
    from distkern.cli.job import cluster_of_flags
    from distkern.cli.render import print_json
    from distkern.estimators.scoring import score_model

    cluster = cluster_of_flags(scheduler=scheduler, scheduler_file=scheduler_file, workers=workers, memory=memory)
    model, data = open_pair(model_store, store)
    with open_client(cluster) as client:
        model.client = client
        score = score_model(model, data)
    if as_json:
        print_json({"model": model_store, "store": store, **score.as_record()})
    else:
        show_score(score)


def open_pair(model_store: str, store: str) -> tuple[Any, Any]:
    """Open a model and the data to apply it to.

    Raises
    ------
    DataError
        Where their numbers of features differ.
    """
    from distkern.estimators import load_model
    from distkern.storage import open_dataset

    model, data = load_model(model_store), open_dataset(store)
    if data.n_features != model.n_features_in_:
        raise DataError(
            f"{store} has {data.n_features} features, the model {model_store} was trained on {model.n_features_in_}",
            kind="feature-count",
        )
    return model, data


def show_score(score: Score) -> None:
    """Print a score: figures, and for classes a table of each and the confusion counts."""
    from distkern.cli.render import columns, pairs, print_table
    from distkern.estimators.scoring import ClassificationScore

    if not isinstance(score, ClassificationScore):
        print_table(pairs(score.as_record().items()))
        return
    classes = columns(
        "classes",
        ("class", "rows", "precision", "recall", "f1"),
        ([item["label"], item["rows"], *(_fixed(item[name]) for name in _RATES)] for item in score.per_class()),
    )
    figures = [("error", score.error), ("log loss", score.log_loss), ("Brier score", score.brier)]
    tables = [pairs([("rows", score.n_rows), *((name, _fixed(value)) for name, value in figures)]), classes]
    if len(score.labels) <= _LARGEST_CONFUSION:
        tables.append(confusion_table(score))
    print_table(*tables)


_RATES = ("precision", "recall", "f1")


def confusion_table(score: ClassificationScore) -> RenderableType:
    """Return the confusion counts as a table, a row per true class."""
    from distkern.cli.render import columns

    labels = [str(label) for label in score.labels]
    counts = score.confusion.tolist()
    return columns(
        "rows: true class, columns: predicted class",
        ("", *labels),
        ([label, *("." if count == 0 else count for count in row)] for label, row in zip(labels, counts, strict=True)),
    )


def _fixed(value: float) -> str:
    return "-" if value != value else f"{value:.4f}"

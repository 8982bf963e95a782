"""``distkern ingest``: writes files of rows as a dataset store."""

from __future__ import annotations

from typing import Any

import click

from ..console.output import pairs, print_table
from ..console.terminal import verbosity_options
from ..running.file_options import file_options


@click.command()
@click.argument("sources", metavar="SRC...", nargs=-1, required=True)
@click.option(
    "--target",
    metavar="COL",
    multiple=True,
    help="Column of the target: a name, for .npy a number; .npz files have a y. Repeated: several targets.",
)
@click.option("--no-target", is_flag=True, help="The rows have no target: a store for predictions.")
@click.option(
    "--weight",
    metavar="COL",
    help="Column of the row weights: a name, for .npz a key, for .npy a number; or a .npy file for .npy and svmlight.",
)
@click.option("--out", required=True, metavar="DIR", help="Dataset store to write.")
@click.option(
    "--task",
    type=click.Choice(["classification", "regression"]),
    help="Task that y is for; by default it follows from the type of y.",
)
@click.option(
    "--missing",
    type=click.Choice(["indicator", "error", "drop", "mean"]),
    help="Treatment of missing values: the mean of the column and a column that is 1 for them (CSV and Parquet; "
    "default where a column is not numeric), refuse them (default where all are), drop the row, or the mean alone.",
)
@click.option(
    "--categorical",
    metavar="COL",
    multiple=True,
    help="Column that is a category whatever its values are; may be repeated.",
)
@click.option(
    "--like",
    metavar="STORE|MODEL",
    help="Encode the rows as new ones, by the schema of a store or a model: for tests and predictions.",
)
@click.option(
    "--features",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of features of svmlight files; by default the largest in them.",
)
@file_options
@click.option("--chunk-rows", type=click.IntRange(min=1), metavar="N", help="Rows of a block of the store.")
@click.option("--overwrite", is_flag=True, help="Replace the store where it exists.")
@verbosity_options
def ingest(sources: tuple[str, ...], out: str, reading: dict[str, Any], **options: Any) -> None:
    """Write CSV, Parquet, npy, npz or svmlight files as one dataset store.

    Columns of CSV and Parquet files may be categories, dates, truth values and numbers with gaps.

    SRC is a file, a folder of files or a quoted pattern; CSV and svmlight files may be compressed (.gz, .bz2, .xz or
    .zst).
    """
    from distkern.storage import ingest as write

    data = write(list(sources), out, **options, **reading)
    rows: list[tuple[str, object]] = [("wrote", out), ("rows", data.n_rows), ("features", data.n_features)]
    if data.table_schema is not None:
        rows.append(("columns", len(data.table_schema.columns)))
    rows.append(("task", data.task or "none, the rows have no targets"))
    if data.class_labels is not None:
        rows.append(("classes", list(data.class_labels)))
    elif data.has_targets and data.y.ndim > 1:
        rows.append(("targets", data.y.shape[1]))
    if data.weights is not None:
        rows.append(("weights", "of each row"))
    print_table(pairs(rows))

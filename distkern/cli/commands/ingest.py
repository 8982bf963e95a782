"""``distkern ingest``: writes files of rows as a dataset store."""

from __future__ import annotations

import click

from ..console.output import pairs, print_table
from ..console.terminal import verbosity_options


@click.command()
@click.argument("sources", metavar="SRC...", nargs=-1, required=True)
@click.option("--target", metavar="COL", help="Column of the target: a name, for .npy a number; .npz files have a y.")
@click.option("--out", required=True, metavar="DIR", help="Dataset store to write.")
@click.option("--part", type=click.Choice(["train", "test"]), help="X_train, y_train or X_test, y_test of .npz files.")
@click.option(
    "--task",
    type=click.Choice(["classification", "regression"]),
    help="Task that y is for; by default it follows from the type of y.",
)
@click.option(
    "--missing",
    type=click.Choice(["error", "drop", "mean"]),
    default="error",
    show_default=True,
    help="Treatment of missing values: refuse them, drop the row, or use the mean of the column.",
)
@click.option("--drop", metavar="COL", multiple=True, help="Column to leave out; may be repeated.")
@click.option("--delimiter", metavar="CHAR", help="Separator of the columns of text files.")
@click.option("--chunk-rows", type=click.IntRange(min=1), metavar="N", help="Rows of a block of the store.")
@click.option("--overwrite", is_flag=True, help="Replace the store where it exists.")
@verbosity_options
def ingest(
    sources: tuple[str, ...],
    target: str | None,
    out: str,
    part: str | None,
    task: str | None,
    missing: str,
    drop: tuple[str, ...],
    delimiter: str | None,
    chunk_rows: int | None,
    overwrite: bool,
) -> None:
    """Write CSV, Parquet, npy, npz or svmlight files as one dataset store."""
    from distkern.storage import ingest as write

    data = write(
        list(sources),
        out,
        target=target,
        part=part,
        task=task,
        missing=missing,
        drop=drop,
        delimiter="\t" if delimiter == "\\t" else delimiter,
        chunk_rows=chunk_rows,
        overwrite=overwrite,
    )
    rows: list[tuple[str, object]] = [
        ("wrote", out),
        ("rows", data.n_rows),
        ("features", data.n_features),
        ("task", data.task),
    ]
    if data.class_labels is not None:
        rows.append(("classes", list(data.class_labels)))
    print_table(pairs(rows))

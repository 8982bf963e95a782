"""The results as Markdown tables, one for each split; means and deviations over splits by speaker."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from statistics import mean, stdev

import click
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from distkern.errors import StoreError
from examples.speech.experiment import Result

COLUMNS: dict[str, tuple[str, Callable[[Result], float]]] = {
    "frame error %": (".1f", lambda result: result.frame_error),
    "digit error %": (".2f", lambda result: result.digit_error),
    "word accuracy %": (".2f", lambda result: result.strings.accuracy),
    "substituted": (".0f", lambda result: result.strings.substitutions),
    "inserted": (".0f", lambda result: result.strings.insertions),
    "deleted": (".0f", lambda result: result.strings.deletions),
    "words": (".0f", lambda result: result.strings.words),
    "centres": (".0f", lambda result: result.n_centers),
    "training s": (".0f", lambda result: result.training_seconds),
    "scores/s": (".2g", lambda result: result.speed.scores_per_second),
    "x real time": (".0f", lambda result: result.speed.times_real_time),
}


def print_results(results: Sequence[Result]) -> None:
    """Print a table of every kind of split: means, and in parentheses standard deviations over its speakers."""
    for kind in dict.fromkeys(_kind(result) for result in results):
        console = Console(file=(text := StringIO()), width=240)
        own = [result for result in results if _kind(result) == kind]
        table = Table(box=MARKDOWN)
        table.add_column(kind)
        for column in COLUMNS:
            table.add_column(column, justify="right")
        for model in dict.fromkeys(result.model for result in own):
            table.add_row(model, *_cells([result for result in own if result.model == model]))
        console.print(table)
        click.echo(text.getvalue().strip() + "\n")


def write_results(path: Path, results: Sequence[Result]) -> None:
    """Write the results to a JSON file, completely or not at all.

    Raises
    ------
    StoreError
        The file cannot be written.
    """
    text = json.dumps([asdict(result) for result in results], indent=2) + "\n"
    # A pipe or a device is written directly; replacing it by another file would remove it.
    part = path.with_name(f"{path.name}.part") if path.is_file() or not path.exists() else path
    try:
        part.write_text(text)
        if part != path:
            os.replace(part, path)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}", kind="not-writable") from error


def _kind(result: Result) -> str:
    return result.split.split(" ")[0]


def _cells(results: Sequence[Result]) -> list[str]:
    cells = []
    for style, value in COLUMNS.values():
        values = [value(result) for result in results]
        cell = format(mean(values), style)
        cells.append(f"{cell} ({format(stdev(values), style)})" if len(values) > 1 else cell)
    return cells

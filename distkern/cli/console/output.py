"""Results on standard output: tables, also for files, and JSON without NaN."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from ...redaction import redact_values
from ...text import plain, shown

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_WIDTH_OFF_TERMINAL = 200


def print_table(*tables: RenderableType) -> None:
    """Print tables to standard output; without styles and 200 characters wide where it is no terminal."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _WIDTH_OFF_TERMINAL
    console = Console(file=sys.stdout, width=width, markup=False, highlight=False)
    for table in tables:
        console.print(table)


def pairs(rows: Iterable[tuple[str, object]]) -> Table:
    """Return a two-column table of names and values."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for name, value in rows:
        table.add_row(Text(name), Text(shown(value)))
    return table


def columns(title: str, header: Iterable[str], rows: Iterable[Iterable[object]]) -> RenderableType:
    """Return a titled table with a header, numbers to the right."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index, name in enumerate(header):
        table.add_column(Text(name), justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*(Text(shown(value)) for value in row))
    return Group(Text(f"\n{title}"), table)


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on one line of standard output."""
    click.echo(json.dumps(redact_values(plain(value)), allow_nan=False))

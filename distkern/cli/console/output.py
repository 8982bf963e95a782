"""Results on standard output: tables that stay readable in a file, and JSON without NaN."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from ...redaction import redact_values

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_WIDTH_OFF_TERMINAL = 200


def print_table(*tables: RenderableType) -> None:
    """Print tables to standard output, plain and unwrapped where it is not a terminal."""
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


def shown(value: object) -> str:
    """Return a value as a person reads it."""
    value = plain(value)
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        head = ", ".join(shown(item) for item in value[:12])
        return head if len(value) <= 12 else f"{head}, ... ({len(value)} in all)"
    if isinstance(value, dict):
        return ", ".join(f"{name} {shown(item)}" for name, item in value.items())
    return str(value)


def bytes_shown(count: int | None) -> str:
    """Return a number of bytes in binary units."""
    if count is None:
        return "-"
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: numpy scalars and arrays unwrapped, NaN and infinities as None."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return str(value)


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on one line of standard output."""
    click.echo(json.dumps(redact_values(plain(value)), allow_nan=False))

"""Tables of results, as Markdown on standard output and as JSON files."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy
import threadpoolctl

import distkern


def report(rows: Iterable[Mapping[str, Any]], path: Path | None = None) -> None:
    """Print each row on standard error at once, then print the table and save it."""
    seen = []
    for row in rows:
        seen.append(row)
        print(dict(row), file=sys.stderr, flush=True)
    click.echo(markdown(seen))
    save(path, seen)


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Format rows of equal keys as a Markdown table."""
    if not rows:
        return "(no rows)"
    keys = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[_text(row.get(key)) for key in keys] for row in rows]
    widths = [max(len(key), *(len(line[i]) for line in cells)) for i, key in enumerate(keys)]
    lines = [keys, ["-" * width for width in widths], *cells]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )


def save(path: Path | None, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows and the machine they were measured on as JSON."""
    if path is None:
        return
    blas = [
        {key: pool.get(key) for key in ("internal_api", "version", "architecture", "num_threads")}
        for pool in threadpoolctl.threadpool_info()
    ]
    machine = {
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "distkern": distkern.__version__,
        "blas": blas,
    }
    path.write_text(json.dumps({"machine": machine, "rows": list(rows)}, indent=2) + "\n")


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)

"""Tables as Markdown on standard output, and as JSON beside it."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
import threadpoolctl


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Format rows of equal keys as a Markdown table."""
    if not rows:
        return "(no rows)"
    keys = list(rows[0])
    cells = [[_text(row[key]) for key in keys] for row in rows]
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
    machine = {"platform": platform.platform(), "numpy": numpy.__version__, "blas": blas}
    path.write_text(json.dumps({"machine": machine, "rows": list(rows)}, indent=2) + "\n")


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)

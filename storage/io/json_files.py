"""JSON text and files of the stores: sorted keys, numpy scalars allowed, files replaced in one step."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any

import numpy as np

from .publish import sync_file, sync_folder

__all__ = ["MAX_JSON_BYTES", "dump_json", "read_json", "write_json"]

MAX_JSON_BYTES = 32 << 20
"""Longest JSON file that is read; the parsed values may take thirty times as much."""


def dump_json(value: Any, *, indent: int | None = 2) -> str:
    """Return JSON text with sorted keys; the same value always gives the same text.

    Parameters
    ----------
    value : object
        JSON types, numpy scalars and arrays, paths, tuples. Numbers that are not finite become the
        tokens ``NaN`` and ``Infinity``.
    indent : int or None, default 2
        Spaces a level, None for one line.
    """
    return json.dumps(value, sort_keys=True, indent=indent, default=_plain, ensure_ascii=False)


def write_json(path: Path, value: Any) -> None:
    """Write a value that `dump_json` takes to a file, which holds the old text or the new at any time, never a part."""
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        aside.write_text(dump_json(value) + "\n", encoding="utf-8")
        sync_file(aside)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    sync_folder(path.parent)


def read_json(path: Path) -> Any:
    """Return the value of a JSON file, None where it is absent, unreadable, not JSON or above `MAX_JSON_BYTES`."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_JSON_BYTES:
            return None
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")

"""JSON text and files as the stores write them: sorted keys, numpy scalars allowed, replaced in one step."""

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
"""Longest JSON file that is read: parsed, it may take thirty times as much."""


def dump_json(value: Any, *, indent: int | None = 2) -> str:
    """Return JSON text with sorted keys; the same value always gives the same text.

    Parameters
    ----------
    value : object
        JSON types, numpy scalars and arrays, paths, tuples. Numbers that are not finite become the
        tokens ``NaN`` and ``Infinity``.
    indent : int or None
        Spaces a level, None for one line.

    Returns
    -------
    str
        Text without a final newline.
    """
    return json.dumps(value, sort_keys=True, indent=indent, default=_plain, ensure_ascii=False)


def write_json(path: Path, value: Any) -> None:
    """Write `value` to a file that holds the old text or the new, never a part.

    Parameters
    ----------
    path : pathlib.Path
        File to make or replace.
    value : object
        What `dump_json` takes.
    """
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        aside.write_text(dump_json(value) + "\n", encoding="utf-8")
        sync_file(aside)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    sync_folder(path.parent)


def read_json(path: Path) -> Any:
    """Return the value a JSON file holds.

    Parameters
    ----------
    path : pathlib.Path
        File to read.

    Returns
    -------
    object
        The value, or None where the file is absent, unreadable, longer than `MAX_JSON_BYTES` or not JSON.
    """
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

"""Kinds of stores, recognised at a path by their marker files, and the versions of their formats."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distkern.errors import DistkernError

from .json_files import read_json
from .remote_folders import RemoteFolder
from .urls import is_url, local_place

__all__ = [
    "ATTRIBUTE",
    "appearance",
    "has_kind",
    "identify",
    "require_version",
    "store_attributes",
]

ATTRIBUTE = "distkern"
"""Name of the zarr attribute that holds distkern's description of a store."""

_APPEARANCE = {
    "missing": "nothing",
    "dataset": "a distkern dataset",
    "predictions": "a distkern prediction store",
    "model": "a distkern model",
    "run": "a distkern run directory",
    "zarr-array": "a plain zarr array",
    "zarr-group": "a zarr group of another program",
    "directory": "a directory without a store in it",
    "part-of-a-model": "a part of a distkern model",
    "part-of-a-run": "a part of a distkern run",
    "file": "a file",
}


def store_attributes(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return the ``distkern`` attributes of a zarr v3 group, None where there are none."""
    if is_url(path):
        metadata = RemoteFolder(os.fspath(path)).read_json("zarr.json")
    else:
        metadata = read_json(Path(local_place(path), "zarr.json"))
    if not isinstance(metadata, dict) or metadata.get("node_type") != "group":
        return None
    attributes = metadata.get("attributes")
    ours = attributes.get(ATTRIBUTE) if isinstance(attributes, dict) else None
    return ours if isinstance(ours, dict) else None


def identify(path: str | os.PathLike[str]) -> str:
    """Return the kind of the store at a local path or under a URL.

    One of ``missing``, ``dataset``, ``predictions``, ``model``, ``run``, ``zarr-array``, ``zarr-group``, ``directory``
    and ``file``; under a URL also ``part-of-a-model`` and ``part-of-a-run``.
    """
    if is_url(path):
        return RemoteFolder(os.fspath(path)).identify()
    place = Path(local_place(path))
    if not place.is_dir():
        return "file" if place.exists() else "missing"
    attributes = store_attributes(place)
    if attributes is not None and attributes.get("kind") in ("dataset", "predictions"):
        return str(attributes["kind"])
    if os.path.isfile(place / "model.json"):
        return "model"
    if os.path.isfile(place / "job.json"):
        return "run"
    metadata = read_json(place / "zarr.json")
    if os.path.isfile(place / ".zarray") or (isinstance(metadata, dict) and metadata.get("node_type") == "array"):
        return "zarr-array"
    if os.path.isfile(place / ".zgroup") or metadata is not None:
        return "zarr-group"
    return "directory"


def has_kind(path: str | os.PathLike[str], kind: str) -> bool:
    """Return whether `identify` returns `kind` for a path."""
    return identify(path) == kind


def appearance(path: str | os.PathLike[str]) -> str:
    """Describe the store or file at a place for error messages."""
    kind = identify(path)
    suffix = Path(path).suffix
    if kind == "file" and suffix:
        return f"a {suffix} file"
    return _APPEARANCE[kind]


def require_version(
    path: str | os.PathLike[str], facts: Mapping[str, Any], newest: int, error: type[DistkernError]
) -> None:
    """Refuse a store by the ``format_version`` in `facts`.

    The error has the kind ``newer-version`` above `newest`, and ``corrupt`` for what is no whole number from 1.
    """
    version = facts.get("format_version")
    if type(version) is not int or version < 1:
        raise error(
            f"{path} has format version {version!r}, which must be a whole number from 1 to {newest}: its description "
            "is damaged",
            kind="corrupt",
        )
    if version > newest:
        raise error(
            f"{path} has format version {version}, this distkern reads up to {newest}: upgrade distkern",
            kind="newer-version",
        )

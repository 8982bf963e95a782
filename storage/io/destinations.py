"""Destinations of stores: local directories, which appear in one step, and URLs, whose marker is written last."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from distkern.errors import DistkernError

from .formats import has_kind
from .publish import check_destination, publish_directory
from .remote_folders import RemoteFolder, check_remote, publish_remote
from .urls import is_url, local_place

__all__ = ["check_place", "publish_place"]


def check_place(path: str | os.PathLike[str], overwrite: bool, error: type[DistkernError], kind: str) -> None:
    """Refuse a place that must not be written, before any work is done.

    Parameters
    ----------
    path : path-like
        Local path or URL.
    overwrite : bool
        Whether something of the same kind may be replaced.
    error : type
        Class of the errors raised.
    kind : str
        Kind of the new store: ``dataset``, ``predictions`` or ``model``.

    Raises
    ------
    DistkernError
        What `check_destination` or `check_remote` raises.
    """
    if is_url(path):
        check_remote(os.fspath(path), overwrite, error, kind)
    else:
        check_destination(local_place(path), overwrite, error, lambda old: has_kind(old, kind))


def publish_place(
    path: str | os.PathLike[str],
    overwrite: bool,
    error: type[DistkernError],
    kind: str,
    needed: Callable[[], int | None] = lambda: None,
) -> AbstractContextManager[Path | RemoteFolder]:
    """Yield a directory or a place under a URL to write a store into.

    Parameters
    ----------
    path, overwrite, error, kind
        As for `check_place`.
    needed : callable, optional
        Returns the bytes that the body writes in all, or None where the number is not known, as it is by default.

    Yields
    ------
    pathlib.Path or RemoteFolder
        The directory, or the objects under the URL; there the body writes the marker last.

    Raises
    ------
    DistkernError
        What `publish_directory` or `publish_remote` raises.
    """
    if is_url(path):
        return publish_remote(os.fspath(path), overwrite, error, kind)
    return publish_directory(local_place(path), overwrite, error, lambda old: has_kind(old, kind), needed)

"""Directories and files that are written under another name, then renamed: under its final name, one is complete.

A process that dies while it writes leaves only a hidden sibling ``.NAME.partial-XXXXXXXX``. No reader opens it, and
the next writer of the same name removes it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from time import time

from distkern.errors import DistkernError
from distkern.redaction import redact

__all__ = [
    "check_destination",
    "disk_full",
    "is_disk_full",
    "publish_directory",
    "publish_file",
    "publish_text",
    "sync_file",
    "sync_folder",
]

_YOUNG_SECONDS = 60.0
_SHORT_WRITE = re.compile(r"\d+ requested and \d+ written")
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def check_destination(
    path: str | os.PathLike[str],
    overwrite: bool,
    error: type[DistkernError],
    replaceable: Callable[[Path], bool],
) -> Path:
    """Refuse a destination that must not be written, before any work is done.

    Parameters
    ----------
    path : path-like
        Final path of the directory; the function returns it as an absolute path.
    overwrite : bool
        Whether something of the same kind may be replaced.
    error : type
        Class of the errors raised.
    replaceable : callable
        Returns whether the store at a path has the kind that will be written there.

    Raises
    ------
    DistkernError
        Of class `error`: ``not-writable``, ``exists`` without `overwrite`, ``foreign`` where the path holds something
        of another kind.
    """
    if "://" in os.fspath(path):
        raise error(
            f"{redact(os.fspath(path))} is a URL: name a local directory",
            kind="not-local",
        )
    absolute = Path(os.path.abspath(path))
    _require_writable(path, absolute, error)
    if not os.path.lexists(absolute):
        return absolute
    if not overwrite:
        raise error(
            f"{path} exists already: name another place, or replace it with --overwrite (overwrite=True)",
            kind="exists",
        )
    if absolute.is_symlink() or not replaceable(absolute):
        raise error(
            f"{path} exists and is not of the kind that would be written there, so it is not overwritten: "
            f"name another place, or remove it first",
            kind="foreign",
        )
    return absolute


def _require_writable(path: str | os.PathLike[str], absolute: Path, error: type[DistkernError]) -> None:
    """Test the rights by making and removing a folder beside the destination's first missing parent."""
    ancestor = absolute.parent
    while not os.path.lexists(ancestor):
        ancestor = ancestor.parent
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".distkern-", dir=ancestor))
    except OSError as cause:
        raise error(f"{path} cannot be written ({cause}): name another place", kind="not-writable") from cause


def publish_directory(
    path: str | os.PathLike[str],
    overwrite: bool,
    error: type[DistkernError],
    replaceable: Callable[[Path], bool],
    needed: Callable[[], int | None] = lambda: None,
) -> AbstractContextManager[Path]:
    """Yield an empty sibling directory; rename it to `path` if the body succeeds, and remove it otherwise.

    Parameters
    ----------
    path : path-like
        Final name; missing parent directories are made.
    overwrite, error, replaceable
        As for `check_destination`, which runs first.
    needed : callable, optional
        Returns the bytes that the body writes in all, before compression, or None where the number is not known, as it
        is by default.

    Raises
    ------
    DistkernError
        Of class `error`: those of `check_destination`; ``not-writable`` where the directory cannot be made or renamed;
        ``disk-full`` where the body or the rename runs out of space. Other errors of the body pass.
    """
    return _published(Path.mkdir, path, overwrite, error, replaceable, needed)


def publish_file(
    path: str | os.PathLike[str],
    overwrite: bool,
    error: type[DistkernError],
    replaceable: Callable[[Path], bool],
    needed: Callable[[], int | None] = lambda: None,
) -> AbstractContextManager[Path]:
    """Yield the path of an empty sibling file, as `publish_directory` a directory; `needed` has its default."""
    return _published(Path.touch, path, overwrite, error, replaceable, needed)


@contextmanager
def _published(
    make: Callable[[Path], None],
    path: str | os.PathLike[str],
    overwrite: bool,
    error: type[DistkernError],
    replaceable: Callable[[Path], bool],
    needed: Callable[[], int | None],
) -> Iterator[Path]:
    final = check_destination(path, overwrite, error, replaceable)
    partial = final.with_name(f".{final.name}.partial-{secrets.token_hex(4)}")
    lock = None
    try:
        with _writing(path, error):
            final.parent.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(final)
            make(partial)
            lock = _locked(partial)
        yield partial
        with _writing(path, error):
            _sync(partial)
            check_destination(path, overwrite, error, replaceable)
            _swap_in(partial, final)
    except OSError as cause:
        if isinstance(cause, DistkernError) or not is_disk_full(cause):
            raise
        raise disk_full(error, path, final.parent, cause, needed(), written=_size(partial)) from cause
    finally:
        _remove(partial)
        if lock is not None:
            os.close(lock)


@contextmanager
def _writing(path: str | os.PathLike[str], error: type[DistkernError]) -> Iterator[None]:
    """Raise errors of the system as ``not-writable``, but for that of a full disk."""
    try:
        yield
    except OSError as cause:
        if isinstance(cause, DistkernError) or is_disk_full(cause):
            raise
        raise error(f"cannot write {path}: {cause.strerror or cause}", kind="not-writable") from cause


@contextmanager
def publish_text(
    path: str | os.PathLike[str],
    overwrite: bool,
    error: type[DistkernError],
    replaceable: Callable[[Path], bool],
) -> Iterator[list[str]]:
    """Yield a list of texts that the body fills; write them to a file in one step if the body succeeds.

    Missing parent directories are made. The parameters are those of `check_destination`, which runs first; errors are
    also ``not-writable`` and ``disk-full``.
    """
    check_destination(path, overwrite, error, replaceable)
    texts: list[str] = []
    yield texts
    content = "".join(texts).encode()
    with publish_file(path, overwrite, error, replaceable, lambda: len(content)) as aside, _writing(path, error):
        aside.write_bytes(content)


def is_disk_full(cause: OSError) -> bool:
    """Return whether an error of the system means that the disk is full."""
    # numpy reports only how much of an array it wrote.
    return cause.errno in _FULL or (cause.errno is None and bool(_SHORT_WRITE.search(str(cause))))


def disk_full(
    error: type[DistkernError],
    path: str | os.PathLike[str],
    folder: Path,
    cause: OSError,
    needed: int | None,
    *,
    written: int = 0,
) -> DistkernError:
    """Return the error for a full disk.

    Parameters
    ----------
    error : type
        Class of the error.
    path : path-like
        Store or file that was being written.
    folder : pathlib.Path
        A directory on the same disk.
    cause : OSError
        Error of the system.
    needed : int or None
        Bytes of the whole store; None where the number is not known.
    written : int, default 0
        Bytes that were written, and that the caller removes.
    """
    try:
        disk = os.statvfs(folder)
        free = f"{disk.f_bavail * disk.f_frsize} bytes are free"
    except OSError:
        free = "an unknown number of bytes is free"
    share = f" beside {written} already written" if written else ""
    wanted = f"more than {written}" if needed is None else f"up to {needed}"
    return error(
        f"no space is left to write {path} ({cause.strerror}): {free} in {folder}{share}, {wanted} bytes are needed; "
        "free space or name another place",
        kind="disk-full",
    )


def _size(place: Path) -> int:
    """Return the bytes on the disk of a file, or of the files in a directory."""
    total = 0
    for file in (place, *place.rglob("*")):
        with suppress(OSError):
            total += file.stat().st_blocks * 512 if file.is_file() else 0
    return total


def _remove(place: Path) -> None:
    """Remove a file or a directory as far as it is there."""
    if place.is_dir():
        shutil.rmtree(place, ignore_errors=True)
    else:
        with suppress(OSError):
            place.unlink()


def sync_file(path: Path) -> None:
    """Sync the content of a file to disk, so that it survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


sync_folder = sync_file
"""Sync the names in a directory to disk, so that they survive a power cut."""


def _locked(folder: Path) -> int | None:
    """Lock a directory until the descriptor is closed or the process ends; None where another process holds it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _remove_abandoned(final: Path) -> None:
    for sibling in final.parent.iterdir():
        # A sibling that vanishes meanwhile was published or removed by its own writer.
        with suppress(FileNotFoundError):
            # The writer of a young one may not have locked it yet.
            is_partial = sibling.name.startswith(f".{final.name}.partial-") and not sibling.is_symlink()
            if not is_partial or time() - sibling.stat().st_mtime < _YOUNG_SECONDS:
                continue
            lock = _locked(sibling)
            if lock is not None:
                _remove(sibling)
                os.close(lock)


def _sync(place: Path) -> None:
    """Sync a file, or a directory with all that is in it."""
    for inner in (*place.rglob("*"), place):
        sync_file(inner)


def _swap_in(partial: Path, final: Path) -> None:
    if not (partial.is_dir() and os.path.lexists(final)):
        partial.replace(final)
        sync_folder(final.parent)
        return
    # Two renames: at every moment either the old or the new content exists in full.
    old = final.with_name(f".{final.name}.old-{secrets.token_hex(4)}")
    final.rename(old)
    try:
        partial.rename(final)
    except BaseException:
        old.rename(final)
        raise
    sync_folder(final.parent)
    shutil.rmtree(old, ignore_errors=True)

"""Objects under a URL, and the writing of a store there: its marker is written last.

An object store has no rename. A store under a URL is complete once the object that describes it is complete; that
object is written last and removed first. Objects of a failed write are removed where possible.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from zarr.abc.store import RangeByteRequest, Store
from zarr.buffer.cpu import Buffer, buffer_prototype
from zarr.core.sync import sync

from distkern.errors import DataError, DistkernError

from .json_files import MAX_JSON_BYTES
from .retries import RetryPolicy, is_transient, read_patiently
from .urls import Refused, RemoteStore, open_store, place_of, shown_cause, shown_line

__all__ = ["RemoteFolder", "check_remote", "publish_remote"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

MARKERS = ("model.json", "job.json", "zarr.json", ".zarray", ".zgroup")
"""Objects that describe a store."""

_OF_A_RUN = re.compile(
    r"(log|events)-[0-9a-f]+(\.bin)?(/.*)?|sums-[0-9]+(-[0-9a-f]+)?(\.json|/.*)|"
    r"(training|search|metric|summary)\.json|events\.jsonl"
)
_OWN = ".distkern-"
_PROBE_NAME = f"{_OWN}probe"
"""Object that is written to test rights: always the same one, so that the next test removes one that was left."""
_PROBES = 3
"""Tests of conditional writes, since another process that tests may remove the object between two writes."""
_PROBE = b"can this be written?"


class RemoteFolder:
    """Objects under a URL.

    Parameters
    ----------
    url : str
        The URL.
    writable : bool, default False
        Whether objects are written.
    error : type, default DataError
        Class of the errors raised.
    store : zarr.abc.store.Store, optional
        The store under the URL, if it is open already.

    Raises
    ------
    DistkernError
        Of class `error`, here and from every method: those of `open_store`; ``denied``; ``missing`` for a bucket that
        does not exist; ``unreachable``.
    """

    def __init__(
        self, url: str, *, writable: bool = False, error: type[DistkernError] = DataError, store: Store | None = None
    ) -> None:
        self.url = place_of(url)
        self._error = error
        self.store = open_store(self.url, writable=writable, error=error) if store is None else store

    def read(self, name: str, most: int = MAX_JSON_BYTES) -> bytes | None:
        """Return an object; None where it is absent or has more than `most` bytes, default 33554432."""
        return self.read_all({name: most})[name]

    def read_all(self, most: dict[str, int]) -> dict[str, bytes | None]:
        """Read objects concurrently and return them by name; None for those that are absent or longer than `most`."""

        async def one(name: str) -> bytes | None:
            try:
                if await self.store.getsize(name) > most[name]:
                    return None
            except FileNotFoundError:
                # This response has no body; that of a read distinguishes a missing object from a missing bucket.
                pass
            value = await self.store.get(name, buffer_prototype)
            return None if value is None else bytes(value.to_bytes())

        async def every() -> list[bytes | None]:
            return await asyncio.gather(*(one(name) for name in most))

        return dict(zip(most, self._patiently(lambda: sync(every()), "the objects"), strict=True))

    def read_json(self, name: str) -> Any:
        """Return the value of a JSON object, None where there is none."""
        text = self.read(name)
        try:
            return None if text is None else json.loads(text)
        except (ValueError, RecursionError):
            return None

    def names(self, most: int | None = None, *, probes: bool = True) -> list[str]:
        """Return the names of all objects, or of the first `most` (optional), with or without probes (default True)."""

        async def found() -> list[str]:
            names: list[str] = []
            async for name in self.store.list_prefix(""):
                if not probes and name.startswith(_OWN):
                    continue
                names.append(name)
                if most is not None and len(names) >= most:
                    break
            return names

        return self._patiently(lambda: sync(found()), "the list of objects")

    def listing(self, part: str = "") -> tuple[dict[str, int], list[str]]:
        """Return the bytes of the objects directly in a part of the URL, default "", and the names of parts there."""

        async def found() -> tuple[dict[str, int], list[str]]:
            if isinstance(self.store, RemoteStore):
                return await self.store.listing(part)
            names = [name async for name in self.store.list_dir(part)]
            sizes: dict[str, int] = {}
            for name in names:
                try:
                    sizes[name] = await self.store.getsize(f"{part}/{name}" if part else name)
                except (FileNotFoundError, IsADirectoryError):
                    continue
            return sizes, [name for name in names if name not in sizes]

        return self._patiently(lambda: sync(found()), "the list of objects")

    def read_range(self, name: str, start: int, count: int) -> bytes | None:
        """Return `count` bytes of an object, which has them; None where it is absent."""

        async def found() -> bytes | None:
            value = await self.store.get(name, buffer_prototype, RangeByteRequest(start, start + count))
            return None if value is None else bytes(value.to_bytes())

        return self._patiently(lambda: sync(found()), "an object")

    def write(self, name: str, value: bytes) -> None:
        """Write an object."""
        with self.explained("written"):
            sync(self.store.set(name, Buffer.from_bytes(value)))

    def create(self, name: str, value: bytes) -> bool:
        """Write an object unless there is one of this name; return whether it was written.

        The storage decides, so only one of several processes that create an object succeeds. A request that was
        repeated after its answer was lost may have written the object although False is returned.

        Raises
        ------
        DistkernError
            Of class `error`: ``no-conditional-writes``: the storage is none that can do this.
        """
        if not isinstance(self.store, RemoteStore) or self.scheme in ("http", "https"):
            raise self._error(
                f"{self.url} cannot hold the record of a run, which two processes must not write at once: name a local "
                "directory, or a store behind s3://, gs:// or az://",
                kind="no-conditional-writes",
            )
        with self.explained("written"):
            return sync(self.store.create(name, value))

    def require_conditional_writes(self) -> None:
        """Refuse storage that overwrites an object where it should not: an error ``no-conditional-writes``."""
        for _ in range(_PROBES):
            overwritten = self.create(_PROBE_NAME, _PROBE) and self.create(_PROBE_NAME, _PROBE)
            self.delete([_PROBE_NAME])
            if not overwritten:
                return
        raise self._error(
            f"the server of {self.url} ignores the condition of a write (If-None-Match), so two processes could "
            "write one record: keep the run in a local directory, or with a server that knows it",
            kind="no-conditional-writes",
        )

    @property
    def scheme(self) -> str:
        """Scheme of the URL, in lower case."""
        return self.url.partition("://")[0].lower()

    def delete(self, names: Sequence[str]) -> None:
        """Remove objects concurrently."""

        async def every() -> None:
            await asyncio.gather(*(self.store.delete(name) for name in names))

        with self.explained("removed"):
            sync(every())

    def clear(self) -> None:
        """Remove all objects, the markers first."""
        names = self.names()
        markers = [name for name in names if name in MARKERS]
        self.delete(markers)
        self.delete([name for name in names if name not in MARKERS])

    def identify(self) -> str:
        """Return the kind of the store under the URL, as `formats.identify` does for local paths."""
        metadata = self.read_json("zarr.json")
        if isinstance(metadata, dict):
            attributes = metadata.get("attributes")
            ours = attributes.get("distkern") if isinstance(attributes, dict) else None
            kind = ours.get("kind") if isinstance(ours, dict) else None
            if metadata.get("node_type") == "group" and kind in ("dataset", "predictions"):
                return str(kind)
            return "zarr-array" if metadata.get("node_type") == "array" else "zarr-group"
        kinds = {"model.json": "model", "job.json": "run", ".zarray": "zarr-array", ".zgroup": "zarr-group"}
        found = self.read_all(dict.fromkeys(kinds, MAX_JSON_BYTES))
        for name, kind in kinds.items():
            if found[name] is not None:
                return kind
        try:
            names = self.names(2, probes=False)
        except DistkernError:  # a web server has no lists
            names = []
        if names and all(name.endswith(".npy") for name in names):
            return "part-of-a-model"
        if names and all(_OF_A_RUN.fullmatch(name) for name in names):
            return "part-of-a-run"
        return "directory" if names else "missing"

    def _patiently(self, read: Callable[[], T], what: str) -> T:
        try:
            with self.explained("read"):
                return read_patiently(read, what, self.url, RetryPolicy.default().at_start())
        except DataError as cause:
            raise self._error(str(cause), kind=cause.kind) from cause.__cause__

    @contextmanager
    def explained(self, done: str) -> Iterator[None]:
        """Replace errors of the storage by errors of distkern; others pass."""
        try:
            yield
        except DistkernError:
            raise
        except Refused as cause:
            raise self._error(f"{self.url} cannot be {done}: {cause}", kind=cause.kind) from None
        except Exception as cause:
            if not is_transient(cause):
                raise
            raise self._error(
                f"{self.url} cannot be {done}: {shown_line(cause, self.url)}", kind="unreachable"
            ) from shown_cause(cause, self.url)


def check_remote(url: str, overwrite: bool, error: type[DistkernError], kind: str) -> RemoteFolder:
    """Refuse a URL that must not, or cannot, be written, before any work is done; return it as a folder.

    Parameters
    ----------
    url : str
        URL of the store; its objects are not changed.
    overwrite : bool
        Whether something of the same kind may be replaced.
    error : type
        Class of the errors raised.
    kind : str
        Kind of the new store.

    Raises
    ------
    DistkernError
        Of class `error`: ``exists`` without `overwrite`; ``foreign`` where the URL holds something of another kind;
        those of `RemoteFolder`.
    """
    folder = RemoteFolder(url, writable=True, error=error)
    if folder.scheme in ("http", "https"):
        raise error(
            f"{folder.url} cannot be written: web servers are read only; name a local directory or an object store",
            kind="not-writable",
        )
    if folder.names(1, probes=False):
        if not overwrite:
            raise error(
                f"{url} exists already: name another place, or replace it with --overwrite (overwrite=True)",
                kind="exists",
            )
        if folder.identify() not in (kind, f"part-of-a-{kind}"):
            raise error(
                f"{url} holds something that is not of the kind that would be written there, so it is not "
                "overwritten: name another place, or remove it first",
                kind="foreign",
            )
    # Hours of work must not end on a missing right.
    folder.write(_PROBE_NAME, _PROBE)
    folder.delete([_PROBE_NAME])
    return folder


@contextmanager
def publish_remote(url: str, overwrite: bool, error: type[DistkernError], kind: str) -> Iterator[RemoteFolder]:
    """Yield the empty folder of a store; the body writes its marker last. All objects are removed if the body fails.

    The parameters are those of `check_remote`, which runs first. A replaced store is removed before the body writes.

    Raises
    ------
    DistkernError
        Of class `error`: those of `check_remote`; ``denied`` or ``unreachable`` where a write fails.
    """
    folder = check_remote(url, overwrite, error, kind)
    if overwrite:
        folder.clear()
    try:
        with folder.explained("written"):
            yield folder
    except BaseException:
        try:
            folder.clear()
        except DistkernError as failure:
            logger.warning("objects of %s remain there, marked as incomplete: %s", folder.url, failure)
        raise

"""Stores behind URLs: object stores and web servers, whose errors are those of a file system.

obstore serves the object stores of Amazon, Google and Azure and plain HTTP; fsspec serves its other schemes.
Credentials and endpoints come from the environment of the process that opens a store. A store that is sent to a worker
is opened there again, so credentials are not sent with it.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit
from urllib.request import url2pathname

from zarr.abc.store import Store
from zarr.storage import FsspecStore, LocalStore, MemoryStore, ObjectStore, WrapperStore

from distkern.errors import DataError, DistkernError
from distkern.redaction import displayed_cause, redact

__all__ = [
    "EXTRA",
    "Refused",
    "RemoteStore",
    "is_remote",
    "is_url",
    "local_place",
    "open_store",
    "place_of",
    "shown_cause",
    "shown_line",
]

EXTRA = "distkern[remote]"
"""The extra to install for reading and writing behind URLs."""

_OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "az", "azure", "abfs", "abfss", "adl", "http", "https"}

_BUSY_STATUS = {408, 425, 429, 500, 502, 503, 504}
_STATUS = re.compile(r"status code: (\d{3}) ?([\w ]*)")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_NO_CREDENTIALS = re.compile(r"169\.254\.\d+\.\d+|metadata\.google|[Cc]redential")

CLIENT_OPTIONS = {"allow_http": True, "connect_timeout": "10s", "timeout": "120s"}
"""Options of the client: endpoints of plain HTTP are allowed, and a large chunk may take two minutes."""


class Refused(PermissionError):
    """A request that the server refused, and would refuse again.

    Parameters
    ----------
    message : str
        The refused request, and the setting to change.
    kind : str, default "denied"
        Kind of the error that is raised in its place.
    """

    def __init__(self, message: str, kind: str = "denied") -> None:
        super().__init__(message)
        self.kind = kind


def is_url(path: str | os.PathLike[str]) -> bool:
    """Return whether a place is a URL such as ``s3://bucket/name``; ``file://`` is another form of a local path."""
    scheme, separator, _ = os.fspath(path).partition("://")
    return bool(separator) and scheme.lower() != "file"


def local_place(path: str | os.PathLike[str]) -> str:
    """Return the local path of a path or a ``file://`` URL, as it was given."""
    text = os.fspath(path)
    if not text.lower().startswith("file://"):
        return text
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost"):
        raise DataError(
            f"{text} names a file of the host {parts.netloc}: local files have three slashes, as in file:///data/x.zarr",
            kind="url",
        )
    return url2pathname(parts.path)


def place_of(path: str | os.PathLike[str]) -> str:
    """Return a URL without trailing slashes, or a local path as an absolute one."""
    return os.fspath(path).rstrip("/") if is_url(path) else os.path.abspath(local_place(path))


def shown_line(cause: BaseException, place: str) -> str:
    """Return the first line of an error about a place; its type alone where the place holds credentials."""
    # Libraries write places in forms of their own, where `redact` does not recognise credentials.
    return type(cause).__name__ if redact(place) != place else redact(str(cause).strip().partition("\n")[0])


def shown_cause(cause: BaseException, place: str) -> BaseException | None:
    """Return an error about a place, to be shown as a cause; None where it may hold credentials."""
    return None if redact(place) != place else displayed_cause(cause)


def is_remote(store: Any) -> bool:
    """Return whether every request to a store waits for a network, so that several should be in flight at a time."""
    if getattr(store, "remote", False):
        return True
    if isinstance(store, WrapperStore):
        return is_remote(store._store)
    if isinstance(store, FsspecStore):
        return type(store.fs).__name__ not in ("LocalFileSystem", "MemoryFileSystem", "AsyncFileSystemWrapper")
    if isinstance(store, ObjectStore):
        return type(store.store).__name__ not in ("LocalStore", "MemoryStore")
    return not isinstance(store, (LocalStore, MemoryStore))


def open_store(
    url: str,
    options: Mapping[str, Any] | None = None,
    *,
    writable: bool = False,
    error: type[DistkernError] = DataError,
) -> Store:
    """Return the store behind a URL; no request is sent yet.

    Parameters
    ----------
    url : str
        ``s3://bucket/name``, ``gs://``, ``az://``, ``https://``, or a URL of fsspec.
    options : mapping, optional
        Settings that are not in the environment: those of obstore's stores, such as ``endpoint``, ``region`` and
        ``skip_signature``, or of the fsspec file system.
    writable : bool, default False
        Whether to write. The client repeats failed requests of a writable store; the caller repeats reads of others.
    error : type, default DataError
        Class of the errors raised.

    Raises
    ------
    DistkernError
        Of class `error`: ``missing-package``, ``url``, ``storage-options`` or ``denied``.
    """
    scheme = url.partition("://")[0].lower()
    if scheme not in _OBJECT_STORES:
        return _fsspec_store(url, scheme, options, writable, error)
    parts = urlsplit(url)
    if "@" in parts.netloc and scheme not in ("abfs", "abfss"):
        raise error(
            f"{url} holds credentials, which would get into logs and records: take them out, and set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or what your storage calls them, in the environment",
            kind="url",
        )
    if parts.query or parts.fragment:
        raise error(
            f"{url} names one signed object, and a store is a folder of many: leave out what follows the "
            "question mark, and give the rights through the environment",
            kind="url",
        )
    try:
        return RemoteStore(_obstore(url, scheme, options, writable), url, options, read_only=not writable)
    except ImportError as cause:
        raise error(
            f"{url} needs the package obstore, which is not installed: pip install '{EXTRA}'", kind="missing-package"
        ) from cause
    except (DistkernError, MemoryError):
        raise
    except Exception as cause:
        raise error(f"{url} cannot be opened: {_first_line(cause)}", kind="storage-options") from displayed_cause(cause)


class RemoteStore(ObjectStore[Any]):
    """An object store that raises errors of the file system; an unpickled copy opens the URL again.

    Parameters
    ----------
    store : obstore.store.ObjectStore
        The client.
    url : str
        URL of the store.
    options : mapping, optional
        As for `open_store`.
    read_only : bool, default False
        Whether writing is refused.
    """

    remote = True

    def __init__(
        self, store: Any, url: str, options: Mapping[str, Any] | None = None, *, read_only: bool = False
    ) -> None:
        super().__init__(store, read_only=read_only)
        self.url = url
        self._options = options

    def with_read_only(self, read_only: bool = False) -> Self:
        """Return the same store for another access mode; `read_only` has the default False."""
        return type(self)(self.store, self.url, self._options, read_only=read_only)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.url, self._options, self.read_only)

    def __str__(self) -> str:
        return self.url

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        """Return an object, or the bytes of an optional range; None where there is no object."""
        import obstore

        with _plain_errors(f"{self.url}/{key}"):
            if byte_range is not None:
                return await super().get(key, prototype, byte_range)
            try:
                answer = await obstore.get_async(self.store, key)
                return prototype.buffer.from_bytes(await answer.bytes_async())
            except FileNotFoundError as cause:
                # An absent chunk is fill value; an absent bucket is an error.
                if (code := _CODE.search(str(cause))) and code[1] == "NoSuchBucket":
                    raise
                return None

    async def exists(self, key: str) -> bool:
        """Return whether there is an object."""
        with _plain_errors(f"{self.url}/{key}"):
            return bool(await super().exists(key))

    async def getsize(self, key: str) -> int:
        """Return the bytes of an object."""
        with _plain_errors(f"{self.url}/{key}"):
            return int(await super().getsize(key))

    async def set(self, key: str, value: Any) -> None:
        """Write an object."""
        with _plain_errors(f"{self.url}/{key}"):
            await super().set(key, value)

    async def set_if_not_exists(self, key: str, value: Any) -> None:
        """Write an object that does not exist yet."""
        with _plain_errors(f"{self.url}/{key}"):
            await super().set_if_not_exists(key, value)

    async def create(self, key: str, value: bytes) -> bool:
        """Write an object that does not exist; return whether it was written."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        with _plain_errors(f"{self.url}/{key}"):
            try:
                await obstore.put_async(self.store, key, value, mode="create")
            except AlreadyExistsError:
                return False
            return True

    async def listing(self, part: str) -> tuple[dict[str, int], list[str]]:
        """Return the bytes of the objects directly below a part of the URL, and the names of parts there."""
        import obstore

        with _plain_errors(f"{self.url}/{part}"):
            found = await obstore.list_with_delimiter_async(self.store, prefix=part or None)
        skipped = len(f"{part}/") if part else 0
        sizes = {str(entry["path"])[skipped:]: int(entry["size"]) for entry in found["objects"]}
        return sizes, [str(name)[skipped:].rstrip("/") for name in found["common_prefixes"]]

    async def delete(self, key: str) -> None:
        """Remove an object."""
        with _plain_errors(f"{self.url}/{key}"):
            await super().delete(key)

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:  # type: ignore[override]
        """Yield the keys that begin with a prefix."""
        with _plain_errors(f"{self.url}/{prefix}"):
            async for key in super().list_prefix(prefix):
                yield key


def _reopened(url: str, options: Mapping[str, Any] | None, read_only: bool) -> Store:
    return open_store(url, options, writable=not read_only)


@contextmanager
def _plain_errors(place: str) -> Iterator[None]:
    """Replace the client's errors by one-line errors of the file system."""
    try:
        yield
    except OSError as cause:
        if isinstance(cause, FileNotFoundError) and "NoSuchBucket" in str(cause):
            raise _no_bucket(place) from None
        raise
    except Exception as cause:
        if not type(cause).__module__.startswith("obstore"):
            raise
        raise _plain_error(str(cause), place) from None


def _no_bucket(place: str) -> Refused:
    return Refused(f"there is no bucket {urlsplit(place).netloc}: check the name, and the endpoint", "missing")


def _plain_error(text: str, place: str) -> OSError:
    status, code = _STATUS.search(text), _CODE.search(text)
    line = _first_line(text)
    if _NO_CREDENTIALS.search(text):
        return Refused(
            f"{place}: no credentials were found in the environment ({line}): set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or what your storage calls them, or AWS_SKIP_SIGNATURE to true for public data"
        )
    if "configured region" in text:
        return Refused(f"{place} is in another region: set AWS_REGION")
    if code is not None and code[1] == "NoSuchBucket":
        return _no_bucket(place)
    if status is None:
        kind = TimeoutError if "kind: Timeout" in text else ConnectionError
        return kind(f"{place}: {line}")
    answer = " ".join(filter(None, [status[1], status[2].strip(), f"({code[1]})" if code else ""]))
    if int(status[1]) in _BUSY_STATUS:
        return ConnectionError(f"{place}: the server returned {answer}")
    return Refused(f"{place}: access is refused, the server returned {answer}: check the credentials and their rights")


def _first_line(cause: object) -> str:
    line = str(cause).partition("\n")[0].partition(" - Server returned")[0]
    return redact(re.sub(r"^Generic \w+ error: ", "", line))


def _obstore(url: str, scheme: str, options: Mapping[str, Any] | None, writable: bool) -> Any:
    from obstore.store import HTTPStore, from_url

    client: Any
    settings = dict(options or {})
    client = CLIENT_OPTIONS | dict(settings.pop("client_options", {}))
    retries = settings.pop("retry_config", {"max_retries": 4 if writable else 0})
    if scheme in ("http", "https"):
        return HTTPStore.from_url(url, client_options=client, retry_config=retries)
    if scheme in ("s3", "s3a"):
        settings |= _profile(settings)
    if scheme == "gcs":
        url = f"gs{url[len(scheme) :]}"
    return from_url(url, client_options=client, retry_config=retries, **settings)


def _profile(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the credentials of a profile, where the environment has none and boto3 can read the profile."""
    named = ("AWS_ACCESS_KEY_ID", "AWS_SKIP_SIGNATURE", "AWS_WEB_IDENTITY_TOKEN_FILE")
    if any(os.environ.get(name) for name in named) or any("key" in name or "sign" in name for name in settings):
        return {}
    file = os.environ.get("AWS_SHARED_CREDENTIALS_FILE", os.path.expanduser("~/.aws/credentials"))
    if not os.environ.get("AWS_PROFILE") and not Path(file).is_file():
        return {}
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        return {}
    return {"credential_provider": Boto3CredentialProvider()}


def _fsspec_store(
    url: str, scheme: str, options: Mapping[str, Any] | None, writable: bool, error: type[DistkernError]
) -> Store:
    try:
        return FsspecStore.from_url(url, storage_options=dict(options or {}) or None, read_only=not writable)
    except ImportError as cause:
        raise error(
            f"{url} needs a package of fsspec that is not installed ({shown_line(cause, url)}): install it with pip",
            kind="missing-package",
        ) from shown_cause(cause, url)
    except (DistkernError, MemoryError):
        raise
    except Exception as cause:
        raise error(
            f"{url} cannot be opened ({shown_line(cause, url)}): the schemes are file, "
            f"{', '.join(sorted(_OBJECT_STORES))} and those of fsspec",
            kind="url",
        ) from shown_cause(cause, url)

"""Codecs and local stores of zarr that hold out against damaged and hostile data.

The C library of blosc trusts the length in the header. Where damage has changed it, the library reads beyond the chunk
and the process ends with a segmentation fault. With a header that fits the chunk, the library's own checks hold. A few
kilobytes of gzip, bzip2, lzma or zstd can stand for gigabytes: these codecs, and lz4, stop at the size that a chunk may
have. A pipe in place of a file would keep a read waiting for ever, and a device such as ``/dev/zero`` has no end: local
stores read regular files only.
"""

from __future__ import annotations

import asyncio
import bz2
import copy
import lzma
import os
import stat
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import zarr
from numcodecs.abc import Codec
from numcodecs.blosc import Blosc
from numcodecs.compat import ndarray_copy
from zarr.abc.codec import BytesBytesCodec
from zarr.codecs import BloscCodec, ShardingCodec
from zarr.storage import LocalStore

from .json_files import MAX_JSON_BYTES

__all__ = ["RegularFiles", "guarded"]

_SLACK = 1 << 16

_MOST = 2**62
"""A number of bytes that the libraries take as one."""

_TEXT_BYTES = 256 << 20
"""Most bytes of a chunk of text, whose values may have any length."""

_LZMA_BYTES = 256 << 20
"""Most memory for the dictionary of lzma; the largest preset takes 65 MiB."""


def _most_bytes(item: np.dtype[Any], shape: tuple[int, ...]) -> int:
    """Return the most bytes that a codec may make of a chunk; filters and checksums may add to its values."""
    if item.kind in "OT":
        return _TEXT_BYTES
    return 2 * item.itemsize * int(np.prod(shape, dtype=object)) + _SLACK


def _too_large(most: int) -> ValueError:
    return ValueError(f"it expands to more than {most} bytes, twice what its chunk can hold")


def _members(make: Callable[[], Any], data: memoryview, most: int) -> bytes:
    """Decompress members of a format one after another, as the library's function without a limit does."""
    pieces: list[bytes] = []
    left, rest = most, bytes(data)
    while rest:
        machine = make()
        pieces.append(machine.decompress(rest, min(left + 1, _MOST)))
        left -= len(pieces[-1])
        if left < 0:
            raise _too_large(most)
        if not machine.eof:
            raise ValueError("the compressed data ends early")
        rest = machine.unused_data.lstrip(b"\0")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _lzma(data: memoryview, most: int, settings: Mapping[str, Any]) -> bytes:
    form, filters = settings.get("format", lzma.FORMAT_XZ), settings.get("filters")
    limit = None if form == lzma.FORMAT_RAW else _LZMA_BYTES
    return _members(lambda: lzma.LZMADecompressor(form, limit, filters), data, most)


def _zstd(data: memoryview, most: int) -> bytes:
    import pyarrow as pa

    try:
        with pa.input_stream(pa.py_buffer(data), compression="zstd") as stream:
            found: bytes = stream.read(min(most + 1, _MOST))
    except OSError as cause:
        # An error of the operating system would count as one that passes.
        raise ValueError(f"Zstd decompression error: {cause}") from cause
    if len(found) > most:
        raise _too_large(most)
    return found


_DECODERS: dict[str, Callable[[memoryview, int, Mapping[str, Any]], bytes]] = {
    "gzip": lambda data, most, _: _members(lambda: zlib.decompressobj(31), data, most),
    "zlib": lambda data, most, _: _members(zlib.decompressobj, data, most),
    "bz2": lambda data, most, _: _members(bz2.BZ2Decompressor, data, most),
    "lzma": _lzma,
    "zstd": lambda data, most, _: _zstd(data, most),
}


def _decode(name: str, settings: Mapping[str, Any], chunk: Any, most: int, decode: Callable[[Any], Any]) -> Any:
    """Decode a chunk with a bound; `decode` is the function of the codec itself, for lz4."""
    data = memoryview(np.ascontiguousarray(chunk).data).cast("B")
    if name in _DECODERS:
        return _DECODERS[name](data, most, settings)
    # The first bytes are the size of the result, which the library allocates and never exceeds.
    if int.from_bytes(data[:4], "little") > most:
        raise _too_large(most)
    return decode(chunk)


class BoundedCodec2(Codec):  # type: ignore[misc]
    """Codec of zarr 2 with a bound.

    Parameters
    ----------
    codec : numcodecs.abc.Codec
        The codec.
    most : int
        Most bytes of a decoded chunk.
    """

    def __init__(self, codec: Any, most: int) -> None:
        self.codec_id = codec.codec_id
        self._codec = codec
        self._most = most

    def encode(self, buf: Any) -> Any:
        """Encode a chunk."""
        return self._codec.encode(buf)

    def decode(self, buf: Any, out: Any = None) -> Any:
        """Decode a chunk, into a buffer where one is given (default None)."""
        decoded = _decode(self.codec_id, self.get_config(), buf, self._most, self._codec.decode)
        return ndarray_copy(decoded, out)

    def get_config(self) -> dict[str, Any]:
        """Return the configuration of the codec."""
        return dict(self._codec.get_config())


@dataclass(frozen=True)
class BoundedCodec(BytesBytesCodec):
    """Codec of zarr 3 with a bound."""

    codec: Any
    """The codec."""
    name: str
    """Its name, without the prefix of codecs of numcodecs."""
    is_fixed_size = False

    def to_dict(self) -> dict[str, Any]:
        """Return the description of the codec."""
        return dict(self.codec.to_dict())

    async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        return await asyncio.to_thread(self._decode_sync, chunk_bytes, chunk_spec)

    def _decode_sync(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        most = _most_bytes(chunk_spec.dtype.to_native_dtype(), chunk_spec.shape)
        settings = self.codec.to_dict().get("configuration", {})
        inner = getattr(self.codec, "_codec", None)  # of numcodecs
        decoded = _decode(self.name, settings, chunk_bytes.as_numpy_array(), most, getattr(inner, "decode", bytes))
        return chunk_spec.prototype.buffer.from_bytes(decoded)

    async def _encode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        return await self.codec._encode_single(chunk_bytes, chunk_spec)

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: Any) -> int:
        """Raise NotImplementedError, as codecs of variable size do."""
        raise NotImplementedError


def _bounded(codec: Any, most: int) -> Any:
    """Return a codec with a bound, or as it is where it cannot make much of little."""
    known = {*_DECODERS, "lz4"}
    if isinstance(codec, Codec) and codec.codec_id in known:
        return codec if isinstance(codec, BoundedCodec2) else BoundedCodec2(codec, most)
    if isinstance(codec, BytesBytesCodec) and not isinstance(codec, BoundedCodec):
        name = str(codec.to_dict()["name"]).removeprefix("numcodecs.")
        return BoundedCodec(codec, name) if name in known else codec
    return codec


_HEADER_BYTES = 16


def _check(chunk: Any, most_bytes: int | None = None) -> None:
    """Raise ValueError for a chunk that is too short, states another length, or would grow beyond `most_bytes`."""
    data = memoryview(chunk)
    data = data.cast("B") if data.contiguous else memoryview(data.tobytes())
    if len(data) < _HEADER_BYTES:
        raise ValueError(f"blosc chunk of {len(data)} bytes is too short")
    plain, block, stored = (int.from_bytes(data[at : at + 4], "little") for at in (4, 8, 12))
    if stored != len(data):
        raise ValueError(f"blosc chunk has {len(data)} bytes and states {stored}")
    if plain and not 0 < block <= plain:
        raise ValueError(f"blosc chunk states blocks of {block} bytes in {plain}")
    if most_bytes is not None and plain > most_bytes:
        raise ValueError(f"blosc chunk states {plain} bytes, at most {most_bytes} are expected")


class GuardedBlosc(BloscCodec):
    """`BloscCodec` of zarr 3 that checks a chunk before it decodes it."""

    async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        _check(chunk_bytes.as_numpy_array(), _most_bytes(chunk_spec.dtype.to_native_dtype(), chunk_spec.shape))
        return await super()._decode_single(chunk_bytes, chunk_spec)

    def _decode_sync(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        _check(chunk_bytes.as_numpy_array(), _most_bytes(chunk_spec.dtype.to_native_dtype(), chunk_spec.shape))
        return super()._decode_sync(chunk_bytes, chunk_spec)


class GuardedBlosc2(Blosc):  # type: ignore[misc]
    """Blosc codec of zarr 2 that checks a chunk before it decodes it."""

    _largest: int | None = None

    def decode(self, buf: Any, out: Any = None) -> Any:
        """Decode a chunk, into an optional buffer."""
        _check(buf, self._largest)
        return super().decode(buf, out)


class GuardedSharding(ShardingCodec):
    """`ShardingCodec` with guarded inner codecs, also after it was pickled."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._guard()

    def _guard(self) -> None:
        for name in ("codecs", "index_codecs"):
            object.__setattr__(self, name, _guard_all(getattr(self, name)))


def guarded(array: zarr.Array[Any]) -> zarr.Array[Any]:
    """Return the same array with guarded codecs and files; the array may have any format."""
    array = _with_regular_files(array)
    metadata = copy.copy(array.metadata)
    largest = _most_bytes(np.dtype(array.dtype), tuple(array.chunks))
    names = ("codecs",) if metadata.zarr_format == 3 else ("compressor", "filters")
    for name in names:
        codecs = getattr(metadata, name)
        changed = _guard_all(codecs, largest) if isinstance(codecs, tuple) else _guard(codecs, largest)
        object.__setattr__(metadata, name, changed)
    inner = array.async_array
    return type(array)(type(inner)(metadata=metadata, store_path=inner.store_path, config=inner.config))


def _guard_all(codecs: tuple[Any, ...], largest: int = 0) -> tuple[Any, ...]:
    return tuple(_guard(codec, largest) for codec in codecs)


def _guard(codec: Any, largest: int = 0) -> Any:
    if type(codec) is BloscCodec:
        settings = {name: getattr(codec, name) for name in ("typesize", "cname", "clevel", "shuffle", "blocksize")}
        return GuardedBlosc(**settings)
    if type(codec) is Blosc:
        plain = GuardedBlosc2(**{name: value for name, value in codec.get_config().items() if name != "id"})
        plain._largest = largest
        return plain
    if type(codec) is ShardingCodec:
        settings = {name: getattr(codec, name) for name in ("chunk_shape", "codecs", "index_codecs", "index_location")}
        sharding = GuardedSharding(**settings)
        sharding._guard()
        return sharding
    return _bounded(codec, largest)


_METADATA = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")


class RegularFiles(LocalStore):
    """`LocalStore` for reading that refuses pipes, devices and long metadata with a `ValueError`.

    Parameters
    ----------
    root : path-like
        The directory.
    read_only : bool, default True
        As for `LocalStore`.
    own : bool, default False
        Whether links that lead out of the directory are refused, too.
    """

    def __init__(self, root: Path | str, *, read_only: bool = True, own: bool = False) -> None:
        super().__init__(root, read_only=read_only)
        self.own = own

    def with_read_only(self, read_only: bool = False) -> Self:
        """Return the same store with `read_only` (default False)."""
        return type(self)(self.root, read_only=read_only, own=self.own)

    async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
        """Return a file, or its `byte_range` (default None), in a `prototype` (default None); None for no file."""
        self._require(key)
        return await super().get(key, prototype, byte_range)

    def get_sync(self, key: str, *, prototype: Any = None, byte_range: Any = None) -> Any:
        """Return a file, or its `byte_range` (default None), in a `prototype` (default None); None for no file."""
        self._require(key)
        return super().get_sync(key, prototype=prototype, byte_range=byte_range)

    async def get_partial_values(self, prototype: Any, key_ranges: Iterable[tuple[str, Any]]) -> list[Any]:
        """Return parts of files."""
        wanted = list(key_ranges)
        for key, _ in wanted:
            self._require(key)
        return await super().get_partial_values(prototype, wanted)

    def _require(self, key: str) -> None:
        path = self.root / key
        try:
            facts = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return
        if not stat.S_ISREG(facts.st_mode) and not stat.S_ISDIR(facts.st_mode):
            raise ValueError(f"{path} is a pipe or a device, not a file")
        if facts.st_size > MAX_JSON_BYTES and path.name in _METADATA:
            raise ValueError(f"{path} has {facts.st_size} bytes, more than the {MAX_JSON_BYTES} of metadata")
        if self.own and not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(self.root)):
            raise ValueError(f"{path} links to a file outside of the store")


def _with_regular_files(array: zarr.Array[Any]) -> zarr.Array[Any]:
    """Return an array that reads regular files only, where it is in a `LocalStore`."""
    if type(array.store) is not LocalStore:
        return array
    inner = array.async_array
    place = type(inner.store_path)(RegularFiles(array.store.root, read_only=True), inner.store_path.path)
    return type(array)(type(inner)(metadata=inner.metadata, store_path=place, config=inner.config))

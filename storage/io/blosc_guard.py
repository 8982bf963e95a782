"""Blosc codecs of zarr 2 and 3 that check the header of a chunk before they decode it.

The C library trusts the length in the header. Where damage has changed it, the library reads beyond the chunk and the
process ends with a segmentation fault. With a header that fits the chunk, the library's own checks hold.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import zarr
from numcodecs.blosc import Blosc
from zarr.codecs import BloscCodec, ShardingCodec

__all__ = ["guarded"]

_HEADER_BYTES = 16
_SLACK = 1 << 16


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


def _most_bytes(item: np.dtype[Any], shape: tuple[int, ...]) -> int | None:
    if item.kind in "OT":  # text of any length
        return None
    return 2 * item.itemsize * int(np.prod(shape, dtype=object)) + _SLACK


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
    """Return the same array with guarded codecs; the array may have any format."""
    metadata = copy.copy(array.metadata)
    largest = _most_bytes(np.dtype(array.dtype), tuple(array.chunks))
    names = ("codecs",) if metadata.zarr_format == 3 else ("compressor", "filters")
    for name in names:
        codecs = getattr(metadata, name)
        changed = _guard_all(codecs, largest) if isinstance(codecs, tuple) else _guard(codecs, largest)
        object.__setattr__(metadata, name, changed)
    inner = array.async_array
    return type(array)(type(inner)(metadata=metadata, store_path=inner.store_path, config=inner.config))


def _guard_all(codecs: tuple[Any, ...], largest: int | None = None) -> tuple[Any, ...]:
    return tuple(_guard(codec, largest) for codec in codecs)


def _guard(codec: Any, largest: int | None = None) -> Any:
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
    return codec

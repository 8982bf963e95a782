"""Checks of the metadata of a store, before anything is allocated, decoded or followed.

Anyone may have written the metadata. Codecs must be in a list of known ones, none of which runs code from the data;
sizes are compared with limits and with the stored bytes; names must stay in their directory.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from distkern.errors import DataError

from .guarded_reads import guarded

__all__ = ["CODECS", "inside", "labels_of", "require_plausible_blocks", "trusted"]

CODECS = {
    "adler32",
    "astype",
    "bitround",
    "blosc",
    "bytes",
    "bz2",
    "cast_value",
    "crc32",
    "crc32c",
    "delta",
    "fixedscaleoffset",
    "fletcher32",
    "gzip",
    "jenkins_lookup3",
    "lz4",
    "lzma",
    "packbits",
    "pcodec",
    "quantize",
    "scale_offset",
    "sharding_indexed",
    "shuffle",
    "transpose",
    "vlen-array",
    "vlen-bytes",
    "vlen-utf8",
    "zfpy",
    "zlib",
    "zstd",
}
"""Names of codecs, filters and compressors of zarr 2 and 3 that only decode numbers and text."""

MAX_BLOCKS = 1_000_000
"""Most blocks of an array; the driver would need longer for more than the work on the data takes."""

MAX_ARRAY_BYTES = 2**62
"""Most bytes of an array: counts of rows and bytes must fit 64-bit integers."""

MAX_SPARE_BYTES = 128 << 20
"""Most bytes of a chunk that is much larger than its array; a chunk is decoded as a whole."""

MAX_LABEL_BYTES = 64 << 20
"""Most bytes of the class labels of a store."""


def trusted(array: zarr.Array[Any], what: str) -> zarr.Array[Any]:
    """Return an array of any format with guarded codecs and files, so that damaged chunks raise errors.

    Raises
    ------
    DataError
        ``codec``: a codec is not in `CODECS`, such as one that unpickles; ``too-large``: more than `MAX_ARRAY_BYTES`,
        or a chunk of more than `MAX_SPARE_BYTES` and twice the array;
        ``chunk-grid``: the chunks differ in size.
    """
    nbytes = math.prod(int(length) for length in array.shape) * max(1, array.dtype.itemsize)
    if nbytes > MAX_ARRAY_BYTES:
        raise DataError(
            f"{what} ({array.store_path}) declares shape {array.shape}, {nbytes:.3g} bytes, more than the "
            f"{MAX_ARRAY_BYTES:.3g} of the largest file: its description is damaged",
            kind="too-large",
        )
    metadata: dict[str, Any] = dict(array.metadata.to_dict())
    if metadata["zarr_format"] == 2:
        stages = [*(metadata.get("filters") or ()), *filter(None, [metadata.get("compressor")])]
    else:
        stages = list(metadata["codecs"])
        grid = metadata["chunk_grid"]["name"]
        if grid != "regular":
            raise DataError(
                f"{what} ({array.store_path}) is stored in chunks of the grid {grid!r}, which differ in size: write "
                "the array again with chunks of one size",
                kind="chunk-grid",
            )
    chunk_bytes = math.prod(int(length) for length in array.chunks) * max(1, array.dtype.itemsize)
    if chunk_bytes > max(MAX_SPARE_BYTES, 2 * nbytes):
        raise DataError(
            f"{what} ({array.store_path}) declares chunks of shape {array.chunks}, {chunk_bytes:.3g} bytes (limit "
            f"{MAX_SPARE_BYTES} for so small an array), and values of shape {array.shape}: write the array again with "
            "chunks no larger than itself",
            kind="too-large",
        )
    for name in _codec_names(stages):
        if name.removeprefix("numcodecs.") not in CODECS or name == "numcodecs.blosc":
            raise DataError(
                f"{what} ({array.store_path}) is stored with the codec {name!r}, which is not among those that are "
                "known to do no more than decode: write the array again with blosc, zstd, gzip or no compression",
                kind="codec",
            )
    return guarded(array)


def _codec_names(stages: Sequence[Any]) -> Iterator[str]:
    for stage in stages:
        facts = stage if isinstance(stage, dict) else _facts(stage)
        yield str(facts.get("name", facts.get("id")))
        configuration = facts.get("configuration")
        if isinstance(configuration, dict):
            for inner in ("codecs", "index_codecs"):
                yield from _codec_names(configuration.get(inner) or ())


def _facts(stage: Any) -> dict[str, Any]:
    facts = stage.get_config() if hasattr(stage, "get_config") else stage.to_dict()
    return dict(facts)


def require_plausible_blocks(n_rows: int, chunk_rows: int, block_rows: int, what: str) -> None:
    """Refuse an array of more than `MAX_BLOCKS` blocks: `DataError` ``too-many-blocks``."""
    n_blocks = -(-n_rows // max(1, block_rows))
    if n_blocks > MAX_BLOCKS:
        raise DataError(
            f"{what} declares {n_rows} rows in chunks of {chunk_rows}, which makes {n_blocks} blocks (limit "
            f"{MAX_BLOCKS}): check the shape, or write the array again with larger chunks",
            kind="too-many-blocks",
        )


def labels_of(values: Any, dtype: Any) -> NDArray[Any]:
    """Build class labels, which are text, bools or real numbers, from JSON values: a list and the name of a dtype.

    Raises
    ------
    ValueError, TypeError
        The values are something else, or take more than `MAX_LABEL_BYTES`.
    """
    if not isinstance(values, list) or not isinstance(dtype, str):
        raise TypeError("class labels are no list with the name of a dtype")
    kind = np.dtype(dtype)
    if kind.kind not in "biufU" or kind.subdtype is not None or kind.itemsize * len(values) > MAX_LABEL_BYTES:
        raise ValueError(f"class labels of dtype {dtype} cannot be used")
    labels = np.array(values, dtype=kind)
    if labels.ndim != 1:
        raise ValueError("class labels are nested")
    return labels


def inside(root: str | os.PathLike[str], *names: str) -> bool:
    """Return whether named entries of a directory are in it after all links are followed; absent entries are."""
    folder = os.path.realpath(root)
    return all(Path(os.path.realpath(os.path.join(root, name))).is_relative_to(folder) for name in names)

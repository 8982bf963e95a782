"""Streams of text files, decompressed by the last extension of the name."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from pathlib import Path
from typing import IO, Any, cast

__all__ = ["COMPRESSIONS", "STREAM_FAILURES", "first_undecodable", "open_stream"]

COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")
"""Extensions of compressed files."""

STREAM_FAILURES = (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error)
"""Errors of damaged compressed files."""


def open_stream(path: Path) -> IO[bytes]:
    """Return the content of a file as a stream of bytes; a compressed one is decompressed as it is read."""
    suffix = path.suffix.lower()
    if suffix == ".gz":
        return cast("IO[bytes]", gzip.open(path, "rb"))
    if suffix == ".bz2":
        return bz2.open(path, "rb")
    if suffix == ".xz":
        return lzma.open(path, "rb")
    if suffix == ".zst":
        # Every worker imports this room: pyarrow is loaded only where it is used.
        import pyarrow as pa

        stream: Any = pa.input_stream(str(path), compression="zstd")
        return cast("IO[bytes]", stream)
    return path.open("rb")


def first_undecodable(path: Path) -> tuple[int, bytes, int] | None:
    """Return the first line of a file that is not UTF-8 text, and None where all are.

    Returns
    -------
    number : int
        Number of the line, from 1.
    line : bytes
        The line.
    place : int
        Index of the first byte in it that is not UTF-8.
    """
    with open_stream(path) as stream:
        for number, line in enumerate(stream, 1):
            try:
                line.decode()
            except UnicodeDecodeError as cause:
                return number, line, cause.start
    return None

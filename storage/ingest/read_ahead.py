"""Reading of the next piece of a file while the last one is used."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["read_ahead"]

Piece = TypeVar("Piece")


def read_ahead(pieces: Generator[Piece, None, None]) -> Generator[Piece, None, None]:
    """Yield the pieces of a generator, each of which is made in a thread while the one before it is used."""
    end = object()
    try:
        with ThreadPoolExecutor(1, "read-ahead") as thread:
            coming = thread.submit(next, pieces, end)
            while (piece := coming.result()) is not end:
                coming = thread.submit(next, pieces, end)
                yield piece  # type: ignore[misc]
    finally:
        pieces.close()

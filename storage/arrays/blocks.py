"""Boundaries of blocks and chunks: pure functions of shape, item size and chunking."""

from __future__ import annotations

__all__ = ["block_boundaries", "block_rows", "chunk_rows_for", "memory_block_rows"]

_KIB = 1024
_MIB = 1024 * _KIB

MIN_BLOCKS = 32
"""Number of blocks to aim at, so that several workers can share them evenly."""
MAX_BLOCK_BYTES = 16 * _MIB
"""Most bytes of X in a block of more than one chunk."""
MIN_MEMORY_ROWS = 4096
MAX_MEMORY_BYTES = 4 * _MIB
MIN_CHUNK_BYTES = 256 * _KIB
MAX_CHUNK_BYTES = 16 * _MIB
CHUNKS_PER_STORE = 16


def block_boundaries(n_rows: int, row_bytes: int, chunk_rows: int) -> tuple[int, ...]:
    """Cut rows into blocks of whole chunks.

    Parameters
    ----------
    n_rows : int
        Rows to cut.
    row_bytes : int
        Bytes of one row of X, uncompressed.
    chunk_rows : int
        Rows of one chunk of X.

    Returns
    -------
    tuple of int
        First row of each block, then `n_rows`. Every block but the last has the same number of chunks:
        as many as leave `MIN_BLOCKS` blocks, and no more than fit `MAX_BLOCK_BYTES`, but at least one.
    """
    if n_rows == 0:
        return (0,)
    return (*range(0, n_rows, block_rows(n_rows, row_bytes, chunk_rows)), n_rows)


def block_rows(n_rows: int, row_bytes: int, chunk_rows: int) -> int:
    """Return the rows of all blocks but the last; parameters as for `block_boundaries`."""
    n_chunks = -(-n_rows // chunk_rows)
    fitting = MAX_BLOCK_BYTES // max(1, chunk_rows * row_bytes)
    return max(1, min(n_chunks // MIN_BLOCKS, fitting)) * chunk_rows


def memory_block_rows(n_rows: int, row_bytes: int) -> int:
    """Return the rows of one block of an array in memory.

    Parameters
    ----------
    n_rows : int
        Rows of the array.
    row_bytes : int
        Bytes of one row.

    Returns
    -------
    int
        Rows for `MIN_BLOCKS` blocks, at least `MIN_MEMORY_ROWS`, and at most `MAX_MEMORY_BYTES`.
    """
    rows = max(MIN_MEMORY_ROWS, -(-n_rows // MIN_BLOCKS))
    return max(1, min(rows, MAX_MEMORY_BYTES // max(1, row_bytes)))


def chunk_rows_for(row_bytes: int, n_rows: int | None) -> int:
    """Return the rows of one chunk of a new store.

    Parameters
    ----------
    row_bytes : int
        Bytes of one row of X.
    n_rows : int or None
        Rows of the store, None where they are not known yet.

    Returns
    -------
    int
        Rows for `CHUNKS_PER_STORE` chunks between `MIN_CHUNK_BYTES` and `MAX_CHUNK_BYTES`; the largest
        chunk where `n_rows` is not known.
    """
    size = MAX_CHUNK_BYTES
    if n_rows is not None:
        size = min(max(n_rows * row_bytes // CHUNKS_PER_STORE, MIN_CHUNK_BYTES), MAX_CHUNK_BYTES)
    return max(1, size // max(1, row_bytes))

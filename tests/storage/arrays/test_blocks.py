from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distkern.storage.arrays.blocks import (
    MAX_BLOCK_BYTES,
    MAX_CHUNK_BYTES,
    MAX_MEMORY_BYTES,
    MIN_BLOCKS,
    MIN_CHUNK_BYTES,
    block_boundaries,
    chunk_rows_for,
    memory_block_rows,
)

sizes = st.integers(1, 10**6)


@given(n_rows=sizes, row_bytes=st.integers(1, 10**5), chunk_rows=st.integers(1, 10**5))
def test_block_invariants(n_rows: int, row_bytes: int, chunk_rows: int) -> None:
    bounds = block_boundaries(n_rows, row_bytes, chunk_rows)
    lengths = {high - low for low, high in pairwise(bounds)}
    assert bounds[0] == 0
    assert bounds[-1] == n_rows
    assert min(lengths) > 0
    assert all(bound % chunk_rows == 0 for bound in bounds[:-1])
    assert len({high - low for low, high in pairwise(bounds[:-1])}) <= 1
    n_chunks = -(-n_rows // chunk_rows)
    assert len(bounds) - 1 >= min(n_chunks, MIN_BLOCKS)
    if max(lengths) > chunk_rows:
        assert max(lengths) * row_bytes <= MAX_BLOCK_BYTES


@pytest.mark.parametrize(
    ("n_rows", "row_bytes", "chunk_rows", "blocks", "rows"),
    [
        (1000, 8, 1000, 1, 1000),
        (1000, 8, 100, 10, 100),
        (6400, 8, 100, 32, 200),
        (6500, 8, 100, 33, 200),
        (640_000, 16 * 1024, 100, 640, 1000),
        (100, 2**30, 10, 10, 10),
    ],
)
def test_block_table(n_rows: int, row_bytes: int, chunk_rows: int, blocks: int, rows: int) -> None:
    bounds = block_boundaries(n_rows, row_bytes, chunk_rows)
    assert (len(bounds) - 1, bounds[1]) == (blocks, rows)


def test_no_rows_no_block() -> None:
    assert block_boundaries(0, 8, 10) == (0,)


@given(n_rows=sizes, row_bytes=st.integers(1, 10**7))
def test_memory_blocks_are_few_and_small(n_rows: int, row_bytes: int) -> None:
    rows = memory_block_rows(n_rows, row_bytes)
    assert rows >= 1
    assert rows == 1 or rows * row_bytes <= MAX_MEMORY_BYTES
    if rows * row_bytes + row_bytes <= MAX_MEMORY_BYTES:
        assert rows >= 512
        assert -(-n_rows // rows) <= MIN_BLOCKS


@given(n_rows=st.none() | sizes, row_bytes=st.integers(1, 10**8))
def test_chunks_of_a_new_store(n_rows: int | None, row_bytes: int) -> None:
    rows = chunk_rows_for(row_bytes, n_rows)
    assert rows >= 1
    assert rows == 1 or rows * row_bytes <= MAX_CHUNK_BYTES
    assert (rows + 1) * row_bytes > MIN_CHUNK_BYTES


def test_small_stores_have_several_chunks() -> None:
    assert -(-20_000 // chunk_rows_for(128, 20_000)) == 10
    assert chunk_rows_for(128, None) == MAX_CHUNK_BYTES // 128

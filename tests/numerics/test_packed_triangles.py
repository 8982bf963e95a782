"""Packed triangles against dense factors."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distkern.numerics import packed_triangles
from distkern.numerics.packed_triangles import PackedTriangle, triangle_bytes
from distkern.scheduler.runtime.threads import map_tiles
from tests.scheduler.trainings import tile_threads


def packed(matrix: np.ndarray, spread: packed_triangles.Spread | None = None) -> PackedTriangle:
    triangle = PackedTriangle(len(matrix), matrix.dtype, spread)

    def values(rows: slice, columns: slice, out: np.ndarray) -> None:
        out[:] = matrix[rows, columns]

    triangle.fill(values)
    return triangle


def unpacked(triangle: PackedTriangle) -> np.ndarray:
    whole = np.zeros((triangle.n, triangle.n))
    for (start, stop), row in zip(triangle.blocks, triangle.rows, strict=True):
        whole[start:stop, start:] = row
    return np.triu(whole)


def definite(n: int, seed: int) -> np.ndarray:
    factor = np.random.default_rng(seed).standard_normal((n, n + 3))
    return factor @ factor.T + 0.1 * np.eye(n)


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 4), st.sampled_from(["float64", "float32"]))
def test_everything_equals_the_dense_result(n: int, block: int, k: int, dtype: str) -> None:
    accurate = 1e-9 if dtype == "float64" else 3e-2
    matrix, B = definite(n, n + block), np.random.default_rng(k).standard_normal((n, k))
    with mock.patch.object(packed_triangles, "BLOCK", block):
        triangle = packed(matrix.astype(dtype))
        assert triangle.factor()
        T = np.linalg.cholesky(matrix).T
        np.testing.assert_allclose(unpacked(triangle), T, atol=accurate * np.abs(T).max())
        for found, wanted in (
            (triangle.solve(B), np.linalg.solve(T, B)),
            (triangle.solve_transposed(B), np.linalg.solve(T.T, B)),
        ):
            assert found.dtype == B.dtype
            np.testing.assert_allclose(found, wanted, atol=accurate * np.abs(wanted).max())
        square = triangle.square()
        square.add_square([B.astype(dtype), B.astype(dtype)])
        square.scale(0.5)
        square.add_diagonal(2.0)
        wanted = np.triu(0.5 * (T @ T.T + 2.0 * B @ B.T) + 2.0 * np.eye(n))
        np.testing.assert_allclose(unpacked(square), wanted, atol=accurate * np.abs(wanted).max())
        other = square.copy()
        other.scale(0.0)
        np.testing.assert_allclose(unpacked(square), wanted, atol=accurate * np.abs(wanted).max())
        assert sum(row.nbytes for row in square.rows) == triangle_bytes(n, np.dtype(dtype).itemsize)


@pytest.mark.parametrize("n", [3, 20])
def test_a_matrix_that_is_not_positive_definite_is_refused(n: int) -> None:
    matrix = definite(n, 0)
    matrix[-1, -1] = -1.0
    with mock.patch.object(packed_triangles, "BLOCK", 7):
        assert not packed(matrix).factor()


def test_threads_change_no_bit() -> None:
    matrix, V = definite(50, 3).astype(np.float32), np.ones((50, 4), dtype=np.float32)
    found = []
    with mock.patch.object(packed_triangles, "BLOCK", 8), tile_threads(3):
        for spread in (map, map_tiles):
            triangle = packed(matrix, spread)
            assert triangle.factor()
            square = triangle.square()
            square.add_square([V])
            found.append(unpacked(triangle).tobytes() + unpacked(square).tobytes())
    assert found[0] == found[1]

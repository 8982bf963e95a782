from __future__ import annotations

import itertools
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from distkern.errors import DataError
from distkern.numerics.row_draws import (
    Shortlist,
    combine_draws,
    draw_keys,
    residual_keys,
    row_uniforms,
    uniforms_for_rows,
)

Array = npt.NDArray[Any]

words = st.integers(0, 2**64 - 1)
starts = st.integers(0, 2**40)


@settings(deadline=None)
@given(words, words, starts, st.integers(0, 50), st.integers(0, 50))
def test_a_uniform_depends_on_its_row_only(seed: int, round_: int, start: int, before: int, n: int) -> None:
    start += before
    whole = row_uniforms(seed, round_, start - before, before + n)
    part = row_uniforms(seed, round_, start, n)
    assert part.dtype == np.float64
    assert whole[before:].tobytes() == part.tobytes()
    singles = [row_uniforms(seed, round_, start + i, 1)[0] for i in range(n)]
    assert part.tolist() == singles


def test_uniforms_are_those_of_philox_and_never_change() -> None:
    generator = np.random.Philox(key=np.array([7, 3], dtype=np.uint64))
    expected = [((int(word) >> 12) + 0.5) / 2**52 for word in generator.random_raw(11)]
    assert row_uniforms(7, 3, 0, 11).tolist() == expected
    assert row_uniforms(0, 0, 0, 2).tolist() == [0.011546754286331562, 0.24154919656271823]
    assert row_uniforms(2**33 + 5, 9, 2**40 - 1, 2).tolist() == [0.5403377520942464, 0.7720428867043821]


def test_uniforms_look_uniform_and_streams_differ() -> None:
    streams = [row_uniforms(seed, round_, 0, 20000) for seed in (0, 1, 2**32) for round_ in (0, 1, 5)]
    for u in streams:
        assert u.min() > 0.0
        assert u.max() < 1.0
        assert stats.kstest(u, "uniform").pvalue > 1e-4
    correlations = np.corrcoef(streams) - np.eye(len(streams))
    assert np.abs(correlations).max() < 0.04


@settings(deadline=None)
@given(words, words, st.lists(starts, max_size=8), st.lists(st.integers(0, 3000), max_size=30))
def test_uniforms_for_scattered_rows(seed: int, round_: int, scattered: list[int], near: list[int]) -> None:
    anchor = scattered[0] if scattered else 0
    rows = np.sort(np.array([*scattered, *(anchor + i for i in near), *(anchor + 70000 * i for i in near)], int))
    got = uniforms_for_rows(seed, round_, rows)
    assert got.tolist() == [row_uniforms(seed, round_, int(row), 1)[0] for row in rows]


def test_uniforms_for_many_windows() -> None:
    rows = np.flatnonzero(np.arange(300_000) % 7 != 2)
    expected = row_uniforms(5, 6, 0, 300_000)[rows]
    assert uniforms_for_rows(5, 6, rows).tobytes() == expected.tobytes()


def test_draw_keys() -> None:
    u = np.array([0.5, 0.5, 0.5, 0.25, 2.0**-53])
    keys = draw_keys(u, np.array([1.0, 2.0, 0.0, np.inf, 5e-324]))
    assert keys[0] == np.log(2.0)
    assert keys[1] == np.log(2.0) / 2
    assert keys[2] == np.inf
    assert keys[3] == 0.0
    assert keys[4] == np.finfo(np.float64).max
    for bad in (-1.0, np.nan):
        with pytest.raises(DataError, match="weight of row 1") as error:
            draw_keys(np.full(2, 0.5), np.array([1.0, bad]))
        assert error.value.kind == "invalid-weights"


@settings(deadline=None)
@given(words, st.integers(1, 300), st.integers(0, 300))
def test_a_key_does_not_depend_on_the_split(seed: int, n: int, cut: int) -> None:
    w = np.random.default_rng(seed).exponential(size=n) ** 2
    whole = draw_keys(row_uniforms(seed, 1, 10, n), w)
    cut = min(cut, n)
    parts = [draw_keys(row_uniforms(seed, 1, 10 + a, b - a), w[a:b]) for a, b in ((0, cut), (cut, n))]
    assert whole.tobytes() == np.concatenate(parts).tobytes()


@pytest.mark.slow
def test_keys_draw_without_replacement_in_proportion_to_the_weights() -> None:
    w = np.array([1.0, 2.0, 0.0, 3.0, 6.0])
    draws = 20_000
    counts: dict[tuple[int, ...], int] = {}
    for round_ in range(draws):
        keys = draw_keys(row_uniforms(11, round_, 40, 5), w)
        pair = tuple(Shortlist.top(keys, np.arange(5), keys, 2).rows.tolist())
        counts[pair] = counts.get(pair, 0) + 1
    present = [0, 1, 3, 4]
    pairs = list(itertools.permutations(present, 2))
    assert set(counts) <= set(pairs)
    expected = [draws * w[i] / w.sum() * w[j] / (w.sum() - w[i]) for i, j in pairs]
    assert stats.chisquare([counts.get(pair, 0) for pair in pairs], expected).pvalue > 1e-3


@settings(deadline=None)
@given(st.lists(st.floats(allow_nan=False, width=32), max_size=20))
def test_residual_keys(e: list[float]) -> None:
    keys = residual_keys(np.array(e, dtype=np.float32))
    assert keys.dtype == np.float64
    assert keys.tolist() == [-abs(value) for value in e]


# Few distinct keys, so that ties are common; both zeros, infinities and nan take part.
key_values = st.sampled_from([-np.inf, -2.0, -1.0, -0.0, 0.0, 0.5, 1e300, np.inf, np.nan])
key_lists = st.lists(key_values, max_size=40)


def arrays(keys: list[float], seed: int) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    rows = rng.permutation(3 * len(keys))[: len(keys)].astype(np.int64)
    return np.array(keys, dtype=float), rows, rng.standard_normal(len(keys))


def brute_force(keys: Array, rows: Array, residuals: Array, n: int) -> list[tuple[float, int, float]]:
    entries = zip(keys.tolist(), rows.tolist(), residuals.tolist(), strict=True)
    return sorted((entry for entry in entries if entry[0] < np.inf), key=lambda e: (e[0], e[1]))[:n]


def entries(shortlist: Shortlist) -> list[tuple[float, int, float]]:
    assert shortlist.rows.dtype == np.int64
    columns = (shortlist.keys.tolist(), shortlist.rows.tolist(), shortlist.residuals.tolist())
    return list(zip(*columns, strict=True))


@settings(deadline=None)
@given(key_lists, st.integers(0, 2**32 - 1), st.integers(0, 45))
@example([1.0] * 40, 0, 7)
def test_top_equals_a_full_sort(keys: list[float], seed: int, n: int) -> None:
    table = arrays(keys, seed)
    assert entries(Shortlist.top(*table, n)) == brute_force(*table, n)


@settings(deadline=None)
@given(key_lists, st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 8), st.data())
def test_any_merge_tree_gives_the_same_list(
    keys: list[float], seed: int, n: int, blocks: int, data: st.DataObject
) -> None:
    table = arrays(keys, seed)
    block = np.random.default_rng(seed).integers(0, blocks, len(keys))
    parts = [Shortlist.top(*(column[block == b] for column in table), n) for b in range(blocks)]
    expected = brute_force(*table, n)
    while len(parts) > 1:
        i = data.draw(st.integers(0, len(parts) - 1))
        first = parts.pop(i)
        j = data.draw(st.integers(0, len(parts) - 1))
        parts.append(first.merge(parts.pop(j), n))
    assert entries(parts[0]) == expected
    assert entries(reduce(lambda a, b: a.merge(b, n), [Shortlist.empty(), parts[0]])) == expected


def shortlist(rows: list[int]) -> Shortlist:
    return Shortlist.top(np.arange(len(rows), dtype=float), np.array(rows, int), np.zeros(len(rows)), 99)


def test_combine_draws_examples() -> None:
    top, weighted = shortlist([9, 4, 7, 1]), shortlist([4, 3, 9, 8])
    assert combine_draws(top, weighted, 2, 4).tolist() == [9, 4, 3, 8]
    assert combine_draws(top, weighted, 2, 6).tolist() == [9, 4, 3, 8, 7, 1]
    assert combine_draws(top, weighted, 2, 99).tolist() == [9, 4, 3, 8, 7, 1]
    assert combine_draws(top, weighted, 0, 3).tolist() == [4, 3, 9]
    assert combine_draws(top, weighted, 5, 3).tolist() == [9, 4, 7]
    assert combine_draws(top, Shortlist.empty(), 1, 3).tolist() == [9, 4, 7]
    assert combine_draws(Shortlist.empty(), weighted, 1, 3).tolist() == [4, 3, 9]
    assert combine_draws(top, weighted, 2, 0).tolist() == []


row_lists = st.lists(st.integers(0, 30), max_size=20, unique=True)


@settings(deadline=None)
@given(row_lists, row_lists, st.integers(0, 25), st.integers(0, 45))
def test_combine_draws_takes_in_order(top: list[int], weighted: list[int], n_top: int, n: int) -> None:
    expected: list[int] = []
    for row in [*top[:n_top], *weighted, *top[n_top:]]:
        if row not in expected and len(expected) < n:
            expected.append(row)
    got = combine_draws(shortlist(top), shortlist(weighted), n_top, n)
    assert got.dtype == np.int64
    assert got.tolist() == expected

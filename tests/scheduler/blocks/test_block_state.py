from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from distkern.errors import DataError
from distkern.kernels import Gaussian, Kernel, Linear, Polynomial, Sigmoid
from distkern.numerics.row_draws import row_uniforms
from distkern.numerics.scaling import FeatureScaling
from distkern.scheduler.blocks.block import HOLDOUT_STREAM, Block
from distkern.scheduler.execution.executor import SerialExecutor
from distkern.scheduler.protocol.messages import Begin, Columns, FetchRows, KernelColumns, Load, ProblemStep, Step
from distkern.scheduler.protocol.problems import Problem
from distkern.scheduler.rows.label_encoding import LabelEncoding
from distkern.scheduler.rows.problem_rows import TILE_ROWS, cut_tiles
from distkern.selection.stopping import MinimumPassed, StopReason
from distkern.storage import ArraySource, ZarrSource
from tests.references import dense_kernel_columns
from tests.scheduler.trainings import (
    Inside,
    by_rows,
    cut,
    make_classes,
    make_data,
    make_job,
    make_source,
    train_serial,
)

LOAD = Load(classification=False, sample_rows=0, seed=0, holdout=0.0)


def make_problems(count: int, **changes: Any) -> tuple[Problem, ...]:
    """One problem a target."""
    made = Problem((0,), np.zeros(1), 1.0, Gaussian(1.3), (), None)
    return tuple(replace(made, columns=(t,), **changes) for t in range(count))


def make_begin(d: int = 2, kernel: Kernel = Gaussian(1.3), **changes: Any) -> Begin:  # noqa: B008
    settings: dict[str, Any] = {
        "scaling": FeatureScaling(np.full(d, 0.25), np.full(d, 1.5)),
        "dtype": "float64",
        "epsilon": 0.0,
        "classes": None,
        "problems": make_problems(1, kernel=kernel),
        "columns": 20,
        "pool": 4,
        "panel": 2,
        "batch": 4,
    }
    return Begin(**{**settings, **changes})


def loaded(source: ArraySource, begin: Begin, load: Load = LOAD) -> SerialExecutor:
    executor = SerialExecutor(source)
    executor.exchange(load)
    executor.exchange(begin)
    return executor


@given(st.integers(0, 9000), st.integers(0, 5000))
def test_tiles_cover_a_block_evenly(n_fit: int, n_held: int) -> None:
    tiles = cut_tiles(n_fit, n_held)
    assert [t.start for t in tiles] == [0, *(t.stop for t in tiles)][: len(tiles)]
    assert sum(t.stop - t.start for t in tiles) == n_fit + n_held
    for held_out, count in ((False, n_fit), (True, n_held)):
        sizes = [t.stop - t.start for t in tiles if t.held_out == held_out]
        assert sum(sizes) == count
        assert len(sizes) == -(-count // TILE_ROWS)
        assert not sizes or max(sizes) - min(sizes) <= 1


def test_encode_values() -> None:
    for y in (np.array([1, 2, 3], dtype=np.int32), np.array([[1.0, 2.0]], dtype=np.float32)):
        encoded = LabelEncoding().columns(y)
        assert encoded.dtype == np.float64
        np.testing.assert_array_equal(encoded, y if y.ndim == 2 else y[:, None])


@given(st.integers(2, 6), st.booleans(), st.lists(st.integers(0, 5), max_size=20))
def test_encode_labels(n_classes: int, are_codes: bool, drawn: list[int]) -> None:
    codes = np.array([c % n_classes for c in drawn], dtype=np.int64)
    classes = np.array([f"class {c}" for c in range(n_classes)])
    encoded = LabelEncoding(classes, are_codes).columns(codes if are_codes else classes[codes])
    if n_classes == 2:
        np.testing.assert_array_equal(encoded, np.where(codes == 1, 1.0, -1.0)[:, None])
    else:
        np.testing.assert_array_equal(encoded, 2 * np.eye(n_classes)[codes] - 1)


def test_weights_enter_as_their_roots() -> None:
    X, y = make_data(30, n_targets=2)
    weights = np.random.default_rng(1).exponential(size=30)
    begin = make_begin(
        problems=(
            Problem((0, 1), np.array([0.5, -1.0]), 1.0, Gaussian(1.3), (), None),
            Problem((1,), np.array([-1.0]), 1.0, Gaussian(1.3), (), None),
        )
    )
    blocks = loaded(make_source(X, y, weights, rows=12), begin)._blocks
    for block in blocks:
        rows = block.data.rows
        roots = np.sqrt(weights[rows])
        both, single = block.problems
        np.testing.assert_array_equal(by_rows(block, both.slabs[0])[:, 0], roots)
        assert not by_rows(block, both.slabs[0])[:, 1:].any()
        expected = roots[:, None] * (y[rows] - [0.5, -1.0])
        np.testing.assert_array_equal(both.residual, expected)
        # A single target is padded to two columns: a product must never be one column wide.
        np.testing.assert_array_equal(single.residual, np.column_stack([expected[:, 1], np.zeros(len(rows))]))
        assert not both.taken.any()


def test_rows_of_weight_zero_are_absent() -> None:
    X, y = make_data(40)
    weights = np.ones(40)
    weights[::3] = 0.0
    weights[20:30] = 0.0
    X[::3] = 1e300  # would show in any sum
    executor = SerialExecutor(make_source(X, y, weights, rows=10))
    answer = executor.exchange(LOAD).load
    assert answer is not None
    present = np.flatnonzero(weights)
    np.testing.assert_array_equal(np.concatenate([b.data.rows for b in executor._blocks]), present)
    assert answer.n_fit == len(present)
    assert answer.n_held == 0
    assert answer.features.count == len(present)
    np.testing.assert_allclose(answer.features.mean, X[present].mean(axis=0), rtol=1e-14)
    assert answer.targets is not None
    np.testing.assert_allclose(answer.targets.m2, [np.square(y[present] - y[present].mean()).sum()])


@pytest.mark.parametrize("criterion", ["error-reduction", "residual"])
def test_training_without_rows_of_weight_zero(criterion: str) -> None:
    X, y = make_data(60, seed=4)
    weights = np.random.default_rng(2).integers(0, 3, 60).astype(float)
    weights[10:20] = 0.0  # a whole block
    present = np.flatnonzero(weights)
    job = make_job(criterion=criterion, sampler="all", max_centers=8)
    trained = train_serial(job, make_source(X, y, weights, rows=10))
    trained.check()
    without = train_serial(job, make_source(X[present], y[present], weights[present], rows=10))
    np.testing.assert_array_equal(trained.path.rows, present[without.path.rows])
    np.testing.assert_allclose(trained.path.s, without.path.s, rtol=1e-9)
    np.testing.assert_allclose(trained.path.lambdas, without.path.lambdas, rtol=1e-8)


kernels = st.sampled_from([Gaussian(0.7), Polynomial(2, 0.5), Polynomial(3), Sigmoid(0.3, 0.1), Linear()])


@given(kernels, st.integers(1, 5), st.sampled_from([0.0, 0.5]), st.booleans(), st.integers(0, 999))
def test_kernel_columns(kernel: Kernel, d: int, epsilon: float, weighted: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((35, d)) + 3.0
    weights = rng.integers(0, 4, 35).astype(float) if weighted else None
    if weights is not None:
        weights[rng.integers(35)] = 1.0
    begin = make_begin(d, kernel=kernel, epsilon=epsilon, batch=6)
    executor = loaded(make_source(X, rng.standard_normal(35), weights, rows=11), begin)
    fit = np.arange(35) if weights is None else np.flatnonzero(weights)
    rows = rng.permutation(fit)[: min(4, len(fit))]
    columns = Columns(rows, X[rows], np.empty(0, dtype=np.int64))
    answer = executor.query(KernelColumns((columns,)))
    K = np.concatenate([answer.columns[b][0] for b in range(4)])
    scaled = (X - begin.scaling.shift) / begin.scaling.scale
    expected = dense_kernel_columns(kernel, scaled[fit], scaled[rows], np.searchsorted(fit, rows), epsilon)
    roots = np.ones(len(fit)) if weights is None else np.sqrt(weights[fit])
    np.testing.assert_allclose(K[:, : len(rows)], expected * roots[:, None], rtol=1e-11, atol=1e-11)
    # A short batch is padded with zero columns.
    assert K.shape == (len(fit), 6)
    assert not K[:, len(rows) :].any()
    executor.exchange(Step((ProblemStep(columns=columns),)))
    work = np.concatenate([by_rows(block, block.problems[0].work) for block in executor._blocks])
    np.testing.assert_array_equal(work[:, 2:], K)
    taken = np.concatenate([block.problems[0].taken[0] for block in executor._blocks])
    np.testing.assert_array_equal(fit[taken], np.sort(rows))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_own_row_is_exact(dtype: str) -> None:
    # Far from the origin |x|^2 - 2 x.c + |c|^2 leaves rounding errors on the diagonal, but not at the own row.
    rng = np.random.default_rng(0)
    X = (100 + rng.standard_normal((20, 3))).astype(dtype)
    begin = make_begin(
        3, kernel=Gaussian(1e-3), epsilon=0.125, dtype=dtype, scaling=FeatureScaling(np.zeros(3), np.ones(3))
    )
    executor = loaded(make_source(X, np.arange(20.0), rows=7), begin)
    rows = np.array([13, 2, 19, 0])
    answer = executor.query(KernelColumns((Columns(rows, X[rows], np.empty(0, dtype=np.int64)),)))
    K = np.concatenate([answer.columns[b][0] for b in range(3)])
    assert K.dtype == dtype
    assert (K[rows, np.arange(4)] == 1.125).all()
    K[rows, np.arange(4)] = 0.0
    assert (K < 1.0).all()


def test_epsilon_is_not_added_at_a_duplicate() -> None:
    X = np.array([[0.0], [0.0], [1.0], [0.0]])
    executor = loaded(make_source(X, np.arange(4.0), rows=2), make_begin(1, epsilon=0.5))
    answer = executor.query(KernelColumns((Columns(np.array([1]), X[[1]], np.empty(0, dtype=np.int64)),)))
    K = np.concatenate([answer.columns[b][0] for b in range(2)])[:, 0]
    np.testing.assert_allclose(K[[0, 1, 3]], [1.0, 1.5, 1.0], rtol=1e-15)


def test_released_rows_may_be_drawn_again() -> None:
    X, y = make_data(12)
    executor = loaded(make_source(X, y, rows=5), make_begin())
    for rows, released, expected in (([3, 11], [], [3, 11]), ([6], [3], [6, 11]), ([0], [11, 6], [0])):
        columns = Columns(np.array(rows), X[rows], np.array(released, dtype=np.int64))
        executor.exchange(Step((ProblemStep(columns=columns),)))
        taken = np.concatenate([block.problems[0].taken[0] for block in executor._blocks])
        assert np.flatnonzero(taken).tolist() == expected


def test_fetching_rows() -> None:
    X, y = make_data(20)
    executor = loaded(make_source(X, y, rows=6), make_begin())
    rows = np.array([0, 5, 6, 19])
    fetched = executor.query(FetchRows(rows)).rows
    assert sorted(fetched) == rows.tolist()
    np.testing.assert_array_equal(np.array([fetched[int(row)] for row in rows]), X[rows])


def test_loading_refuses_what_is_not_finite() -> None:
    X, y = make_data(20)
    X[13, 1] = np.nan
    with pytest.raises(DataError, match="row 13") as error:
        SerialExecutor(ZarrSource(zarr.array(X, chunks=(6, 2)), y)).exchange(LOAD)
    assert error.value.kind == "not-finite"


# ---- Held-out rows


def held_out_rows(seed: int, n: int) -> Any:
    return row_uniforms(seed, HOLDOUT_STREAM, 0, n) < 0.1


def held_error(inside: Inside, X: Any, y: Any, held: Any) -> list[float]:
    """Mean squared error on the held-out rows after every step, from dense kernel columns."""
    selector, begin = inside.selectors[0], inside.begin
    factors = selector.factors
    scaled = (X - begin.scaling.shift) / begin.scaling.scale
    (problem,) = begin.problems
    K = dense_kernel_columns(problem.kernel, scaled[held], scaled[selector.rows], np.empty(0, int)[:, None], 0.0)
    q = np.linalg.solve(factors.u.T, np.column_stack([np.ones(len(K)), K]).T).T
    residual = y[held] - problem.target_means
    errors = []
    for j in range(1, factors.n_columns):
        residual = residual - np.outer(q[:, j], factors.z[j] / (factors.lambdas[j] + factors.s[j]))
        errors.append(float(np.square(residual).sum() / np.count_nonzero(held)))
    return errors


@pytest.mark.parametrize("criterion", ["error-reduction", "residual"])
@pytest.mark.parametrize("weighted", [False, True])
def test_held_out_rows_follow_the_path_and_enter_no_sum(criterion: str, weighted: bool) -> None:
    X, y = make_data(300, n_targets=2, seed=3)
    held = held_out_rows(5, 300)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, 300) if weighted else None
    if weights is not None:
        weights[::7] = 0.0
        held &= weights > 0
    fit = ~held if weights is None else ~held & (weights > 0)
    job = make_job(criterion=criterion, stop="validation", seed=5, max_centers=30, patience=6)
    seen = []

    def look(inside: Inside) -> None:
        inside.check()
        errors = held_error(inside, X, y, held)
        n = inside.blocks[0].problems[0].n_columns - 1
        if inside.selectors[0].validation is not None:
            seen.append(n)
            assert inside.selectors[0].validation == pytest.approx(errors[n - 1], rel=1e-9)

    trained = train_serial(job, make_source(X, y, weights, rows=64), each_round=look)
    assert len(seen) > 3
    np.testing.assert_array_equal(trained.rows, np.flatnonzero(fit))
    assert set(trained.path.rows.tolist()) <= set(trained.rows.tolist())
    # Changing the held-out targets changes where the path ends and nothing on it.
    y[held] += 100.0
    other = train_serial(job, make_source(X, y, weights, rows=64))
    n = min(len(other.path.rows), len(trained.path.rows))
    np.testing.assert_array_equal(other.path.rows[:n], trained.path.rows[:n])
    assert other.path.s[: n + 1].tobytes() == trained.path.s[: n + 1].tobytes()


def test_the_validation_rule_keeps_the_minimum() -> None:
    X, y = make_data(300, noise=1.0, seed=1)
    held = held_out_rows(2, 300)
    job = make_job(stop="validation", seed=2, max_centers=100, patience=10)
    trained = train_serial(job, make_source(X, y))
    errors = held_error(trained, X, y[:, None], held)
    rule = MinimumPassed(StopReason.VALIDATION_RISEN, 10)
    ends = [rule.observe(n, error) for n, error in enumerate(errors, start=1)]
    assert trained.path.reason == StopReason.VALIDATION_RISEN
    first = next(n for n, end in enumerate(ends, start=1) if end is not None)
    assert trained.path.n_centers == int(np.argmin(errors[:first])) + 1
    # The rest of the panel in which the rule fired was appended already.
    assert first <= len(trained.path.rows) < first + job.panel


def test_validation_without_held_out_rows_ends() -> None:
    """A set so small that the draw holds no row out must not be trained on for ever."""
    X, y = make_data(12)
    seed = next(s for s in range(99) if not held_out_rows(s, 12).any())
    job = make_job(stop="validation", seed=seed, max_centers=3, candidates=6, panel=2)
    rounds = []

    def look(inside: Inside) -> None:
        rounds.append(inside.selectors[0].round)
        assert len(rounds) < 50, "the training does not end"

    try:
        trained = train_serial(job, make_source(X, y), each_round=look)
    except DataError:
        return
    assert trained.path.n_centers > 0


@given(st.integers(0, 10_000), st.sampled_from([1, 3, 7]))
def test_blocks_without_rows_that_train(seed: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    X, y = make_classes(30, seed=seed)
    weights = rng.integers(0, 2, 30).astype(float)
    weights[:3] = 1.0
    job = make_job(classification=True, sampler="all", max_centers=4, sigma="median")
    trained = train_serial(job, ArraySource(X, y, weights, boundaries=cut(30, rows)))
    trained.check()


def test_a_block_is_loaded_lazily() -> None:
    X, y = make_data(20)
    block = Block(make_source(X, y, rows=6), 1)
    assert len(block.data.rows) == 0
    block.load(LOAD)
    np.testing.assert_array_equal(block.data.rows, np.arange(6, 12))
    assert block.load_answer(LOAD).load.bytes_read == 6 * 2 * 8 + 6 * 8

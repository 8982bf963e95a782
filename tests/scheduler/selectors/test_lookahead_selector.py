"""The paper's Algorithm 1, several steps an exchange: the centres and their order are those of the dense loop."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from distkern.monitoring.events import EventBus
from distkern.scheduler.blocks import message_handler as rounds
from distkern.scheduler.execution.executor import SerialExecutor
from distkern.scheduler.protocol.answers import Leaders
from distkern.scheduler.protocol.messages import LookaheadStep, Step, digest
from distkern.scheduler.runtime.spillable_matrix import MemoryBudget
from distkern.scheduler.selectors import lookahead_selector
from distkern.scheduler.training.driver_loop import train
from distkern.selection.lookahead import Prediction, predict_steps
from distkern.selection.stopping import StopReason
from tests.references import DensePath, DenseResidualOROLS, gaussian_gram
from tests.scheduler.trainings import (
    Trained,
    assert_same_bits,
    check_each_round,
    make_classes,
    make_data,
    make_job,
    make_source,
    train_serial,
    weights_of,
    with_duplicates,
)

Array = Any

seeds = st.integers(0, 10_000)


def dense_path(trained: Trained, n_steps: int, problem: int = 0) -> DensePath:
    """The loop that takes one centre at a time, on the rows that train."""
    rows = np.arange(len(trained.rows))
    return DensePath(
        trained.columns(trained.rows),
        trained.targets(problem),
        trained.roots,
        rows,
        n_steps,
        trained.job.regularization,
    )


def assert_same_path(trained: Trained, dense: DensePath, *, rtol: float = 1e-9) -> None:
    """Compare a path to the loop's as far as the loop's choices are no ties and its columns no rounding errors."""
    path = trained.path
    size = max(dense.largest, default=0.0)
    clear = sum(1 for e in dense.largest if e > 1e-7 * size)
    k = min(len(path.rows), clear)
    assert k > 0
    assert path.rows[:k].tolist() == trained.rows[dense.rows[:k]].tolist()
    share = dense.s[1 : k + 1].min() / dense.s[0]
    if share > 1e-9:
        np.testing.assert_allclose(path.s[: k + 1], dense.s[: k + 1], rtol=1e-7)
        np.testing.assert_allclose(trained.result.history["residual_max"][:k], dense.largest[:k], rtol=1e-6)
        lambdas = np.array(dense.lambdas[: k + 1])[:, : path.lambdas.shape[1]]
        np.testing.assert_allclose(path.lambdas[: k + 1], lambdas, rtol=rtol, atol=rtol * dense.s[0])


@given(st.integers(8, 70), st.integers(1, 40), st.integers(1, 25), seeds, st.sampled_from([0.0, 0.3]), st.booleans())
def test_the_residual_criterion_is_algorithm_1(
    n: int, rows: int, n_steps: int, seed: int, share: float, regularize: bool
) -> None:
    X, y = make_data(n, seed=seed, noise=0.3)
    X = with_duplicates(X, seed, share)
    job = make_job(
        criterion="residual",
        max_centers=n_steps,
        regularization="gcv" if regularize else "none",
        sigma=0.7,
        stop=None,
    )
    trained = train_serial(job, make_source(X, y, rows=rows), each_round=check_each_round())
    dense = DenseResidualOROLS(gaussian_gram(X, 0.7), y, n_steps, regularize=regularize)
    path = trained.path
    m = len(path.rows)
    # Near a saturated fit residuals are rounding errors, and so is their order; before that the order is exact.
    size = np.abs(y - y.mean()).max()
    clear = sum(1 for e in trained.result.history["residual_max"] if e > 1e-7 * size)
    assume(clear > 0)
    k = min(m, len(dense.rows), clear)
    assert path.rows[:k].tolist() == dense.rows[:k]
    if regularize:
        assert m < n - 1 or path.reason is not StopReason.MAX_CENTERS
    if k < min(m, len(dense.rows)) or dense.s[: k + 1].min() < 1e-9 * n:
        return
    np.testing.assert_allclose(path.lambdas[: k + 1, 0], dense.lambdas[: k + 1], rtol=1e-8, atol=1e-8 * n)
    if m == len(dense.rows):
        ours = weights_of(trained)[:, 0]
        ours[0] += trained.result.target_means[0]
        theirs = dense.weights()
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6 * np.abs(theirs).max())


def test_the_residual_criterion_on_many_blocks() -> None:
    X, y = make_data(300, seed=2, noise=0.3)
    dense = DenseResidualOROLS(gaussian_gram(X, 1.0), y, 40)
    for rows in (7, 64, 300):
        trained = train_serial(make_job(criterion="residual", max_centers=40), make_source(X, y, rows=rows))
        assert trained.path.rows.tolist() == dense.rows
        np.testing.assert_allclose(trained.path.lambdas[:, 0], dense.lambdas, rtol=1e-11)
        np.testing.assert_allclose(trained.held("residual")[:, 0], dense.residual, rtol=0, atol=1e-9)
        assert trained.path.reason is StopReason.MAX_CENTERS


@given(
    st.integers(20, 120),
    st.integers(5, 60),
    st.integers(1, 30),
    st.integers(0, 3),
    st.sampled_from(["gcv", "gcv-per-target", "evidence", "evidence-per-target", "none", 0.5]),
    st.sampled_from([0.0, 0.05]),
    st.booleans(),
    seeds,
)
def test_every_path_is_the_dense_loop(
    n: int, rows: int, n_steps: int, n_targets: int, regularization: Any, epsilon: float, weighted: bool, seed: int
) -> None:
    X, y = make_data(n, seed=seed, n_targets=n_targets, noise=0.5)
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, 3, n) * rng.uniform(0.5, 2.0, n) if weighted else None
    if weights is not None:
        weights[:5] = 1.0
    job = make_job(criterion="residual", max_centers=n_steps, regularization=regularization, epsilon=epsilon, sigma=0.8)
    trained = train_serial(job, make_source(X, y, weights, rows=rows), each_round=check_each_round())
    trained.check()
    assert_same_path(trained, dense_path(trained, n_steps))
    history = trained.result.history
    np.testing.assert_array_equal(history["q_norm"], np.sqrt(trained.path.s[1:]))
    np.testing.assert_array_equal(history["lambda_"], trained.path.lambdas[1:].max(axis=1))


def test_two_classes_tie() -> None:
    """Targets of +-1 have the same residual at first, and far apart rows keep nearly the same for long."""
    X, y = make_classes(300, 2, seed=4)
    job = make_job(criterion="residual", classification=True, max_centers=60, sigma=0.2)
    trained = train_serial(job, make_source(X, y, rows=70))
    dense = dense_path(trained, 60)
    path = trained.path
    for i, (ours, theirs) in enumerate(zip(path.rows, dense.rows, strict=True)):
        if ours != theirs:
            at = dense_path(trained, i)
            sizes = np.abs(at.residual[:, 0])
            assert sizes[ours] == pytest.approx(sizes[theirs], rel=1e-12)
            break
    assert path.rows[:2].tolist() == dense.rows[:2]


def test_a_panel_takes_three_exchanges_and_several_steps() -> None:
    X, y = make_data(2000, 4, seed=1, noise=0.3)
    job = make_job(criterion="residual", max_centers=120, sigma=1.5)
    trained = train_serial(job, make_source(X, y, rows=700))
    assert_same_path(trained, dense_path(trained, 120), rtol=1e-11)
    panels = len(set(trained.result.history["round"].tolist()))
    assert panels <= 120 / 4
    # Load, begin and the first candidates come before the first panel; the last panel is not committed.
    assert trained.result.summary["exchanges"] == 3 + 3 * panels - 1


@given(seeds, st.booleans())
@pytest.mark.slow
def test_a_wrong_prediction_costs_speed_only(seed: int, blind: bool) -> None:
    """Whatever is predicted after the row that leads, the rows have the last word."""
    X, y = make_data(150, seed=seed, noise=0.5)
    job = make_job(criterion="residual", max_centers=25, sigma=0.8)
    right = train_serial(job, make_source(X, y, rows=40))
    rng = np.random.default_rng(seed)

    def guess(candidates: Any, *arguments: Any, **options: Any) -> Prediction:
        prediction = predict_steps(candidates, *arguments, **options)
        order = list(prediction.order)
        if blind:
            others = np.setdiff1d(np.arange(len(candidates.gram)), order[:1])
            order[1:] = rng.permutation(others)[: len(order) - 1]
        else:
            order[len(order) // 2 :] = order[len(order) // 2 :][::-1]
        # Columns that were not eliminated against each other take the second pass, and keep less of their digits.
        return Prediction(tuple(order), np.eye(len(order)), 0.0)

    with mock.patch.object(lookahead_selector, "predict_steps", guess):
        wrong = train_serial(job, make_source(X, y, rows=40), each_round=check_each_round(orthogonal=1e-8))
    assert wrong.path.rows.tolist() == right.path.rows.tolist()
    np.testing.assert_allclose(wrong.path.lambdas, right.path.lambdas, rtol=1e-9)
    assert wrong.result.summary["rounds"] >= right.result.summary["rounds"]


def test_rows_that_depend_on_the_others_are_passed_over_once() -> None:
    """Most rows are copies: each gets its verdict, many an exchange, and no centre is taken twice."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (12, 2))[rng.integers(0, 12, 600)]
    job = make_job(criterion="residual", regularization="none", max_centers=50, sigma=0.5)
    trained = train_serial(job, make_source(X, rng.standard_normal(600), rows=130), each_round=check_each_round())
    trained.check()
    assert trained.path.reason is StopReason.CANDIDATES_EXHAUSTED
    assert trained.path.n_centers in (11, 12)
    assert trained.held("taken").all()
    assert trained.result.summary["exchanges"] < 3 * 600 / 8


@pytest.mark.parametrize("idle", [5, 40])
def test_many_dependent_rows_in_a_row_end_the_path(idle: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (6, 2))[rng.integers(0, 6, 300)]
    job = make_job(criterion="residual", regularization="none", max_centers=50)
    with mock.patch.object(lookahead_selector, "IDLE_ROWS", idle):
        trained = train_serial(job, make_source(X, rng.standard_normal(300), rows=130))
    assert trained.path.reason is StopReason.CANDIDATES_EXHAUSTED
    assert trained.path.n_centers in (5, 6)
    assert not trained.held("taken").all()


@given(seeds, st.floats(0.05, 0.9))
def test_tol_ends_the_path_at_the_first_small_residual(seed: int, share: float) -> None:
    X, y = make_data(100, seed=seed, noise=0.3)
    job = make_job(criterion="residual", max_centers=40, regularization="none", sigma=0.6)
    free = train_serial(job, make_source(X, y)).result.history["residual_max"]
    tol = float(share * free[0])
    path = train_serial(replace(job, tol=tol), make_source(X, y)).path
    small = np.flatnonzero(free <= tol)
    assume(len(small) > 0)
    assert path.n_centers == small[0]
    assert path.reason is StopReason.RESIDUAL_BELOW


def residual_job(**changes: Any) -> Any:
    return make_job(
        classification=True,
        multiclass="one-vs-rest",
        criterion="residual",
        stop="validation",
        patience=12,
        max_centers=40,
        **changes,
    )


def weighted_classes() -> Any:
    X, y = make_classes(260, 3, seed=2)
    return X, y, np.random.default_rng(0).integers(0, 3, 260).astype(float)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_replaying_the_log_rebuilds_the_state(dtype: str) -> None:
    """Effects only, from the start or from any state between."""
    source = make_source(*weighted_classes(), rows=60)
    sent: list[Any] = []
    executor = SerialExecutor(source)
    inner = executor.exchange

    def exchange(message: Any) -> Any:
        digest(message)  # every message can be named
        sent.append(message)
        return inner(message)

    executor.exchange = exchange  # type: ignore[method-assign]
    train(residual_job(dtype=dtype), source, executor, EventBus())
    steps = [p for m in sent if isinstance(m, Step) for p in m.problems if isinstance(p, LookaheadStep)]
    assert any(step.trial is not None for step in steps)
    for cut_at in (2, len(sent) // 2, len(sent)):
        other = SerialExecutor(source)
        rounds.replay(other._blocks, sent[:cut_at])
        for message in sent[cut_at:]:
            other.exchange(message)
        for ours, theirs in zip(executor._blocks, other._blocks, strict=True):
            for a, b in zip(ours.problems, theirs.problems, strict=True):
                assert a.n_columns == b.n_columns
                assert a.taken.tobytes() == b.taken.tobytes()
                assert a.residual.tobytes() == b.residual.tobytes()
                for matrix, same in zip((a.work, a.pool, *a.slabs), (b.work, b.pool, *b.slabs), strict=True):
                    assert matrix.whole().tobytes() == same.whole().tobytes()


@pytest.mark.parametrize("limit", [0, 100_000])
def test_scratch_changes_no_bit(limit: int, tmp_path: Any) -> None:
    source = make_source(*weighted_classes(), rows=60)
    results = [
        train(residual_job(), source, SerialExecutor(source, budget=budget), EventBus())
        for budget in (MemoryBudget(), MemoryBudget(limit, str(tmp_path)))
    ]
    assert_same_bits(*results)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_float32_follows_the_equations(seed: int) -> None:
    X, y = make_data(300, seed=seed, noise=0.5)
    job = make_job(criterion="residual", dtype="float32", max_centers=30, sigma=0.8)
    trained = train_serial(job, make_source(X.astype(np.float32), y, rows=110))
    trained.check(orthogonal=1e-3, accurate=1e-3)
    exact = train_serial(replace(job, dtype="float64"), make_source(X.astype(np.float32), y, rows=110))
    assert trained.path.rows[:5].tolist() == exact.path.rows[:5].tolist()


@given(st.integers(1, 60), st.integers(1, 6), st.integers(1, 12), st.floats(0, 1), st.data())
def test_leaders_merge_to_the_leaders_of_all_rows(
    n: int, n_steps: int, most: int, floor: float, data: st.DataObject
) -> None:
    rng = np.random.default_rng(data.draw(seeds))
    norms = np.round(rng.random((n, n_steps)), data.draw(st.sampled_from([1, 6])))
    taken = rng.random(n) < 0.2
    for row in np.flatnonzero(taken):
        norms[row, rng.integers(n_steps) :] = -1.0
    rows = np.sort(rng.permutation(10 * n)[:n])
    features = rows[:, None] * 0.5
    edges = np.unique([0, *rng.integers(0, n, data.draw(st.integers(0, 5))), n])
    parts = [
        Leaders.select(norms[a:b].max(axis=0), rows[a:b], norms[a:b], features[a:b], floor, most)
        for a, b in itertools.pairwise(edges)
    ]
    rng.shuffle(parts)
    merged = parts[0]
    for part in parts[1:]:
        merged = merged.merge(part)
    np.testing.assert_array_equal(merged.largest, norms.max(axis=0))
    for step in range(n_steps):
        best = norms[:, step].max()
        expected = rows[np.flatnonzero(norms[:, step] == best)[0]] if best >= 0 else -1
        assert merged.leader(step) == expected
    np.testing.assert_array_equal(merged.features[:, 0], merged.rows * 0.5)
    assert merged.rows.tolist() == sorted(set(merged.rows.tolist()))
    np.testing.assert_array_equal(merged.norms, norms[np.searchsorted(rows, merged.rows)])
    peaks = norms.max(axis=1)
    order = np.lexsort((rows, -peaks))
    wanted = [i for i in order if peaks[i] >= floor][:most]
    assert set(rows[wanted].tolist()) <= set(merged.rows.tolist())
    assert len(merged.rows) <= most + n_steps

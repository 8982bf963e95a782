"""Selection on a row sample: which rows select, and weights that are fitted over all rows."""

from __future__ import annotations

import itertools
import logging
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from distkern.errors import BudgetError, DataError
from distkern.kernels import Wendland, near_sums
from distkern.monitoring.events import EventBus, WorkerLost
from distkern.numerics.row_draws import row_uniforms
from distkern.scheduler import Workload, plan_job, run_training
from distkern.scheduler.blocks import all_rows_pass, pool_tiles
from distkern.scheduler.blocks import block_registry as memo
from distkern.scheduler.blocks import message_handler as rounds
from distkern.scheduler.blocks.block import Block
from distkern.scheduler.execution.dask_executor import DaskExecutor
from distkern.scheduler.execution.executor import Executor, SerialExecutor
from distkern.scheduler.execution.layers import DriverFactors
from distkern.scheduler.planning.memory import refit_bytes
from distkern.scheduler.protocol.answers import Answer
from distkern.scheduler.protocol.messages import Accumulate, Begin, Centers, Load
from distkern.scheduler.rows.block_reading import SELECTION_STREAM, selecting_rows
from distkern.scheduler.rows.label_encoding import LabelEncoding
from distkern.scheduler.training import refit as refitting
from distkern.scheduler.training.driver_loop import TrainingJob, TrainingResult, train
from distkern.selection import gram_refit
from distkern.selection.criteria import path_score
from distkern.selection.factors import kernel_weights
from distkern.selection.gram_refit import refit
from distkern.storage import ArraySource
from distkern.storage.arrays.source import BlockSource
from tests.markers import variants
from tests.references import dense_kernel_columns, lambda_step
from tests.scheduler.blocks.test_block_state import make_begin, make_problems
from tests.scheduler.faults import KillsAWorker
from tests.scheduler.trainings import (
    assert_same_bits,
    check_each_round,
    cut,
    make_classes,
    make_data,
    make_job,
    make_source,
    tile_threads,
    train_serial,
)
from tests.scheduler.worker_clusters import cluster

Array = NDArray[Any]

FLAT = {"sigma": 12.0, "standardize": True, "max_centers": 16}
"""Kernel columns that nearly depend on each other."""


class CountingSource(ArraySource):
    """Counts how often each block of features is read, and the bytes of everything that is."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.reads = dict.fromkeys(range(len(self.boundaries) - 1), 0)
        self.bytes_read = 0

    def read_features(self, block: int) -> Array:
        self.reads[block] += 1
        return self._counted(super().read_features(block))

    def read_targets(self, block: int) -> Array:
        return self._counted(super().read_targets(block))

    def read_weights(self, block: int) -> Array | None:
        weights = super().read_weights(block)
        return None if weights is None else self._counted(weights)

    def _counted(self, values: Array) -> Array:
        self.bytes_read += values.nbytes
        return values


def counting(X: Array, y: Array, weights: Array | None = None, rows: int = 50) -> CountingSource:
    return CountingSource(X, y, weights, boundaries=cut(len(X), rows))


def fit(job: TrainingJob, source: BlockSource) -> TrainingResult:
    return train(job, source, SerialExecutor(source), EventBus())


def some_weights(n: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 4, n) / 2


# ---- Which rows select


@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.integers(0, 2**32), st.floats(0, 1), st.integers(0, 3))
def test_every_block_draws_its_share(sizes: list[int], seed: int, fraction: float, holes: int) -> None:
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    n_rows = int(bounds[-1])
    load = Load(False, 0, seed, 0.0, selection_rows=int(fraction * n_rows))
    present = np.random.default_rng(seed).integers(0, 4, n_rows) >= holes
    total = 0
    for start, stop in pairwise(bounds.tolist()):
        drawn = selecting_rows(load, present[start:stop], start, n_rows)
        share = round(load.selection_rows * stop / n_rows + 1e-9) - round(load.selection_rows * start / n_rows + 1e-9)
        assert np.count_nonzero(drawn) == min(share, np.count_nonzero(present[start:stop]))
        assert not (drawn & ~present[start:stop]).any()
        uniforms = row_uniforms(seed, SELECTION_STREAM, start, stop - start)
        left = present[start:stop] & ~drawn
        if drawn.any() and left.any():
            assert uniforms[drawn].max() < uniforms[left].min()
        total += share
    assert total == load.selection_rows


def test_the_sample_is_another_for_another_seed() -> None:
    present = np.ones(200, dtype=bool)
    drawn = [selecting_rows(Load(False, 0, seed, 0.0, selection_rows=100), present, 0, 200) for seed in (0, 0, 1)]
    assert (drawn[0] == drawn[1]).all()
    assert 20 < np.count_nonzero(drawn[0] & drawn[2]) < 80


def test_rows_of_a_rare_class_are_drawn_more_often() -> None:
    """A class of 0.4 % of the rows has about a quarter of an equal share of the sample, as its rows allow."""
    labels = np.where(np.arange(4000) % 250 == 7, "rare", np.where(np.arange(4000) % 2 == 0, "a", "b"))
    seen, size = [], []
    for seed in range(20):
        load = Load(True, 0, seed, 0.0, selection_rows=400)
        parts = [
            selecting_rows(load, np.ones(500, dtype=bool), start, 4000, labels[start : start + 500])
            for start in range(0, 4000, 500)
        ]
        drawn = np.concatenate(parts)
        seen.append(np.count_nonzero(drawn & (labels == "rare")))
        size.append(np.count_nonzero(drawn))
    assert set(size) == {400}
    assert min(seen) >= 8  # of 16; 1.6 without
    equal = selecting_rows(load, np.ones(500, dtype=bool), 0, 4000, np.array(["a", "b"] * 250))
    np.testing.assert_array_equal(equal, selecting_rows(load, np.ones(500, dtype=bool), 0, 4000))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("classification", [False, True])
@pytest.mark.parametrize("holdout", [0.0, 0.3])
def test_a_block_keeps_the_sample_and_answers_for_all_rows(
    weighted: bool, classification: bool, holdout: float
) -> None:
    X, y = make_classes(130) if classification else make_data(130)
    source = make_source(X, y, some_weights(130) if weighted else None, rows=130)
    load = Load(classification, 10, 3, holdout, selection_rows=40)
    block, whole = Block(source, 0), Block(source, 0)
    block.load(load)
    plain = Load(classification, 10, 3, 0.0)
    whole.load(plain)
    sample, expected = block.load_answer(load).load, whole.load_answer(plain).load
    assert sample is not None
    assert expected is not None
    assert sample.n_fit + sample.n_held == len(block.data.rows) == len(block.data.features.whole()) == 40
    assert bool(sample.n_held) == bool(holdout)
    kept = block.data.rows[: sample.n_fit]
    assert (source.weights is None) or (source.weights[block.data.rows] > 0).all()
    mass = np.ones(130) if source.weights is None else source.weights
    assert sample.features.count == mass[kept].sum()
    rows = sample.all_rows
    assert rows is not None
    assert (rows.n_fit, rows.n_held) == (expected.n_fit, sample.n_held)
    assert rows.bytes_read == sample.bytes_read == expected.bytes_read
    np.testing.assert_allclose(rows.features.mean, X[mass > 0].T @ mass[mass > 0] / mass.sum(), atol=1e-12)
    np.testing.assert_array_equal(rows.features.m2, expected.features.m2)
    np.testing.assert_array_equal(rows.sample.features, expected.sample.features)
    if classification:
        assert rows.labels.values.tolist() == expected.labels.values.tolist()
        assert rows.labels.weights.tolist() == expected.labels.weights.tolist()
        assert sample.labels.weights.sum() == mass[kept].sum()
    else:
        np.testing.assert_array_equal(rows.targets.mean, expected.targets.mean)
        np.testing.assert_allclose(sample.targets.mean[0], np.average(y[kept], weights=mass[kept]))


@pytest.mark.parametrize("selection_rows", [200, 201, 10**9])
def test_a_sample_of_all_rows_changes_nothing(selection_rows: int) -> None:
    X, y = make_data(200)
    settings = {"stop": "gcv", "sigma": "median", "sampler": "mixture"}
    source = counting(X, y)
    result = fit(make_job(**settings, selection_rows=selection_rows), source)
    assert_same_bits(result, fit(make_job(**settings), make_source(X, y)))
    assert set(source.reads.values()) == {result.summary["passes"]} == {1}


@pytest.mark.parametrize("classification", [False, True])
def test_the_selection_is_that_of_the_sample(classification: bool) -> None:
    """Targets are centred over the sample, and its weights are the rows that GCV counts."""
    X, y = make_classes(240) if classification else make_data(240)
    weights = some_weights(240)
    job = make_job(classification=classification, selection_rows=90, sampler="mixture")
    look = check_each_round(pool=1e-4, accurate=1e-5, orthogonal=1e-5)  # in float32
    trained = train_serial(job, make_source(X, y, weights), each_round=look)
    rows = selected(job, trained.source)
    assert trained.rows.tolist() == rows.tolist()
    encoded = LabelEncoding(trained.begin.classes).columns(y[rows])
    (problem,) = trained.begin.problems
    np.testing.assert_allclose(problem.target_means, np.average(encoded, axis=0, weights=weights[rows]), atol=1e-12)
    assert trained.selectors[0].factors.weight_sum == weights[rows].sum()
    assert np.abs(problem.target_means - trained.result.target_means).max() > 1e-3


# ---- The model is fitted over all rows


def dense(job: TrainingJob, source: ArraySource, result: TrainingResult, problem: int) -> tuple[Array, Array, float]:
    """[1 K] of a path, its centred targets, both times the root weights, and the sum of the weights, over all rows."""
    mass = np.ones(source.n_rows) if source.weights is None else source.weights
    present = np.flatnonzero(mass > 0)
    roots = np.sqrt(mass[present])[:, None]
    X = (source.X.astype(np.float64) - result.scaling.shift) / result.scaling.scale
    path = result.paths[problem]
    own = np.searchsorted(present, path.rows)
    K = dense_kernel_columns(result.kernel, X[present], X[path.rows], own, job.epsilon)
    encoded = LabelEncoding(result.classes).columns(source.y[present])
    means = np.average(encoded, axis=0, weights=mass[present])
    np.testing.assert_allclose(result.target_means, means, atol=1e-12)
    targets = (encoded - means)[:, list(result.outputs[problem])]
    return np.column_stack([np.ones(len(present)), K]) * roots, targets * roots, float(mass.sum())


def check_over_all_rows(job: TrainingJob, source: ArraySource, result: TrainingResult, accurate: float = 1e-8) -> None:
    """Hold every path to dense factors of all rows, and its weights to the dense regularised solution."""
    for number, path in enumerate(result.paths):
        columns, targets, weight_sum = dense(job, source, result, number)
        q, r = np.linalg.qr(columns)
        u, s, z = r / r.diagonal()[:, None], r.diagonal() ** 2, (q.T @ targets) * r.diagonal()[:, None]
        lengths, sizes = np.sqrt(s), np.linalg.norm(columns, axis=0)
        np.testing.assert_array_equal(np.tril(path.u), np.eye(len(s)))
        np.testing.assert_allclose(path.s, s, rtol=10 * accurate)
        np.testing.assert_allclose((path.u - u) * lengths[:, None] / sizes, 0, atol=accurate)
        norm = np.linalg.norm(targets, axis=0)
        np.testing.assert_allclose((path.z - z) / np.outer(lengths, norm), 0, atol=accurate)
        if job.regularization == "gcv" and targets.shape[1] == 1:
            lam = 0.0
            for j in range(1, len(s)):
                lam = lambda_step(s[: j + 1], z[: j + 1, 0], float(norm[0] ** 2), lam, weight_sum)
                assert path.lambdas[j, 0] == pytest.approx(lam, rel=1e-4)
        for m in {1, path.n_centers, len(path.rows)} & set(range(1, len(path.rows) + 1)):
            lam = path.lambdas[m]
            weights = kernel_weights(path.u[: m + 1, : m + 1], path.s[: m + 1], path.z[: m + 1], lam)
            for t in range(targets.shape[1]):
                stacked = np.vstack([columns[:, : m + 1], np.sqrt(lam[t % len(lam)]) * u[: m + 1, : m + 1]])
                padded = np.append(targets[:, t], np.zeros(m + 1))
                expected = np.linalg.lstsq(stacked, padded, rcond=1e-15)[0]
                fitted = columns[:, : m + 1] @ np.column_stack([weights[:, t], expected])
                np.testing.assert_allclose(fitted[:, 0], fitted[:, 1], atol=10 * accurate * norm[t])
        small = [(path.s[: j + 1], path.z[: j + 1], norm**2, path.lambdas[j], weight_sum) for j in range(1, len(s))]
        value = [path_score(job.stop, *sums) for sums in small]
        if job.stop in ("gcv", "bic", "mdl") and value:
            assert path.n_centers == int(np.argmin(value)) + 1
        np.testing.assert_allclose(path.target_norms, norm**2, rtol=1e-9)
        history = result.history[result.history["problem"] == number]
        assert history["center"].tolist() == path.rows.tolist()
        assert history["gcv"].tolist() == path.gcv.tolist()
        assert history["lambda_"].tolist() == path.lambdas[1:].max(axis=1).tolist()


CASES: dict[str, tuple[dict[str, Any], bool]] = {
    "regression": ({"stop": "gcv", "sampler": "mixture"}, False),
    "no lambda": ({"regularization": "none"}, False),
    "a fixed lambda": ({"regularization": 0.5, "epsilon": 0.3}, False),
    "one lambda a target": ({"regularization": "gcv-per-target"}, False),
    "evidence": ({"regularization": "evidence", "stop": "bic"}, False),
    "evidence a target": ({"regularization": "evidence-per-target", "stop": "mdl"}, False),
    "residual": ({"criterion": "residual"}, False),
    "validation": ({"stop": "validation", "patience": 6}, False),
    "polynomial": ({"kernel": "polynomial", "max_centers": 8}, False),
    "classes": ({"classification": True, "stop": "gcv"}, True),
    "one-vs-rest": ({"classification": True, "multiclass": "one-vs-rest", "stop": "validation"}, True),
    "nearly dependent": (FLAT, False),
    "nearly dependent, one-vs-rest": ({**FLAT, "classification": True, "multiclass": "one-vs-rest"}, True),
}


@pytest.mark.parametrize(
    ("case", "weighted"),
    variants(zip(CASES, itertools.cycle([True, False]), strict=False), itertools.product(CASES, [False, True])),
)
def test_paths_are_those_of_all_rows(case: str, weighted: bool) -> None:
    settings, classification = CASES[case]
    X, y = make_classes(240) if classification else make_data(240, n_targets=3 if "target" in case else 0)
    job = make_job(**settings, selection_rows=90)
    source = counting(X, y, some_weights(240) if weighted else None)
    result = fit(job, source)
    assert all(len(path.rows) > 3 for path in result.paths)
    check_over_all_rows(job, source, result, 1e-6 if "nearly" in case else 1e-8)
    assert set(source.reads.values()) == {2}
    assert result.summary["passes"] == 2
    assert result.summary["bytes_read"] == source.bytes_read
    sample = selected(job, source)
    assert set(np.concatenate([path.rows for path in result.paths])) <= set(sample)


def selected(job: TrainingJob, source: ArraySource) -> Array:
    load = Load(False, 0, job.seed, 0.0, selection_rows=job.selection_rows or 0)
    present = np.ones(source.n_rows, dtype=bool) if source.weights is None else source.weights > 0
    return np.concatenate(
        [
            first
            + np.flatnonzero(
                selecting_rows(
                    load,
                    present[first:last],
                    first,
                    source.n_rows,
                    source.y[first:last] if job.classification else None,
                )
            )
            for first, last in pairwise(source.boundaries)
        ]
    )


def test_other_rules_keep_the_prefix_they_chose_on_the_sample() -> None:
    X, y = make_data(300, noise=0.5)
    job = make_job(stop="validation", patience=8, max_centers=60, sigma=0.5, selection_rows=150)
    trained = train_serial(job, make_source(X, y))
    assert trained.path.n_centers == trained.selectors[0].best < len(trained.path.rows)
    assert str(trained.result.reason) == "validation-risen"
    check_over_all_rows(job, trained.source, trained.result)


def test_float32_columns_are_summed_in_float64() -> None:
    X, y = make_data(300, 3)
    job = make_job(dtype="float32", selection_rows=100)
    source = make_source(X, y)
    result = fit(job, source)
    check_over_all_rows(job, source, result, 1e-3)


def test_columns_that_unexpectedly_depend_are_summed_again() -> None:
    X, y = make_data(240)
    job = make_job(**FLAT, selection_rows=90)
    expected = fit(job, counting(X, y))
    source = counting(X, y)
    with mock.patch.object(gram_refit, "FORESEEN", 0.0):
        result = fit(job, source)
    assert set(source.reads.values()) == {3}
    assert result.summary["passes"] == 3
    assert result.summary["bytes_read"] == source.bytes_read
    assert_same_bits(result, expected)


def test_only_the_problems_that_need_it_are_summed_again() -> None:
    X, y = make_classes(240)
    job = make_job(classification=True, multiclass="one-vs-rest", selection_rows=90)
    source = counting(X, y)
    calls: list[bool] = []

    def distrust_the_second(*sums: Any, complete: bool, intercept: bool) -> Any:
        calls.append(complete)
        return None if len(calls) == 2 else refit(*sums, complete=complete, intercept=intercept)

    with mock.patch.object(refitting, "refit", distrust_the_second):
        result = fit(job, source)
    assert calls == [False, False, False, True]
    assert result.summary["passes"] == 3
    check_over_all_rows(job, source, result)


def test_centres_that_depend_on_others_over_all_rows_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """Only ever a few; here because the limit is raised."""
    X, y = make_data(240)
    job = make_job(**{**FLAT, "sigma": 3.0}, selection_rows=90)
    source = make_source(X, y)
    whole = fit(job, source)

    def strict(gram: Array, products: Array, _: float, u: Array | None = None, **how: bool) -> Any:
        return refit(gram, products, 1e-5, u, **how)

    with mock.patch.object(refitting, "refit", strict), mock.patch.object(gram_refit, "FORESEEN", 1.0):
        result = fit(job, source)
    kept = result.paths[0].rows.tolist()
    assert 2 < len(kept) < len(whole.paths[0].rows)
    assert [row for row in whole.paths[0].rows.tolist() if row in kept] == kept
    assert result.paths[0].n_centers == len(kept)
    check_over_all_rows(job, source, result, 1e-6)
    left_out = len(whole.paths[0].rows) - len(kept)
    assert f"{left_out} of {len(whole.paths[0].rows)} centres depend on the others" in caplog.text


def test_a_class_without_a_row_in_the_sample(caplog: pytest.LogCaptureFixture) -> None:
    X, y = make_classes(240)
    # The last row that would be drawn; one row of a class is drawn early most often.
    bounds = make_source(X, y).boundaries
    keys = [row_uniforms(make_job().seed, SELECTION_STREAM, a, b - a) for a, b in pairwise(bounds)]
    rare = int(np.concatenate(keys).argmax())
    y = y.astype("U20")
    y[rare] = "rare"
    X[rare] = 40 + X[rare]
    for multiclass in ("shared", "one-vs-rest"):
        job = make_job(classification=True, multiclass=multiclass, selection_rows=60)
        source = make_source(X, y)
        with caplog.at_level(logging.WARNING):
            result = fit(job, source)
        assert result.classes is not None
        assert "rare" in result.classes
        assert result.target_means[list(result.classes).index("rare")] == pytest.approx(2 / 240 - 1)
        assert "1 of 4 classes have no row among the 60" in caplog.text
        caplog.clear()
        if multiclass == "shared":
            check_over_all_rows(job, source, result)


def test_samples_that_nothing_can_be_chosen_on_are_refused() -> None:
    X, y = make_data(100)
    with pytest.raises(DataError, match=r"2 of the 2 rows of the selection sample.*raise selection_rows") as error:
        fit(make_job(selection_rows=2), make_source(X, y))
    assert error.value.kind == "too-few-rows"
    labels = np.where(np.isin(np.arange(100), selected(make_job(selection_rows=30), make_source(X, y))), "a", "b")
    with pytest.raises(DataError, match=r"30 rows holds one class only.*raise selection_rows") as error:
        fit(make_job(classification=True, selection_rows=30), make_source(X, labels))
    assert error.value.kind == "one-class"
    with pytest.raises(DataError, match="none of 100 was drawn"):
        fit(make_job(stop="validation", selection_rows=3), make_source(X, y))


def test_overflow_outside_the_sample_is_named() -> None:
    X, y = make_data(100)
    outside = np.setdiff1d(np.arange(100), selected(make_job(selection_rows=50), make_source(X, y)))
    X[outside[0]] = 1e60
    with pytest.raises(DataError, match="overflow over all rows") as error:
        fit(make_job(kernel="polynomial", selection_rows=50), make_source(X, y))
    assert error.value.kind == "overflow"


def test_a_path_without_centres_needs_no_pass() -> None:
    """Kernel columns that are constant in the sample."""
    X, y = make_data(100)
    sampled = selected(make_job(selection_rows=50), make_source(X, y))
    X[sampled] = 0.0
    source = counting(X, y)
    result = fit(make_job(selection_rows=50), source)
    assert result.paths[0].n_centers == len(result.paths[0].rows) == len(result.history) == 0
    assert result.target_means == pytest.approx(y.mean())
    assert set(source.reads.values()) == {result.summary["passes"]} == {1}


# ---- Executors, lost workers, replay


def weighted_source() -> ArraySource:
    X, y = make_classes(320, seed=4)
    return ArraySource(X, y, some_weights(320), boundaries=cut(320, 40))


FAULTY = make_job(classification=True, selection_rows=150, max_centers=8, sampler="mixture", sigma="median")


class Passing(Executor):
    """Does something before the final pass."""

    def __init__(self, executor: Any, before: Any) -> None:
        super().__init__(executor)
        self._before = before

    def exchange(self, message: Any) -> Answer:
        if isinstance(message, Accumulate):
            self._before()
        return super().exchange(message)


def test_a_worker_that_forgets_before_the_pass_catches_up(in_process_client: Any) -> None:
    expected = fit(FAULTY, weighted_source())

    def forget() -> None:
        for worker, run in memo.held_runs():
            memo.drop_run(worker, run)

    executor = DaskExecutor(in_process_client, weighted_source(), EventBus())
    result = train(FAULTY, weighted_source(), Passing(executor, forget), EventBus())
    executor.close()
    assert_same_bits(result, expected)


def test_a_worker_that_retires_before_the_pass(threads: Any) -> None:
    expected = fit(FAULTY, weighted_source())
    events: list[Any] = []
    lost = sorted(threads.nthreads())[0]
    executor = DaskExecutor(threads, weighted_source(), EventBus([events.append]))
    result = train(FAULTY, weighted_source(), Passing(executor, lambda: threads.retire_workers([lost])), EventBus())
    executor.close()
    assert_same_bits(result, expected)
    assert [event.worker for event in events if isinstance(event, WorkerLost)] == [lost]


def test_sums_of_the_pass_are_gathered_by_tasks() -> None:
    with cluster(4, processes=False) as client:
        executor = DaskExecutor(client, weighted_source(), EventBus(), fan_in=2)
        result = train(FAULTY, weighted_source(), executor, EventBus())
        executor.close()
    expected = fit(FAULTY, weighted_source())
    assert_same_bits(result, expected)
    assert result.summary["bytes_read"] == expected.summary["bytes_read"]


@pytest.mark.cluster
@pytest.mark.parametrize("factors", variants(["workers"], ["workers", "driver"]))
def test_a_worker_that_dies_in_the_pass(tmp_path: Path, factors: str) -> None:
    whole = weighted_source()
    source = KillsAWorker(whole, tmp_path, 2)
    events: list[Any] = []
    with cluster(2, processes=True) as client:
        for nanny in client.cluster.workers.values():
            nanny.auto_restart = False
        executor = DaskExecutor(client, source, EventBus([events.append]), with_factors=factors == "workers")
        backend = executor if factors == "workers" else DriverFactors(executor, whole)
        result = train(FAULTY, source, backend, EventBus())
        executor.close()
    assert_same_bits(result, fit(FAULTY, whole))
    assert source.killed
    assert len([event for event in events if isinstance(event, WorkerLost)]) == 1


def test_replay_skips_the_pass() -> None:
    source = counting(*make_data(100))
    executor = SerialExecutor(source)
    sent: list[Any] = []

    class Listening(Executor):
        def exchange(self, message: Any) -> Answer:
            sent.append(message)
            return super().exchange(message)

    train(make_job(selection_rows=60, max_centers=4), source, Listening(executor), EventBus())
    assert [type(message) for message in (*sent[:2], sent[-1])] == [Load, Begin, Accumulate]
    replayed = [Block(source, number) for number in range(2)]
    before = dict(source.reads)
    rounds.replay(replayed, sent)
    rounds.replay(replayed, sent[-1:])
    assert {n: source.reads[n] - before[n] for n in before} == {0: 1, 1: 1}
    for ours, theirs in zip(replayed, executor._blocks, strict=True):
        assert ours.problems[0].residual.tobytes() == theirs.problems[0].residual.tobytes()


# ---- Memory


@pytest.mark.parametrize(("m", "n_problems", "conditioned"), [(150, 1, False), (60, 4, False), (150, 1, True)])
def test_refit_bytes_cover_what_is_allocated(m: int, n_problems: int, conditioned: bool) -> None:
    n, d, threads, block_rows = 24000, 6, 2, 3000
    X, y = make_data(n, d, n_targets=n_problems)
    source = make_source(X, y, np.full(n, 2.0), rows=block_rows)
    executor = SerialExecutor(source)
    executor.exchange(Load(False, 0, 0, 0.0, selection_rows=100))
    executor.exchange(make_begin(d, problems=make_problems(n_problems)))
    centers = Centers(np.arange(m), X[:m], np.eye(m + 1) if conditioned else None, np.zeros(1))
    message = Accumulate((centers,) * n_problems)
    with tile_threads(threads):
        tracemalloc.start()
        answer = executor.exchange(message)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert answer.bytes_read == source.X.nbytes + source.y.nbytes + n * 8
    settings = make_job(max_centers=m).selection(n)
    planned = refit_bytes(Workload.of(source, n_problems, n_problems), settings, threads, n // block_rows)
    assert planned / 3 < peak <= planned


def test_the_plan_counts_the_final_pass() -> None:
    work = Workload.imagined(1_000_000, 32, 4, 1)
    whole, sampled = (plan_job(make_job(max_centers=500, selection_rows=rows), work) for rows in (None, 50_000))
    assert (whole.passes, sampled.passes) == (1, 2)
    assert whole.course is not None
    assert sampled.course is not None
    assert sampled.course.selected_rows == 50_000
    assert sampled.course.exchanges == whole.course.exchanges + 1
    assert sampled.course.bytes_read == 2 * whole.course.bytes_read
    assert sampled.peak < whole.peak / 5
    assert whole.terms["refit"] == whole.course.flops["refit"] == 0
    assert sampled.terms["refit"] > 8 * 501**2
    assert sampled.terms["loading"] == whole.terms["loading"]
    assert sampled.course.flops["refit"] >= 1_000_000 * 500**2
    assert sampled.course.flops["total"] < whole.course.flops["total"] / 3


@pytest.mark.slow
def test_a_sample_fits_where_all_rows_do_not() -> None:
    X, y = make_data(200_000, 4)
    source = make_source(X, y, rows=2_000)
    job = make_job(max_centers=30, selection_rows=2_000)
    limit = plan_job(job, Workload.of(source, 1, 1)).needed
    with pytest.raises(BudgetError, match="selection_rows"):
        run_training(make_job(max_centers=30), source, memory_limit=limit)
    result = run_training(job, source, memory_limit=limit)
    assert len(result.paths[0].rows) == 30
    assert result.summary["plan"]["refit"] > 0


# ---- Kernels that are zero beyond a radius


def along_a_line(n: int, seed: int = 0) -> ArraySource:
    """Rows in the order of their place, so that a tile has few near centres."""
    X, _ = make_data(n, seed=seed)
    X[:, 0] = np.linspace(0.0, 40.0, n)
    return make_source(X, np.sin(X[:, 0]) + 0.1 * X[:, 1], some_weights(n), rows=40)


@pytest.mark.parametrize("changes", [{}, {"selection_rows": 120, "epsilon": 0.2}, {"solver": "conjugate-gradients"}])
def test_centres_beyond_the_radius_of_a_tile_are_left_out(changes: dict[str, Any], in_process_client: Any) -> None:
    job, source = make_job(**{"kernel": Wendland(3.0), "max_centers": 24, **changes}), along_a_line(320)
    found = near_sums.near_centers
    shares: list[float] = []

    def watched(kernel: Any, X: Array, centers: Array) -> Any:
        near = found(kernel, X, centers)
        shares.append(1.0 if near is None else len(near) / len(centers))
        return near

    with mock.patch.object(pool_tiles, "near_centers", watched):
        result = fit(job, source)
    assert np.mean(shares) < 0.8
    with (
        mock.patch.object(pool_tiles, "near_centers", return_value=None),
        mock.patch.object(all_rows_pass, "MOST_NEAR", -1.0),
    ):
        dense = fit(job, source)
    for ours, theirs in zip(result.paths, dense.paths, strict=True):
        assert ours.rows.tolist() == theirs.rows.tolist()
        np.testing.assert_allclose(ours.weights(ours.n_centers), theirs.weights(theirs.n_centers), rtol=1e-6, atol=1e-9)
    assert_same_bits(result, run_training(job, source, client=in_process_client))

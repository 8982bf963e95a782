"""Models with many centres: drawn centres and weights by conjugate gradients, against dense references."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray

from distkern.errors import DataError
from distkern.kernels import Sigmoid
from distkern.monitoring.events import Event, EventBus, ExchangeDone, WorkerLost
from distkern.numerics import packed_triangles
from distkern.numerics.row_draws import draw_keys, row_uniforms
from distkern.scheduler import TimeLimit, Workload, plan_job, run_training
from distkern.scheduler.blocks import center_products
from distkern.scheduler.blocks.center_products import CENTER_STREAM
from distkern.scheduler.execution.dask_executor import DaskExecutor
from distkern.scheduler.execution.executor import SerialExecutor
from distkern.scheduler.training import large_models, solver
from distkern.scheduler.training.driver_loop import TrainingJob, TrainingResult, train
from distkern.selection import penalised_fit
from distkern.selection.stopping import StopReason
from distkern.storage import ArraySource, recorded
from distkern.storage.arrays.source import BlockSource
from tests.markers import variants
from tests.references import dense_kernel_columns
from tests.scheduler.faults import KillsAWorker
from tests.scheduler.training import test_resume as resume
from tests.scheduler.trainings import (
    assert_same_solutions,
    make_classes,
    make_data,
    make_job,
    make_source,
    tile_threads,
)
from tests.scheduler.worker_clusters import cluster

Array = NDArray[Any]

SELECTED, CENTERS = 8, 30


@pytest.fixture(autouse=True)
def small_numbers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Few selected centres, and strips, parts and blocks of a few rows; not where other processes have them too."""
    with (
        mock.patch.object(solver, "SELECTED_CENTERS", SELECTED),
        mock.patch.object(packed_triangles, "BLOCK", 16),
        mock.patch.object(penalised_fit, "ADDED_ROWS", 20),
        mock.patch.object(penalised_fit, "THREAD_ROWS", 10),
        ExitStack() as stack,
    ):
        if request.node.get_closest_marker("cluster") is None:
            stack.enter_context(mock.patch.object(center_products, "PART_VALUES", 100))
            stack.enter_context(mock.patch.object(center_products, "MOST_STRIP_ROWS", 33))
        yield


def large_job(**changes: Any) -> TrainingJob:
    return make_job(**{"solver": "conjugate-gradients", "max_centers": CENTERS, **changes})


def fit(job: TrainingJob, source: BlockSource) -> TrainingResult:
    return train(job, source, SerialExecutor(source), EventBus())


def weighted(n: int = 240, n_targets: int = 2) -> ArraySource:
    X, y = make_data(n, n_targets=n_targets)
    X[5::40] = X[4]  # rows that are equal
    return make_source(X, y, np.random.default_rng(1).integers(0, 3, n) / 1.0, rows=40)


# ---- The weights and the draw


CASES: dict[str, tuple[dict[str, Any], ArraySource]] = {
    "weights": ({}, weighted()),
    "epsilon": ({"epsilon": 0.5}, weighted()),
    "sample": ({"selection_rows": 100}, weighted()),
    "fixed": ({"regularization": 0.05}, weighted(n_targets=0)),
    "per target": ({"regularization": "gcv-per-target"}, weighted()),
    "classes": ({"classification": True}, make_source(*make_classes(200))),
    "one-vs-rest": ({"classification": True, "multiclass": "one-vs-rest"}, make_source(*make_classes(200))),
    "one-vs-one": ({"classification": True, "multiclass": "one-vs-one"}, make_source(*make_classes(200))),
    "laplacian": ({"kernel": "laplacian", "standardize": True, "sigma": "median"}, weighted()),
}


@pytest.mark.parametrize("name", CASES)
def test_the_weights_solve_the_normal_equations_of_all_rows(name: str) -> None:
    changes, source = CASES[name]
    with mock.patch.object(penalised_fit, "EXCESS", 1e-16), mock.patch.object(large_models, "MOST_ITERATIONS", 300):
        result = fit(large_job(**changes), source)
    X = (source.X - result.scaling.shift) / result.scaling.scale
    w = np.ones(len(X)) if source.weights is None else source.weights
    for path, outputs in zip(result.paths, result.outputs, strict=True):
        assert len(path.rows) == len(np.unique(path.rows)) == path.n_centers == CENTERS
        np.testing.assert_array_equal(path.features, source.X[path.rows])
        targets, own = source.y.reshape(len(X), -1), np.ones(len(X), dtype=bool)
        if result.classes is not None:
            chosen = list(outputs)
            targets = np.where(source.y[:, None] == result.classes, 1.0, -1.0)[:, chosen]
            if changes.get("multiclass") == "one-vs-one":
                first, second = [(0, 1), (0, 2), (1, 2)][outputs[0]]
                own = np.isin(source.y, result.classes[[first, second]])
                targets = np.where(source.y == result.classes[second], 1.0, -1.0)[:, None]
        K = dense_kernel_columns(result.kernel, X, X[path.rows], path.rows, changes.get("epsilon", 0.0))
        G = K[path.rows]
        mass = np.where(own, w, 0.0)
        centred = targets - mass @ targets / mass.sum()
        design = np.column_stack([np.ones(len(X)), K])
        values, vectors = np.linalg.eigh((G + G.T) / 2)
        assert path.solved is not None
        for t in range(targets.shape[1]):
            lambda_ = path.lambdas[-1, t if path.lambdas.shape[1] > 1 else 0]
            root = np.sqrt(lambda_ * np.maximum(values, 0.0))[:, None] * vectors.T
            whole = np.vstack([design * np.sqrt(mass)[:, None], np.column_stack([np.zeros(len(G)), root])])
            sides = np.concatenate([centred[:, t] * np.sqrt(mass), np.zeros(len(G))])
            wanted = np.linalg.lstsq(whole, sides, rcond=1e-13)[0]
            found = path.solved[:, t]
            np.testing.assert_allclose((design @ found)[own], (design @ wanted)[own], atol=2e-5)


def test_centres_are_drawn_in_proportion_to_the_squared_residual() -> None:
    source = weighted(n_targets=0)
    result = fit(large_job(), source)
    first = fit(make_job(max_centers=SELECTED), source).paths[0]
    path = result.paths[0]
    np.testing.assert_array_equal(path.rows[:SELECTED], first.rows)
    K = dense_kernel_columns(result.kernel, source.X, source.X[first.rows], first.rows, 0.0)
    weights = first.weights(SELECTED)[:, 0]
    left = source.y - result.target_means[0] - weights[0] - K @ weights[1:]
    assert source.weights is not None
    keys = draw_keys(row_uniforms(0, CENTER_STREAM, 0, len(left)), source.weights * left**2)
    keys[first.rows] = np.inf
    np.testing.assert_array_equal(path.rows[SELECTED:], np.argsort(keys)[: CENTERS - SELECTED])
    assert path.reason is StopReason.MAX_CENTERS
    np.testing.assert_array_equal(result.history["center"], path.rows)


def test_a_path_that_its_rule_ends_gets_no_more_centres() -> None:
    X, y = make_data(300, noise=3.0)
    result = fit(large_job(stop="gcv", patience=2), make_source(X, y))
    assert result.paths[0].n_centers < SELECTED
    assert result.paths[0].reason is StopReason.GCV_RISEN
    assert result.paths[0].solved is not None


def test_a_rule_that_has_not_ended_the_path_does_not_keep_centres_out() -> None:
    X, y = make_data(300, noise=3.0)
    job = large_job(stop="gcv", patience=100)
    assert (
        fit(make_job(max_centers=SELECTED, stop="gcv", patience=100), make_source(X, y)).paths[0].n_centers < SELECTED
    )
    path = fit(job, make_source(X, y)).paths[0]
    assert path.n_centers == CENTERS
    assert path.reason is StopReason.MAX_CENTERS


def test_fewer_rows_than_centres() -> None:
    X, y = make_data(20)
    assert fit(large_job(), make_source(X, y)).paths[0].n_centers == 20


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_equal_rows_are_no_error(dtype: str) -> None:
    X, y = make_data(120)
    X[::2] = X[0]
    result = fit(large_job(dtype=dtype, max_centers=60), make_source(X, y))
    path = result.paths[0]
    assert path.solved is not None
    assert np.isfinite(path.solved).all()


def test_an_indefinite_kernel_is_refused() -> None:
    with pytest.raises(DataError, match="positive definite"):
        fit(large_job(kernel=Sigmoid(kappa=1.0, theta=-1.0)), make_source(*make_data(100)))


def test_targets_that_overflow_are_refused() -> None:
    X, y = make_data(100)
    with pytest.raises(DataError, match="overflow"):
        fit(large_job(), make_source(X, y * 1e160))


# ---- The choice, the plan, the time limit


def test_auto_takes_conjugate_gradients_for_many_centres() -> None:
    def chosen(n_rows: int = 10**6, **changes: Any) -> str:
        return make_job(solver="auto", **{"max_centers": 20_000, **changes}).resolved(n_rows).solver

    assert chosen() == "conjugate-gradients"
    assert chosen(max_centers=3000) == chosen(n_rows=3000) == "factors"
    for changes in ({"sigma": (1.0, 2.0)}, {"kernel": "sigmoid"}, {"regularization": "evidence"}):
        assert chosen(**changes) == "factors"
    assert make_job(max_centers=20_000).resolved(10**6).solver == "factors"


def test_the_plan_counts_passes_bytes_and_time() -> None:
    work = Workload.imagined(1_000_000, 20, 4, 1)
    with mock.patch.object(solver, "SELECTED_CENTERS", 2000):
        large = plan_job(large_job(max_centers=20_000, dtype="float32", selection_rows="auto"), work)
    assert large.course is not None
    assert large.passes == 1 + 3 + solver.PLANNED_ITERATIONS
    assert large.course.selected_rows == 10_000
    assert 0.8e9 * 5 < large.terms["refit"] < 0.8e9 * 7
    assert large.course.solver == "conjugate-gradients"
    assert 100 < large.course.solving_seconds * large.course.threads < 3000
    factors = plan_job(make_job(max_centers=20_000, dtype="float32", selection_rows="auto"), work)
    assert large.peak < factors.peak / 4


@pytest.mark.parametrize("n_targets", [1, 5])
def test_planned_bytes_cover_what_is_allocated(n_targets: int) -> None:
    import tracemalloc

    X, y = make_data(8_000, 6, n_targets=n_targets)
    source = make_source(X, y, rows=1000)
    m = 600
    job = large_job(max_centers=m, selection_rows=300)
    large = solver.large_model(job, 8_000)
    assert large is not None
    with mock.patch.object(packed_triangles, "BLOCK", 256), tile_threads(2):
        before = fit(large_job(max_centers=SELECTED, selection_rows=300), source)
        assert before.paths[0].n_centers == SELECTED
        tracemalloc.start()
        fit(job, source)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        work = Workload.of(source, n_targets, 1)
        planned = large.pass_bytes(work, 2, 8) + large.driver_bytes(work, 2)
    assert planned / 4 < peak <= planned + (4 << 20)


def test_a_time_limit_ends_the_iterations() -> None:
    source, now = weighted(), 0.0
    limit = TimeLimit(1000.0, lambda: now)

    def tick(event: Event) -> None:
        nonlocal now
        if isinstance(event, ExchangeDone):
            now += 200.0 if event.name == "solve-weights" else 0.0

    result = run_training(large_job(), source, subscribers=[tick], limit=limit)
    assert result.reason is StopReason.TIME_LIMIT
    assert result.paths[0].n_centers == CENTERS
    assert result.summary["passes"] < fit(large_job(), source).summary["passes"]


# ---- Executors, lost workers, resumption


@pytest.mark.parametrize("name", variants(["sample", "one-vs-rest"], ["weights", "sample", "classes", "one-vs-rest"]))
@pytest.mark.parametrize("factors", ["workers", "driver"])
def test_workers_give_the_same_bits(name: str, factors: str, in_process_client: Any) -> None:
    changes, source = CASES[name]
    job = large_job(**changes, dtype="float32")
    with tile_threads(1):
        whole = run_training(job, source)
    assert_same_solutions(whole, run_training(job, source))
    assert_same_solutions(whole, run_training(job, source, client=in_process_client, factors=factors))


def test_a_run_goes_on_after_any_exchange_and_with_more_centres(tmp_path: Path) -> None:
    changes, source = CASES["sample"]
    job = large_job(**changes)
    run = resume.start(tmp_path / "run")
    whole = run_training(job, source, run=run)
    n = len(recorded(run.path)[0])
    assert n == whole.summary["exchanges"]
    for k in sorted({1, n // 2, *range(n - 6, n + 1)}):
        again = run_training(job, source, run=resume.cut(run, k, tmp_path / f"cut-{k}"))
        assert_same_solutions(whole, again)
        assert again.summary["exchanges"] == n
    more = large_job(**changes, max_centers=CENTERS + 20)
    assert_same_solutions(run_training(more, source), run_training(more, source, run=run))


@pytest.mark.cluster
@pytest.mark.parametrize("n_workers", [1, 2, 3])
def test_processes_give_the_same_bits_also_where_one_dies(n_workers: int, tmp_path: Path) -> None:
    whole = weighted()
    expected = fit(large_job(), whole)
    source: ArraySource = whole
    if n_workers > 1:
        source = KillsAWorker(whole, tmp_path, 6)
    events: list[Any] = []
    with cluster(n_workers, processes=True) as client:
        for nanny in client.cluster.workers.values():
            nanny.auto_restart = False
        executor = DaskExecutor(client, source, EventBus([events.append]))
        result = train(large_job(), source, executor, EventBus())
        executor.close()
    assert_same_solutions(result, expected)
    assert len([event for event in events if isinstance(event, WorkerLost)]) == (n_workers > 1)

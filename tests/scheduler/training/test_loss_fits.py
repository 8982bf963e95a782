"""Weights by a loss over passes: against dense minima, on all executors, resumed, planned, in time."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize as scipy_minimise

from distkern.errors import DataError, JobError
from distkern.kernels import Sigmoid
from distkern.monitoring.events import Event, EventBus, ExchangeDone, WorkerLost
from distkern.scheduler import TimeLimit, Workload, plan_job, run_training
from distkern.scheduler.execution.dask_executor import DaskExecutor
from distkern.scheduler.execution.executor import SerialExecutor
from distkern.scheduler.planning import loss_plan
from distkern.scheduler.planning.loss_plan import LossPlan
from distkern.scheduler.training import loss_fits
from distkern.scheduler.training.driver_loop import TrainingJob, TrainingResult, train
from distkern.selection.gram_refit import preconditioner_of
from distkern.selection.loss_fit import LossFit, LossSample
from distkern.selection.losses import HUBER, LOGISTIC, QUANTILE, Loss, LossChoice
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

SMALL = {LOGISTIC: {"classification": True}, HUBER: {}, QUANTILE: {}}


def loss_job(name: str = HUBER, constant: float = 1.0, **changes: Any) -> TrainingJob:
    return make_job(**{"loss": LossChoice(name, constant), "max_centers": 12, **SMALL[name], **changes})


def fit(job: TrainingJob, source: BlockSource) -> TrainingResult:
    return train(job, source, SerialExecutor(source), EventBus())


def weighted(n: int = 240, n_targets: int = 2) -> ArraySource:
    X, y = make_data(n, n_targets=n_targets)
    return make_source(X, y, np.random.default_rng(1).integers(0, 3, n) / 1.0, rows=40)


def labelled(n_classes: int, n: int = 240) -> ArraySource:
    X, y = make_classes(n, n_classes)
    return make_source(X, y, np.random.default_rng(1).integers(0, 3, n) / 1.0, rows=40)


# ---- The minimum over all rows

CASES: dict[str, tuple[TrainingJob, ArraySource]] = {
    "two classes": (loss_job(LOGISTIC), labelled(2)),
    "softmax": (loss_job(LOGISTIC), labelled(3)),
    "huber": (loss_job(HUBER), weighted()),
    "quantile": (loss_job(QUANTILE, 0.2), weighted(n_targets=0)),
    "epsilon": (loss_job(HUBER, epsilon=0.5), weighted()),
    "fixed": (loss_job(HUBER, regularization=0.5), weighted()),
    "selection on a sample": (loss_job(HUBER, selection_rows=100), weighted()),
    "held-out rows": (loss_job(HUBER, stop="validation"), weighted()),
    "no constant": (loss_job(HUBER, intercept=False), weighted()),
    "near columns": (loss_job(HUBER, sigma=6.0, selection_rows=100), weighted()),
}


def targets_of(source: ArraySource, result: TrainingResult) -> Array:
    if result.classes is None:
        return source.y.reshape(source.n_rows, -1) - result.target_means
    signs = np.where(source.y[:, None] == result.classes, 1.0, -1.0)
    return signs[:, 1:] if len(result.classes) == 2 else signs


@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_weights_minimise_the_loss_of_all_rows(name: str, few: bool) -> None:
    job, source = CASES[name]
    losses: list[Loss] = []
    made = loss_fits.Loss

    def kept(*arguments: Any) -> Loss:
        losses.append(made(*arguments))
        return losses[-1]

    # Few rows in the sample: the passes do the work.
    least, most = (60, 60) if few else (2000, 20_000)
    with (
        mock.patch.object(loss_fits, "Loss", kept),
        mock.patch.multiple(loss_fits, PASS_PRECISION=1e-11, SQUARES_SHARES=(0.0,)),
        mock.patch.multiple(loss_plan, SMALLEST_SAMPLE=least, LARGEST_SAMPLE=most),
    ):
        result = fit(job, source)
    (path,), (loss,) = result.paths, losses
    X = (source.X - result.scaling.shift) / result.scaling.scale
    K = dense_kernel_columns(result.kernel, X, X[path.rows], path.rows, job.epsilon)
    design, gram = np.column_stack([np.ones(len(X)), K]), K[path.rows]
    lam = path.lambdas[-1, 0] / gram.diagonal().mean()
    targets, mass = targets_of(source, result), source.weights
    assert mass is not None
    assert path.solved is not None
    found = path.solved / loss.scales
    if result.classes is not None:
        found[0] += result.target_means

    def objective(flat: Array) -> tuple[float, Array]:
        weights = flat.reshape(found.shape)
        values, slopes, _ = loss.evaluate(design @ weights, targets)
        pull = gram @ weights[1:]
        gradient = design.T @ (slopes * mass[:, None])
        gradient[1:] += lam * pull
        gradient[0] *= job.intercept
        return float(mass @ values + 0.5 * lam * (weights[1:] * pull).sum()), gradient.ravel()

    value = objective(found.ravel())[0]
    best = scipy_minimise(objective, found.ravel(), jac=True, method="BFGS", options={"gtol": 1e-9, "maxiter": 2000})
    assert best.fun <= value <= best.fun * (1 + 2e-5)
    assert path.n_centers == len(path.rows) == len(result.history)
    if not job.intercept:
        np.testing.assert_array_equal(path.solved[0], 0.0)


def test_weights_count_as_repeated_rows() -> None:
    X, y = make_classes(150)
    weights = np.random.default_rng(2).integers(1, 4, 150)
    job = loss_job(LOGISTIC, regularization=1.0, candidates=1000)
    ours = fit(job, make_source(X, y, weights / 1.0))
    theirs = fit(job, make_source(np.repeat(X, weights, axis=0), np.repeat(y, weights)))
    a, b = (result.paths[0] for result in (ours, theirs))
    np.testing.assert_array_equal(a.features, b.features)
    assert a.solved is not None
    assert b.solved is not None
    np.testing.assert_allclose(a.solved, b.solved, rtol=0, atol=0.02 * np.abs(a.solved).max())


def test_columns_that_depend_on_each_other_are_summed_in_those_of_q() -> None:
    X, y = make_data(400, d=1)
    job = loss_job(HUBER, regularization=1e-9, sigma=3.0)
    given = []

    def kept(u: Array, s: Array) -> Array | None:
        given.append(preconditioner_of(u, s))
        return given[-1]

    with (
        mock.patch.multiple(loss_plan, SMALLEST_SAMPLE=100, LARGEST_SAMPLE=100),
        mock.patch.object(loss_fits, "preconditioner_of", kept),
    ):
        path = fit(job, make_source(X, y)).paths[0]
    assert given[0] is not None
    assert path.solved is not None
    K = np.exp(-np.square(X - path.features.T) / 18.0)
    # Weights of 1e4 cancel each other.
    assert np.abs(path.solved).max() > 1e3
    assert np.square(y - y.mean() - path.solved[0] - K @ path.solved[1:, 0]).mean() < 1.02 * 0.01


def test_an_indefinite_kernel_and_an_overflow_are_refused() -> None:
    with pytest.raises(JobError, match="positive definite"):
        fit(loss_job(kernel=Sigmoid(kappa=1.0, theta=-1.0)), make_source(*make_data(100)))
    X, y = make_data(100)
    with pytest.raises(DataError, match="overflow"):
        fit(loss_job(), make_source(X, y * 1e160))


@pytest.mark.parametrize(("known", "share"), [(True, 0.75), (False, 0.25)])
def test_the_share_of_squares_has_the_lowest_loss_on_held_out_rows(known: bool, share: float) -> None:
    """Log odds of squares that know the class count most, and those that do not, least."""
    rng = np.random.default_rng(0)
    targets = rng.choice([-1.0, 1.0], (300, 1))
    sample = LossSample(np.ones((300, 1)), targets, np.ones(300))
    held = np.arange(0, 300, 2)
    scores = targets[held] + rng.standard_normal((150, 1))
    found = LossFit(np.zeros((1, 1)), 1.0, 0.5, np.empty((0, 2)), held, scores)
    odds = 5.0 * targets if known else 5.0 * rng.standard_normal((300, 1))
    assert loss_fits.share_of_squares(Loss(LOGISTIC, 0.0, np.ones(1)), sample, found, odds) == share


# ---- The plan, the time limit


def test_the_plan_counts_passes_and_bytes() -> None:
    work = Workload.imagined(1_000_000, 20, 8, 1)
    ours = plan_job(loss_job(max_centers=500, selection_rows="auto"), work)
    squares = plan_job(make_job(max_centers=500, selection_rows="auto"), work)
    assert ours.course is not None
    assert squares.course is not None
    assert ours.passes == squares.passes + ours.course.loss_passes == squares.passes + 1 + loss_plan.PLANNED_PASSES
    assert ours.course.bytes_read == ours.passes * squares.course.bytes_read // squares.passes
    assert ours.course.flops["loss"] > 0
    assert squares.course.loss_passes == 0
    assert ours.terms["refit"] > squares.terms["refit"]


@pytest.mark.parametrize("n_targets", [1, 5])
def test_planned_bytes_cover_what_is_allocated(n_targets: int) -> None:
    X, y = make_data(8_000, 6, n_targets=n_targets)
    source, m = make_source(X, y, rows=1000), 200
    job = loss_job(max_centers=m, selection_rows=600, regularization=0.1)
    plain = make_job(max_centers=m, selection_rows=600, regularization=0.1)
    peaks = []
    with tile_threads(2):
        for each in (plain, job):
            tracemalloc.start()
            fit(each, source)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    work = Workload.of(source, n_targets, 1)
    planned = LossPlan(m).pass_bytes(work, 2, 8) + LossPlan(m).driver_bytes(work)
    assert planned / 4 < peaks[1] <= planned + peaks[0]


def test_a_time_limit_ends_the_passes() -> None:
    source, now = weighted(), 0.0
    limit = TimeLimit(1000.0, lambda: now)

    def tick(event: Event) -> None:
        nonlocal now
        if isinstance(event, ExchangeDone):
            now += 1e6 if event.name == "sum-loss" else 0.0

    with mock.patch.multiple(loss_plan, SMALLEST_SAMPLE=60, LARGEST_SAMPLE=60):
        with mock.patch.object(loss_fits, "perf_counter", side_effect=lambda: now):
            result = run_training(loss_job(), source, subscribers=[tick], limit=limit)
        assert result.reason is StopReason.TIME_LIMIT
        assert result.paths[0].n_centers == 12
        assert result.summary["passes"] < fit(loss_job(), source).summary["passes"]


# ---- Executors, lost workers, resumption


@pytest.mark.parametrize("name", variants(["softmax", "selection on a sample"], ["two classes", "softmax", "quantile"]))
@pytest.mark.parametrize("factors", ["workers", "driver"])
def test_workers_give_the_same_bits(name: str, factors: str, in_process_client: Any) -> None:
    job, source = CASES[name]
    with mock.patch.multiple(loss_plan, SMALLEST_SAMPLE=60, LARGEST_SAMPLE=60):
        with tile_threads(1):
            whole = run_training(job, source)
        assert whole.summary["passes"] > 4
        assert_same_solutions(whole, run_training(job, source))
        assert_same_solutions(whole, run_training(job, source, client=in_process_client, factors=factors))


def test_a_run_goes_on_after_any_exchange(tmp_path: Path) -> None:
    job, source = CASES["selection on a sample"]
    run = resume.start(tmp_path / "run")
    with mock.patch.multiple(loss_plan, SMALLEST_SAMPLE=60, LARGEST_SAMPLE=60):
        whole = run_training(job, source, run=run)
        n = len(recorded(run.path)[0])
        assert n == whole.summary["exchanges"]
        for k in sorted({1, n // 2, *range(n - 6, n + 1)}):
            again = run_training(job, source, run=resume.cut(run, k, tmp_path / f"cut-{k}"))
            assert_same_solutions(whole, again)
            assert again.summary["exchanges"] == n


@pytest.mark.cluster
def test_processes_give_the_same_bits_also_where_one_dies(tmp_path: Path) -> None:
    job, whole = CASES["softmax"]
    expected = fit(job, whole)
    source = KillsAWorker(whole, tmp_path, 4)
    events: list[Any] = []
    with cluster(2, processes=True) as client:
        for nanny in client.cluster.workers.values():
            nanny.auto_restart = False
        executor = DaskExecutor(client, source, EventBus([events.append]))
        result = train(job, source, executor, EventBus())
        executor.close()
    assert_same_solutions(result, expected)
    assert len([event for event in events if isinstance(event, WorkerLost)]) == 1

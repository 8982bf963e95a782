"""Several widths among the candidates: the engine against dense references, and the same bits everywhere."""

from __future__ import annotations

import itertools
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from distkern.kernels import Gaussian, Gaussians
from distkern.monitoring.events import BlocksReplayed, EventBus
from distkern.scheduler import run_training
from distkern.scheduler.blocks import block_registry as memo
from distkern.scheduler.execution.executor import SerialExecutor
from distkern.scheduler.execution.layers import DriverFactors
from distkern.scheduler.protocol.candidates import candidate_numbers, drawable, rows_and_widths
from distkern.scheduler.protocol.messages import digest
from distkern.scheduler.training.driver_loop import train
from distkern.storage import ArraySource
from tests.markers import variants
from tests.references import dense_kernel_columns, greedy_error_reduction
from tests.scheduler import faults
from tests.scheduler.faults import Trouble, addresses
from tests.scheduler.trainings import (
    assert_same_bits,
    check_each_round,
    make_classes,
    make_data,
    make_job,
    make_source,
    tile_threads,
    train_serial,
)

Array = NDArray[Any]

WIDTHS = (0.4, 1.0, 3.0)
seeds = st.integers(0, 2**31)


def all_columns(X: Array, widths: tuple[float, ...], epsilon: float = 0.0) -> Array:
    """A column for every pair of a width and a row, those of the first width first."""
    rows = np.arange(len(X))
    return np.hstack([dense_kernel_columns(Gaussian(sigma), X, X, rows, epsilon) for sigma in widths])


def best_gain(K: Array, basis: Array, target: Array, chosen: list[int], candidate: int) -> float:
    before, _ = np.linalg.qr(np.column_stack([basis, K[:, chosen]]))
    after, _ = np.linalg.qr(np.column_stack([basis, K[:, chosen], K[:, candidate]]))
    return float(np.square(after.T @ target).sum() - np.square(before.T @ target).sum())


@given(st.integers(0, 2**62), st.integers(1, 10**9), st.integers(0, 50))
def test_candidate_numbers_come_apart_again(row: int, n_rows: int, width: int) -> None:
    row %= n_rows
    number = candidate_numbers(np.array([row]), np.array([width]), n_rows)
    rows, widths = rows_and_widths(number, n_rows)
    assert (rows.tolist(), widths.tolist()) == ([row], [width])
    assert width or number[0] == row


def test_what_may_be_drawn_is_what_is_not_taken() -> None:
    taken = np.array([[True, False, False], [False, True, False]])
    candidates, where = drawable(taken, np.array([4, 6, 7]), 10)
    assert candidates.tolist() == [6, 7, 14, 17]
    assert where.tolist() == [1, 2, 0, 2]


@given(
    st.integers(10, 45),
    st.integers(1, 5),
    st.integers(0, 3),
    st.booleans(),
    st.sampled_from([0.0, 0.1]),
    st.sampled_from([WIDTHS, (2.0, 0.3), (0.2, 0.5, 1.0, 2.0)]),
    seeds,
)
def test_all_pairs_as_candidates_is_forward_selection(
    n: int, panel: int, n_targets: int, weighted: bool, epsilon: float, widths: tuple[float, ...], seed: int
) -> None:
    """Every pair of a row and a width, picked by error reduction straight from the equations."""
    X, y = make_data(n, seed=seed, n_targets=n_targets)
    rng = np.random.default_rng(seed)
    weights = rng.integers(1, 4, n).astype(float) if weighted else None
    roots = np.ones(n) if weights is None else np.sqrt(weights)
    job = make_job(
        sampler="all", sigma=widths, panel=panel, max_centers=8, epsilon=epsilon, regularization="none", seed=seed
    )
    trained = train_serial(job, make_source(X, y, weights, rows=17), each_round=check_each_round())
    path = trained.path
    K = all_columns(X, widths, epsilon) * roots[:, None]
    targets = y.reshape(n, -1)
    targets = (targets - np.average(targets, axis=0, weights=weights)) * roots[:, None]
    dense = greedy_error_reduction(K, roots[:, None], targets, 8)
    ours = path.candidates(n).tolist()
    assert trained.result.history["center"].tolist() == path.rows.tolist()
    for j, (a, b) in enumerate(zip(ours, dense, strict=False)):
        if a != b:
            # Only a tie may be broken in another way.
            gains = [best_gain(K, roots[:, None], targets, dense[:j], candidate) for candidate in (a, b)]
            assert gains[0] == pytest.approx(gains[1], rel=1e-6)
            return


def test_a_row_may_be_a_centre_with_two_widths() -> None:
    """A bump beside a hill at the same place takes one row twice."""
    X = np.linspace(-4, 4, 81)[:, None]
    y = np.exp(-np.square(X[:, 0]) / (2 * 0.2**2)) + 2 * np.exp(-np.square(X[:, 0]) / (2 * 2.0**2))
    job = make_job(sampler="all", sigma=(0.2, 2.0), max_centers=2, panel=1, regularization="none")
    path = train_serial(job, make_source(X, y, rows=30)).path
    assert path.rows.tolist() == [40, 40]
    assert sorted(path.widths.tolist()) == [0, 1]
    fitted = np.column_stack([np.ones(81), all_columns(X, (0.2, 2.0))[:, path.candidates(81)]])
    residual = y - fitted @ np.linalg.lstsq(fitted, y, rcond=None)[0]
    assert np.abs(residual).max() < 1e-10


@given(
    st.integers(40, 120),
    st.integers(5, 60),
    st.integers(2, 6),
    st.integers(6, 40),
    st.sampled_from(["mixture", "residual-weighted", "top-residual", "uniform"]),
    st.sampled_from(["float64", "float32"]),
    seeds,
)
def test_every_path_keeps_its_equations(
    n: int, rows: int, panel: int, candidates: int, sampler: str, dtype: str, seed: int
) -> None:
    X, y = make_data(n, seed=seed, n_targets=seed % 3)
    weights = np.random.default_rng(seed).integers(0, 3, n).astype(float) if seed % 2 else None
    if weights is not None:
        weights[:5] = 1.0
    job = make_job(
        sampler=sampler, panel=panel, candidates=candidates, sigma=WIDTHS, epsilon=0.05 * (seed % 2), dtype=dtype
    )
    look = check_each_round() if dtype == "float64" else check_each_round(pool=2e-2, accurate=2e-3, orthogonal=2e-3)
    trained = train_serial(job, make_source(X, y, weights, rows=rows), each_round=look)
    assert len(np.unique(trained.path.candidates(n))) == len(trained.path.rows)


@given(seeds, st.sampled_from(["mixture", "uniform", "all"]))
@pytest.mark.slow
def test_the_draw_does_not_depend_on_the_blocks(seed: int, sampler: str) -> None:
    X, y = make_data(90, seed=seed)
    job = make_job(sampler=sampler, sigma=WIDTHS, max_centers=6, seed=seed)
    paths = [train_serial(job, make_source(X, y, rows=rows)).path for rows in (90, 13)]
    np.testing.assert_array_equal(paths[0].candidates(90)[:4], paths[1].candidates(90)[:4])


@pytest.mark.parametrize("criterion", ["error-reduction", "loo-error"])
def test_tile_threads_change_nothing(criterion: str) -> None:
    X, labels = make_classes(300)
    job = make_job(classification=True, criterion=criterion, sigma=WIDTHS, max_centers=8)
    results = []
    for width in (1, 4):
        with tile_threads(width):
            results.append(train_serial(job, make_source(X, labels, rows=60)).result)
    assert_same_bits(*results)


JOBS = {
    "shared": make_job(classification=True, sigma=WIDTHS, sampler="mixture"),
    "one-vs-rest": make_job(classification=True, sigma=WIDTHS, multiclass="one-vs-rest"),
    "one-vs-one": make_job(classification=True, sigma=WIDTHS, multiclass="one-vs-one", candidates=120),
    "sample": make_job(classification=True, sigma=WIDTHS, selection_rows=80),
    "loo-error": make_job(classification=True, sigma=WIDTHS, criterion="loo-error", max_centers=6),
    "single": make_job(classification=True, sigma=WIDTHS, dtype="float32", stop="validation"),
}


def rows_of_classes() -> ArraySource:
    X, labels = make_classes(200, seed=3)
    return ArraySource(X, labels, np.random.default_rng(1).integers(0, 3, 200), boundaries=(0, 30, 60, 90, 150, 200))


@pytest.mark.parametrize(
    ("name", "factors"),
    variants(
        [
            ("one-vs-rest", "workers"),
            ("sample", "driver"),
            ("loo-error", "workers"),
        ],
        itertools.product(JOBS, ["driver", "workers"]),
    ),
)
def test_workers_change_no_bit(name: str, factors: str, in_process_client: Any) -> None:
    source = rows_of_classes()
    here = run_training(JOBS[name], source)
    assert max(path.widths.max() for path in here.paths) > 0
    assert_same_bits(run_training(JOBS[name], source, client=in_process_client, factors=factors), here)


@pytest.mark.cluster
@pytest.mark.parametrize("name", variants(["sample"], ["shared", "sample"]))
def test_worker_processes_change_no_bit(name: str, process_client: Any) -> None:
    source = rows_of_classes()
    here = run_training(JOBS[name], source)
    assert_same_bits(run_training(JOBS[name], source, client=process_client, factors="workers"), here)


def test_factors_in_the_driver_alone_are_the_same() -> None:
    source = rows_of_classes()
    results = [
        train(JOBS["shared"], source, backend, EventBus())
        for backend in (SerialExecutor(source), DriverFactors(SerialExecutor(source), source))
    ]
    assert_same_bits(*results)


def test_a_block_that_is_lost_is_rebuilt_with_the_same_bits(threads: Any) -> None:
    job = make_job(classification=True, sigma=WIDTHS, sampler="mixture", max_centers=24)

    def lose() -> None:
        (memory,) = (memory for (worker, _), memory in memo._memory.items() if worker == addresses(threads)[0])
        memory.held.pop(2)

    with mock.patch.object(faults, "JOB", job):
        expected = train(job, faults.source(), SerialExecutor(faults.source()), EventBus())
        events = Trouble({3: lose})
        result, _ = faults.run(threads, events)
    assert {2} <= {block for event in events.of(BlocksReplayed) for block in event.blocks}
    assert_same_bits(result, expected)


def test_widths_are_part_of_a_messages_content() -> None:
    first, other = Gaussians(np.array([0.5, 1.0])), Gaussians(np.array([0.5, 1.5]))
    assert first != other
    posed = [job.problems[0] for job in (_begun((0.5, 1.0)), _begun((0.5, 1.5)))]
    assert posed[0].kernel == first
    assert digest(_begun((0.5, 1.0))) == digest(_begun((0.5, 1.0)))
    assert digest(_begun((0.5, 1.0))) != digest(_begun((0.5, 1.5)))


def _begun(widths: tuple[float, ...]) -> Any:
    X, y = make_data(30)
    return train_serial(make_job(sigma=widths, max_centers=2), make_source(X, y)).begin

"""Rounds of a learnt metric: the sample, one round against dense equations, and what the choice of rounds finds."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray

from distkern.kernels import make_kernel
from distkern.monitoring.events import Event, EventBus, MetricRoundDone
from distkern.numerics.learnt_metric import LinearMap
from distkern.numerics.target_scales import target_units
from distkern.scheduler import learn_once, read_metric
from distkern.scheduler.metric import learning
from distkern.scheduler.metric.chains import LARGE_STEP, LARGE_WEIGHTS, Chain, rough
from distkern.scheduler.metric.learning import learn_metric
from distkern.scheduler.metric.metric_job import MetricJob
from distkern.scheduler.metric.rounds import run_round
from distkern.scheduler.metric.sample import MetricSample, draw_sample
from distkern.scheduler.training.time_limit import TimeLimit
from distkern.storage import ArraySource, RunDirectory
from tests.markers import variants
from tests.scheduler.trainings import cut, make_job

Array = NDArray[Any]

JOB = make_job(sigma="median", standardize=True, max_centers=40, sampler="mixture")


def rows(n: int = 400, d: int = 5, seed: int = 0) -> tuple[Array, Array]:
    """Rows whose targets depend on the first feature and on the product of the next two."""
    X = np.random.default_rng(seed).standard_normal((n, d))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]


def source_of(X: Array, y: Array, weights: Array | None = None, block: int = 100) -> ArraySource:
    return ArraySource(X, y, weights, boundaries=cut(len(X), block))


def sample_of(X: Array, y: Array, weights: Array | None = None, share: float = 0.25) -> MetricSample:
    return draw_sample(JOB, source_of(X, y, weights), len(X), share, None, EventBus())


def test_the_sample_has_the_scaling_of_all_rows() -> None:
    X, y = rows()
    sample = draw_sample(JOB, source_of(X, y), 100, 0.3, None, EventBus())
    assert sample.features.shape == (100, 5)
    assert sample.held.sum() == 30
    assert sample.weights is None
    np.testing.assert_allclose(sample.scaling.shift, X.mean(axis=0), atol=1e-12)
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    assert {tuple(row) for row in np.round(sample.features, 9)} <= {tuple(row) for row in np.round(scaled, 9)}


def test_rows_of_weight_zero_are_not_drawn() -> None:
    X, y = rows(60)
    weights = np.where(np.arange(60) % 3, 2.0, 0.0)
    sample = sample_of(X, y, weights)
    assert len(sample.features) == 40
    assert sample.weights is not None
    assert (sample.weights == 2.0).all()


ROUNDS = tuple(product(("gaussian", "laplacian", "laplacian-l1"), ("diagonal", "full"), (False, True)))


@pytest.mark.parametrize(("kernel", "shape", "weighted"), variants([*ROUNDS[::3], ROUNDS[5], ROUNDS[10]], ROUNDS))
def test_a_round_against_the_equations(kernel: str, shape: str, weighted: bool) -> None:
    """The model of the round, by ridge regression on its own centres, has its error and its gradients."""
    X, y = rows(160, 3)
    weights = np.random.default_rng(1).integers(1, 4, 160).astype(float) if weighted else None
    sample = sample_of(X, y, weights)
    job = replace(JOB, kernel=kernel, max_centers=12, regularization=0.1)
    space = LinearMap(np.array([1.0, 0.5, 2.0]))
    space = space if shape == "diagonal" else LinearMap(np.diag(space.factors) + 0.1)
    made = run_round(sample, job, space, 1.0)
    assert made.map.factors / space.factors == pytest.approx(
        np.full(space.factors.shape, made.map.factors.flat[0] / space.factors.flat[0])
    )
    Z = made.map.apply(sample.features)
    step, gradients = 1e-6, np.empty(Z.shape)

    model = model_of_round(sample, job, made.map, made.kernel)
    outputs = model.predict
    for j in range(3):
        shift = step * np.eye(3)[j]
        gradients[:, j] = (outputs(Z + shift) - outputs(Z - shift)) / (2 * step)
    mass = np.ones(160) if weights is None else sample.weights
    assert mass is not None
    held = sample.held
    mean = np.average(sample.targets[held, 0], weights=mass[held])
    errors = np.square(sample.targets[held, 0] - outputs(Z)[held])
    errors[np.argmax(errors)] = np.sort(errors)[-2]  # one row of fifty is capped
    total = np.square(sample.targets[held, 0] - mean)
    # The model has single precision.
    assert made.error == pytest.approx((mass[held] @ errors) / (mass[held] @ total), rel=1e-5)
    outer = np.einsum("n,ni,nj->ij", mass, gradients, gradients) / mass.sum()
    # Differences across the cusp at a centre are wrong, and a centre's own term is zero in a round.
    loose = 1e-5 if kernel == "gaussian" else 0.1
    np.testing.assert_allclose(made.outer, np.diag(outer) if shape == "diagonal" else outer, atol=loose * outer.max())
    fitted, shares = sample.targets[~held, 0], mass[~held] / mass[~held].sum()
    deviation = np.sqrt(shares @ np.square(fitted - shares @ fitted))
    assert made.weight_sum == pytest.approx(np.abs(model.coef_).sum() / deviation, rel=1e-4)


def model_of_round(sample: MetricSample, job: Any, space: LinearMap, kernel: Any) -> Any:
    """The estimator that is trained on the mapped rows that are not held out."""
    from distkern import OROLSRegressor

    model = OROLSRegressor(
        kernel=kernel,
        standardize=False,
        max_centers=job.max_centers,
        regularization=job.regularization,
        stop=None,
        sampler=job.sampler,
        candidates=job.candidates,
        panel=job.panel,
    )
    fitted = ~sample.held
    return model.fit(
        space.apply(sample.features[fitted]),
        sample.targets[fitted, 0],
        None if sample.weights is None else sample.weights[fitted],
    )


@pytest.mark.parametrize(("kernel", "weighted"), [("gaussian", False), ("laplacian", True), ("laplacian-l1", False)])
@pytest.mark.parametrize("stop", [None, "gcv"])
def test_centers_that_are_given_have_the_weights_of_the_selection(
    kernel: str, weighted: bool, stop: str | None
) -> None:
    X, y = rows(300, 3)
    weights = np.random.default_rng(1).integers(1, 4, 300).astype(float) if weighted else None
    sample = sample_of(X, np.stack([y, 2 * y[::-1]], axis=1) if weighted else y, weights)
    job = replace(JOB, kernel=kernel, max_centers=25, stop=stop)
    space = LinearMap(np.array([1.0, 0.5, 2.0]))
    selected = run_round(sample, job, space, 1.0)
    given = run_round(sample, job, space, 1.0, centers=selected.centers)
    np.testing.assert_array_equal(given.centers, selected.centers)
    # The model of the selection has single precision.
    np.testing.assert_allclose(given.errors, selected.errors, rtol=1e-3, atol=1e-7)
    np.testing.assert_allclose(given.weight_sum, selected.weight_sum, rtol=1e-3)
    np.testing.assert_allclose(given.outer, selected.outer, rtol=1e-3, atol=1e-5 * selected.outer.max())
    other = run_round(sample, job, LinearMap(np.array([1.0, 0.6, 2.0])), 1.0, centers=selected.centers)
    np.testing.assert_array_equal(other.centers, selected.centers)
    assert other.errors.tobytes() != given.errors.tobytes()


def test_centers_that_cannot_be_given_are_selected() -> None:
    """Equal centres, and a diagonal that sums over kernel columns do not have."""
    X, y = rows(200, 3)
    sample, space = sample_of(X, y), LinearMap.identity(3, diagonal=True)
    selected = run_round(sample, JOB, space, 1.0)
    again = run_round(sample, JOB, space, 1.0, centers=np.array([3, 3, 4]))
    np.testing.assert_array_equal(again.centers, selected.centers)
    ridge = replace(JOB, epsilon=0.1)
    own = run_round(sample, ridge, space, 1.0)
    np.testing.assert_array_equal(run_round(sample, ridge, space, 1.0, centers=np.arange(5)).centers, own.centers)


def test_the_width_is_that_of_the_standardised_rows() -> None:
    X, y = rows()
    made = run_round(sample_of(X, y), replace(JOB, sigma=2.5), LinearMap(np.array([5.0, 5.0, 5.0, 0.1, 0.1])), 1.0)
    assert made.kernel == make_kernel("gaussian", 2.5)


def test_many_targets_have_the_outer_products_of_all_in_expectation() -> None:
    X, _ = rows(200, 3)
    directions = np.random.default_rng(2).standard_normal((3, 64))
    found = []
    for seed in range(12):
        job = replace(JOB, kernel=make_kernel("polynomial", None), max_centers=30, seed=seed)
        found.append(run_round(sample_of(X, X @ directions), job, LinearMap.identity(3, diagonal=False), 1.0).outer)
    units = target_units((X @ directions).std(axis=0))
    assert units is not None
    directions = directions / np.array(units)
    expected = (directions * X.std(axis=0)[:, None]) @ (directions * X.std(axis=0)[:, None]).T
    np.testing.assert_allclose(np.mean(found, axis=0), expected, atol=0.15 * expected.max())


@pytest.mark.parametrize("metric", ["diagonal", "full", "auto"])
def test_rounds_find_the_features_that_matter(metric: str) -> None:
    X, y = rows(600, 6)
    events: list[Event] = []
    found = learn_metric(MetricJob(job=JOB, metric=metric), source_of(X, y), subscribers=[events.append])
    assert found.map is not None
    assert found.map.diagonal or metric != "diagonal"
    assert found.importances[:3].sum() > 0.9
    first, best = found.rounds[0]["error"], min(row["error"] for row in found.rounds)
    assert best < 0.5 * first
    sent = [event for event in events if isinstance(event, MetricRoundDone)]
    assert [event.rounds for event in sent] == list(range(1, len(found.rounds) + 1))
    assert [event.error for event in sent] == [row["error"] for row in found.rounds]


def test_an_isotropic_metric_chooses_kernel_and_width_only() -> None:
    X, y = rows(300)
    found = learn_metric(MetricJob(job=replace(JOB, kernel="auto"), metric="isotropic"), source_of(X, y))
    assert found.map is None
    assert {row["shape"] for row in found.rounds} == {"isotropic"}
    assert {row["kernel"] for row in found.rounds} == set(learning.FAMILIES)
    best = min(found.rounds, key=lambda row: row["error"])
    own = found.kernel.parameters()
    assert make_kernel(best["kernel"], own["sigma"]) == found.kernel


def test_kernels_that_were_hopeless_get_a_map_that_lowers_the_error_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Among columns that do not matter the l1 kernel leads; of the two that do, the targets are smooth."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1500, 20))
    y = np.sin(1.5 * X[:, 0]) + X[:, 1] ** 2 / 2 + 0.05 * rng.standard_normal(1500)
    search = MetricJob(job=replace(JOB, kernel="auto", max_centers=60), metric="diagonal", rounds=3)
    found = learn_metric(search, source_of(X, y))
    errors = {
        name: min(row["error"] for row in found.rounds if row["kernel"] == name and row["round"])
        for name in learning.FAMILIES
    }
    assert found.kernel.parameters().get("norm") != "l1"
    assert max(errors["gaussian"], errors["laplacian"]) < 0.6 * errors["laplacian-l1"]
    monkeypatch.setattr(learning, "MUCH_LOWER", 0.0)
    before = learn_metric(search, source_of(X, y))
    assert {row["kernel"] for row in before.rounds if row["round"]} == {"laplacian-l1"}


def test_no_round_is_kept_where_none_is_better() -> None:
    """Of noise, no map has a lower error than the standardised features by much; then they are kept or nearly so."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((400, 2))
    y = np.cos(X[:, 0]) + np.cos(X[:, 1])
    found = learn_metric(MetricJob(job=JOB, metric="diagonal", rounds=0), source_of(X, y))
    assert found.map is None
    assert found.scaling is found.standardized


def test_a_rank_keeps_the_longest_directions() -> None:
    X, y = rows(400, 5)
    found = learn_metric(MetricJob(job=JOB, metric="full", rank=2), source_of(X, y))
    assert found.map is not None
    assert found.map.factors.shape == (2, 5)
    assert found.scaling.width == 2
    assert [row["kept"] for row in found.rounds] == [False] * (len(found.rounds) - 1) + [True]


def test_a_rank_leaves_out_no_feature_where_no_map_is_better() -> None:
    X, y = rows(120, 6)
    found = learn_metric(MetricJob(job=JOB, metric="full", rank=2, rounds=0), source_of(X, y))
    assert found.map is None
    assert [row["kept"] for row in found.rounds] == [True]


def test_a_run_keeps_the_metric_until_its_file_is_damaged(tmp_path: Path) -> None:
    X, y = rows(120, 3)
    run = RunDirectory.create(tmp_path / "run", {})
    assert read_metric(run) is None
    found = learn_once(run, MetricJob(job=JOB, metric="diagonal", rounds=1), source_of(X, y))
    kept = read_metric(run)
    assert kept is not None
    np.testing.assert_array_equal(kept.importances, found.importances)
    assert kept.rounds == found.rounds
    whole = run.metric
    assert whole is not None
    first = whole["rounds"][0]
    for damage in (
        {"rounds": []},
        {"rounds": [{**first, "error": "low"}]},
        {"importances": whole["map"] | {"shape": [2]}},
    ):
        run.write_metric(whole | damage)
        assert read_metric(run) is None, damage


def test_rounds_end_with_the_time() -> None:
    X, y = rows(400)
    limit = TimeLimit(1e-6)
    found = learn_metric(MetricJob(job=JOB, metric="auto"), source_of(X, y), limit=limit)
    assert [row["round"] for row in found.rounds] == [0]


@pytest.mark.parametrize("kernel", ["gaussian", "auto"])
def test_the_blocks_do_not_matter(kernel: str) -> None:
    """With the same rows in the sample, the cut into blocks changes no bit."""
    X, y = rows(200)
    job = MetricJob(job=replace(JOB, kernel=kernel, max_centers=20), metric="auto", rounds=1)
    one, other = (learn_metric(job, source_of(X, y, block=300)) for _ in range(2))
    assert one.map is not None
    assert other.map is not None
    assert one.map.factors.tobytes() == other.map.factors.tobytes()
    assert one.kernel == other.kernel


@pytest.mark.parametrize(
    ("errors", "weight_sum", "expected"),
    [
        ({"gaussian": 0.100, "laplacian": 0.104}, 1e5, "laplacian"),
        ({"gaussian": 0.100, "laplacian": 0.104}, 1e3, "gaussian"),
        ({"gaussian": 0.100, "laplacian": 0.106}, 1e5, "gaussian"),
        ({"gaussian": 0.100, "laplacian": 0.106, "laplacian-l1": 0.103}, 1e5, "laplacian-l1"),
        ({"gaussian": 0.100}, 1e5, "gaussian"),
    ],
)
def test_a_gaussian_with_large_weights_is_kept_where_it_is_clearly_better(
    errors: dict[str, float], weight_sum: float, expected: str
) -> None:
    def made(kernel: str, error: float) -> Any:
        chain, result = mock.Mock(kernel=kernel), mock.Mock(error=error, weight_sum=weight_sum)
        return 0, chain, result

    among = rough([made(kernel, error) for kernel, error in errors.items()])
    assert min(among, key=lambda found: found[2].error)[1].kernel == expected


def test_the_rounds_at_the_end_go_on_from_a_gaussian_only_where_it_is_clearly_better() -> None:
    X, y = rows(100)
    sample = sample_of(X, y)
    job = replace(JOB, kernel="auto")
    for errors, expected in (((0.100, 0.102), "laplacian"), ((0.100, 0.105), "gaussian")):
        repeated = dict(zip(("gaussian", "laplacian"), errors, strict=True))
        rounds = learning.Rounds(MetricJob(job=job, metric="diagonal"), sample, 100, lambda _: None, lambda: True)
        rounds._final_centers = 10 * rounds._job.max_centers

        def made(
            chain: Chain, space: LinearMap, updates: int, _: Any = None, rounds: Any = rounds, of: Any = repeated
        ) -> Any:
            error = of[chain.kernel] - 0.001 * updates
            result = mock.Mock(error=error, map=space, outer=np.ones(5), weight_sum=2 * LARGE_WEIGHTS)
            rounds.made.append((updates, chain, result))
            return result

        for kernel, error in repeated.items():
            chain = Chain(job, kernel, "diagonal", 1.0, sample, [])
            rounds.made.append((2, chain, mock.Mock(error=error, map=LinearMap(np.ones(5)))))
        with mock.patch.object(rounds, "_make", made):
            found = rounds._with_more_centers()
        assert [chain.kernel for _, chain, _ in found] == ["gaussian", "laplacian", expected, expected]


def test_factors_are_among_the_rounds_at_the_end() -> None:
    sample = sample_of(*rows(100))
    rounds = learning.Rounds(
        MetricJob(job=replace(JOB, kernel="auto"), metric="auto"), sample, 100, lambda _: None, lambda: True
    )
    rounds._final_centers = 10 * rounds._job.max_centers
    kinds = (("laplacian", "full"), ("laplacian-l1", "full"), ("laplacian", "diagonal"), ("gaussian", "diagonal"))
    for place, (kernel, shape) in enumerate(kinds):
        space = LinearMap(np.ones(5) if shape == "diagonal" else np.eye(5))
        chain = Chain(JOB, kernel, shape, 1.0, sample, [])
        rounds.made.append((12, chain, mock.Mock(error=0.100 + 0.001 * place, map=space)))
    repeated = []

    def made(chain: Chain, space: LinearMap, *_: Any) -> Any:
        repeated.append((chain.kernel, chain.shape))
        result = mock.Mock(error=0.1, map=space)
        rounds.made.append((12, chain, result))
        return result

    with mock.patch.object(rounds, "_make", made):
        rounds._with_more_centers()
    assert repeated == list(kinds[:3])


@pytest.mark.parametrize(
    ("errors", "kept"),
    [([0.5], False), ([0.5, 0.49], True), ([0.5, 0.4], False), ([0.5, 0.4, 0.39], True), ([0.5, 0.49, 0.4], False)],
)
def test_a_chain_keeps_its_centers_while_its_error_falls_slowly(errors: list[float], kept: bool) -> None:
    done: list[Any] = [mock.Mock(error=error, centers=np.arange(i)) for i, error in enumerate(errors)]
    chain = Chain(JOB, "gaussian", "diagonal", 1.0, mock.Mock(), done)
    assert chain.given is (done[-1].centers if kept else None)


def test_rounds_get_the_centers_that_their_chain_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def noted(*arguments: Any, centers: Any = None, **options: Any) -> Any:
        made = run_round(*arguments, centers=centers, **options)
        given.append((centers, made))
        return made

    monkeypatch.setattr(learning, "run_round", noted)
    found = learn_metric(MetricJob(job=JOB, metric="diagonal", rounds=4), source_of(*rows(600, 6)))
    assert [row["round"] for row in found.rounds[:4]] == [0, 1, 2, 3]
    errors = [made.error for _, made in given[:4]]
    for i in (2, 3):
        slow = errors[i - 1] >= (1 - LARGE_STEP) * errors[i - 2]
        assert given[i][0] is (given[i - 1][1].centers if slow else None)

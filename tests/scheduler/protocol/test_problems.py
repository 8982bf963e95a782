"""Problems of some of the rows: folds, pairs of classes, and trainings on them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distkern.errors import DataError
from distkern.kernels import Gaussian
from distkern.probability.decisions import decide
from distkern.scheduler.protocol.problems import ClassPair, Folds, OtherFolds, Problem, folds_of
from distkern.scheduler.search.search import search_settings
from distkern.storage import ArraySource
from tests.markers import variants
from tests.scheduler.trainings import make_classes, make_data, make_job, make_source, train_serial

PLAIN = {"standardize": False, "sigma": 1.5, "max_centers": 12, "stop": None}


@given(st.integers(2, 9), st.integers(0, 50), st.integers(1, 200), st.integers(0, 2**32))
def test_a_row_has_the_same_fold_in_any_block(count: int, first: int, n: int, seed: int) -> None:
    folds = Folds(count, seed)
    whole = folds.numbers(0, first + n)
    np.testing.assert_array_equal(folds.numbers(first, n), whole[first:])
    # Every run of `count` rows is spread over all folds.
    runs = whole[: len(whole) // count * count].reshape(-1, count)
    np.testing.assert_array_equal(np.sort(runs, axis=1), np.tile(np.arange(count), (len(runs), 1)))


def test_folds_are_drawn_from_the_seed() -> None:
    assert (Folds(5, 0).numbers(0, 1000) != Folds(5, 1).numbers(0, 1000)).mean() > 0.5
    counts = np.bincount(Folds(5, 0).numbers(0, 1000)[::5], minlength=5)
    assert counts.min() > 20  # no row of a run goes to the same fold each time


def test_what_a_row_must_be_of() -> None:
    rows, codes = np.arange(3, 23), np.arange(20) % 3
    folds = Folds(4, 1)
    own = folds_of(folds, rows)
    problem = Problem((0,), np.zeros(1), 1.0, Gaussian(1.0), (OtherFolds(folds, 2), ClassPair(0, 2)), None)
    np.testing.assert_array_equal(problem.takes(rows, codes), (own != 2) & (codes != 1))
    assert replace(problem, within=()).takes(rows, codes) is None
    assert len(folds_of(folds, rows[:0])) == 0


def alone(job: Any, X: Any, y: Any, weights: Any, chosen: Any) -> Any:
    """Train on some of the rows only."""
    return train_serial(job, make_source(X[chosen], y[chosen], None if weights is None else weights[chosen], rows=31))


@pytest.mark.parametrize(
    ("criterion", "weighted", "dtype"),
    variants(
        [("error-reduction", True, "float64"), ("residual", False, "float64")],
        itertools.product(["error-reduction", "residual"], [False, True], ["float64", "float32"]),
    ),
)
def test_one_vs_one_is_a_training_on_the_rows_of_each_pair(criterion: str, weighted: bool, dtype: str) -> None:
    X, y = make_classes(240, 4, seed=2)
    weights = np.random.default_rng(0).integers(0, 3, 240).astype(float) if weighted else None
    choices: dict[str, Any] = {"criterion": criterion, "dtype": dtype, "sampler": "all", **PLAIN}
    job = make_job(classification=True, multiclass="one-vs-one", **choices)
    together = train_serial(job, make_source(X, y, weights, rows=50)).result
    assert together.outputs == tuple((i,) for i in range(6))
    tolerance = 1e-7 if dtype == "float64" else 2e-3
    for path, (first, second), mean in zip(
        together.paths, combinations(range(4), 2), together.target_means, strict=True
    ):
        chosen = np.flatnonzero((y == f"class {first}") | (y == f"class {second}"))
        one = alone(replace(job, multiclass="shared"), X, y, weights, chosen).result
        (expected,) = one.paths
        assert mean == pytest.approx(one.target_means[0])
        if dtype == "float64":
            np.testing.assert_array_equal(path.rows, chosen[expected.rows])
        np.testing.assert_allclose(path.s, expected.s, rtol=tolerance)
        np.testing.assert_allclose(path.z, expected.z, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(path.lambdas, expected.lambdas, rtol=10 * tolerance, atol=tolerance)


@given(st.integers(2, 60), st.integers(0, 1000))
@pytest.mark.slow
def test_pairs_do_not_depend_on_the_blocks(rows: int, seed: int) -> None:
    X, y = make_classes(120, 3, seed=seed)
    job = make_job(classification=True, multiclass="one-vs-one", sampler="all", **PLAIN)
    ours = train_serial(job, make_source(X, y, rows=rows)).result
    theirs = train_serial(job, make_source(X, y, rows=120)).result
    for a, b in zip(ours.paths, theirs.paths, strict=True):
        np.testing.assert_array_equal(a.rows, b.rows)
        np.testing.assert_allclose(a.z, b.z, rtol=1e-8, atol=1e-8)


def test_a_pair_of_single_rows_is_refused() -> None:
    X, y = make_data(30)
    labels = np.array(["many"] * 28 + ["one", "other"])
    job = make_job(classification=True, multiclass="one-vs-one", **PLAIN)
    with pytest.raises(DataError, match=r"'one'.* and .*'other'.* weight 2 together"):
        train_serial(job, make_source(X, labels))
    assert len(y) == 30


def test_two_classes_need_no_pairs() -> None:
    X, y = make_classes(80, 2)
    pair = train_serial(make_job(classification=True, multiclass="one-vs-one", **PLAIN), make_source(X, y)).result
    shared = train_serial(make_job(classification=True, **PLAIN), make_source(X, y)).result
    assert pair.outputs == shared.outputs == ((0,),)
    assert pair.paths[0].z.tobytes() == shared.paths[0].z.tobytes()


# ---- Cross-validation


def expected_errors(job: Any, X: Any, y: Any, weights: Any, n_folds: int) -> list[float]:
    """A training outside each fold, on arrays of those rows alone."""
    errors = []
    fold_of = Folds(n_folds, job.seed).numbers(0, len(X))
    classes = np.unique(y) if job.classification else None
    for fold in range(n_folds):
        chosen, held = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)
        result = alone(job, X, y, weights, chosen).result
        mass = np.ones(len(held)) if weights is None else weights[held]
        outputs = np.zeros((len(held), len(result.target_means))) + result.target_means
        for path, columns in zip(result.paths, result.outputs, strict=True):
            k = path.n_centers + 1
            w = np.linalg.solve(path.u[:k, :k], path.z[:k] / (path.lambdas[k - 1] + path.s[:k, None]))
            K = Gaussian(result.kernel.parameters()["sigma"]).block(X[held], path.features[: k - 1])
            outputs[:, list(columns)] += np.column_stack([np.ones(len(held)), K]) @ w
        if classes is None:
            targets = y if y.ndim == 2 else y[:, None]
            losses = np.square(outputs - targets[held]).sum(axis=1)
        else:
            codes = decide(outputs, len(classes), job.multiclass)
            losses = (classes[codes] != y[held]).astype(float)
        errors.append(float(mass @ losses / mass.sum()))
    return errors


CASES = {
    "regression": {"regularization": "gcv"},
    "targets": {"criterion": "residual"},
    "shared": {"classification": True},
    "one-vs-rest": {"classification": True, "multiclass": "one-vs-rest"},
    "one-vs-one": {"classification": True, "multiclass": "one-vs-one"},
    "two classes": {"classification": True},
}


@pytest.mark.parametrize(
    ("kind", "weighted"),
    variants(
        [("targets", True), ("one-vs-one", True), ("two classes", False)],
        itertools.product(CASES, [False, True]),
    ),
)
def test_errors_of_folds_are_those_of_separate_trainings(kind: str, weighted: bool) -> None:
    n = 90
    job = make_job(**{"sampler": "all", **PLAIN, "stop": "gcv", **CASES[kind]})
    if job.classification:
        X, y = make_classes(n, 2 if kind == "two classes" else 4, seed=5)
    else:
        X, y = make_data(n, n_targets=2 if kind == "targets" else 0)
    weights = np.random.default_rng(1).integers(0, 3, n).astype(float) if weighted else None
    jobs = [job, replace(job, sigma=0.7), replace(job, max_centers=4, regularization="none")]
    found = search_settings(jobs, 3, make_source(X, y, weights, rows=25))
    assert found.passes == 1
    for errors, one in zip(found.errors, jobs, strict=True):
        np.testing.assert_allclose(errors, expected_errors(one, X, y, weights, 3), rtol=1e-6)
    assert found.best == int(np.argmin(found.errors.mean(axis=1)))
    assert [kernel.parameters()["sigma"] for kernel in found.kernels] == [1.5, 0.7, 1.5]


@pytest.mark.slow
def test_a_search_has_the_same_bits_on_workers_and_in_small_memory(in_process_client: Any) -> None:
    X, y = make_classes(400, 3)
    base = make_job(classification=True, sigma="median", max_centers=10, sampler="mixture", candidates=32, stop="gcv")
    jobs = [replace(base, sigma_factor=factor) for factor in (0.5, 2.0)]
    source = make_source(X, y, rows=64)
    here = search_settings(jobs, 3, source)
    assert here.passes == 1
    for client, factors in ((in_process_client, "workers"), (in_process_client, "driver"), (None, "auto")):
        # As little as holds the fixed terms: a pass a setting, the row matrices in scratch.
        limit = 30 << 20 if client is None else None
        found = search_settings(jobs, 3, source, client=client, factors=factors, memory_limit=limit)
        assert found.errors.tobytes() == here.errors.tobytes()
        np.testing.assert_array_equal(found.n_centers, here.n_centers)


def test_settings_that_change_the_blocks_take_passes_of_their_own() -> None:
    X, y = make_data(120)
    job = make_job(**PLAIN)
    found = search_settings([job, replace(job, panel=2), replace(job, sigma=1.0)], 3, make_source(X, y))
    assert found.passes == 2
    direct = search_settings([replace(job, panel=2)], 3, make_source(X, y))
    np.testing.assert_array_equal(found.errors[1], direct.errors[0])


def test_rows_that_one_setting_holds_out_train_the_others() -> None:
    X, y = make_data(150)
    job = make_job(**PLAIN)
    mixed = search_settings([job, replace(job, stop="validation")], 3, make_source(X, y))
    alone = search_settings([job], 3, make_source(X, y))
    np.testing.assert_array_equal(mixed.errors[0], alone.errors[0])
    assert mixed.passes == 2


def test_folds_of_a_selection_sample() -> None:
    X, y = make_data(600)
    job = make_job(**{**PLAIN, "sigma": 0.7, "max_centers": 40}, selection_rows=200)
    found = search_settings([job, replace(job, sigma=0.02)], 3, ArraySource(X, y))
    good, bad = found.errors.mean(axis=1)
    assert good < y.var() / 2
    assert bad > 2 * good

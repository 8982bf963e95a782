"""Fisher, minimum squared error, Widrow-Hoff and Ho-Kashyap: the slides' example, references, containers, weights."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import distkern as dk
from tests.estimators.fits import classes
from tests.linear_references import augmented, ho_kashyap
from tests.markers import variants

SLIDES = np.array([[1.0, 2.0], [2.0, 0.0], [3.0, 1.0], [2.0, 3.0]])
SIDES = np.array([1, 1, 2, 2])
SOLUTION = np.array([11 / 3, -4 / 3, -2 / 3])
LINEAR = (dk.FisherDiscriminant, dk.MSEClassifier, dk.WidrowHoffClassifier, dk.HoKashyapClassifier)


@pytest.mark.parametrize("cls", [dk.MSEClassifier, dk.HoKashyapClassifier])
@pytest.mark.parametrize("standardize", [False, True])
def test_the_example_of_the_slides(cls: Any, standardize: bool) -> None:
    model = cls(standardize=standardize).fit(SLIDES, SIDES)
    np.testing.assert_allclose(model.a_, SOLUTION, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(model.predict(SLIDES), SIDES)
    np.testing.assert_allclose(model.coef_[:, 0], -SOLUTION[1:], atol=1e-12)
    np.testing.assert_allclose(model.intercept_, -SOLUTION[0], atol=1e-12)
    np.testing.assert_allclose(model.decision_function(SLIDES), [-1, -1, 1, 1], atol=1e-12)
    if cls is dk.HoKashyapClassifier:
        assert model.separable_ is True


@pytest.mark.slow
def test_widrow_hoff_comes_close_to_the_example_of_the_slides() -> None:
    model = dk.WidrowHoffClassifier(passes=3000).fit(SLIDES, SIDES)
    np.testing.assert_allclose(model.a_, SOLUTION, atol=0.1)
    np.testing.assert_array_equal(model.predict(SLIDES), SIDES)


def test_several_categories_have_a_column_each() -> None:
    """Slides 5.12: A = Y+ B."""
    X, y = classes(90, 4, 3)
    model = dk.MSEClassifier().fit(X, y)
    expected = np.linalg.pinv(augmented(X)) @ np.eye(4)[y]
    np.testing.assert_allclose(model.a_, expected, atol=1e-12)
    np.testing.assert_array_equal(model.predict(X), (augmented(X) @ expected).argmax(axis=1))
    probabilities = model.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    np.testing.assert_array_equal(probabilities.argmax(axis=1), model.predict(X))


@given(st.integers(2, 4), st.integers(1, 4), st.sampled_from([0.0, 0.2]), st.integers(0, 2**32 - 1))
def test_fisher_predicts_as_linear_discriminant_analysis(n_classes: int, d: int, shrinkage: float, seed: int) -> None:
    X, y = classes(80, n_classes, d, seed=seed)
    ours = dk.FisherDiscriminant(shrinkage=shrinkage, standardize=False).fit(X, y)
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage or None).fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-9)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    np.testing.assert_allclose(ours.priors_, theirs.priors_)
    np.testing.assert_allclose(ours.means_, theirs.means_)
    if n_classes == 2:
        np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-8, rtol=1e-8)


def test_projections_are_those_of_the_eigenvectors() -> None:
    X, y = classes(150, 4, 5)
    ours = dk.FisherDiscriminant().fit(X, y)
    theirs = LinearDiscriminantAnalysis(solver="eigen").fit(X, y)
    expected = theirs.transform(X)
    expected = expected - expected.mean(axis=0)
    found = ours.transform(X)
    assert found.shape == (150, 3)
    np.testing.assert_allclose(found * np.sign((found * expected).sum(axis=0)), expected, atol=1e-10)
    np.testing.assert_allclose(ours.ratios_ / ours.ratios_.sum(), theirs.explained_variance_ratio_)
    assert ours.get_feature_names_out().tolist() == [f"fisherdiscriminant{i}" for i in range(3)]
    np.testing.assert_allclose((X - X.mean(axis=0)) @ ours.scalings_, found, atol=1e-12)


def test_a_singular_covariance_is_warned_of_and_shrinkage_mends_it(caplog: pytest.LogCaptureFixture) -> None:
    X, y = classes(60, 2, 2)
    X = np.concatenate([X, y[:, None] * 1.0], axis=1)
    singular = dk.FisherDiscriminant().fit(X, y)
    assert "rank 2 of 3" in caplog.text
    assert singular.rank_ == 2
    np.testing.assert_allclose(singular.coef_[2], 0.0, atol=1e-12)
    caplog.clear()
    shrunk = dk.FisherDiscriminant(shrinkage=1e-3).fit(X, y)
    assert not caplog.text
    assert shrunk.score(X, y) == 1.0


@pytest.mark.parametrize("standardize", [False, True])
def test_the_automatic_rate_is_half_of_one_over_the_mean_square_of_a_row(standardize: bool) -> None:
    X, y = classes(40, 2, 3, seed=5)
    model = dk.WidrowHoffClassifier(standardize=standardize).fit(X, y)
    rows = (X - X.mean(axis=0)) / X.std(axis=0) if standardize else X
    assert model.learning_rate_ == pytest.approx(0.5 / np.square(augmented(rows)).sum(axis=1).mean())


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.3, 0.9]), st.booleans(), st.booleans())
def test_ho_kashyap_is_the_procedure_of_the_slides(seed: int, rate: float, duplicates: bool, constant: bool) -> None:
    X, y = classes(40, 2, 3, seed=seed)
    if constant:
        X[:, 1] = 0.7
    if duplicates:
        X[20:] = X[:20]
    Y = np.where(y == 1, 1.0, -1.0)[:, None] * augmented(X)
    a, _, separable, iterations = ho_kashyap(Y, rate, 60, 1e-6)
    model = dk.HoKashyapClassifier(learning_rate=rate, max_iter=60).fit(X, y)
    assert model.separable_ is separable
    assert model.n_iter_ == iterations
    fitted = Y @ a
    np.testing.assert_allclose(
        np.where(y == 1, 1, -1) * model.decision_function(X), fitted, atol=1e-8 * np.abs(fitted).max()
    )


@given(st.integers(0, 2**32 - 1), st.integers(2, 4))
def test_ho_kashyap_separates_separable_classes(seed: int, n_classes: int) -> None:
    """Classes at the corners of a simplex, each apart from the rest; minimum squared error alone may not do it."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(n_classes), rng.integers(0, n_classes, 60)])
    X = np.eye(n_classes)[y] * 3 + rng.uniform(-0.7, 0.7, (len(y), n_classes))
    # Many rows far behind the border attract the squared error's hyperplane.
    X[y == 0] += np.eye(n_classes)[0] * rng.exponential(20, (np.count_nonzero(y == 0), 1))
    model = dk.HoKashyapClassifier(max_iter=5000).fit(X, y)
    assert model.separable_ is True
    assert model.separable_classes_ == [True] * (1 if n_classes == 2 else n_classes)
    values = model.decision_function(X)
    if n_classes == 2:
        assert ((values > 0) == (y == 1)).all()
    else:
        assert ((values > 0) == np.eye(n_classes, dtype=bool)[y]).all()


def test_ho_kashyap_reports_classes_that_cannot_be_separated() -> None:
    square = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    assert dk.HoKashyapClassifier().fit(square, [0, 0, 1, 1]).separable_ is False
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 2))
    model = dk.HoKashyapClassifier(tol=1e-3).fit(X, X[:, 0] * X[:, 1] > 0)
    assert model.separable_ is False
    assert model.n_iter_ < 1000
    assert dk.HoKashyapClassifier(max_iter=1).fit(X, X[:, 0] + 0.5 * X[:, 1] ** 2 > 0).separable_ is None


def test_three_classes_of_which_one_stands_apart() -> None:
    from sklearn.datasets import load_iris

    X, y = load_iris(return_X_y=True)
    model = dk.HoKashyapClassifier(max_iter=50).fit(X, y)
    assert model.separable_classes_[0] is True
    assert model.separable_classes_[1] is False
    assert model.separable_ is False


@pytest.mark.parametrize("cls", LINEAR)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_weight_counts_as_repeated_rows(cls: Any, n_classes: int) -> None:
    X, y = classes(70, n_classes, 3)
    weights = np.random.default_rng(0).integers(0, 4, 70)
    compact = cls().fit(X, y, weights)
    repeated = cls().fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    np.testing.assert_allclose(compact.coef_, repeated.coef_, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(compact.predict_proba(X), repeated.predict_proba(X), atol=1e-9)
    if cls is not dk.WidrowHoffClassifier:
        np.testing.assert_allclose(cls().fit(X, y, 0.25).coef_, cls().fit(X, y).coef_, rtol=1e-6)


@pytest.mark.parametrize("cls", LINEAR)
def test_rows_of_weight_zero_are_absent(cls: Any) -> None:
    X, y = classes(90, 3, 3)
    weights = np.random.default_rng(0).integers(1, 3, 90)
    weights[::3] = 0
    wild = X.copy()
    wild[::3] += 1e6
    found = cls().fit(wild, y, weights)
    without = cls().fit(X[weights > 0], y[weights > 0], weights[weights > 0])
    np.testing.assert_allclose(found.coef_, without.coef_, rtol=1e-9, atol=1e-12)
    assert cls().fit(X, y, (y != 1).astype(float)).classes_.tolist() == [0, 2]


LABELS: list[list[Any]] = [["ape", "bee", "cat"], [3, 1, 2], [True, False]]


@pytest.mark.parametrize(
    ("cls", "labels"),
    variants(
        zip(LINEAR, itertools.cycle(LABELS), strict=False),
        itertools.product(LINEAR, LABELS),
    ),
)
def test_containers_give_the_same_model(cls: Any, labels: list[Any], tmp_path: Path) -> None:
    da = pytest.importorskip("dask.array")
    X, codes = classes(300, len(labels), 3)
    y = np.array(labels)[codes]
    expected = cls().fit(X, y)
    # The store has blocks of `chunk_rows`; an array in memory has others.
    store = dk.write_dataset(tmp_path / "store.zarr", X, y, chunk_rows=64, task="classification")
    chunked = zarr.array(X, chunks=(50, 2))
    for rows, targets in ((store, None), (da.from_array(X, chunks=(70, 3)), da.from_array(y, chunks=70))):
        found = cls().fit(rows, targets)
        np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-9, atol=1e-11)
        np.testing.assert_array_equal(found.classes_, np.unique(y))
        np.testing.assert_array_equal(np.asarray(found.predict(rows)), expected.predict(X))
    np.testing.assert_array_equal(expected.predict(chunked)[...], expected.predict(X))
    np.testing.assert_allclose(expected.predict_proba(chunked)[...], expected.predict_proba(X))
    parts = list(expected.iter_predictions(store, proba=True))
    np.testing.assert_array_equal(np.concatenate([labels for _, labels, _ in parts]), expected.predict(X))
    np.testing.assert_allclose(np.concatenate([p for _, _, p in parts]), expected.predict_proba(X))
    if cls is dk.FisherDiscriminant:
        np.testing.assert_allclose(expected.transform(chunked)[...], expected.transform(X))
        np.testing.assert_allclose(
            np.asarray(expected.transform(da.from_array(X, chunks=(70, 3)))), expected.transform(X)
        )


@pytest.mark.parametrize("cls", LINEAR)
def test_far_from_the_origin(cls: Any) -> None:
    """Shifted and scaled features give the same predictions; Widrow-Hoff does where it standardises."""
    X, y = classes(120, 3, 3)
    plain, shifted = (cls(standardize=True).fit(rows, y) for rows in (X, X * [1e-3, 1.0, 1e5] + 1e7))
    tolerance = 1e-2 if cls is dk.WidrowHoffClassifier else 1e-4
    np.testing.assert_allclose(
        shifted.predict_proba(X * [1e-3, 1.0, 1e5] + 1e7), plain.predict_proba(X), atol=tolerance
    )


@pytest.mark.parametrize("cls", LINEAR)
def test_refusals(cls: Any) -> None:
    X, y = classes(40, 2)
    with pytest.raises(dk.DataError, match="one class only") as error:
        cls().fit(X, np.zeros(40))
    assert error.value.kind == "one-class"
    with pytest.raises(dk.DataError, match="continuous"):
        cls().fit(X, X[:, 0])
    with pytest.raises(dk.DataError, match="constant"):
        cls().fit(np.ones((40, 2)), y)
    with pytest.raises(dk.BudgetError, match="memory_limit") as budget:
        cls(memory_limit=1000).fit(X, y)
    assert budget.value.kind == "memory"
    for wrong in ({"standardize": "yes"}, {"client": 3}, {"memory_limit": -1}):
        with pytest.raises(dk.JobError, match=next(iter(wrong))):
            cls(**wrong).fit(X, y)


@pytest.mark.parametrize(
    ("cls", "wrong"),
    [
        (dk.FisherDiscriminant, {"shrinkage": 1.5}),
        (dk.FisherDiscriminant, {"shrinkage": -0.1}),
        (dk.MSEClassifier, {"margin": 0}),
        (dk.WidrowHoffClassifier, {"learning_rate": "slow"}),
        (dk.WidrowHoffClassifier, {"learning_rate": 0}),
        (dk.WidrowHoffClassifier, {"schedule": "never"}),
        (dk.WidrowHoffClassifier, {"normalized": 2}),
        (dk.WidrowHoffClassifier, {"passes": 0}),
        (dk.HoKashyapClassifier, {"learning_rate": 1.0}),
        (dk.HoKashyapClassifier, {"max_iter": 0}),
        (dk.HoKashyapClassifier, {"tol": -1}),
        (dk.HoKashyapClassifier, {"b_min": 0}),
    ],
)
def test_wrong_parameters_are_named(cls: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(dk.JobError, match=next(iter(wrong))):
        cls(**wrong).fit(SLIDES, SIDES)


@pytest.mark.parametrize("cls", [dk.WidrowHoffClassifier, dk.HoKashyapClassifier])
def test_rows_are_read_again_where_they_do_not_fit(cls: Any) -> None:
    X, y = classes(3000, 2, 4)
    limit = dict.fromkeys(("passes", "max_iter"), 5)
    parameters = {name: value for name, value in limit.items() if name in cls().get_params()}
    if cls is dk.HoKashyapClassifier:
        parameters["tol"] = 0.0
    held = cls(**parameters).fit(X, y)
    assert held.summary_["passes"] == 2
    room = sum(held.plan_.values()) - held.plan_["held_rows"]
    tight = cls(memory_limit=room, **parameters).fit(X, y)
    assert "held_rows" not in tight.plan_
    assert tight.summary_["passes"] == 1 + tight.summary_["rounds"]
    assert tight.summary_["bytes_read"] == tight.summary_["passes"] * held.summary_["bytes_read"] / 2
    np.testing.assert_array_equal(tight.coef_, held.coef_)

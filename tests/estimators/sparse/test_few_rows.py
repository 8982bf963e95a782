"""``sigma="auto"`` on few rows: width and regularisation by the evidence, and centres until the fit is that of all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distkern as dk
from distkern.errors import BudgetError
from distkern.estimators.sparse.rkhs_refit import NEAR_FIT, fitted_parameters
from distkern.scheduler.metric import few_rows
from distkern.selection.stopping import StopReason
from tests.estimators.fits import Array, assert_equal_models, classes, regression
from tests.references import gaussian_gram


def standardized(X: Array) -> Array:
    return np.asarray((X - X.mean(axis=0)) / X.std(axis=0))


def ridge_of_all_rows(X: Array, y: Array, sigma: float, mu: float) -> Array:
    """Outputs of b + sum_j a_j k(., x_j) that minimise the squares and mu times the squared norm."""
    n = len(X)
    bordered = np.ones((n + 1, n + 1))
    gram = gaussian_gram(standardized(X), sigma)
    bordered[:n, :n] = gram + mu * np.eye(n)
    bordered[n, n] = 0.0
    solution = np.linalg.solve(bordered, np.append(y, 0.0))
    return np.asarray(gram @ solution[:n] + solution[n])


def penalised_squares(model: Any, X: Array, y: Array, mu: float) -> float:
    gram = gaussian_gram(standardized(X), model.kernel_.sigma)[np.ix_(model.center_indices_, model.center_indices_)]
    norm = model.coef_[:, 0] @ gram @ model.coef_[:, 0]
    return float(np.square(y - model.predict(X)).sum() + mu * norm)


def test_the_model_is_nearly_that_of_all_rows_as_centres() -> None:
    X, y = regression(200)
    model = dk.OROLSRegressor().fit(X, y)
    chosen = model.chosen_
    assert model.kernel_.sigma == chosen["sigma"]
    assert model.lambda_ == chosen["mu"]
    assert chosen["rows"] == 200
    assert model.n_centers_ < 120
    assert model.stop_reason_ is StopReason.ALL_ROWS_REACHED
    everything = ridge_of_all_rows(X, y, chosen["sigma"], chosen["mu"])
    assert np.abs(model.predict(X) - everything).max() < 0.1 * y.std()
    longest = model.truncate(len(model._result.paths[0].rows))
    np.testing.assert_allclose(longest.predict(X), everything, atol=1e-5)
    least = penalised_squares(longest, X, y, chosen["mu"])
    shorter = model.truncate(model.n_centers_ - 1)
    assert (
        penalised_squares(model, X, y, chosen["mu"])
        <= NEAR_FIT * least
        < penalised_squares(shorter, X, y, chosen["mu"])
    )


def test_left_out_outputs_and_leverages_are_those_of_fits_without_a_row() -> None:
    X, y = regression(60)
    model = dk.OROLSRegressor().fit(X, y)
    m, mu = model.n_centers_, model.lambda_
    gram = gaussian_gram(standardized(X), model.kernel_.sigma)
    design = np.column_stack([np.ones(60), gram[:, model.center_indices_]])
    penalty = np.zeros((m + 1, m + 1))
    penalty[1:, 1:] = mu * gram[np.ix_(model.center_indices_, model.center_indices_)]
    ours = model._outputs_left_out()[:, 0]
    for row in range(60):
        kept = np.arange(60) != row
        weights = np.linalg.solve(design[kept].T @ design[kept] + penalty, design[kept].T @ y[kept])
        np.testing.assert_allclose(ours[row], design[row] @ weights, atol=1e-6)
    hat = design @ np.linalg.solve(design.T @ design + penalty, design.T)
    np.testing.assert_allclose(fitted_parameters(model._result.paths[0], m), np.trace(hat), rtol=1e-6)
    deviation = model.predict(X, return_std=True)[1]
    variance = penalised_squares(model, X, y, mu) / 59
    np.testing.assert_allclose(deviation, np.sqrt(variance * (1 + hat.diagonal())), rtol=1e-5)


def test_projections_are_uncorrelated_over_the_rows() -> None:
    X, y = regression(120)
    projected = dk.OROLSRegressor().fit(X, y).transform(X)
    np.testing.assert_allclose(projected.T @ projected / 120, np.eye(projected.shape[1]), atol=1e-8)


def test_weights_count_as_repeated_rows() -> None:
    X, y = regression(150)
    counts = np.random.default_rng(0).integers(0, 3, 150)
    repeated = np.repeat(np.arange(150), counts)
    weighted = dk.OROLSRegressor().fit(X, y, sample_weight=counts)
    copied = dk.OROLSRegressor().fit(X[repeated], y[repeated])
    assert weighted.chosen_["mu"] == copied.chosen_["mu"]
    np.testing.assert_allclose(weighted.predict(X), copied.predict(X), atol=1e-8)


@pytest.mark.parametrize("cls", [dk.OROLSRegressor, dk.OROLSClassifier])
def test_nothing_changes_with_more_rows(cls: Any) -> None:
    n = few_rows.FEW_ROWS + 1
    X, y = regression(n) if cls is dk.OROLSRegressor else classes(n)
    automatic, median = (cls(sigma=sigma, max_centers=30).fit(X, y) for sigma in ("auto", "median"))
    assert_equal_models(automatic, median)
    assert automatic.chosen_ == {}
    assert automatic.summary_["passes"] == median.summary_["passes"]


@pytest.mark.parametrize(
    "given",
    [
        {"stop": None},
        {"stop": "bic"},
        {"regularization": "evidence"},
        {"epsilon": 0.1},
        {"refit": "rkhs"},
        {"criterion": "residual"},
        {"dtype": "float32"},
        {"patience": 5},
        {"kernel": dk.Gaussian(1.0)},
    ],
)
def test_a_setting_that_is_given_is_not_overridden(given: dict[str, Any]) -> None:
    X, y = regression(100)
    automatic, median = (
        dk.OROLSRegressor(sigma=sigma, max_centers=20, **given).fit(X, y) for sigma in ("auto", "median")
    )
    assert_equal_models(automatic, median)
    assert automatic.chosen_ == {}


def test_wide_rows_keep_the_median() -> None:
    X = np.random.default_rng(0).normal(size=(20, few_rows.FEW_ROWS_FEATURES + 1))
    model = dk.OROLSRegressor(max_centers=5).fit(X, X[:, 0])
    assert model.chosen_ == {}
    assert "evidence_rows" not in model.plan_


def test_noise_has_a_small_model() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 3)), rng.normal(size=200)
    model = dk.OROLSRegressor().fit(X, y)
    assert model.n_centers_ < 20
    assert model.predict(X).std() < 0.3


def test_the_spirals_are_separated() -> None:
    angle = np.pi * np.arange(97) / 16
    radius = 6.5 * (104 - np.arange(97)) / 104
    arm = np.column_stack([radius * np.sin(angle), radius * np.cos(angle)])
    X, y = np.vstack([arm, -arm]), np.repeat(["first", "second"], 97)
    train = np.random.default_rng(0).permutation(194) < 180
    automatic, median = (dk.OROLSClassifier(sigma=sigma).fit(X[train], y[train]) for sigma in ("auto", "median"))
    assert automatic.score(X[~train], y[~train]) > 0.75
    assert median.score(X[train], y[train]) < 0.75


def test_max_centers_is_a_limit() -> None:
    X, y = regression(150)
    model = dk.OROLSRegressor(max_centers=5).fit(X, y)
    assert model.n_centers_ == 5
    assert model.stop_reason_ is StopReason.MAX_CENTERS


def test_workers_change_no_bit(in_process_client: Any, tmp_path: Path) -> None:
    X, y = classes(200)
    dk.write_dataset(tmp_path / "rows", X, y, chunk_rows=30)
    dataset = dk.open_dataset(tmp_path / "rows")
    here = dk.OROLSClassifier().fit(dataset)
    there = dk.OROLSClassifier(client=in_process_client).fit(dataset)
    assert_equal_models(here, there)
    assert here.chosen_ == there.chosen_ != {}


def test_a_run_that_goes_on_does_not_choose_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = regression(150)

    def kill(event: Any) -> None:
        if type(event).__name__ == "RoundDone":
            raise KeyboardInterrupt

    whole = dk.OROLSRegressor().fit(X, y)
    with pytest.raises(KeyboardInterrupt):
        dk.OROLSRegressor(run_dir=tmp_path / "run", callbacks=[kill]).fit(X, y)
    monkeypatch.setattr(few_rows, "choose", lambda *_: pytest.fail("the rows were decomposed again"))
    resumed = dk.OROLSRegressor(run_dir=tmp_path / "run").fit(X, y)
    assert_equal_models(whole, resumed)
    assert resumed.chosen_ == whole.chosen_


def steps(n: int) -> tuple[Array, Array]:
    """Rows of a target with steps along single columns."""
    X = np.random.default_rng(0).normal(size=(n, 3))
    return X, np.sign(X[:, 0]) + np.sign(X[:, 1] - 0.3)


@pytest.mark.parametrize(("rows", "name", "norm"), [(regression, "gaussian", None), (steps, "laplacian", "l1")])
def test_the_kernel_is_that_of_the_largest_evidence(rows: Any, name: str, norm: str | None) -> None:
    X, y = rows(200)
    model = dk.OROLSRegressor(kernel="auto").fit(X, y)
    assert model.kernel_.name.startswith(name)
    assert model.kernel_.parameters().get("norm") == norm
    own = dk.OROLSRegressor(kernel="laplacian-l1" if norm else "gaussian").fit(X, y)
    assert model.chosen_ == own.chosen_
    np.testing.assert_allclose(model.predict(X), own.predict(X), atol=1e-6)
    evidence = [dk.OROLSRegressor(kernel=other).fit(X, y).chosen_["log_evidence"] for other in few_rows.FAMILIES]
    assert model.chosen_["log_evidence"] >= max(evidence) - few_rows.STRONG


def test_a_map_is_kept_where_the_evidence_pays_for_its_numbers() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 8))
    few = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=300)
    learnt = dk.OROLSRegressor(metric="auto", kernel="auto").fit(X, few)
    plain = dk.OROLSRegressor().fit(X, few)
    lengths = learnt.metric_ if learnt.metric_.ndim == 1 else np.diag(learnt.metric_)
    assert set(np.argsort(lengths)[-3:]) == {0, 1, 2}
    assert learnt.chosen_["log_evidence"] > plain.chosen_["log_evidence"] + 100
    noise = dk.OROLSRegressor(metric="auto", kernel="auto").fit(X, rng.normal(size=300))
    np.testing.assert_array_equal(noise.metric_, np.ones(8))
    assert [made["round"] for made in noise.metric_rounds_ if made["kept"]] == [0]


def test_a_resumed_run_with_rounds_has_the_same_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = regression(150)
    model = dk.OROLSRegressor(metric="auto", kernel="auto", run_dir=tmp_path / "run").fit(X, y)
    monkeypatch.setattr(few_rows, "choose", lambda *_: pytest.fail("the rows were decomposed again"))
    again = dk.OROLSRegressor(metric="auto", kernel="auto", run_dir=tmp_path / "run").fit(X, y)
    assert_equal_models(model, again)
    assert again.chosen_ == model.chosen_ != {}
    np.testing.assert_array_equal(again.metric_, model.metric_)


def test_a_metric_that_is_asked_for_is_that_of_the_rounds() -> None:
    X, y = regression(150)
    assert dk.OROLSRegressor(metric="diagonal").fit(X, y).chosen_ == {}


def test_a_damaged_record_is_made_again(tmp_path: Path) -> None:
    X, y = regression(100)
    first = dk.OROLSRegressor(run_dir=tmp_path / "run").fit(X, y)
    for kept in ('{"of": "other"}', "{", '{"of": null, "few_rows": {"sigma": 1}}'):
        (tmp_path / "run" / "search.json").write_text(kept)
        assert_equal_models(first, dk.OROLSRegressor(run_dir=tmp_path / "run").fit(X, y))


def test_the_plan_has_the_choice(tmp_path: Path) -> None:
    X, y = regression(300)
    model = dk.OROLSRegressor().fit(X, y)
    assert {"evidence_rows", "evidence_matrices"} <= model.plan_.keys()
    assert model.summary_["passes"] == dk.OROLSRegressor(sigma="median").fit(X, y).summary_["passes"] + 1
    assert model.summary_["chosen"] == model.chosen_
    with pytest.raises(BudgetError, match="sigma='median'"):
        dk.OROLSRegressor(memory_limit=model.plan_["evidence_matrices"] // 2).fit(X, y)


def test_a_store_keeps_the_choice(tmp_path: Path) -> None:
    X, y = regression(100)
    model = dk.OROLSRegressor().fit(X, y)
    model.save(tmp_path / "model")
    loaded = dk.load_model(tmp_path / "model")
    assert loaded.chosen_ == model.chosen_
    assert loaded.stop_reason_ is StopReason.ALL_ROWS_REACHED
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    np.testing.assert_array_equal(loaded.predict_interval(X), model.predict_interval(X))


def test_rows_that_come_later_have_the_same_regularisation(tmp_path: Path) -> None:
    X, y = regression(240)
    model = dk.OROLSRegressor(run_dir=tmp_path / "run").fit(X[:150], y[:150])
    loaded = dk.load_model(tmp_path / "run")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.chosen_ == model.chosen_
    assert loaded.stop_reason_ is model.stop_reason_
    drift = loaded.append(X[150:], y[150:])
    assert drift.after <= drift.before
    assert 0.5 < drift.before / drift.expected < 2.0
    sigma, mu = model.chosen_["sigma"], model.chosen_["mu"]
    assert loaded.lambda_ == mu
    scaled = (X - X[:150].mean(axis=0)) / X[:150].std(axis=0)
    gram = gaussian_gram(scaled, sigma)
    rows = loaded.center_indices_
    values, vectors = np.linalg.eigh(gram[np.ix_(rows, rows)])
    # Least squares with rows for the penalty: normal equations would lose the digits.
    root = np.sqrt(mu * np.maximum(values, 0.0))[:, None] * vectors.T
    design = np.column_stack([np.ones(240), gram[:, rows]])
    above = np.column_stack([np.zeros(len(rows)), root])
    weights = np.linalg.lstsq(np.vstack([design, above]), np.append(y, np.zeros(len(rows))), rcond=None)[0]
    np.testing.assert_allclose(loaded.predict(X), design @ weights, atol=1e-7)

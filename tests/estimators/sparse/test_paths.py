"""The path of a training: its prefixes, its record, and the rules that end it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import pdist

import distkern as dk
from distkern.monitoring.events import Event, ExchangeDone, RoundDone, RunEnded, RunStarted
from tests.estimators.fits import (
    ALL,
    CLASSIFIERS,
    REGRESSORS,
    assert_equal_models,
    classes,
    data_for,
    fitted,
    regression,
)
from tests.markers import every_value
from tests.references import gaussian_gram

HISTORY = {
    "center": np.int64,
    "lambda_": np.float64,
    "gcv": np.float64,
    "residual_max": np.float64,
    "q_norm": np.float64,
    "round": np.int64,
    "problem": np.int64,
}


# --- prefixes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cls", "criterion"), every_value(ALL, ["error-reduction", "residual"]))
def test_a_truncated_model_is_the_model_of_a_shorter_training(cls: Any, criterion: str) -> None:
    """Where the path is the same: multiples of the panel, as the last panel of a training may be cut.

    Panels of the look-ahead have no fixed size, so its paths agree to rounding.
    """
    rtol = 1e-9 if criterion == "residual" else None
    parameters: dict[str, Any] = {"sigma": 1.0, "stop": None, "criterion": criterion, "panel": 4}
    whole = fitted(cls, max_centers=20, **parameters)
    for m in (4, 12, 16):
        shorter = whole.truncate(m)
        direct = fitted(cls, max_centers=m, **parameters)
        assert_equal_models(shorter, direct, rtol=rtol)
        X, _ = data_for(cls)
        np.testing.assert_allclose(shorter.predict(X), direct.predict(X), rtol=rtol or 0.0, atol=0.0)


@pytest.mark.parametrize("cls", ALL)
def test_prefixes_are_nested(cls: Any) -> None:
    whole = fitted(cls, max_centers=15, stop=None)
    for m in range(1, 16):
        shorter = whole.truncate(m)
        assert shorter.n_centers_ == m
        assert type(shorter) is cls
        np.testing.assert_array_equal(shorter.center_indices_, whole.center_indices_[:m])
        np.testing.assert_array_equal(shorter.centers_, whole.centers_[:m])
        np.testing.assert_array_equal(shorter.history_, whole.history_[:m])
        assert shorter.gcv_ == whole.history_["gcv"][m - 1]
        assert shorter.lambda_ == whole.history_["lambda_"][m - 1]
        assert shorter.summary_["n_centers"] == m
    assert_equal_models(shorter, whole)
    assert_equal_models(whole.truncate(9).truncate(4), whole.truncate(4))


def test_truncating_does_not_touch_the_original() -> None:
    model = fitted(dk.OROLSRegressor, stop=None)
    before = model.coef_.copy()
    shorter = model.truncate(3)
    shorter.coef_[...] = 0.0
    assert model.n_centers_ == 15
    np.testing.assert_array_equal(model.coef_, before)
    assert_equal_models(shorter.truncate(15), model)


def test_a_path_may_be_longer_than_the_model() -> None:
    """The gcv rule goes back to the minimum; what came after it is still there."""
    model = fitted(dk.OROLSRegressor, max_centers=100, patience=15)
    assert model.stop_reason_ == dk.StopReason.GCV_RISEN
    longer = model.truncate(model.n_centers_ + 10)
    assert longer.n_centers_ == model.n_centers_ + 10
    np.testing.assert_array_equal(longer.center_indices_[: model.n_centers_], model.center_indices_)
    assert len(longer.history_) == longer.n_centers_
    assert_equal_models(longer.truncate(model.n_centers_), model)


def test_a_truncated_model_keeps_client_and_callbacks() -> None:
    def listen(event: Event) -> None: ...

    assert fitted(dk.OROLSRegressor, callbacks=(listen,)).truncate(2).callbacks == (listen,)


# --- one-vs-rest -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", CLASSIFIERS)
@pytest.mark.parametrize("criterion", ["error-reduction", "residual"])
def test_one_vs_rest_is_a_model_a_class_side_by_side(cls: Any, criterion: str) -> None:
    X, y = classes(120, 4)
    parameters: dict[str, Any] = {"max_centers": 8, "sigma": 1.0, "stop": None, "criterion": criterion, "panel": 4}
    model = cls(multiclass="one-vs-rest", **parameters).fit(X, y)
    alone = [cls(**parameters).fit(X, (y == c).astype(int)) for c in range(4)]
    assert len(set(model.center_indices_)) == model.n_centers_
    assert set(model.center_indices_) == {int(row) for part in alone for row in part.center_indices_}
    np.testing.assert_array_equal(model.centers_, X[model.center_indices_])
    decision = model.decision_function(X)
    for c, part in enumerate(alone):
        own = np.isin(model.center_indices_, part.center_indices_)
        assert own.sum() == 8
        np.testing.assert_array_equal(model.coef_[~own, c], 0.0)
        assert (model.coef_[own, c] != 0.0).all()
        where = [int(np.flatnonzero(model.center_indices_ == row)[0]) for row in part.center_indices_]
        np.testing.assert_allclose(model.coef_[where, c], part.coef_[:, 0], rtol=1e-9)
        np.testing.assert_allclose(decision[:, c], part.decision_function(X), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(np.ravel(model.lambda_), [part.lambda_ for part in alone], rtol=1e-9)
    np.testing.assert_allclose(model.gcv_, np.mean([part.gcv_ for part in alone]), rtol=1e-9)


@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_one_vs_rest_truncates_every_class(cls: Any) -> None:
    X, y = classes(120, 3)
    parameters: dict[str, Any] = {"sigma": 1.0, "stop": None, "multiclass": "one-vs-rest", "panel": 4}
    whole = cls(max_centers=12, **parameters).fit(X, y)
    shorter = whole.truncate(4)
    assert_equal_models(shorter, cls(max_centers=4, **parameters).fit(X, y))
    assert np.bincount(shorter.history_["problem"]).tolist() == [4, 4, 4]
    assert set(shorter.center_indices_) <= set(whole.center_indices_)


def test_one_vs_rest_paths_may_have_different_lengths() -> None:
    X, y = classes(300, 3)
    model = dk.OROLSClassifier(max_centers=120, sigma=1.0, multiclass="one-vs-rest", patience=8).fit(X, y)
    counts = np.bincount(model.history_["problem"], minlength=3)
    assert len(set(counts.tolist())) > 1
    assert ((model.coef_ != 0).sum(axis=0) == counts).all()


# --- the record ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cls", "criterion"), every_value(ALL, ["error-reduction", "residual"]))
def test_history_has_a_row_a_step(cls: Any, criterion: str) -> None:
    model = fitted(cls, criterion=criterion, stop=None, panel=4)
    history = model.history_
    assert {name: history.dtype[name] for name in history.dtype.names} == {k: np.dtype(v) for k, v in HISTORY.items()}
    assert history.shape == (15,)
    np.testing.assert_array_equal(history["center"], model.center_indices_)
    assert history["lambda_"][-1] == model.lambda_
    assert history["gcv"][-1] == model.gcv_
    assert (history["q_norm"] > 0).all()
    assert (np.diff(history["round"]) >= 0).all()
    assert (np.bincount(history["round"]) <= (4 if criterion == "error-reduction" else 32)).all()
    assert (history["problem"] == 0).all()
    assert all(np.isfinite(history[name]).all() for name in history.dtype.names)
    if "NPD" in cls.__name__:
        assert (history["lambda_"] == 0.0).all()


def test_the_largest_residual_is_that_before_the_panel() -> None:
    X, y = regression()
    model = dk.OROLSRegressor(max_centers=6, criterion="residual", stop=None, sigma=1.0).fit(X, y)
    residual = np.abs(y - y.mean())
    assert model.history_["residual_max"][0] == pytest.approx(residual.max())
    assert model.center_indices_[0] == residual.argmax()
    for m in range(1, 6):
        # Not the residual of the shorter model: E keeps the lambda of each step (3.82).
        assert model.history_["residual_max"][m] > 0


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_centers_are_rows_of_x(cls: Any, dtype: Any) -> None:
    X, y = data_for(cls)
    X = (1e3 * X + 0.1).astype(dtype)
    model = cls(max_centers=10).fit(X, y)
    assert model.centers_.dtype == dtype
    assert model.centers_.tobytes() == np.ascontiguousarray(X[model.center_indices_]).tobytes()
    assert model.center_indices_.dtype == np.int64
    assert len(set(model.center_indices_.tolist())) == model.n_centers_ == len(model.coef_)
    assert model.coef_.dtype == model.intercept_.dtype == np.float64


@pytest.mark.parametrize("cls", ALL)
def test_fitted_facts(cls: Any) -> None:
    model = fitted(cls)
    assert model.n_features_in_ == 2
    assert isinstance(model.lambda_, float)
    assert isinstance(model.gcv_, float)
    assert isinstance(model.stop_reason_, dk.StopReason)
    assert model.stop_reason_.advice
    assert model.kernel_ == dk.Gaussian(1.0)
    assert model.plan_
    assert all(isinstance(number, int) and number >= 0 for number in model.plan_.values())
    summary = model.summary_
    assert summary["n_rows"] == 120
    assert summary["n_features"] == 2
    assert summary["n_targets"] == (3 if "Classifier" in cls.__name__ else 1)
    assert summary["n_centers"] == model.n_centers_
    assert summary["planned_peak_bytes"] > 0
    assert summary["peak_rss_driver"] > 0
    assert summary["seconds"] > 0
    assert summary["exchanges"] > 0
    assert summary["kernel_columns"] >= model.n_centers_
    # Classifiers read the rows once more, to calibrate their probabilities.
    assert summary["bytes_read"] == 120 * 8 * 3 * (2 if "Classifier" in cls.__name__ else 1)
    assert "plan" not in summary


def test_the_median_width_is_the_median_distance() -> None:
    from scipy.spatial.distance import pdist

    X, y = regression(100)
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    model = dk.OROLSRegressor(max_centers=5, sigma="median").fit(X, y)
    assert model.kernel_.sigma == pytest.approx(np.percentile(pdist(scaled), 50, method="inverted_cdf"), rel=1e-9)


@pytest.mark.parametrize("cls", ALL)
def test_the_seed_decides(cls: Any) -> None:
    def fit(seed: int) -> Any:
        return fitted(cls, n=600, candidates=32, panel=4, random_state=seed)

    assert_equal_models(fit(3), fit(3))
    assert (fit(3).center_indices_ != fit(4).center_indices_).any()


@pytest.mark.parametrize(
    ("sampler", "cls"),
    every_value(
        ["mixture", "residual-weighted", "top-residual", "uniform", "all"], [dk.OROLSRegressor, dk.OROLSClassifier]
    ),
)
def test_every_sampler_learns(cls: Any, sampler: str) -> None:
    model = fitted(cls, n=500, sampler=sampler, candidates=40, panel=4, max_centers=40, stop=None)
    assert model.score(*data_for(cls, 500)) > 0.8
    assert model.n_centers_ == 40


@pytest.mark.parametrize(
    ("kernel", "cls"),
    every_value(
        [
            *("gaussian", "laplacian", "laplacian-l1", "matern", "polynomial", "sigmoid", "linear"),
            *(dk.Polynomial(2, 1.0), dk.Sigmoid(0.2), dk.Matern(1.0, 2.5), dk.Wendland(2.0)),
        ],
        ALL,
    ),
)
def test_every_kernel_trains(cls: Any, kernel: Any) -> None:
    X, y = data_for(cls)
    model = cls(kernel=kernel, max_centers=10, stop=None).fit(X, y)
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(np.asarray(model.predict(X), dtype=float)).all()
    if kernel == "linear":
        assert model.n_centers_ == 2
        assert model.stop_reason_ == dk.StopReason.CANDIDATES_EXHAUSTED


def test_duplicate_rows_are_no_error() -> None:
    X, y = regression(30)
    model = dk.OROLSRegressor(max_centers=90, stop=None, sigma=0.3, regularization="none").fit(
        np.tile(X, (4, 1)), np.tile(y, 4)
    )
    assert model.stop_reason_ == dk.StopReason.CANDIDATES_EXHAUSTED
    assert model.n_centers_ <= 30
    assert len(np.unique(model.centers_, axis=0)) == model.n_centers_


@pytest.mark.parametrize("cls", ALL)
def test_float32_is_close_to_float64(cls: Any) -> None:
    X, y = data_for(cls)
    double, single = (cls(max_centers=10, sigma=1.0, stop=None, dtype=d).fit(X, y) for d in ("float64", "float32"))
    np.testing.assert_array_equal(single.center_indices_[:5], double.center_indices_[:5])
    if cls in REGRESSORS:
        np.testing.assert_allclose(single.truncate(5).predict(X), double.truncate(5).predict(X), atol=1e-3)
    assert single.score(X, y) == pytest.approx(double.score(X, y), abs=0.02)


# --- stopping --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cls", "criterion"), every_value(ALL, ["error-reduction", "residual"]))
def test_max_centers_is_exact(cls: Any, criterion: str) -> None:
    for m in (1, 7, 16, 17):
        model = fitted(cls, max_centers=m, criterion=criterion, stop=None)
        assert model.n_centers_ == m
        assert model.stop_reason_ == dk.StopReason.MAX_CENTERS


def test_the_gcv_rule_keeps_the_minimum() -> None:
    model = fitted(dk.OROLSRegressor, n=300, max_centers=200, patience=12)
    assert model.stop_reason_ == dk.StopReason.GCV_RISEN
    assert model.n_centers_ < 200
    plain = fitted(dk.OROLSRegressor, n=300, max_centers=200, stop=None)
    np.testing.assert_array_equal(plain.center_indices_[: model.n_centers_], model.center_indices_)


def test_the_lambda_rule_waits_until_lambda_has_converged() -> None:
    model = fitted(dk.OROLSRegressor, n=300, max_centers=200, stop="lambda", tol=0.2, patience=3)
    assert model.stop_reason_ == dk.StopReason.LAMBDA_CONVERGED
    lambdas = np.r_[0.0, model.history_["lambda_"]]
    converged = np.abs(np.diff(lambdas)) <= 0.2 * lambdas[1:]
    assert converged[-3:].all()
    streaks = np.convolve(converged, np.ones(3), mode="valid")
    assert np.argmax(streaks == 3) + 3 == model.n_centers_


def test_the_validation_rule_keeps_the_minimum_on_rows_held_out() -> None:
    events: list[Event] = []
    model = fitted(
        dk.OROLSRegressor, n=400, max_centers=300, stop="validation", patience=15, panel=1, callbacks=[events.append]
    )
    assert model.stop_reason_ == dk.StopReason.VALIDATION_RISEN
    watched = {e.n_centers: e.validation for e in events if isinstance(e, RoundDone)}
    assert min(watched, key=lambda m: float("inf") if watched[m] is None else watched[m]) == model.n_centers_
    from distkern.numerics.row_draws import row_uniforms
    from distkern.scheduler.blocks.block import HOLDOUT_STREAM

    held = np.flatnonzero(row_uniforms(0, HOLDOUT_STREAM, 0, 400) < 0.1)
    assert 20 < len(held) < 60
    assert not set(held) & set(model.center_indices_)


@pytest.mark.parametrize("criterion", ["error-reduction", "residual"])
def test_tol_ends_when_every_residual_is_below(criterion: str) -> None:
    X, y = regression(80, noise=0.0)
    model = dk.OROLSRegressor(
        max_centers=80, sigma=1.0, stop=None, tol=0.05, regularization="none", criterion=criterion, panel=2
    ).fit(X, y)
    assert model.stop_reason_ == dk.StopReason.RESIDUAL_BELOW
    assert model.n_centers_ < 80
    assert np.abs(model.predict(X) - y).max() <= 0.05
    assert np.abs(model.truncate(model.n_centers_ - 2).predict(X) - y).max() > 0.05


def test_tol_above_every_target_leaves_the_mean() -> None:
    X, y = regression(80)
    model = dk.OROLSRegressor(tol=100.0).fit(X, y)
    assert model.stop_reason_ == dk.StopReason.RESIDUAL_BELOW
    assert model.n_centers_ == 0
    assert model.centers_.shape == (0, 2)
    assert model.coef_.shape == (0, 1)
    np.testing.assert_allclose(model.predict(X), y.mean())


def test_a_wide_kernel_is_ill_conditioned_or_exhausted() -> None:
    X, y = regression(200)
    model = dk.OROLSRegressor(max_centers=200, sigma=50.0, stop=None, regularization="none", standardize=False).fit(
        X, y
    )
    assert model.stop_reason_ in (dk.StopReason.ILL_CONDITIONED, dk.StopReason.CANDIDATES_EXHAUSTED)
    lengths = np.r_[np.sqrt(200.0), model.history_["q_norm"]]
    assert lengths.max() / lengths.min() <= 1e10


def test_lambda_of_npd_is_zero() -> None:
    for cls in (dk.NPDRegressor, dk.NPDClassifier):
        assert fitted(cls).lambda_ == 0.0
        assert "regularization" not in cls().get_params()


def test_a_fixed_lambda_is_kept() -> None:
    model = fitted(dk.OROLSRegressor, regularization=0.75)
    assert model.lambda_ == 0.75
    assert (model.history_["lambda_"] == 0.75).all()


# --- events ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize("criterion", ["error-reduction", "residual"])
def test_callbacks_get_start_rounds_and_end(cls: Any, criterion: str) -> None:
    events: list[Event] = []
    model = fitted(cls, criterion=criterion, panel=4, max_centers=12, stop=None, callbacks=[events.append])
    loaded, start, *rounds, end = events
    assert isinstance(loaded, ExchangeDone)
    assert isinstance(start, RunStarted)
    assert (start.n_rows, start.n_features, start.max_centers, start.workers) == (120, 2, 12, 1)
    assert (start.n_problems, start.n_blocks) == (1, 1)
    assert isinstance(end, RunEnded)
    assert (end.n_centers, end.stop_reason) == (12, "max-centers")
    counts = [e.n_centers for e in rounds if isinstance(e, RoundDone)]
    assert len(counts) + sum(isinstance(e, ExchangeDone) for e in rounds) == len(rounds)
    assert counts == sorted(counts)
    assert all(np.isfinite(e.gcv) and e.seconds >= 0 for e in rounds if isinstance(e, RoundDone))
    assert [e.timestamp for e in events] == sorted(e.timestamp for e in events)
    assert counts[0] >= 1
    assert model.n_centers_ == 12


@pytest.mark.parametrize("criterion", ["error-reduction", "residual"])
def test_there_is_an_event_for_every_round(criterion: str) -> None:
    events: list[Event] = []
    model = fitted(
        dk.OROLSRegressor, criterion=criterion, panel=4, max_centers=12, stop=None, callbacks=[events.append]
    )
    rounds = [(e.round, e.n_centers) for e in events if isinstance(e, RoundDone)]
    numbers = model.history_["round"]
    expected = [(int(r), int((numbers <= r).sum())) for r in np.unique(numbers)]
    assert rounds == expected


def test_a_callback_that_fails_does_not_stop_the_training(caplog: pytest.LogCaptureFixture) -> None:
    def broken(event: Event) -> None:
        raise RuntimeError("display gone")

    model = fitted(dk.OROLSRegressor, callbacks=[broken])
    assert_equal_models(model, fitted(dk.OROLSRegressor))
    assert "display gone" in caplog.text


def test_the_gram_matrix_of_the_reference_is_the_estimators() -> None:
    """Guards the dense tests: the same kernel in the same space."""
    X, y = regression(50)
    model = dk.OROLSRegressor(max_centers=5, sigma=0.7, standardize=False).fit(X, y)
    expected = gaussian_gram(X, 0.7)[:, model.center_indices_] @ model.coef_ + model.intercept_
    np.testing.assert_allclose(model.predict(X), expected[:, 0], rtol=1e-10)


@pytest.mark.parametrize("cls", [dk.OROLSRegressor, dk.NPDRegressor])
def test_a_saturated_kernel_space_ends_the_search(cls: Any) -> None:
    """With few independent kernel columns among many rows the search gives up after a bounded number of draws."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, (6000, 1))
    y = np.sin(x[:, 0]) + 0.1 * rng.standard_normal(6000)
    model = cls(stop=None, sigma=3.0).fit(x, y)
    assert model.stop_reason_ is dk.StopReason.CANDIDATES_EXHAUSTED
    assert model.summary_["kernel_columns"] < 256 + 64 * 40
    assert model.score(x, y) > 0.97


def test_none_is_a_word_for_no_stop_rule() -> None:
    X, y = regression(150)
    words = dk.OROLSRegressor(max_centers=20, stop="none").fit(X, y)
    none = dk.OROLSRegressor(max_centers=20, stop=None).fit(X, y)
    np.testing.assert_array_equal(words.coef_, none.coef_)


@pytest.mark.parametrize("scale", [1e40, 1e160, 1e300])
def test_targets_that_overflow_are_refused(scale: float) -> None:
    X, y = regression(150)
    with pytest.raises(dk.DataError, match="overflow") as caught:
        dk.OROLSRegressor(max_centers=20, dtype="float32").fit(X, y * scale)
    assert caught.value.kind == "overflow"


@pytest.mark.parametrize("kernel", ["laplacian", "matern"])
def test_the_median_rule_is_for_every_kernel_with_a_width(kernel: str) -> None:
    X, y = regression()
    width = dk.OROLSRegressor(max_centers=5, sigma="median").fit(X, y).kernel_.sigma
    assert dk.OROLSRegressor(max_centers=5, kernel=kernel, sigma="median").fit(X, y).kernel_.sigma == width
    found = dk.OROLSRegressor(max_centers=5, kernel=kernel, sigma="cv", folds=2).fit(X, y)
    assert found.kernel_.name == kernel
    assert found.kernel_.sigma in found.cv_results_["sigma"]


def test_the_median_rule_takes_the_norm_of_the_kernel(tmp_path: Path) -> None:
    X, y = regression(150)
    model = dk.OROLSRegressor(max_centers=5, kernel="laplacian-l1", sigma="median").fit(X, y)
    distances = np.sort(pdist(X / X.std(axis=0), "cityblock"))
    assert model.kernel_ == dk.Laplacian(model.kernel_.sigma, norm="l1")
    assert model.kernel_.sigma == pytest.approx(distances[(len(distances) - 1) // 2])
    model.save(tmp_path / "model")
    loaded = dk.load_model(tmp_path / "model")
    assert loaded.kernel_ == model.kernel_
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    found = dk.OROLSRegressor(max_centers=5, kernel="laplacian-l1", sigma="cv", folds=2).fit(X, y)
    assert found.kernel_ == dk.Laplacian(found.kernel_.sigma, norm="l1")
    assert model.kernel_.sigma in found.cv_results_["sigma"]

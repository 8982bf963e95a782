"""The dense kernel methods as estimators: agreement with references, containers, weights, memory, stores."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr

import distkern as dk
from distkern.scheduler import Workload
from distkern.selection.stopping import StopReason
from distkern.storage import ArraySource
from tests.dense_references import bordered, class_means, gram_of, within_scatter
from tests.estimators.fits import classes, data_for, regression
from tests.markers import variants

REGRESSORS = (dk.LSSVMRegressor, dk.QRForwardRegressor, dk.OLSForwardRegressor)
CLASSIFIERS = (
    dk.KernelFisherDiscriminant,
    dk.KernelMSEClassifier,
    dk.LSSVMClassifier,
    dk.OLSForwardClassifier,
    dk.QRForwardClassifier,
)
ALL = (*REGRESSORS, *CLASSIFIERS)
FORWARD = (dk.QRForwardRegressor, dk.QRForwardClassifier, dk.OLSForwardRegressor, dk.OLSForwardClassifier)

SUMMARY = {
    "n_rows",
    "n_features",
    "n_targets",
    "n_centers",
    "rounds",
    "exchanges",
    "kernel_columns",
    "passes",
    "bytes_read",
    "seconds",
    "planned_peak_bytes",
    "peak_rss_driver",
    "peak_rss_worker",
}


def make(cls: Any, **parameters: Any) -> Any:
    """An estimator with a fixed width and a short path."""
    few = {"max_centers": 12} if cls in FORWARD else {}
    return cls(**{"sigma": 1.0, **few, **parameters})


def assert_same(ours: Any, theirs: Any, rtol: float | None = None) -> None:
    np.testing.assert_array_equal(ours.center_indices_, theirs.center_indices_)
    for name in ("coef_", "intercept_"):
        a, b = getattr(ours, name), getattr(theirs, name)
        if rtol is None:
            assert a.tobytes() == b.tobytes(), name
        else:
            np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * max(np.abs(ours.coef_).max(), 1e-300), err_msg=name)


# --- agreement with the equations ------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["dense", "cg"])
@pytest.mark.parametrize("n_targets", [0, 2])
def test_lssvm_regression_solves_the_bordered_system(solver: str, n_targets: int) -> None:
    X, y = regression(150, n_targets=n_targets)
    model = dk.LSSVMRegressor(sigma=1.0, gamma=10.0, solver=solver, tol=1e-12).fit(X, y)
    coef, intercept = bordered(gram_of(X, 1.0), y.reshape(len(y), -1), 10.0)
    np.testing.assert_allclose(model.coef_, coef, rtol=1e-8, atol=1e-8 * np.abs(coef).max())
    np.testing.assert_allclose(model.intercept_, intercept, rtol=1e-8)
    np.testing.assert_array_equal(model.centers_, X)
    assert model.solver_ == solver


@pytest.mark.parametrize("n_classes", [2, 4])
def test_lssvm_classification_solves_for_all_classes_together(n_classes: int) -> None:
    X, y = classes(150, n_classes)
    Y = np.where(y[:, None] == np.arange(n_classes), 1.0, -1.0)
    Y = Y[:, 1:] if n_classes == 2 else Y
    coef, intercept = bordered(gram_of(X, 1.0), Y, 1.0)
    for solver in ("dense", "cg"):
        model = dk.LSSVMClassifier(sigma=1.0, solver=solver, tol=1e-12).fit(X, y)
        np.testing.assert_allclose(model.coef_, coef, rtol=1e-8, atol=1e-8 * np.abs(coef).max())
        np.testing.assert_allclose(model.intercept_, intercept, rtol=1e-8)


def test_conjugate_gradients_warn_when_they_did_not_converge() -> None:
    X, y = regression(200)
    model = dk.LSSVMRegressor(sigma=1.0, gamma=1e6, solver="cg", max_iter=3, preconditioner_rank=0)
    with pytest.warns(dk.DistkernWarning, match="after 3 iterations"):
        model.fit(X, y)
    assert model.n_iter_ == model.summary_["rounds"] == 3
    assert model.residual_ > model.tol


def test_an_indefinite_kernel_is_solved_directly_only() -> None:
    X, y = regression(60)
    kernel = dk.Sigmoid(1.0, -1.0)
    model = dk.LSSVMRegressor(kernel=kernel, solver="dense").fit(X, y)
    rows = (X - X.mean(axis=0)) / X.std(axis=0)
    coef, _ = bordered(np.tanh(rows @ rows.T - 1.0), y[:, None], 1.0)
    np.testing.assert_allclose(model.coef_, coef, rtol=1e-8, atol=1e-8 * np.abs(coef).max())
    with pytest.raises(dk.DataError, match="not positive definite"):
        dk.LSSVMRegressor(kernel=kernel, solver="cg", preconditioner_rank=0).fit(X, y)


def test_fisher_weights_have_the_direction_of_the_thesis_and_the_bias_of_the_priors() -> None:
    rng = np.random.default_rng(0)
    y = (rng.random(200) < 0.2).astype(int)
    X = rng.standard_normal((200, 2)) + 1.5 * y[:, None]
    model = dk.KernelFisherDiscriminant(sigma=1.0, regularization=1.0).fit(X, y)
    K = gram_of(X, 1.0)
    means = class_means(K, y)
    a = np.linalg.solve(within_scatter(K, y) + np.eye(200), means[1] - means[0])
    scale = (model.coef_[:, 0] @ a) / (a @ a)
    np.testing.assert_allclose(model.coef_[:, 0], scale * a, rtol=1e-8, atol=1e-8 * np.abs(scale * a).max())
    # Where both Gaussians, times their priors, are equal, the decision is zero.
    z = K @ a
    m0, m1 = z[y == 0].mean(), z[y == 1].mean()
    variance = (np.square(z[y == 0] - m0).sum() + np.square(z[y == 1] - m1).sum()) / 200
    middle = (m0 + m1) / 2 - variance * np.log(y.mean() / (1 - y.mean())) / (m1 - m0)
    np.testing.assert_allclose(model.decision_function(X), (z - middle) * (m1 - m0) / variance, rtol=1e-8, atol=1e-8)
    odds = model.decision_function(X)
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], 1 / (1 + np.exp(-odds)), rtol=1e-10)


def test_fisher_separates_several_classes() -> None:
    X, y = classes(300, 4, seed=3)
    model = dk.KernelFisherDiscriminant(regularization=1.0).fit(X, y)
    assert model.score(X, y) > 0.85
    assert model.directions_.shape == (300, 3)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.predict_proba(X).argmax(axis=1), model.predict(X))


def test_kernel_mse_solves_the_system_of_the_slides() -> None:
    X, y = classes(60, 3)
    K = gram_of(X, 0.05)
    B = (y[:, None] == np.arange(3)).astype(float)
    model = dk.KernelMSEClassifier(sigma=0.05, ridge=0.0).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), 2 * B - 1, atol=1e-6)
    np.testing.assert_allclose(model.coef_, 2 * np.linalg.solve(K, B), rtol=1e-8, atol=1e-8)
    assert (model.predict(X) == y).all()
    two = dk.KernelMSEClassifier(sigma=0.05, ridge=0.5).fit(X, y == 0)
    target = np.where(y == 0, 1.0, -1.0)
    np.testing.assert_allclose(
        two.coef_[:, 0], np.linalg.solve(K @ K + 0.5 * np.eye(60), K @ target), rtol=1e-8, atol=1e-10
    )
    assert two.intercept_ == 0.0


def test_reduced_kernel_mse_expands_in_given_or_drawn_rows() -> None:
    X, y = classes(80, 2)
    K, target = gram_of(X, 1.0), np.where(y == 1, 1.0, -1.0)
    model = dk.KernelMSEClassifier(sigma=1.0, ridge=0.1, center_rows=[40, 3, 17]).fit(X, y)
    assert model.center_indices_.tolist() == [40, 3, 17]
    part = K[:, [40, 3, 17]]
    expected = np.linalg.solve(part.T @ part + 0.1 * np.eye(3), part.T @ target)
    np.testing.assert_allclose(model.coef_[:, 0], expected, rtol=1e-8)
    drawn = dk.KernelMSEClassifier(sigma=1.0, max_centers=10).fit(X, y)
    other = dk.KernelMSEClassifier(sigma=1.0, max_centers=10, random_state=1).fit(X, y)
    assert len(set(drawn.center_indices_)) == 10
    assert drawn.center_indices_.tolist() != other.center_indices_.tolist()
    with pytest.raises(dk.DataError, match="row 80"):
        dk.KernelMSEClassifier(center_rows=[80]).fit(X, y)
    with pytest.raises(dk.DataError, match="row 2,"):
        dk.KernelMSEClassifier(center_rows=[2]).fit(X, y, sample_weight=np.where(np.arange(80) == 2, 0.0, 1.0))


@pytest.mark.parametrize("kind", ["Regressor", "Classifier"])
def test_qr_forward_is_orols_without_regularisation(kind: str) -> None:
    ours, theirs = getattr(dk, f"QRForward{kind}"), getattr(dk, f"OROLS{kind}")
    X, y = data_for(ours, 400)
    model = ours(sigma=1.0, max_centers=25).fit(X, y)
    other = theirs(sigma=1.0, max_centers=25, criterion="residual", regularization="none", stop=None).fit(X, y)
    assert_same(model, other, rtol=1e-8)
    np.testing.assert_allclose(model.history_["residual_max"], other.history_["residual_max"], rtol=1e-8)
    np.testing.assert_allclose(model.history_["q_norm"], other.history_["q_norm"], rtol=1e-8)


@pytest.mark.parametrize("kind", ["Regressor", "Classifier"])
def test_ols_forward_is_orols_with_all_rows_as_candidates(kind: str) -> None:
    ours, theirs = getattr(dk, f"OLSForward{kind}"), getattr(dk, f"OROLS{kind}")
    X, y = data_for(ours, 200)
    model = ours(sigma=1.0, max_centers=25, tolerance=0.0).fit(X, y)
    other = theirs(sigma=1.0, max_centers=25, sampler="all", panel=1, regularization="none", stop=None).fit(X, y)
    assert_same(model, other, rtol=1e-8)
    assert model.error_reduction_.shape == (25,)


def test_forward_paths_have_the_reason_for_their_end() -> None:
    X, y = regression(100)
    assert dk.QRForwardRegressor(tol=10.0).fit(X, y).stop_reason_ is StopReason.RESIDUAL_BELOW
    assert dk.QRForwardRegressor(max_centers=3).fit(X, y).stop_reason_ is StopReason.MAX_CENTERS
    model = dk.OLSForwardRegressor(tolerance=0.5).fit(X, y)
    assert model.stop_reason_ is StopReason.UNEXPLAINED_BELOW
    assert 1 - model.error_reduction_.sum() < 0.5
    assert len(model.history_) == model.n_centers_ < 100


# --- rows ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", ALL)
def test_a_weight_is_repeated_rows_and_zero_is_absent(cls: Any) -> None:
    X, y = data_for(cls, 80)
    weights = np.random.default_rng(1).integers(0, 4, len(X))
    index = np.repeat(np.arange(len(X)), weights)
    parameters = {"regularization": 1.0} if cls is dk.KernelFisherDiscriminant else {}
    weighted = make(cls, **parameters).fit(X, y, sample_weight=weights.astype(float))
    repeated = make(cls, **parameters).fit(X[index], y[index])
    method = "predict" if cls in REGRESSORS else "decision_function"
    np.testing.assert_allclose(getattr(weighted, method)(X), getattr(repeated, method)(X), rtol=1e-6, atol=1e-6)
    assert (weights[weighted.center_indices_] > 0).all()


@pytest.mark.parametrize("cls", ALL)
def test_stores_and_dask_arrays_of_any_chunking_give_the_same_model(cls: Any, tmp_path: Path) -> None:
    X, y = data_for(cls, 150)
    rtol = 1e-6 if cls in (dk.KernelFisherDiscriminant, dk.KernelMSEClassifier) else 1e-8
    model = make(cls).fit(X, y)
    for rows in (37, 150):
        stored = [
            zarr.create_array(store=tmp_path / f"{name}{rows}", data=a, chunks=(rows, *a.shape[1:]))
            for name, a in (("X", X), ("y", y))
        ]
        assert_same(make(cls).fit(*stored), model, rtol)
        chunked = da.from_array(X, chunks=(rows, 2)), da.from_array(y, chunks=rows)
        assert_same(make(cls).fit(*chunked), model, rtol)
    task = "regression" if cls in REGRESSORS else "classification"
    dk.write_dataset(tmp_path / "set", X, y, chunk_rows=40, task=task)
    dataset = dk.open_dataset(tmp_path / "set")
    fitted = make(cls).fit(dataset)
    assert_same(fitted, model, rtol)
    np.testing.assert_allclose(np.asarray(fitted.predict(dataset)), fitted.predict(X))


@pytest.mark.parametrize(
    ("cls", "parameters"),
    variants([(cls, {}) for cls in ALL], [(cls, {"solver": "cg"}) for cls in ALL if hasattr(cls(), "solver")]),
)
def test_workers_change_no_bit(in_process_client: Any, cls: Any, parameters: dict[str, Any], tmp_path: Path) -> None:
    X, y = data_for(cls, 150)
    dk.write_dataset(
        tmp_path / "set", X, y, chunk_rows=40, task="regression" if cls in REGRESSORS else "classification"
    )
    here = make(cls, **parameters).fit(dk.open_dataset(tmp_path / "set"))
    there = make(cls, client=in_process_client, **parameters).fit(dk.open_dataset(tmp_path / "set"))
    assert_same(there, here)


# --- memory ----------------------------------------------------------------------------------------------------------


class Unreadable(ArraySource):
    """Rows that may be counted and no more."""

    def read_features(self, block: int) -> Any:
        raise AssertionError("rows were read")

    read_targets = read_features  # type: ignore[assignment]


@pytest.mark.parametrize("cls", ALL)
def test_what_does_not_fit_is_refused_before_rows_are_read(cls: Any) -> None:
    X, y = data_for(cls, 3000)
    source = Unreadable(X, y, classes=np.unique(y) if cls in CLASSIFIERS else None)
    model = make(cls, memory_limit="25MiB", **({"solver": "dense"} if hasattr(cls(), "solver") else {}))
    if cls in (dk.QRForwardRegressor, dk.QRForwardClassifier):
        model.set_params(max_centers=2000)
    model.n_features_in_ = 2
    with pytest.raises(dk.BudgetError, match=f"{cls.__name__} takes up to [0-9]+ rows") as caught:
        model._train(source, None)
    assert caught.value.kind == "memory"


def test_the_rows_that_are_named_fit_and_one_more_does_not() -> None:
    model = dk.OLSForwardRegressor(memory_limit="200MiB")
    work = Workload.of(ArraySource(*regression(10)), 1, 1)

    def needed(n: int) -> int:
        return model.plan(replace(work, n_rows=n), None).needed

    most = int(model.plan(work, None).processes[0].advice.split("up to ")[1].split()[0])
    assert needed(most) <= 200 << 20 < needed(most + 1)
    assert 3000 < most < 6000


def test_auto_goes_over_to_conjugate_gradients_where_the_matrix_does_not_fit() -> None:
    X, y = regression(2500)
    model = dk.LSSVMRegressor(sigma=1.0, memory_limit="60MiB", preconditioner_rank=50, tol=1e-10).fit(X, y)
    assert model.solver_ == "cg"
    assert "driver_gram" not in model.plan_
    assert_same(model, dk.LSSVMRegressor(sigma=1.0).fit(X, y), rtol=1e-8)


# --- what a fit leaves -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", ALL)
def test_models_go_through_stores_and_pickles(cls: Any, tmp_path: Path) -> None:
    X, y = data_for(cls, 60)
    model = make(cls).fit(X, y)
    model.save(tmp_path / "m")
    for twin in (dk.load_model(tmp_path / "m"), pickle.loads(pickle.dumps(model))):
        assert type(twin) is cls
        assert_same(twin, model)
        np.testing.assert_array_equal(twin.predict(X), model.predict(X))
        fitted = {name for name in vars(model) if name.endswith("_")}
        assert {name for name in vars(twin) if name.endswith("_")} == fitted
    assert set(model.summary_) == SUMMARY
    assert model.summary_["bytes_read"] == X.nbytes + y.nbytes


BAD: list[tuple[Any, str, Any]] = [
    *((cls, name, value) for cls in ALL for name, value in (("sigma", 0.0), ("kernel", "gausian"), ("standardize", 1))),
    *((cls, "max_centers", 0) for cls in FORWARD),
    (dk.LSSVMRegressor, "gamma", 0.0),
    (dk.LSSVMRegressor, "solver", "lu"),
    (dk.LSSVMRegressor, "tol", 0),
    (dk.LSSVMRegressor, "max_iter", 0),
    (dk.LSSVMClassifier, "preconditioner_rank", -1),
    (dk.KernelFisherDiscriminant, "regularization", 0.0),
    (dk.KernelMSEClassifier, "ridge", -1.0),
    (dk.KernelMSEClassifier, "max_centers", 0),
    (dk.KernelMSEClassifier, "center_rows", [1, 1]),
    (dk.KernelMSEClassifier, "center_rows", [0.5]),
    (dk.QRForwardRegressor, "tol", -1.0),
    (dk.OLSForwardRegressor, "tolerance", None),
]


@pytest.mark.parametrize(("cls", "name", "value"), BAD)
def test_wrong_parameters_are_named(cls: Any, name: str, value: Any) -> None:
    with pytest.raises(dk.JobError, match=name):
        make(cls).set_params(**{name: value}).fit(*data_for(cls, 30))


def test_published_errors_are_reached(shared_data: Any) -> None:
    data = shared_data("ripley")
    X, y, X_test, y_test = (data[key] for key in ("X_train", "y_train", "X_test", "y_test"))
    for model in (
        dk.LSSVMClassifier(sigma=0.6, gamma=1.0),
        dk.KernelFisherDiscriminant(sigma=0.6, regularization=1.0),
        dk.KernelMSEClassifier(sigma=0.6, ridge=1.0),
        dk.QRForwardClassifier(sigma=0.6, max_centers=20),
        dk.OLSForwardClassifier(sigma=0.6, max_centers=10),
    ):
        # The Bayes error of this set is 8 %.
        assert 1 - model.fit(X, y).score(X_test, y_test) < 0.13, type(model).__name__


@pytest.mark.cluster
def test_worker_processes_serve_too(process_client: Any, tmp_path: Path) -> None:
    X, y = regression(600)
    dk.write_dataset(tmp_path / "set", X, y, chunk_rows=100, task="regression")
    for parameters in ({"solver": "dense"}, {"solver": "cg"}):
        model = dk.LSSVMRegressor(sigma=1.0, client=process_client, **parameters)
        model.fit(dk.open_dataset(tmp_path / "set"))
        assert_same(model, dk.LSSVMRegressor(sigma=1.0, **parameters).fit(dk.open_dataset(tmp_path / "set")))
        assert model.summary_["peak_rss_worker"] > 0

"""Models on disk: read back as the same estimator, and written with the same bytes every time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.base import tokenize
from sklearn.base import clone

import distkern as dk
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
from tests.markers import every_value, name_of

SETTINGS: list[dict[str, Any]] = [
    {},
    {"dtype": "float32"},
    {"kernel": dk.Polynomial(2, 0.5), "standardize": False},
    {"kernel": "sigmoid", "tol": 0.01, "patience": 30},
    {"kernel": "matern", "sigma": "median"},
    {"kernel": dk.Wendland(2.0, 2)},
    {"sigma": np.float32(0.75), "max_centers": np.int64(9), "epsilon": 0.01},
    {"stop": "validation", "random_state": 5},
]


@pytest.mark.parametrize(("cls", "settings"), every_value(ALL, SETTINGS), ids=name_of)
def test_round_trip(cls: Any, settings: dict[str, Any], tmp_path: Path) -> None:
    model = fitted(cls, **settings)
    model.save(tmp_path / "m")
    loaded = dk.load_model(tmp_path / "m")
    assert type(loaded) is cls
    assert_equal_models(loaded, model)
    for name in ("n_centers_", "n_features_in_", "plan_", "kernel_", "summary_"):
        assert getattr(loaded, name) == getattr(model, name), name
    assert type(loaded.lambda_) is type(model.lambda_)
    assert loaded.stop_reason_ is model.stop_reason_

    X, y = data_for(cls, 80, 7)
    for name in ("predict", "decision_function", "predict_proba"):
        if hasattr(cls, name):
            ours, theirs = getattr(loaded, name)(X), getattr(model, name)(X)
            assert ours.dtype == theirs.dtype
            assert ours.tobytes() == theirs.tobytes()
    assert loaded.score(X, y) == model.score(X, y)


@pytest.mark.parametrize(("cls", "settings"), every_value([dk.OROLSClassifier, dk.NPDRegressor], SETTINGS), ids=name_of)
def test_parameters_come_back_and_train_the_same_model(cls: Any, settings: dict[str, Any], tmp_path: Path) -> None:
    model = fitted(cls, **settings)
    model.save(tmp_path / "m")
    loaded = dk.load_model(tmp_path / "m")
    assert loaded.get_params() == model.get_params()
    assert_equal_models(clone(loaded).fit(*data_for(cls)), model)


@pytest.mark.parametrize(
    ("labels", "multiclass"),
    every_value(
        [
            np.array(["nein", "ja", "äöü"]),
            np.array(["nein", "ja", "vielleicht"], dtype=object),
            np.array([-7, 0, 3]),
            np.array([-7, 0, 3], dtype=np.int8),
            np.array([250, 1, 7], dtype=np.uint8),
            np.array([1.0, 2.0, -5.0]),
            np.array([True, False]),
        ],
        ["shared", "one-vs-rest"],
    ),
    ids=name_of,
)
def test_labels_of_every_type_come_back(labels: Any, multiclass: str, tmp_path: Path) -> None:
    X, codes = classes(90, len(labels))
    model = dk.OROLSClassifier(max_centers=10, sigma=1.0, multiclass=multiclass).fit(X, labels[codes])
    model.save(tmp_path / "m")
    loaded = dk.load_model(tmp_path / "m")
    assert loaded.classes_.dtype == labels.dtype
    np.testing.assert_array_equal(loaded.classes_, model.classes_)
    predicted = loaded.predict(X)
    assert predicted.dtype == labels.dtype
    np.testing.assert_array_equal(predicted, model.predict(X))
    assert type(predicted.tolist()[0]) is type(labels.tolist()[0])
    np.testing.assert_array_equal(np.asarray(loaded.lambda_), np.asarray(model.lambda_))
    assert_equal_models(loaded, model)


@pytest.mark.parametrize("cls", REGRESSORS)
@pytest.mark.parametrize("shape", [(), (1,), (3,)])
def test_targets_keep_their_shape(cls: Any, shape: tuple[int, ...], tmp_path: Path) -> None:
    X, y = regression(n_targets=shape[0] if shape else 0)
    model = cls(max_centers=8).fit(X, y)
    model.save(tmp_path / "m")
    loaded = dk.load_model(tmp_path / "m")
    assert loaded.predict(X).shape == y.shape
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_a_lambda_for_each_target_comes_back(tmp_path: Path) -> None:
    X, y = regression(n_targets=3)
    model = dk.OROLSRegressor(max_centers=8, regularization="gcv-per-target").fit(X, y)
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(dk.load_model(tmp_path / "m").lambda_, model.lambda_)


def test_feature_names_come_back(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    X, y = regression()
    frame = pandas.DataFrame(X, columns=["length", "width"])
    model = dk.OROLSRegressor(max_centers=5).fit(frame, y)
    model.save(tmp_path / "m")
    loaded = dk.load_model(tmp_path / "m")
    assert loaded.feature_names_in_.tolist() == ["length", "width"]
    np.testing.assert_array_equal(loaded.predict(frame), model.predict(frame))
    with pytest.raises(dk.DataError, match="feature names"):
        loaded.predict(frame[["width", "length"]])


def test_float32_centres_stay_float32(tmp_path: Path) -> None:
    X, y = regression()
    model = dk.OROLSRegressor(max_centers=5).fit(X.astype(np.float32), y)
    model.save(tmp_path / "m")
    assert dk.load_model(tmp_path / "m").centers_.dtype == np.float32


@pytest.mark.parametrize("cls", ALL)
def test_a_truncated_model_saves_and_a_loaded_one_does_not_truncate(cls: Any, tmp_path: Path) -> None:
    shorter = fitted(cls).truncate(4)
    shorter.save(tmp_path / "m")
    loaded = dk.load_model(tmp_path / "m")
    assert_equal_models(loaded, shorter)
    with pytest.raises(dk.RunError, match="truncate the fitted estimator") as caught:
        loaded.truncate(2)
    assert caught.value.kind == "no-path"


@pytest.mark.parametrize("cls", ALL)
def test_a_loaded_model_saves_again_to_the_same_bytes(cls: Any, tmp_path: Path) -> None:
    fitted(cls).save(tmp_path / "a")
    dk.load_model(tmp_path / "a").save(tmp_path / "b")
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_a_loaded_model_predicts_in_kind(tmp_path: Path) -> None:
    model = fitted(dk.OROLSClassifier)
    model.save(tmp_path / "m")
    X, _ = classes(90)
    lazy = dk.load_model(tmp_path / "m").predict(da.from_array(X, chunks=(30, 2)))
    assert isinstance(lazy, da.Array)
    np.testing.assert_array_equal(lazy.compute(scheduler="synchronous"), model.predict(X))


def test_a_model_without_centres(tmp_path: Path) -> None:
    X, y = regression()
    model = dk.OROLSRegressor(tol=1e3).fit(X, y)
    assert model.n_centers_ == 0
    model.save(tmp_path / "m")
    loaded = dk.load_model(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert np.isnan(loaded.gcv_)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


@pytest.mark.parametrize("cls", ALL)
def test_two_trainings_write_the_same_bytes(cls: Any, tmp_path: Path) -> None:
    """All arrays; the description differs in the seconds and bytes that were measured, and in nothing else."""
    for name in "ab":
        fitted(cls, n=300, candidates=64, max_centers=40).save(tmp_path / name)
    a, b = contents(tmp_path / "a"), contents(tmp_path / "b")
    assert a.keys() == b.keys()
    assert len(a) >= 9
    described = [json.loads(files.pop("model.json")) for files in (a, b)]
    assert a == b
    for description in described:
        for measured in ("seconds", "peak_rss_driver", "peak_rss_worker"):
            description["meta"]["summary"].pop(measured)
    assert described[0] == described[1]


def test_no_pickle_is_written(tmp_path: Path) -> None:
    fitted(dk.OROLSClassifier).save(tmp_path / "m")
    for file in (tmp_path / "m").iterdir():
        assert file.suffix in (".npy", ".json")
        if file.suffix == ".npy":
            np.load(file, allow_pickle=False)


@pytest.mark.parametrize("cls", ALL)
def test_save_does_not_overwrite(cls: Any, tmp_path: Path) -> None:
    first, second = fitted(cls, max_centers=4), fitted(cls, max_centers=6)
    first.save(tmp_path / "m")
    before = contents(tmp_path / "m")
    with pytest.raises(dk.StoreError) as caught:
        second.save(tmp_path / "m")
    assert caught.value.kind == "exists"
    assert contents(tmp_path / "m") == before
    second.save(tmp_path / "m", overwrite=True)
    assert_equal_models(dk.load_model(tmp_path / "m"), second)


def test_save_never_replaces_what_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    with pytest.raises(dk.StoreError) as caught:
        fitted(dk.OROLSRegressor).save(tmp_path / "mine", overwrite=True)
    assert caught.value.kind == "foreign"
    assert (tmp_path / "mine" / "thesis.txt").exists()


def test_client_callbacks_and_run_directory_stay_behind(tmp_path: Path) -> None:
    model = fitted(dk.OROLSRegressor, callbacks=[lambda event: None], run_dir=tmp_path / "run")
    model.save(tmp_path / "m")
    loaded = dk.load_model(tmp_path / "m")
    assert (loaded.client, loaded.callbacks, loaded.run_dir) == (None, (), None)


def test_nothing_at_the_path(tmp_path: Path) -> None:
    with pytest.raises(dk.StoreError, match="there is no model") as caught:
        dk.load_model(tmp_path / "none")
    assert caught.value.kind == "missing"


@pytest.mark.parametrize(
    "change",
    [
        lambda meta: meta.pop("estimator"),
        lambda meta: meta.update(estimator="Forest"),
        lambda meta: meta.pop("kernel"),
        lambda meta: meta["kernel"].update(name="cosine"),
        lambda meta: meta["kernel"].update(parameters={"sigma": -1}),
        lambda meta: meta.pop("parameters"),
        lambda meta: meta.update(stop_reason="bored"),
        pytest.param(
            lambda meta: meta.update(dtype="complex64"),
        ),
        lambda meta: meta.pop("summary"),
    ],
)
def test_a_description_that_makes_no_sense(change: Any, tmp_path: Path) -> None:
    fitted(dk.OROLSRegressor).save(tmp_path / "m")
    file = tmp_path / "m" / "model.json"
    description = json.loads(file.read_text())
    change(description["meta"])
    file.write_text(json.dumps(description))
    with pytest.raises(dk.StoreError) as caught:
        dk.load_model(tmp_path / "m")
    assert caught.value.kind == "corrupt"


@pytest.mark.parametrize("name", ["centers", "coef", "intercept", "feature_shift", "lambda", "classes", "history"])
def test_a_damaged_or_missing_array(name: str, tmp_path: Path) -> None:
    fitted(dk.OROLSClassifier).save(tmp_path / "m")
    file = tmp_path / "m" / f"{name}.npy"
    damaged = bytearray(file.read_bytes())
    damaged[-1] ^= 1
    file.write_bytes(bytes(damaged))
    with pytest.raises(dk.StoreError) as caught:
        dk.load_model(tmp_path / "m")
    assert caught.value.kind == "corrupt"
    file.unlink()
    with pytest.raises(dk.StoreError) as caught:
        dk.load_model(tmp_path / "m")
    assert caught.value.kind == "incomplete"


def test_an_own_kernel_cannot_be_stored_and_leaves_nothing(tmp_path: Path) -> None:
    """A store keeps names and numbers; what it cannot give back it must not take."""

    class Cauchy(dk.Kernel):
        name = "cauchy"
        stationary = True

        def block(self, X: Any, C: Any, out: Any = None) -> Any:
            values = 1 / (1 + np.square(X[:, None] - C[None]).sum(axis=2))
            if out is None:
                return values
            out[...] = values
            return out

        def diagonal(self, X: Any) -> Any:
            return np.ones(len(X), dtype=X.dtype)

    model = dk.OROLSRegressor(kernel=Cauchy(), max_centers=5).fit(*regression())
    assert model.score(*regression()) > 0.3
    with pytest.raises(dk.StoreError, match="cauchy"):
        model.save(tmp_path / "m")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_predict_proba_of_a_loaded_binary_model(cls: Any, tmp_path: Path) -> None:
    X, y = classes(80, 2)
    model = cls(max_centers=8, sigma=1.0).fit(X, np.array(["no", "yes"])[y])
    model.save(tmp_path / "m")
    loaded = dk.load_model(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert loaded.decision_function(X).shape == (80,)


def test_fitted_models_have_different_task_keys() -> None:
    X, y = regression(60)
    model = dk.OROLSRegressor(max_centers=3).fit(X, y)
    assert tokenize(model) == tokenize(model)
    assert tokenize(model) != tokenize(dk.OROLSRegressor(max_centers=3).fit(X, -y))
    predicted = dask.delayed(model.predict)(X).compute()
    np.testing.assert_array_equal(predicted, model.predict(X))

    class Local(dk.Gaussian):
        """Cannot be pickled."""

    assert tokenize(dk.OROLSRegressor(kernel=Local(1.0))) != tokenize(dk.OROLSRegressor(kernel=Local(1.0)))

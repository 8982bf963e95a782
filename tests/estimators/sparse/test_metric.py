"""Estimators with a learnt metric: the model in its space, its attributes, its store, its run, its plan."""

from __future__ import annotations

import os
import pickle
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.base import clone

import distkern as dk
from distkern.errors import DataError, JobError, StoreError
from distkern.monitoring.events import Event, MetricRoundDone
from distkern.numerics.scaling import DirectionScaling
from distkern.scheduler import Workload
from distkern.scheduler.passes.first_pass import Statistics
from distkern.scheduler.runtime.processes import peak_rss
from distkern.storage import describe, read_model, write_model
from distkern.storage.io.json_files import read_json
from tests.markers import variants
from tests.scheduler.worker_clusters import cluster

Array = NDArray[Any]

MAPS = ("isotropic", "diagonal", "full", "auto")
SMALL: dict[str, Any] = {"max_centers": 24, "metric_rounds": 2}


def rows(n: int = 240, d: int = 6, seed: int = 0) -> tuple[Array, Array]:
    """Rows of different scales; the targets depend on mixtures of two features."""
    X = np.random.default_rng(seed).standard_normal((n, d)) * np.arange(1, d + 1) + 5.0
    Z = (X - 5.0) / np.arange(1, d + 1)
    return X, np.sin(1.5 * (Z[:, 1] + Z[:, 3])) + (Z[:, 3] - Z[:, 1]) / 3


def labels(y: Array) -> Array:
    return np.array(["low", "middle", "high"])[np.digitize(y, [-0.5, 0.5])]


def learnt(cls: Any = dk.OROLSRegressor, **parameters: Any) -> Any:
    X, y = rows()
    return cls(**{**SMALL, "metric": "full", **parameters}).fit(X, labels(y) if "Classifier" in cls.__name__ else y)


@pytest.mark.parametrize("cls", [dk.OROLSRegressor, dk.OROLSClassifier, dk.NPDRegressor, dk.NPDClassifier])
@pytest.mark.parametrize("metric", ["diagonal", "full"])
def test_the_model_is_that_of_the_mapped_rows(cls: Any, metric: str) -> None:
    """Without the parameter, on rows that are mapped before, the same centres are chosen."""
    X, y = rows()
    targets = labels(y) if "Classifier" in cls.__name__ else y
    model = learnt(cls, metric=metric)
    Z = model._model.scaling.apply(X, np.dtype(float))
    plain = cls(kernel=model.kernel_, standardize=False, max_centers=24).fit(Z, targets)
    np.testing.assert_array_equal(model.center_indices_, plain.center_indices_)
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-5, atol=1e-7 * np.abs(plain.coef_).max())
    np.testing.assert_array_equal(model.centers_, X[model.center_indices_])
    distance = model.metric_ if model.metric_.ndim == 2 else np.diag(model.metric_)
    a, b = (X[:1] - X[1:2]) / X.std(axis=0), Z[:1] - Z[1:2]
    assert float((a @ distance @ a.T)[0, 0]) == pytest.approx(float((b @ b.T)[0, 0]))


@pytest.mark.parametrize("metric", variants(["auto"], ["diagonal", "full"]))
def test_the_metric_finds_the_features_that_matter(metric: str) -> None:
    X, y = rows(400)
    unseen, expected = rows(300, seed=1)
    errors = []
    for parameters in ({}, {"metric": metric, "kernel": "auto"}):
        model = dk.OROLSRegressor(max_centers=40, **parameters).fit(X, y)
        errors.append(np.square(model.predict(unseen) - expected).mean())
    assert errors[1] < 0.5 * errors[0]
    assert set(np.argsort(model.feature_importances_)[-2:]) == {1, 3}
    assert model.feature_importances_.sum() == pytest.approx(1.0)
    assert len(model.metric_rounds_) == model.summary_["metric_rounds"]


def test_without_a_metric_nothing_changes() -> None:
    X, y = rows()
    model = dk.OROLSRegressor(max_centers=20, sigma="median").fit(X, y)
    np.testing.assert_array_equal(model.metric_, np.ones(6))
    assert model.metric_rounds_ == []
    assert not hasattr(model, "feature_importances_")
    assert model.summary_["passes"] == 1
    refitted = learnt()
    assert hasattr(refitted, "feature_importances_")
    refitted.set_params(metric="isotropic", metric_rounds=None).fit(X, y)
    assert not hasattr(refitted, "feature_importances_")


def test_a_kernel_is_chosen_without_a_metric_too() -> None:
    X, y = rows()
    model = dk.OROLSRegressor(kernel="auto", max_centers=30).fit(X, y)
    assert {row["shape"] for row in model.metric_rounds_} == {"isotropic"}
    assert model.metric_.shape == (6,)
    assert clone(model).kernel == "auto"


@pytest.mark.parametrize(
    "parameters", [{"metric": "diagonal"}, {"metric": "full"}, {"metric": "full", "metric_rank": 2}]
)
def test_a_store_keeps_the_metric(tmp_path: Path, parameters: dict[str, Any]) -> None:
    X, _ = rows()
    model = learnt(**parameters)
    model.save(tmp_path / "model")
    loaded = dk.load_model(tmp_path / "model")
    assert loaded.predict(X).tobytes() == model.predict(X).tobytes()
    assert loaded.metric_transform(X).tobytes() == model.metric_transform(X).tobytes()
    np.testing.assert_array_equal(loaded.metric_, model.metric_)
    np.testing.assert_array_equal(loaded.feature_importances_, model.feature_importances_)
    assert loaded.metric_rounds_ == model.metric_rounds_
    assert pickle.loads(pickle.dumps(model)).predict(X).tobytes() == model.predict(X).tobytes()
    # Version 0.1 ignores arrays that it does not know: it must not open what it cannot evaluate.
    version = read_json(tmp_path / "model" / "model.json")["format_version"]
    assert version == (2 if parameters["metric"] == "full" else 1)


def test_directions_of_another_shape_are_refused(tmp_path: Path) -> None:
    model = learnt()
    scaling = model._model.scaling
    wrong = DirectionScaling(scaling.shift, scaling.scale, scaling.directions[:, :-1])
    object.__setattr__(model._model, "scaling", wrong)
    model.save(tmp_path / "model")
    with pytest.raises(StoreError, match="feature_directions"):
        dk.load_model(tmp_path / "model")


def test_directions_are_the_longest_first() -> None:
    X, _ = rows()
    model = learnt(metric_rank=3)
    Z = model.metric_transform(X)
    assert Z.shape == (240, 3)
    own = model._model.scaling.apply(X, np.dtype(float))
    np.testing.assert_allclose(Z @ Z.T, own @ own.T, atol=1e-8)
    _, lengths, _ = np.linalg.svd(model._model.scaling.directions)
    assert (np.diff(lengths) <= 0).all()
    assert np.linalg.matrix_rank(model.metric_) == 3


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"metric": "round"}, "metric"),
        ({"metric": "full", "metric_rank": 0}, "metric_rank"),
        ({"metric_rank": 2}, "metric_rank"),
        ({"metric_rounds": 2}, "metric_rounds"),
        ({"metric": "full", "metric_rounds": -1}, "metric_rounds"),
        ({"metric": "full", "sigma": [1.0, 2.0]}, "sigma"),
        ({"kernel": "auto", "sigma": 2.0}, "sigma"),
        ({"kernel": "auto", "sigma": "cv"}, "sigma"),
        ({"kernel": "automatic"}, "kernel"),
    ],
)
def test_combinations_that_are_refused(parameters: dict[str, Any], named: str) -> None:
    with pytest.raises(JobError, match=named):
        dk.OROLSRegressor(**parameters).fit(*rows(20))


@pytest.mark.parametrize("n", [3, 57])
def test_too_few_rows_for_a_part_that_is_held_out(n: int) -> None:
    X, y = rows(60)
    weights = np.ones(60) if n == 3 else np.where(np.arange(60) < n, 0.0, 1.0)
    kept = slice(0, 3) if n == 3 else slice(None)
    with pytest.raises(DataError, match="3 rows of positive weight"):
        dk.OROLSRegressor(metric="auto").fit(X[kept], y[kept], weights[kept])


def test_a_grid_search_learns_no_metric() -> None:
    with pytest.raises(JobError, match="GridSearchCV"):
        dk.GridSearch(dk.OROLSRegressor(metric="full"), {"max_centers": [5, 10]}).fit(*rows(60))


def test_a_width_by_cross_validation_follows_the_rounds() -> None:
    model = learnt(sigma="cv", folds=2, metric="diagonal", max_centers=15)
    assert len(model.cv_results_["sigma"]) == 10
    assert model.kernel_.sigma in model.cv_results_["sigma"]
    assert len(model.metric_rounds_) > 1


def test_a_kernel_without_gradients_is_named() -> None:
    class Own(dk.Kernel):
        name = "own"
        stationary = True

        def block(self, X: Array, C: Array, out: Array | None = None) -> Array:
            return dk.Gaussian(1.0).block(X, C, out)

        def diagonal(self, X: Array) -> Array:
            return np.ones(len(X), X.dtype)

    with pytest.raises(JobError, match="gradients"):
        dk.OROLSRegressor(kernel=Own(), metric="full").fit(*rows(60))


def test_a_run_learns_once(tmp_path: Path) -> None:
    events: list[Event] = []
    run = tmp_path / "run"
    first = learnt(metric="auto", kernel="auto", run_dir=run)
    again = learnt(metric="auto", kernel="auto", run_dir=run, callbacks=[events.append])
    assert not any(isinstance(event, MetricRoundDone) for event in events)
    assert again.coef_.tobytes() == first.coef_.tobytes()
    assert again.metric_.tobytes() == first.metric_.tobytes()
    assert again.metric_rounds_ == first.metric_rounds_
    # A record that cannot be read is made again, with the same bits.
    (run / "metric.json").write_text("{}")
    repeated = learnt(metric="auto", kernel="auto", run_dir=run)
    assert repeated.coef_.tobytes() == first.coef_.tobytes()
    with pytest.raises(dk.errors.RunError, match="scaling"):
        learnt(metric="diagonal", kernel="gaussian", run_dir=run)


def test_a_driver_that_is_killed_in_a_round_resumes(tmp_path: Path) -> None:
    def kill(event: Event) -> None:
        if isinstance(event, MetricRoundDone) and event.rounds == 2:
            raise dk.errors.Cancelled("killed")

    run = tmp_path / "run"
    with pytest.raises(dk.errors.Cancelled):
        learnt(run_dir=run, callbacks=[kill])
    assert learnt(run_dir=run).coef_.tobytes() == learnt().coef_.tobytes()


@pytest.mark.parametrize("metric", variants(["full"], ["diagonal"]))
def test_workers_change_no_bit(metric: str, in_process_client: Any, tmp_path: Path) -> None:
    X, y = rows()
    dataset = dk.write_dataset(tmp_path / "rows.zarr", X, y, chunk_rows=50)
    here = dk.OROLSRegressor(metric=metric, kernel="auto", **SMALL).fit(dataset)
    there = dk.OROLSRegressor(metric=metric, kernel="auto", client=in_process_client, **SMALL).fit(dataset)
    assert there.coef_.tobytes() == here.coef_.tobytes()
    assert there.metric_.tobytes() == here.metric_.tobytes()
    assert np.asarray(there.predict(dataset)).tobytes() == np.asarray(here.predict(dataset)).tobytes()


@pytest.mark.cluster
def test_workers_that_are_killed_in_the_draw_and_in_a_round(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    X, y = rows(2000)
    dataset = dk.write_dataset(tmp_path / "rows.zarr", X, y, chunk_rows=50)
    settings = {"metric": "auto", "kernel": "auto", **SMALL}
    here = dk.OROLSRegressor(**settings).fit(dataset)
    merge, killed = Statistics.merge, []
    with cluster(3, processes=True) as client:

        def kill() -> None:
            killed.append(min(client.run(os.getpid).values()))
            os.kill(killed[-1], signal.SIGKILL)

        def kill_in_the_draw(left: Statistics, right: Statistics) -> Statistics:
            if not killed:
                kill()
            return merge(left, right)

        def kill_in_a_round(event: Event) -> None:
            if isinstance(event, MetricRoundDone) and event.rounds == 2:
                kill()

        monkeypatch.setattr(Statistics, "merge", kill_in_the_draw)
        there = dk.OROLSRegressor(client=client, callbacks=[kill_in_a_round], **settings).fit(dataset)
    assert len(set(killed)) == 2
    assert there.coef_.tobytes() == here.coef_.tobytes()
    assert there.metric_.tobytes() == here.metric_.tobytes()


def test_float32_and_a_sample_of_the_rows() -> None:
    X, y = rows(600)
    exact = dk.OROLSRegressor(metric="full", selection_rows=200, **SMALL).fit(X, y)
    single = dk.OROLSRegressor(metric="full", selection_rows=200, dtype="float32", **SMALL).fit(X, y)
    assert exact.summary_["passes"] == 3
    np.testing.assert_allclose(single.metric_, exact.metric_, rtol=1e-6, atol=1e-6)
    assert np.sqrt(np.square(single.predict(X) - exact.predict(X)).mean()) < 0.1 * y.std()


@pytest.mark.parametrize("multiclass", ["shared", "one-vs-rest", "one-vs-one", "dag"])
def test_every_scheme_of_classes(multiclass: str) -> None:
    X, y = rows(400)
    model = dk.OROLSClassifier(metric="full", metric_rounds=2, multiclass=multiclass, max_centers=20).fit(X, labels(y))
    assert model.score(X, labels(y)) > 0.7
    np.testing.assert_allclose(model.predict_proba(X[:5]).sum(axis=1), 1.0)


def test_the_plan_has_the_rounds() -> None:
    work = Workload.imagined(1_000_000, 100, 4, 1)
    plain, learning = (
        dk.OROLSRegressor(max_centers=500, selection_rows=20_000, metric=metric).plan(work, None)
        for metric in ("isotropic", "full")
    )
    assert learning.passes == plain.passes + 1
    assert learning.terms["metric_sample"] > 30_000 * 100 * 8
    assert learning.terms["metric_map"] > 8 * 100**2
    rounds = sum(size for name, size in learning.terms.items() if name.startswith("metric_"))
    assert learning.processes[-1].fixed == rounds
    assert "metric='diagonal'" in learning.processes[-1].advice


@pytest.mark.slow
def test_the_peak_is_planned() -> None:
    X, y = rows(40_000, 40)
    before = peak_rss()
    model = dk.OROLSRegressor(max_centers=200, metric="full", metric_rounds=1, selection_rows=4000)
    model.fit(X.astype(np.float32), y)
    rounds = sum(size for name, size in model.plan_.items() if name.startswith("metric_"))
    assert peak_rss() - before < 1.1 * max(rounds, model.summary_["planned_peak_bytes"] - 250 * 2**20)


@pytest.mark.parametrize("parameters", [{"metric": "diagonal"}, {"kernel": "auto"}])
def test_more_rows_are_compared_in_a_learnt_space(parameters: dict[str, Any]) -> None:
    """Of the training; the models of the rounds have the pool and the sample of any other training."""
    job = dk.OROLSRegressor(max_centers=1500).training_job()
    assert (job.candidates, job.sampled_rows(30_000), job.sampled_rows(12_000)) == (384, 7500, 7500)
    model = dk.OROLSRegressor(max_centers=1500, **parameters)
    job = model.training_job()
    assert (job.candidates, job.sampled_rows(30_000), job.sampled_rows(12_000)) == (512, 10_000, 8000)
    assert job.sampled_rows(11_249) == 0
    rounds = model._metric_job(job, 30_000).job
    assert (rounds.candidates, rounds.sampled_rows(30_000)) == (384, 7500)
    job = dk.OROLSRegressor(candidates=100, selection_rows=900, **parameters).training_job()
    assert (job.candidates, job.selection_rows) == (100, 900)


def heavy_rows(n: int = 1600, seed: int = 0) -> tuple[Array, Array]:
    """Columns with long tails, of whose logarithms the targets are functions."""
    Z = np.random.default_rng(seed).standard_normal((n, 4))
    return np.exp(2 * Z) + 7.0, np.sin(2 * Z[:, 0]) + Z[:, 1]


def heavy(**parameters: Any) -> Any:
    settings = {"metric": "diagonal", "metric_rounds": 1, "max_centers": 20}
    return dk.OROLSRegressor(**{**settings, **parameters}).fit(*heavy_rows())


@pytest.mark.parametrize("metric", ["diagonal", "full"])
def test_heavy_tails_are_shortened_where_that_lowers_the_error(metric: str) -> None:
    """The model is that of columns that are mapped before, and its error is below that of any linear map."""
    X, y = heavy_rows()
    model = heavy(metric=metric)
    assert model.arcsinh_columns_.tolist() == [0, 1, 2, 3]
    assert [made["shape"] for made in model.metric_rounds_[:2]] == ["isotropic", "arcsinh"]
    mapped = model._model.scaling.arcsinh
    Z = np.arcsinh((X - mapped.centers) / mapped.widths)
    Z = (Z - model._model.scaling.shift) / model._model.scaling.scale
    Z = Z if metric == "diagonal" or model.metric_.ndim == 1 else model._model.scaling.apply(X, np.dtype(float))
    plain = dk.OROLSRegressor(kernel=model.kernel_, standardize=False, max_centers=20, candidates=512).fit(Z, y)
    np.testing.assert_array_equal(model.center_indices_, plain.center_indices_)
    np.testing.assert_array_equal(model.centers_, X[model.center_indices_])
    np.testing.assert_allclose(model.predict(X), plain.predict(Z), atol=1e-6)
    unseen, expected = heavy_rows(seed=1)
    linear = dk.OROLSRegressor(sigma="median", max_centers=20).fit(X, y)
    assert model.score(unseen, expected) > linear.score(unseen, expected) + 0.1
    np.testing.assert_allclose(model.metric_transform(X).var(axis=0).sum(), Z.var(axis=0).sum(), rtol=1e-6)


def test_columns_stay_where_no_metric_is_learnt_or_units_are_the_users() -> None:
    X, y = heavy_rows()
    assert not len(learnt().arcsinh_columns_)
    for parameters in ({"metric": "isotropic", "metric_rounds": None, "kernel": "auto"}, {"standardize": False}):
        model = heavy(**parameters)
        assert not len(model.arcsinh_columns_)
        assert "arcsinh" not in {made["shape"] for made in model.metric_rounds_}
    # Quantiles of few rows say little about tails.
    assert not len(heavy().fit(X[:200], y[:200]).arcsinh_columns_)


@pytest.mark.parametrize("metric", ["diagonal", "full"])
def test_stores_and_runs_keep_the_columns_under_arcsinh(metric: str, tmp_path: Path) -> None:
    X, _ = heavy_rows()
    unseen, later = heavy_rows(300, seed=2)
    model = heavy(metric=metric, run_dir=tmp_path / "run")
    model.save(tmp_path / "model")
    loaded = dk.load_model(tmp_path / "model")
    assert loaded.predict(X).tobytes() == model.predict(X).tobytes()
    assert loaded.metric_transform(X).tobytes() == model.metric_transform(X).tobytes()
    assert loaded.arcsinh_columns_.tolist() == [0, 1, 2, 3]
    # Version 0.2 would evaluate the columns as they are.
    assert read_json(tmp_path / "model" / "model.json")["format_version"] == 3
    facts = describe(tmp_path / "model")
    assert facts["metric"]["arcsinh"] == [f"feature {column}" for column in range(4)]
    resumed = heavy(metric=metric, run_dir=tmp_path / "run")
    assert resumed.coef_.tobytes() == model.coef_.tobytes()
    assert (
        resumed._model.scaling.apply(X, np.dtype(float)).tobytes()
        == model._model.scaling.apply(X, np.dtype(float)).tobytes()
    )
    continued, here = dk.load_model(tmp_path / "run"), heavy(metric=metric)
    for extended in (continued, here):
        extended.append(unseen, later)
    assert continued.predict(X).tobytes() == here.predict(X).tobytes()


def test_workers_map_columns_alike(in_process_client: Any, tmp_path: Path) -> None:
    X, y = heavy_rows()
    dataset = dk.write_dataset(tmp_path / "rows.zarr", X.astype(np.float32), y, chunk_rows=300)
    settings: dict[str, Any] = {"metric": "diagonal", "metric_rounds": 1, "max_centers": 20}
    here = dk.OROLSRegressor(**settings).fit(dataset)
    there = dk.OROLSRegressor(client=in_process_client, **settings).fit(dataset)
    assert len(here.arcsinh_columns_) == 4
    assert there.coef_.tobytes() == here.coef_.tobytes()
    assert np.asarray(there.predict(dataset)).tobytes() == np.asarray(here.predict(dataset)).tobytes()
    sparse = dk.OROLSRegressor(**settings).fit(csr_array(X), y)
    dense = dk.OROLSRegressor(**settings).fit(X, y)
    assert sparse.coef_.tobytes() == dense.coef_.tobytes()


def test_a_damaged_map_of_columns_is_refused(tmp_path: Path) -> None:
    heavy().save(tmp_path / "model")
    meta, arrays = read_model(tmp_path / "model")
    write_model(tmp_path / "wrong", meta, arrays | {"arcsinh_columns": arrays["arcsinh_columns"] + 1}, version=3)
    with pytest.raises(StoreError, match="arcsinh"):
        dk.load_model(tmp_path / "wrong")
    assert describe(tmp_path / "wrong")["metric"]["arcsinh"] == ["feature 1", "feature 2", "feature 3"]

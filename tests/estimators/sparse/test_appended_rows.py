"""Rows that come later: equal to one dense fit of the same centres to all rows, from the new rows alone."""

from __future__ import annotations

import pickle
import shutil
import tracemalloc
from copy import copy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import distkern as dk
from distkern.errors import BudgetError, DataError, JobError, RunError, StoreError
from distkern.kernels import kernel_of_centers
from distkern.numerics.row_weights import factor_of_weights
from distkern.probability.pairwise import class_pairs
from distkern.scheduler.planning.plan import BASELINE
from distkern.scheduler.training.calibration_rows import draw_rows
from distkern.selection.factors import Factors
from distkern.storage import ArraySource, open_dataset, write_dataset
from tests.estimators.fits import assert_equal_models, classes, data_for, fitted, regression
from tests.references import dense_kernel_columns
from tests.scheduler.worker_clusters import cluster

Array = NDArray[Any]
N, FIRST = 300, 120
CLASSES = ("shared", "one-vs-rest", "one-vs-one", "dag")


def one_fit(base: Any, X: Array, y: Array, weights: Array | None = None) -> Any:
    """The centres of a fitted model on all rows: a dense QR of the weighted [1 K], no sums of earlier rows."""
    result = base._result
    raw = np.ones(len(X)) if weights is None else weights
    w = raw * factor_of_weights(raw.sum(), np.sqrt(raw).sum())
    job = base.training_job()
    rows = result.scaling.apply(X, np.float64)
    labels = result.classes
    columns = y.reshape(len(y), -1).astype(float)
    if labels is not None:
        codes = np.searchsorted(labels, y)
        columns = np.where(codes[:, None] == np.arange(len(labels)), 1.0, -1.0)
    paths, means, reasons = [], result.target_means.copy(), result.history
    for i, (path, outputs) in enumerate(zip(result.paths, result.outputs, strict=True)):
        chosen, taking = list(outputs), np.ones(len(X), dtype=bool)
        if labels is not None and len(labels) == 2:
            chosen = [1]
        elif labels is not None and result.multiclass == "one-vs-one":
            first, second = class_pairs(len(labels))[i]
            chosen, taking = [second], (codes == first) | (codes == second)
        centers = result.scaling.apply(path.features, np.float64)
        kernel = kernel_of_centers(result.kernel, path.widths)
        K = dense_kernel_columns(kernel, rows, centers, path.rows, float(base.epsilon))
        own, roots = w[taking], np.sqrt(w[taking])[:, None]
        design = np.column_stack([np.full(len(X), float(job.intercept)), K])[taking] * roots
        mean = own @ columns[taking][:, chosen] / own.sum() * job.intercept
        target = (columns[taking][:, chosen] - mean) * roots
        first = 0 if job.intercept else 1
        q, r = np.linalg.qr(design[:, first:])
        d = np.diag(r)
        u, s, z = np.eye(len(r) + first), np.full(len(r) + first, own.sum()), np.zeros((len(r) + first, len(chosen)))
        u[first:, first:], s[first:], z[first:] = r / d[:, None], d**2, (q * d).T @ target
        z[0] = 0.0
        factors = Factors(own.sum(), np.square(target).sum(axis=0), len(centers), job.regularization)
        gcv, scores = [], []
        for j in range(1, len(s)):
            gcv.append(factors.append(u[:j, j], s[j], z[j])[1])
            scores.append(factors.score(job.stop))
        kept = path.n_centers if scores[0] is None else int(np.argmin(scores)) + 1
        norms = np.square(target).sum(axis=0)
        lambdas = factors.lambdas.copy()
        paths.append(
            replace(path, n_centers=kept, u=u, s=s, z=z, lambdas=lambdas, gcv=np.array(gcv), target_norms=norms)
        )
        means[list(outputs)] = mean
    shares = None if labels is None else np.bincount(codes, weights=w, minlength=len(labels))
    model = copy(base)
    summary = result.summary | {"n_rows": len(X), "first_rows": result.summary["n_rows"]}
    whole = replace(result, paths=paths, target_means=means, class_weights=shares, summary=summary, history=reasons)
    model._take(whole, [path.n_centers for path in paths])
    if shares is not None:
        model._set_class_weights(shares)
    if getattr(base, "_sample", None) is not None:
        source = ArraySource(X, y if labels is None else codes, weights, classes=labels)
        given_shares = np.ones(1) if shares is None else shares / shares.sum()
        drawn = draw_rows(source, labels, given_shares, seed=base._seed, client=None)
        model._sample = replace(drawn, weights=drawn.weights * w[0] / raw[0])
    return model


def in_parts(base: Any, X: Array, y: Array, weights: Array | None, edges: list[int]) -> Any:
    for a, b in pairwise(edges):
        base.append(X[a:b], y[a:b], sample_weight=None if weights is None else weights[a:b])
    return base


def assert_one_fit(ours: Any, reference: Any, X: Array, tolerance: float = 1e-8) -> None:
    for name in ("coef_", "intercept_", "lambda_"):
        a, b = np.asarray(getattr(ours, name)), np.asarray(getattr(reference, name))
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(1.0, np.abs(b).max()), err_msg=name)
    np.testing.assert_array_equal(ours.center_indices_, reference.center_indices_)
    if hasattr(ours, "classes_"):
        np.testing.assert_allclose(ours.class_prior_, reference.class_prior_, rtol=1e-12)
        np.testing.assert_allclose(ours.predict_proba(X), reference.predict_proba(X), rtol=tolerance, atol=tolerance)
        np.testing.assert_array_equal(ours.predict(X), reference.predict(X))
    elif ours._has_closed_form():
        np.testing.assert_allclose(ours.predict_interval(X), reference.predict_interval(X), rtol=1e-7, atol=1e-7)
        ours_std, theirs = ours.predict(X, return_std=True)[1], reference.predict(X, return_std=True)[1]
        np.testing.assert_allclose(ours_std, theirs, rtol=tolerance)


@pytest.mark.parametrize(
    "model",
    [
        dk.OROLSRegressor(sigma=1.0, max_centers=25),
        dk.OROLSRegressor(sigma=(0.5, 1.0, 2.0), max_centers=20, epsilon=0.3, stop=None, regularization="evidence"),
        dk.OROLSRegressor(sigma=1.0, max_centers=25, refit="rkhs", selection_rows=20),
        dk.OROLSRegressor(sigma="median", max_centers=20, regularization="gcv-per-target", stop="validation"),
        dk.NPDRegressor(sigma=1.0, max_centers=12, epsilon=0.5),
        dk.OROLSRegressor(sigma=1.0, max_centers=24, fit_intercept=False),
        dk.OROLSClassifier(sigma=1.0, max_centers=12, multiclass="one-vs-one", fit_intercept=False),
        *(dk.OROLSClassifier(sigma=1.0, max_centers=12, multiclass=scheme) for scheme in CLASSES),
        dk.NPDClassifier(sigma=1.0, max_centers=10),
    ],
    ids=repr,
)
def test_ten_parts_equal_one_fit(model: Any) -> None:
    X, y = regression(N, n_targets=2) if isinstance(model, dk.OROLSRegressor) else data_for(model, N)
    weights = None if model.max_centers == 20 else np.random.default_rng(1).uniform(0.5, 2.0, N)
    held = model.stop == "validation"
    cut = None if weights is None else weights[: N // 10]
    base = model.fit(X[: N // 10], y[: N // 10], sample_weight=cut)
    first = copy(base)
    ours = in_parts(base, X, y, weights, list(range(N // 10, N + 1, N // 10)))
    assert ours.summary_["n_rows"] == N
    assert len(ours.summary_["appended"]) == 9
    if held:  # a row that was held out of the first fit stays so
        assert ours._result.paths[0].s[0] < (N if weights is None else weights.sum())
        return
    # The search for the penalty of refit="rkhs" ends at a relative width of 1e-6.
    tolerance = 1e-5 if getattr(model, "refit", None) else 1e-8
    assert_one_fit(ours, one_fit(first, X, y, weights), X[:50], tolerance)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 99), cuts=st.lists(st.integers(41, N - 1), max_size=4, unique=True), share=st.booleans())
def test_any_parts_with_any_weights_equal_one_fit(seed: int, cuts: list[int], share: bool) -> None:
    rng = np.random.default_rng(seed)
    X, y = regression(N, d=1 + seed % 3, seed=seed)
    weights = rng.integers(0, 4, N) / (N if share else 1)  # shares of a whole, or repeated rows, some of them none
    weights[:5] = weights.max()
    edges = [40, *sorted(cuts), N]
    # A part without any weight is refused.
    assume(all(weights[a:b].any() for a, b in pairwise(edges)))
    base = dk.OROLSRegressor(sigma=0.7, max_centers=15).fit(X[:40], y[:40], sample_weight=weights[:40])
    first = copy(base)
    assert_one_fit(in_parts(base, X, y, weights, edges), one_fit(first, X, y, weights), X[:40])


def test_repeated_centres_after_rows_far_away_keep_their_weights() -> None:
    # Nearly dependent columns, and rows that none of them reaches.
    X, y = regression(N, d=1, noise=1e-3)
    X[200:] += 40.0
    base = dk.OROLSRegressor(sigma=2.0, max_centers=30, stop=None, regularization=1e-6).fit(X[:100], y[:100])
    first = copy(base)
    ours, whole = in_parts(base, X, y, None, [100, 150, N]), one_fit(first, X, y)
    np.testing.assert_allclose(ours.predict(X), whole.predict(X), atol=1e-8 * np.abs(y).max())


def test_single_precision_is_close() -> None:
    X, y = regression(N)
    base = dk.OROLSRegressor(sigma=1.0, max_centers=15, dtype="float32").fit(X[:100].astype("f4"), y[:100])
    first = copy(base)
    ours = in_parts(base, X.astype("f4"), y, None, [100, 200, N])
    np.testing.assert_allclose(ours.predict(X), one_fit(first, X, y).predict(X), atol=1e-3)


def test_single_rows_may_come_one_by_one() -> None:
    model = fitted(dk.OROLSRegressor)
    X, y = regression(3, seed=7)
    for row in range(3):
        drift = model.append(X[row : row + 1], y[row : row + 1])
    assert (drift.n_rows, drift.rows_before, drift.score) == (1, 122, "rmse")
    assert drift.after < drift.before


def test_a_model_of_no_centre_moves_its_mean() -> None:
    X, y = regression(40)
    model = dk.OROLSRegressor(max_centers=3, sigma=1.0).fit(X, y)
    model._take(replace(model._result, paths=[_constant(model._result.paths[0])]), [0])
    model.append(X[:10], y[:10] + 5.0)
    np.testing.assert_allclose(model.predict(X[:2]), np.average(np.r_[y, y[:10] + 5.0]), rtol=1e-12)


def _constant(path: Any) -> Any:
    none = path.rows[:0]
    path = replace(path, n_centers=0, rows=none, widths=none, features=path.features[:0], gcv=path.gcv[:0])
    return replace(path, u=path.u[:1, :1], s=path.s[:1], z=path.z[:1], lambdas=path.lambdas[:1])


def test_predictions_keep_the_shape_of_the_first_targets() -> None:
    X, y = regression(60)
    model = fitted(dk.OROLSRegressor)
    model.append(X, y[:, None])
    assert model.predict(X).shape == (60,)


@pytest.mark.parametrize("cls", [dk.OROLSRegressor, dk.OROLSClassifier])
def test_the_drift_is_that_of_predictions(cls: Any) -> None:
    X, y = data_for(cls, N)
    model = cls(sigma=1.0, max_centers=12).fit(X[:FIRST], y[:FIRST])
    weights = np.random.default_rng(0).uniform(0.1, 3.0, N - FIRST)

    def error() -> float:
        predicted = model.predict(X[FIRST:])
        if cls is dk.OROLSClassifier:
            return float(np.average(predicted != y[FIRST:], weights=weights))
        return float(np.sqrt(np.average(np.square(predicted - y[FIRST:]), weights=weights)))

    before = error()
    drift = model.append(X[FIRST:], y[FIRST:], sample_weight=weights)
    assert drift.before == pytest.approx(before, rel=1e-12)
    assert drift.after == pytest.approx(error(), rel=1e-12)
    assert drift.score == ("error" if cls is dk.OROLSClassifier else "rmse")
    assert f"{drift.before:.4g} before" in str(drift)


def test_rows_that_changed_show_in_the_drift() -> None:
    X, y = regression(N)
    model = dk.OROLSRegressor(sigma=1.0, max_centers=20).fit(X[:FIRST], y[:FIRST])
    alike = copy(model).append(X[FIRST:], y[FIRST:])
    other = copy(model).append(X[FIRST:], -y[FIRST:])
    assert alike.before < 2 * alike.expected < other.before


def stores(folder: Path, parts: int, **options: Any) -> tuple[Array, Array, list[Path]]:
    X, y = classes(N)
    edges = np.linspace(0, N, parts + 1).astype(int)
    places = []
    for i, (a, b) in enumerate(pairwise(edges)):
        places.append(folder / f"part-{i}.zarr")
        write_dataset(places[-1], X[a:b], y[a:b], chunk_rows=17, task="classification", **options)
    return X, y, places


def state_of(run: Path) -> dict[str, bytes]:
    """The arrays of a run's sums, byte by byte."""
    (place,) = run.glob("sums-*")
    return {file.name: file.read_bytes() for file in place.glob("*.npy")}


def test_another_process_continues_a_run_without_its_rows(tmp_path: Path) -> None:
    X, _, places = stores(tmp_path, 3)
    settings_ = {"sigma": 1.0, "max_centers": 10, "multiclass": "one-vs-one"}
    model = dk.OROLSClassifier(**settings_, run_dir=tmp_path / "a.run").fit(open_dataset(places[0]))
    shutil.rmtree(places[0])
    shutil.copytree(tmp_path / "a.run", tmp_path / "b.run")
    model.append(open_dataset(places[1]))
    model.append(open_dataset(places[2]))
    for place in places[1:]:  # each in a process of its own, as far as the estimator knows
        dk.load_model(tmp_path / "b.run").append(open_dataset(place))
    assert state_of(tmp_path / "a.run") == state_of(tmp_path / "b.run")
    loaded = dk.load_model(tmp_path / "b.run")
    assert_equal_models(loaded, model)
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert loaded.truncate(2).n_centers_ <= model.n_centers_
    assert [part["n_rows"] for part in loaded.summary_["appended"]] == [100, 100]
    assert loaded.summary_["n_rows"] == N
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(dk.load_model(tmp_path / "model").predict_proba(X), model.predict_proba(X))


def test_only_new_rows_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, places = stores(tmp_path, 2)
    model = dk.OROLSClassifier(sigma=1.0, max_centers=10).fit(open_dataset(places[0]))
    reads: list[tuple[str, int]] = []
    source = type(open_dataset(places[1]).source())
    plain = source.read_features

    def counted(self: Any, block: int) -> Any:
        reads.append((self.place, block))
        return plain(self, block)

    monkeypatch.setattr(source, "read_features", counted)
    before = model.summary_["passes"]
    model.append(open_dataset(places[1]))
    blocks = len(open_dataset(places[1]).source().boundaries) - 1
    # Sums, errors, and rows that calibrate: three reads of every new block.
    assert sorted(reads) == sorted((str(places[1]), block) for block in range(blocks) for _ in range(3))
    assert model.summary_["passes"] == before + 3


@pytest.mark.parametrize("fail", ["sums", "errors", "store"])
def test_a_part_that_is_cut_short_changes_nothing_and_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fail: str
) -> None:
    _, _, places = stores(tmp_path, 3)
    run, data = tmp_path / "a.run", open_dataset(places[1])
    model = dk.OROLSClassifier(sigma=1.0, max_centers=10, run_dir=run).fit(open_dataset(places[0]))
    shutil.copytree(run, tmp_path / "b.run")
    kept, known = state_of(run), pickle.dumps(model.coef_)
    target = {
        "sums": "distkern.estimators.base.appending.extend",
        "errors": "distkern.estimators.base.appending.compare",
        "store": "distkern.estimators.base.kept_sums.write_model",
    }[fail]

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(target, killed)
        with pytest.raises(KeyboardInterrupt):
            model.append(data)
    assert state_of(run) == kept
    assert pickle.dumps(model.coef_) == known
    assert "appended" not in model.summary_
    dk.load_model(run).append(data)
    other = dk.load_model(tmp_path / "b.run")
    other.append(data)
    assert state_of(run) == state_of(tmp_path / "b.run")


@pytest.mark.parametrize("scheme", ["shared", "one-vs-rest"])
def test_the_plan_holds(scheme: str) -> None:
    X, y = classes(3000, d=8)
    model = dk.OROLSClassifier(sigma=2.0, max_centers=150, stop=None, multiclass=scheme).fit(X[:1000], y[:1000])
    plan = model.plan_append(ArraySource(X[1000:], y[1000:], classes=model.classes_))
    assert plan.passes == 3
    assert plan.course is not None
    assert plan.course.flops["total"] > 2 * 2000 * 150**2
    tracemalloc.start()
    try:
        model.append(X[1000:], y[1000:])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    planned = plan.peak - BASELINE
    assert peak < planned < 40 * peak


@pytest.mark.cluster
def test_the_bits_are_those_of_one_process(tmp_path: Path) -> None:
    _, _, places = stores(tmp_path, 2)
    first, new = (open_dataset(place) for place in places)
    model = dk.OROLSClassifier(sigma=1.0, max_centers=10, multiclass="one-vs-one").fit(first)
    here = copy(model)
    drift = here.append(new)
    for n_workers, processes in ((3, False), (2, True)):
        with cluster(n_workers, processes=processes) as client:
            there = copy(model)
            there.client = client
            assert there.append(new) == drift
        assert_equal_models(there, here)
        for name in ("rows", "features", "codes", "weights", "shares"):
            np.testing.assert_array_equal(getattr(there._sample, name), getattr(here._sample, name))


def test_what_cannot_be_appended_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    X, y = regression(N)
    model = dk.OROLSRegressor(sigma=1.0, max_centers=10).fit(X[:FIRST], y[:FIRST])
    known = model.coef_.tobytes()
    with pytest.raises(DataError, match="features"):
        model.append(X[:, :1], y)
    with pytest.raises(DataError, match="weight is zero"):
        model.append(X, y, sample_weight=np.zeros(N))
    with pytest.raises(DataError, match="NaN"):
        model.append(np.full_like(X, np.nan), y)
    with pytest.raises(DataError, match="overflow"):
        model.append(X, np.full(N, 1e300))
    with pytest.raises(DataError) as wrong:
        model.append(X, np.column_stack([y, y]))
    assert wrong.value.kind == "target-count"
    assert model.coef_.tobytes() == known
    assert model.n_features_in_ == 2
    model.save(tmp_path / "model")
    with pytest.raises(RunError) as loaded:
        dk.load_model(tmp_path / "model").append(X, y)
    assert loaded.value.kind == "no-path"
    large = dk.OROLSRegressor(sigma=1.0, max_centers=10, solver="conjugate-gradients").fit(X, y)
    with pytest.raises(JobError) as solved:
        large.append(X, y)
    assert solved.value.kind == "no-append"
    robust = dk.OROLSRegressor(sigma=1.0, max_centers=10, loss="huber").fit(X, y)
    with pytest.raises(JobError, match="huber"):
        robust.append(X, y)
    small = copy(model).set_params(memory_limit=1000)
    with pytest.raises(BudgetError, match="errors"):
        small.append(X, y)
    labels = fitted(dk.OROLSClassifier)
    rows, codes = classes(60, n_classes=5)
    with pytest.raises(DataError) as unknown:
        labels.append(rows, codes)
    assert unknown.value.kind == "unknown-class"


def test_runs_with_appended_rows_are_not_trained_anew(tmp_path: Path) -> None:
    X, y = regression(N)
    model = dk.OROLSRegressor(sigma=1.0, max_centers=8, run_dir=tmp_path / "a.run").fit(X[:FIRST], y[:FIRST])
    model.append(X[FIRST:], y[FIRST:])
    with pytest.raises(RunError) as resumed:
        model.fit(X[:FIRST], y[:FIRST])
    assert resumed.value.kind == "appended"
    older = dk.load_model(tmp_path / "a.run")
    model.append(X[:9], y[:9])
    with pytest.raises(RunError) as superseded:
        older.append(X[:9], y[:9])
    assert superseded.value.kind == "superseded"


def test_runs_without_sums_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    X, y = regression(N)
    run = tmp_path / "a.run"
    dk.OROLSRegressor(sigma=1.0, max_centers=8, run_dir=run, solver="conjugate-gradients").fit(X, y)
    with pytest.raises(RunError) as without:
        dk.load_model(run)
    assert without.value.kind == "no-sums"
    other = tmp_path / "b.run"
    dk.OROLSRegressor(sigma=1.0, max_centers=8, run_dir=other).fit(X, y)
    (place,) = other.glob("sums-*")
    values = np.load(place / "path0_s.npy")
    np.save(place / "path0_s.npy", values[:-1])
    with pytest.raises(StoreError) as damaged:
        dk.load_model(other)
    assert damaged.value.kind == "corrupt"


def test_the_metric_and_the_names_are_kept(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    X, y = regression(N, d=3)
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    model = dk.OROLSRegressor(max_centers=10, metric="diagonal", metric_rounds=2, run_dir=tmp_path / "a.run")
    model.fit(frame[:FIRST], y[:FIRST])
    loaded = dk.load_model(tmp_path / "a.run")
    np.testing.assert_array_equal(loaded.metric_, model.metric_)
    assert list(loaded.feature_names_in_) == ["a", "b", "c"]
    assert loaded.append(frame[FIRST:], y[FIRST:]) == model_in_memory(model).append(frame[FIRST:], y[FIRST:])


def model_in_memory(model: Any) -> Any:
    other = copy(model)
    other.run_dir = None
    return other

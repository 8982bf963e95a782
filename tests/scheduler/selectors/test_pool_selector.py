"""Paths against dense references: what the pool chooses, what the factors are, where a path ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distkern.errors import DataError
from distkern.kernels import Linear
from distkern.scheduler.protocol.selection_settings import SelectionSettings
from distkern.scheduler.selectors.pool_selector import PoolSelector
from distkern.selection.candidate_pool import Pool
from distkern.selection.criteria import path_score
from distkern.selection.factors import finish_panel
from distkern.selection.stopping import LambdaConverged, MinimumPassed, StopReason, StopRule
from distkern.storage import ArraySource
from tests.references import gaussian_gram, greedy_error_reduction
from tests.scheduler.trainings import (
    Inside,
    Trained,
    assert_same_bits,
    check_each_round,
    cut,
    make_classes,
    make_data,
    make_job,
    make_source,
    tile_threads,
    train_serial,
    weights_of,
    with_duplicates,
)

Array = Any

seeds = st.integers(0, 10_000)
POOL_KINDS = st.sampled_from(["residual-weighted", "top-residual", "uniform", "mixture", "all"])


# ---- The pool


@given(st.integers(12, 60), st.integers(1, 30), st.integers(2, 9), st.integers(1, 3), seeds, st.sampled_from([0, 0.3]))
def test_all_rows_as_candidates_is_greedy_error_reduction(
    n: int, rows: int, panel: int, n_targets: int, seed: int, share: float
) -> None:
    X, y = make_data(n, seed=seed, n_targets=n_targets, noise=0.3)
    X = with_duplicates(X, seed, share)
    count = min(12, n // 3)
    job = make_job(sampler="all", panel=panel, max_centers=count, sigma=0.8)
    trained = train_serial(job, make_source(X, y, rows=rows), each_round=check_each_round())
    K, one = gaussian_gram(X, 0.8), np.ones((n, 1))
    dense = greedy_error_reduction(K, one, y - y.mean(axis=0), count)
    for j, (ours, theirs) in enumerate(zip(trained.path.rows, dense, strict=False)):
        if ours != theirs and not np.array_equal(X[ours], X[theirs]):
            # Only a tie may be broken in another way.
            gains = [gain(K, one, y - y.mean(axis=0), dense[:j], row) for row in (ours, theirs)]
            assert gains[0] == pytest.approx(gains[1], rel=1e-6)
            return


def gain(K: Array, basis: Array, target: Array, chosen: list[int], row: int) -> float:
    """Error reduction of one more column."""
    before, _ = np.linalg.qr(np.column_stack([basis, K[:, chosen]]))
    after, _ = np.linalg.qr(np.column_stack([basis, K[:, chosen], K[:, row]]))
    return float(np.square(after.T @ target).sum() - np.square(before.T @ target).sum())


@given(
    st.integers(30, 150),
    st.integers(5, 60),
    st.integers(2, 8),
    st.integers(4, 30),
    POOL_KINDS,
    st.sampled_from(["gcv", "gcv-per-target", "evidence", "evidence-per-target", "none", 0.5]),
    st.integers(0, 3),
    seeds,
)
def test_every_pool_path_keeps_its_equations(
    n: int, rows: int, panel: int, candidates: int, sampler: str, regularization: Any, n_targets: int, seed: int
) -> None:
    X, y = make_data(n, seed=seed, n_targets=n_targets)
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, 3, n).astype(float) if seed % 2 else None
    if weights is not None:
        weights[:5] = 1.0
    job = make_job(
        sampler=sampler,
        panel=panel,
        candidates=candidates,
        regularization=regularization,
        max_centers=18,
        epsilon=0.05 * (seed % 3),
        seed=seed,
    )
    trained = train_serial(job, make_source(X, y, weights, rows=rows), each_round=check_each_round())
    trained.check()
    path = trained.path
    history = trained.result.history
    assert history["center"].tolist() == path.rows.tolist()
    np.testing.assert_array_equal(history["q_norm"], np.sqrt(path.s[1:]))
    np.testing.assert_array_equal(history["gcv"], path.gcv)
    np.testing.assert_array_equal(history["lambda_"], path.lambdas[1:].max(axis=1))
    assert (np.diff(history["round"]) >= 0).all()
    if regularization == "none":
        design = trained.design()
        targets = trained.targets()
        ours, theirs = weights_of(trained), np.linalg.lstsq(design, targets, rcond=None)[0]
        condition = np.linalg.cond(design)
        np.testing.assert_allclose(design @ ours, design @ theirs, rtol=0, atol=1e-9 * max(1.0, np.abs(targets).max()))
        if condition < 1e6:
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-14 * condition**2 * np.abs(theirs).max() + 1e-12)


@given(seeds, st.integers(2, 6))
def test_the_history_has_the_largest_residual_of_the_round(seed: int, panel: int) -> None:
    X, y = make_data(60, seed=seed)
    largest = [np.abs(y - y.mean()).max()]
    job = make_job(panel=panel, max_centers=10, seed=seed)
    trained = train_serial(
        job,
        make_source(X, y, rows=17),
        each_round=lambda inside: largest.append(np.abs(inside.held("residual")).max()),
    )
    for value in trained.result.history["residual_max"]:
        assert min(abs(value - known) for known in largest) <= 1e-12


# ---- Degenerate data


def test_duplicate_rows_exhaust_the_candidates() -> None:
    X = np.repeat(np.array([[0.0, 0.0], [1.0, 0.5], [2.0, -1.0], [0.5, 3.0]]), 15, axis=0)
    y = np.random.default_rng(0).standard_normal(60)
    for criterion in ("error-reduction", "residual"):
        for sampler in ("all", "residual-weighted", "uniform"):
            job = make_job(criterion=criterion, sampler=sampler, regularization="none", candidates=16)
            trained = train_serial(job, make_source(X, y, rows=13), each_round=check_each_round())
            trained.check()
            assert trained.path.reason is StopReason.CANDIDATES_EXHAUSTED
            # Four different rows span [1 K]; with the constant only three or four columns are independent.
            assert 3 <= trained.path.n_centers <= 4
            fitted = trained.design() @ weights_of(trained)
            means = y.reshape(4, 15).mean(axis=1) - y.mean()
            if trained.path.n_centers == 4:
                np.testing.assert_allclose(fitted[:, 0], np.repeat(means, 15), rtol=0, atol=1e-8)


@given(st.integers(10, 50), st.integers(1, 20), st.sampled_from(["error-reduction", "residual"]), POOL_KINDS, seeds)
def test_columns_that_depend_on_the_constant_leave_the_mean(
    n: int, rows: int, criterion: str, sampler: str, seed: int
) -> None:
    """A linear kernel with a feature that is 1 at every row but a multiple of the rest: K has rank one."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), np.zeros(n)])
    X[:, 1] = 1e-30 * rng.standard_normal(n)  # not constant, but below rounding
    job = make_job(kernel=Linear(), criterion=criterion, sampler=sampler, candidates=6, seed=seed)
    trained = train_serial(job, make_source(X, rng.standard_normal(n), rows=rows))
    assert trained.path.reason is StopReason.CANDIDATES_EXHAUSTED
    assert trained.path.n_centers == 0
    assert trained.path.features.shape == (0, 2)
    assert trained.path.u.shape == (1, 1)
    trained.check()


@given(seeds, st.sampled_from(["error-reduction", "residual"]), st.sampled_from([1, 2, 3]))
def test_constant_columns_and_low_rank(seed: int, criterion: str, rank: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((40, rank)) @ rng.standard_normal((rank, 5))
    X = np.column_stack([X, np.full(40, 7.0)])
    job = make_job(kernel=Linear(), criterion=criterion, regularization="none", standardize=bool(seed % 2), seed=seed)
    trained = train_serial(job, make_source(X, rng.standard_normal(40), rows=11), each_round=check_each_round())
    trained.check()
    assert trained.path.reason is StopReason.CANDIDATES_EXHAUSTED
    assert trained.path.n_centers == rank


@pytest.mark.parametrize("criterion", ["error-reduction", "residual"])
def test_more_centers_than_rows(criterion: str) -> None:
    X, y = make_data(15)
    job = make_job(max_centers=100, criterion=criterion, regularization="none", sigma=0.3)
    trained = train_serial(job, make_source(X, y, rows=4))
    trained.check()
    assert trained.path.n_centers in (14, 15)
    np.testing.assert_allclose(trained.held("residual"), 0.0, atol=1e-8)


@given(seeds, st.floats(0.0, 1e3))
def test_a_constant_target_is_its_mean(seed: int, value: float) -> None:
    X, _ = make_data(40, seed=seed)
    for criterion in ("error-reduction", "residual"):
        trained = train_serial(
            make_job(criterion=criterion, max_centers=5, seed=seed), make_source(X, np.full(40, value))
        )
        trained.check()
        assert trained.result.target_means[0] == value
        np.testing.assert_array_equal(weights_of(trained), 0.0)


@pytest.mark.parametrize("n", [3, 4, 5])
def test_the_smallest_data(n: int) -> None:
    X, y = make_data(n, noise=1.0)
    for criterion in ("error-reduction", "residual"):
        for stop in (None, "gcv", "lambda"):
            trained = train_serial(
                make_job(criterion=criterion, stop=stop, panel=2, candidates=2), make_source(X, y, rows=2)
            )
            trained.check()
            assert trained.path.n_centers <= n
            assert np.isfinite(weights_of(trained)).all()


@pytest.mark.parametrize(
    ("X", "weights", "kind"),
    [
        (np.arange(2.0)[:, None], None, "too-few-rows"),
        (np.arange(9.0)[:, None], np.where(np.arange(9) > 0, 1e-9, 1.0), "weight-sum"),
        (np.arange(9.0)[:, None], np.zeros(9), "too-few-rows"),
        (np.arange(9.0)[:, None], np.eye(9)[3], "too-few-rows"),
        (np.ones((9, 2)), None, "constant-features"),
    ],
)
def test_data_that_cannot_be_trained_on(X: Array, weights: Array, kind: str) -> None:
    with pytest.raises(DataError) as error:
        train_serial(make_job(), ArraySource(X, np.arange(float(len(X))), weights))
    assert error.value.kind == kind


def test_one_class_cannot_be_trained_on() -> None:
    X, y = make_classes(30, 2)
    with pytest.raises(DataError, match="class 1") as error:
        train_serial(make_job(classification=True), ArraySource(X, y, (y == "class 1").astype(float)))
    assert error.value.kind == "one-class"


# ---- Columns dropped from a formed panel


class StrictSettings(SelectionSettings):
    """Ask more of a finished column than the pool asks of a candidate."""

    @property
    def dependent(self) -> float:
        return 1e-2


class Dropping(PoolSelector):
    """Picks candidates that finishing the panel then finds dependent."""

    dropped = 0

    def _start(self, n_targets: int) -> None:
        super()._start(n_targets)
        assert self._pool.dependent == 1e-14
        self.settings = StrictSettings(**vars(self.settings))

    def _accept(self, answer: Any) -> Any:
        update = super()._accept(answer)
        self.dropped += len(answer.sums["gram"]) and update.survivors.shape[1] - len(update.kept)
        return update


def nearly_dependent(seed: int) -> tuple[Array, Array]:
    """Ten places with six rows each, almost in the same spot."""
    rng = np.random.default_rng(seed)
    X = np.tile(make_data(10, seed=seed)[0], (6, 1)) + 1e-2 * rng.standard_normal((60, 2))
    return X, rng.standard_normal((60, 2))


@given(seeds, st.sampled_from(["all", "residual-weighted", "mixture"]), st.integers(2, 8), st.integers(5, 60))
def test_dropping_columns_of_a_panel_keeps_the_equations(seed: int, sampler: str, panel: int, rows: int) -> None:
    X, y = nearly_dependent(seed)
    job = make_job(sampler=sampler, panel=panel, candidates=20, sigma=0.6, max_centers=30, seed=seed)
    trained = train_serial(job, make_source(X, y, rows=rows), pool_selector=Dropping, each_round=check_each_round())
    trained.check()
    assert 5 <= len(trained.path.rows) <= 20
    assert trained.path.reason is StopReason.CANDIDATES_EXHAUSTED


def test_columns_are_dropped_there() -> None:
    dropped = 0
    for seed in range(4):
        X, y = nearly_dependent(seed)
        job = make_job(sampler="all", panel=6, sigma=0.6, max_centers=30)
        trained = train_serial(job, make_source(X, y, rows=23), pool_selector=Dropping)
        dropped += trained.selectors[0].dropped  # type: ignore[attr-defined]
    assert dropped > 20


@given(seeds, st.sampled_from([0.0, 1e-9, 1e-8, 1e-7]), st.integers(2, 8), st.sampled_from(["all", "mixture"]))
def test_candidates_at_the_limit_of_dependence(seed: int, noise: float, panel: int, sampler: str) -> None:
    X, y = at_the_limit(seed, noise)
    job = make_job(sampler=sampler, panel=panel, candidates=20, sigma=0.6, max_centers=30, seed=seed)
    trained = train_serial(job, make_source(X, y, rows=23), each_round=lambda inside: inside.check())
    trained.check()
    assert len(trained.path.rows) >= 8


def at_the_limit(seed: int, noise: float) -> tuple[Array, Array]:
    """Ten places with six rows each: their columns differ by about as much as rounding errors."""
    rng = np.random.default_rng(seed)
    return np.tile(make_data(10, seed=seed)[0], (6, 1)) + noise * rng.standard_normal((60, 2)), rng.standard_normal(60)


@pytest.mark.parametrize("seed", range(4))
def test_the_pool_stays_orthogonal_at_the_limit_of_dependence(seed: int) -> None:
    """Elimination by a tiny column must not fill the pool with errors larger than the candidates."""
    X, y = at_the_limit(seed, 1e-7)
    job = make_job(sampler="all", panel=2 + seed, sigma=0.6, max_centers=30, seed=seed)
    train_serial(job, make_source(X, y, rows=23), each_round=check_each_round(pool=1e-3))


@given(seeds, st.integers(2, 8), st.sampled_from([1.0, 1e-2, 1e-4, 1e-6]))
def test_giving_back_undoes_the_elimination(seed: int, count: int, noise: float) -> None:
    """A panel of which no column is kept leaves S and R as they were, also with large multipliers."""
    rng = np.random.default_rng(seed)
    P = np.tile(rng.standard_normal((50, 5)), 3) + noise * rng.standard_normal((50, 15))
    E = rng.standard_normal((50, 2))
    pool = Pool(15, 3, 2, 1e-14)
    pool.insert(np.arange(15), np.arange(15), rng.standard_normal((15, 2)), np.square(P).sum(axis=0), np.ones((1, 15)))
    pool.merge_gram(np.arange(15), P.T @ P, P.T @ E)
    panel = pool.pick(count)
    pool.clear(panel.slots)
    F = P[:, panel.slots] @ np.linalg.inv(panel.lower)
    left = pool.active
    eliminated = P - F @ panel.multipliers
    pool.restore(panel.multipliers, panel)
    rebuilt = (eliminated + F @ panel.multipliers)[:, left]
    size = np.linalg.norm(rebuilt, axis=0)
    np.testing.assert_allclose(
        (pool.gram[np.ix_(left, left)] - rebuilt.T @ rebuilt) / np.outer(size, size), 0.0, atol=1e-10
    )
    np.testing.assert_allclose((pool.products[left] - rebuilt.T @ E) / size[:, None], 0.0, atol=1e-9)


@given(seeds, st.integers(1, 7), st.integers(0, 5), st.integers(1, 3), st.data())
def test_finish_panel(seed: int, p: int, m: int, n_targets: int, data: st.DataObject) -> None:
    """Straight from its definition, with columns of the panel that depend on earlier ones."""
    rng = np.random.default_rng(seed)
    n = 40
    Q, _ = np.linalg.qr(rng.standard_normal((n, m + 1)))
    Q *= 10.0 ** rng.uniform(-2, 2, m + 1)
    s = np.square(Q).sum(axis=0)
    depends = [j > 0 and data.draw(st.booleans()) for j in range(p)]
    P = rng.standard_normal((n, p)) * 10.0 ** rng.uniform(-0.5, 0.5, p)
    for j in range(p):
        if depends[j]:
            P[:, j] = P[:, :j] @ (rng.choice([-1.0, 1.0], j) * rng.uniform(0.5, 1.0, j))
    P -= Q @ (Q.T @ P / s[:, None])
    leak = 1e-7 * rng.standard_normal((m + 1, p))  # what the first pass left
    P += Q @ leak * np.linalg.norm(P, axis=0) / np.sqrt(s.max())
    lower = np.triu(rng.uniform(-1, 1, (p, p)), 1) + np.eye(p)
    F = P @ np.linalg.inv(lower)
    E = rng.standard_normal((n, n_targets))
    norms = np.square(P).sum(axis=0)
    update = finish_panel(Q.T @ F, F.T @ F, F.T @ E, s, Q.T @ E, lower, norms, 1e-12)
    kept = list(update.kept)
    assert kept == [j for j in range(p) if not depends[j]]
    new = F @ update.combine - Q @ update.correct
    scale = np.linalg.norm(new, axis=0)
    np.testing.assert_allclose(update.s, scale**2, rtol=1e-7)
    np.testing.assert_allclose(new.T @ new / np.outer(scale, scale), np.eye(len(kept)), atol=1e-9)
    np.testing.assert_allclose((Q / np.sqrt(s)).T @ new / scale, 0.0, atol=1e-9)
    np.testing.assert_allclose(update.z / scale[:, None], new.T @ E / scale[:, None], atol=1e-8)
    # Pool columns of the kept candidates are Q u_top + Q_new u_new.
    np.testing.assert_array_equal(np.tril(update.u_new, -1), 0.0)
    np.testing.assert_allclose(update.u_new.diagonal(), 1.0, rtol=1e-12)
    rebuilt = Q @ update.u_top + new @ update.u_new
    np.testing.assert_allclose((rebuilt - P[:, kept]) / np.linalg.norm(P[:, kept], axis=0), 0.0, atol=1e-8)
    # F, less what is given back, is Q_new survivors + Q correct survivors: what elimination took for good.
    assert (update.restore is None) == (len(kept) == p)
    back = np.zeros((p, p)) if update.restore is None else update.restore
    taken = F @ (np.eye(p) - back)
    np.testing.assert_allclose(
        (new @ update.survivors + Q @ update.correct @ update.survivors - taken) / np.linalg.norm(F, axis=0),
        0.0,
        atol=1e-8,
    )
    np.testing.assert_allclose((new / scale).T @ (F @ back) / np.linalg.norm(F, axis=0), 0.0, atol=1e-6)


# ---- Row weights


@given(st.integers(12, 40), st.integers(2, 6), st.sampled_from(["error-reduction", "residual"]), st.booleans(), seeds)
def test_a_row_weight_equals_repeated_rows(n: int, panel: int, criterion: str, standardize: bool, seed: int) -> None:
    X, y = make_data(n, seed=seed, noise=0.5)
    counts = np.random.default_rng(seed).integers(0, 4, n)
    counts[:4] = 1
    count = min(6, int(np.count_nonzero(counts) // 2))
    job = make_job(
        criterion=criterion, sampler="all", panel=panel, max_centers=count, sigma="median", standardize=standardize
    )
    weighted = train_serial(job, make_source(X, y, counts.astype(float), rows=9))
    owner = np.repeat(np.arange(n), counts)
    repeated = train_serial(job, make_source(X[owner], y[owner], rows=14))
    assert weighted.result.kernel.sigma == pytest.approx(repeated.result.kernel.sigma, rel=1e-9)
    a, b = weighted.path, repeated.path
    rows = owner[b.rows]
    k = next((j for j, (i, r) in enumerate(zip(a.rows, rows, strict=False)) if i != r), min(len(a.rows), len(rows)))
    if criterion == "error-reduction":
        # Gaps are clear while centres are few; a tie between different rows is the only other way.
        assert k >= min(2, len(a.rows))
    np.testing.assert_allclose(a.s[: k + 1], b.s[: k + 1], rtol=1e-7)
    np.testing.assert_allclose(np.abs(a.z[: k + 1]), np.abs(b.z[: k + 1]), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(a.lambdas[: k + 1], b.lambdas[: k + 1], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(a.gcv[:k], b.gcv[:k], rtol=1e-7)
    np.testing.assert_allclose(a.u[: k + 1, : k + 1], b.u[: k + 1, : k + 1], rtol=1e-6, atol=1e-8)


# ---- Several classes


@pytest.mark.parametrize("criterion", ["error-reduction", "residual"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_one_vs_rest_is_separate_trainings(criterion: str, dtype: str) -> None:
    X, y = make_classes(150, 4, seed=3)
    job = make_job(
        classification=True,
        multiclass="one-vs-rest",
        criterion=criterion,
        dtype=dtype,
        stop="gcv",
        patience=6,
        max_centers=30,
    )
    together = train_serial(job, make_source(X, y, rows=40))
    together.check(**({"orthogonal": 1e-4, "accurate": 1e-3} if dtype == "float32" else {}))
    assert together.result.outputs == ((0,), (1,), (2,), (3,))
    assert len({len(path.rows) for path in together.result.paths}) > 1, "paths should end at different lengths"
    for k, path in enumerate(together.result.paths):
        alone = train_serial(replace(job, multiclass="shared"), make_source(X, y == f"class {k}", rows=40))
        one = replace(together.result, paths=[path], outputs=((0,),), reason=path.reason)
        rows = together.result.history[together.result.history["problem"] == k].copy()
        rows["problem"] = 0
        one = replace(one, history=rows, target_means=together.result.target_means[[k]])
        assert_same_bits(one, alone.result)


def test_shared_centers_have_one_path() -> None:
    X, y = make_classes(100, 3)
    trained = train_serial(make_job(classification=True), make_source(X, y), each_round=check_each_round())
    trained.check()
    assert trained.result.outputs == ((0, 1, 2),)
    assert trained.path.z.shape == (21, 3)


# ---- Where a path ends


def replayed(trained: Trained, rule: StopRule, values: Array) -> int | None:
    """Centres at which `rule` ends a path with these values."""
    for n, value in enumerate(values, start=1):
        if rule.observe(n, float(value)) is not None:
            return n
    return None


def scores(trained: Trained) -> list[float]:
    path = trained.path
    norms = np.square(trained.targets()).sum(axis=0)
    weight = float(np.square(trained.roots).sum())
    values = []
    for m in range(1, len(path.rows) + 1):
        value = path_score(trained.job.stop, path.s[: m + 1], path.z[: m + 1], norms, path.lambdas[m], weight)
        assert value is not None
        values.append(value)
    return values


@given(
    seeds,
    st.sampled_from([None, 3, 8]),
    st.sampled_from(["error-reduction", "residual"]),
    st.sampled_from([1, 2]),
    st.sampled_from(["gcv", "bic", "mdl"]),
)
def test_the_rules_that_look_for_a_minimum(
    seed: int, patience: int | None, criterion: str, n_targets: int, stop: str
) -> None:
    X, y = make_data(120, seed=seed, noise=1.0, n_targets=n_targets)
    job = make_job(stop=stop, patience=patience, max_centers=80, criterion=criterion, seed=seed)
    trained = train_serial(job, make_source(X, y))
    values, path = scores(trained), trained.path
    reason = StopReason.GCV_RISEN if stop == "gcv" else StopReason(stop)
    end = replayed(trained, MinimumPassed(reason, patience), values)
    assert end in (None, len(path.rows))
    assert (path.reason is reason) == (end is not None or path.n_centers < len(path.rows))
    assert path.n_centers == int(np.argmin(values)) + 1


@given(seeds, st.sampled_from([None, 0.3]), st.sampled_from([None, 2]))
def test_the_lambda_rule(seed: int, tol: float | None, patience: int | None) -> None:
    X, y = make_data(100, seed=seed, noise=0.5)
    job = make_job(stop="lambda", tol=tol, patience=patience, max_centers=60, seed=seed)
    trained = train_serial(job, make_source(X, y))
    path = trained.path
    rule = LambdaConverged(1e-2 if tol is None else tol, patience or 5)
    end = replayed(trained, rule, path.lambdas[1:].max(axis=1))
    assert end in (None, len(path.rows))
    assert (path.reason is StopReason.LAMBDA_CONVERGED) == (end is not None)
    assert path.n_centers == len(path.rows)


@pytest.mark.parametrize("criterion", ["error-reduction", "residual"])
def test_a_small_residual_ends_the_path(criterion: str) -> None:
    X, y = make_data(100, noise=0.0)
    job = make_job(tol=0.05, criterion=criterion, max_centers=100, regularization="none")
    trained = train_serial(job, make_source(X, y))
    assert trained.path.reason is StopReason.RESIDUAL_BELOW
    assert np.abs(trained.held("residual")).max() <= 0.05
    before = trained.result.history["residual_max"]
    assert (before > 0.05).all()
    at_once = train_serial(replace(job, tol=100.0), make_source(X, y))
    assert at_once.path.n_centers == 0
    assert at_once.path.reason is StopReason.RESIDUAL_BELOW


def test_the_condition_limit_ends_the_path() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (80, 1))
    for dtype, limit in (("float64", 1e10), ("float32", 1e6)):
        job = make_job(sigma=3.0, max_centers=60, regularization="none", dtype=dtype, sampler="all")
        trained = train_serial(job, make_source(X, rng.standard_normal(80)))
        s = trained.path.s
        assert np.sqrt(s.max() / s.min()) <= limit
        assert trained.path.reason in (StopReason.ILL_CONDITIONED, StopReason.CANDIDATES_EXHAUSTED)
        assert len(trained.path.rows) < 20


def test_max_centers_is_exact() -> None:
    X, y = make_data(100)
    for count in (1, 2, 5, 11):
        for criterion in ("error-reduction", "residual"):
            path = train_serial(make_job(max_centers=count, criterion=criterion), make_source(X, y)).path
            assert path.n_centers == len(path.rows) == count
            assert path.reason is StopReason.MAX_CENTERS


# ---- float32, threads, blocks


SINGLE = {"orthogonal": 1e-3, "accurate": 1e-3}


@given(seeds, POOL_KINDS, st.integers(2, 6))
def test_float32_keeps_its_tolerance(seed: int, sampler: str, panel: int) -> None:
    X, y = make_data(150, seed=seed, n_targets=2)
    job = make_job(dtype="float32", sampler=sampler, panel=panel, max_centers=24, candidates=30, seed=seed)
    source = make_source(X.astype(np.float32), y, rows=60)
    trained = train_serial(job, source, each_round=lambda inside: inside.check(**SINGLE))
    trained.check(**SINGLE)
    s = trained.path.s
    assert np.sqrt(s.max() / s.min()) <= 1e6


@pytest.mark.parametrize("seed", [57, 81, 141])
def test_float32_keeps_the_pool(seed: int) -> None:
    """Elimination must not let errors of the pool grow from panel to panel."""
    X, y = make_data(30 + seed, seed=seed, n_targets=1 + seed % 2)
    job = make_job(dtype="float32", sampler="all", panel=2 + seed % 6, max_centers=22, seed=seed)
    source = make_source(X.astype(np.float32), y, rows=20)
    train_serial(job, source, each_round=check_each_round(pool=1e-2, **SINGLE))


@pytest.mark.parametrize("seed", [57, 81, 141])
def test_exhausted_means_that_nothing_independent_is_left(seed: int) -> None:
    X, y = make_data(30 + seed, seed=seed, n_targets=1 + seed % 2)
    job = make_job(dtype="float32", sampler="all", panel=2 + seed % 6, max_centers=22, seed=seed)
    trained = train_serial(job, make_source(X.astype(np.float32), y, rows=20))
    if trained.path.reason is not StopReason.CANDIDATES_EXHAUSTED:
        return
    q, _ = np.linalg.qr(trained.design())
    K = trained.columns(trained.rows)
    left = K - q @ (q.T @ K)
    shares = np.square(left).sum(axis=0) / np.square(K).sum(axis=0)
    assert shares.max() < 1e-8, f"limit is {trained.job.selection(len(X)).dependent}"


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_pool_stays_orthogonal_on_real_data(shared_data: Any, dtype: str) -> None:
    data = shared_data("abalone")
    X, y = (data[name][:1500] for name in ("X", "y"))
    job = make_job(
        dtype=dtype, standardize=True, sigma="median", sampler="mixture", candidates=128, panel=16, max_centers=150
    )
    worst = []

    def look(inside: Inside) -> None:
        selector = inside.selectors[0]
        slots = np.flatnonzero(selector._pool.active)
        if selector.reason is None and not selector._finishing and len(slots):  # type: ignore[attr-defined]
            q = inside.held("q")
            held = inside.held("pool")[:, slots] / np.sqrt(selector._pool.norms[slots])
            worst.append(np.abs((q / np.linalg.norm(q, axis=0)).T @ held).max())

    train_serial(job, make_source(X.astype(dtype), y.astype(float), rows=500), each_round=look)
    assert max(worst) < (1e-2 if dtype == "float32" else 1e-6)


def test_float32_refreshes_the_pool() -> None:
    X, y = make_data(200, seed=1)
    job = make_job(dtype="float32", panel=2, max_centers=40, sigma=0.5)
    refreshed = []

    class Watching(PoolSelector):
        def receive(self, answer: Any) -> None:
            if "all_gram" in answer.sums:
                refreshed.append(self.round)
            super().receive(answer)

    trained = train_serial(job, make_source(X, y), pool_selector=Watching)
    assert refreshed
    gaps = np.diff([0, *refreshed, trained.selectors[0].round])
    assert gaps.max() <= 8


@pytest.mark.parametrize("criterion", ["error-reduction", "residual"])
def test_tile_threads_change_nothing(criterion: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5000, 3))
    y = np.sin(X).sum(axis=1)
    job = make_job(criterion=criterion, sigma="median", max_centers=12, candidates=40)
    results = []
    for width in (1, 2, 5):
        with tile_threads(width):
            results.append(train_serial(job, ArraySource(X, y, boundaries=cut(5000, 2100))).result)
    assert_same_bits(results[0], results[1])
    assert_same_bits(results[0], results[2])


@given(seeds, POOL_KINDS)
@pytest.mark.slow
def test_the_draw_does_not_depend_on_the_blocks(seed: int, sampler: str) -> None:
    """Other blocks round otherwise, but they draw and choose the same rows."""
    X, y = make_data(90, seed=seed, noise=0.5)
    job = make_job(sampler=sampler, seed=seed, max_centers=6, sigma=0.8)
    whole = train_serial(job, make_source(X, y, rows=90))
    for rows in (3, 60):
        parts = train_serial(job, make_source(X, y, rows=rows))
        np.testing.assert_array_equal(parts.path.rows, whole.path.rows)
        np.testing.assert_allclose(parts.path.s, whole.path.s, rtol=1e-8)


def test_the_seed_matters_and_repeats() -> None:
    X, y = make_data(200)
    one, again, other = (train_serial(make_job(seed=seed), make_source(X, y)) for seed in (1, 1, 2))
    assert_same_bits(one.result, again.result)
    assert one.path.rows.tolist() != other.path.rows.tolist()

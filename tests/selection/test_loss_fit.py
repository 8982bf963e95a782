"""Minima of losses on a sample against scikit-learn and scipy on the same columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize as scipy_minimise
from sklearn.linear_model import LogisticRegression, QuantileRegressor

from distkern.probability.leave_one_out import rows_of_q
from distkern.selection import loss_fit
from distkern.selection.loss_fit import LossBasis, LossSample, choose, minimise, residual_scales
from distkern.selection.losses import HUBER, LOGISTIC, QUANTILE, Loss
from tests.references import gaussian_gram

Array = NDArray[Any]


class Rows:
    """Weighted rows, of which the first m are centres, in the coordinates of a fit."""

    def __init__(self, n: int = 150, m: int = 8, *, weighted: bool = True, sigma: float = 0.8, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.X = rng.uniform(-2, 2, (n, 2))
        kernel = gaussian_gram(self.X, sigma)
        self.gram = kernel[:m, :m]
        self.weights = rng.integers(1, 4, n).astype(float) if weighted else np.ones(n)
        self.design = np.column_stack([np.ones(n), kernel[:, :m]])
        r = np.linalg.qr(np.sqrt(self.weights)[:, None] * self.design, mode="r")
        lengths = r.diagonal()
        self.u, self.s = r / lengths[:, None], lengths**2
        self.basis = LossBasis.of(self.u, self.s, self.gram)
        wave = np.sin(2 * self.X[:, :1]) + self.X[:, 1:]
        self.y = wave + 0.3 * rng.standard_t(3, (n, 1))
        self.codes = np.digitize(self.y[:, 0], [-0.7, 0.7])
        self.folds = rng.integers(0, 5, n)

    def sample(self, targets: Array) -> LossSample:
        columns = self.basis.columns(rows_of_q(self.design, self.u).copy())
        return LossSample(columns, targets, self.weights)

    def kernel_weights(self, coordinates: Array) -> Array:
        return np.asarray(np.linalg.solve(self.u, self.basis.orthogonal(coordinates)))

    def classes(self, n_classes: int) -> tuple[Array, Array]:
        codes = np.minimum(self.codes, n_classes - 1)
        if n_classes == 2:
            return codes, np.where(codes == 1, 1.0, -1.0)[:, None]
        return codes, np.where(codes[:, None] == np.arange(3), 1.0, -1.0)


def test_the_columns_are_orthonormal_and_the_penalty_is_that_of_the_kernel() -> None:
    rows = Rows()
    sample = rows.sample(rows.y)
    gram = (sample.columns * rows.weights[:, None]).T @ sample.columns
    np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-9)
    coordinates = np.random.default_rng(1).standard_normal((len(gram), 2))
    weights = rows.kernel_weights(coordinates)
    np.testing.assert_allclose(rows.design @ weights, sample.columns @ coordinates, atol=1e-9)
    expected = np.einsum("it,ij,jt->t", weights[1:], rows.gram, weights[1:])
    np.testing.assert_allclose(rows.basis.penalties @ np.square(coordinates), expected, rtol=1e-8)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_logistic_fit_is_that_of_scikit_learn(n_classes: int) -> None:
    rows, lam = Rows(), 0.3
    codes, targets = rows.classes(n_classes)
    fit = choose(
        rows.sample(targets), Loss(LOGISTIC, 0.0, np.ones(targets.shape[1])), rows.basis.penalties, rows.folds, [lam]
    )
    assert fit.lam == lam
    ours = rows.sample(targets).columns @ fit.coordinates
    # With features K F^-1, F'F = K_mm, the ridge of the coefficients is the norm of the kernel's space.
    features = rows.design[:, 1:] @ np.linalg.inv(np.linalg.cholesky(rows.gram).T)
    reference = LogisticRegression(C=1 / lam, tol=1e-10, max_iter=10_000)
    theirs = reference.fit(features, codes, sample_weight=rows.weights).decision_function(features).reshape(ours.shape)
    if n_classes > 2:
        ours, theirs = (scores - scores.mean(axis=1, keepdims=True) for scores in (ours, theirs))
    np.testing.assert_allclose(ours, theirs, atol=2e-2)


@pytest.mark.parametrize(("name", "constant"), [(HUBER, 0.8), (QUANTILE, 0.2)])
def test_robust_fits_minimise_the_penalised_loss(name: str, constant: float) -> None:
    rows, lam = Rows(), 0.05
    loss = Loss(name, constant, np.array([0.7]))
    sample = rows.sample(rows.y)
    fit = choose(sample, loss, rows.basis.penalties, rows.folds, [lam])

    def objective(weights: Array) -> float:
        values = loss.evaluate(rows.design @ weights[:, None], rows.y)[0]
        return float(rows.weights @ values + 0.5 * lam * weights[1:] @ rows.gram @ weights[1:])

    found = rows.kernel_weights(fit.coordinates)[:, 0]
    best = scipy_minimise(objective, found, method="BFGS", options={"maxiter": 1000}).fun
    assert best <= objective(found) <= best * (1 + 1e-5)


@pytest.mark.parametrize("level", [0.1, 0.5])
def test_quantiles_without_a_penalty_are_those_of_a_linear_programme(level: float) -> None:
    rows = Rows(weighted=False)
    loss = Loss(QUANTILE, level, np.array([0.5]))
    fit = choose(rows.sample(rows.y), loss, rows.basis.penalties, rows.folds, [0.0])
    predicted = rows.sample(rows.y).columns @ fit.coordinates * 0.5
    reference = QuantileRegressor(quantile=level, alpha=0.0).fit(rows.design[:, 1:], rows.y[:, 0])
    theirs = reference.predict(rows.design[:, 1:])[:, None]
    ours, least = (loss.exact(values / 0.5, rows.y).mean() for values in (predicted, theirs))
    assert least <= ours * (1 + 1e-9)
    assert ours <= least * 1.01


def test_a_joint_metric_needs_fewer_evaluations_and_has_the_same_minimum() -> None:
    rows = Rows(n=400, m=30)
    _, targets = rows.classes(2)
    loss, sample = Loss(LOGISTIC, 0.0, np.ones(1)), rows.sample(targets)
    pull = 1e-3 * rows.basis.penalties
    start = choose(sample, loss, rows.basis.penalties, rows.folds, [0.1]).coordinates
    counts, found = [], []
    for metric in (sample.diagonal(loss, start, pull), sample.joint(loss, start, pull)):
        evaluate, count = sample.evaluation(loss), 0

        def counted(coordinates: Array) -> tuple[float, Array]:
            nonlocal count
            count += 1
            return evaluate(coordinates)  # noqa: B023

        found.append(minimise(counted, start, pull, metric, precision=1e-9))
        counts.append(count)
    chances = [1 / (1 + np.exp(-sample.columns @ coordinates)) for coordinates in found]
    np.testing.assert_allclose(*chances, atol=1e-3)
    assert counts[1] < counts[0] / 2


def test_lambda_is_the_largest_that_is_as_good_as_the_best_on_rows_left_out() -> None:
    rows = Rows(n=200)
    _, targets = rows.classes(2)
    loss, sample = Loss(LOGISTIC, 0.0, np.ones(1)), rows.sample(targets)
    fit = choose(sample, loss, rows.basis.penalties, rows.folds, loss_fit.LOSS_LAMBDAS)
    lambdas, means = fit.tried.T
    np.testing.assert_array_equal(lambdas, loss_fit.LOSS_LAMBDAS[: len(lambdas)])
    assert fit.held_out == means[list(lambdas).index(fit.lam)]
    assert fit.lam >= lambdas[means.argmin()]
    # One lambda by hand: each fold from a fit to the others.
    lam, total = lambdas[0], 0.0
    for k in range(5):
        out = rows.folds == k
        kept = LossSample(sample.columns[~out], targets[~out], rows.weights[~out])
        one = choose(kept, loss, rows.basis.penalties, np.zeros(0), [lam]).coordinates
        total += float(rows.weights[out] @ loss.exact(sample.columns[out] @ one, targets[out]))
    assert means[0] == pytest.approx(total / rows.weights.sum(), rel=1e-3)
    noise = np.where(np.random.default_rng(2).random(len(targets)) < 0.5, 1.0, -1.0)[:, None]
    fit = choose(rows.sample(noise), loss, rows.basis.penalties, rows.folds, loss_fit.LOSS_LAMBDAS)
    assert fit.lam == loss_fit.LOSS_LAMBDAS[0]


def test_the_scale_of_residuals_ignores_outliers() -> None:
    rows = Rows(n=600)
    clean = rows.design[:, 1:4].sum(axis=1, keepdims=True)
    clean += 0.1 * np.random.default_rng(3).standard_normal((600, 1))
    spoilt = clean.copy()
    spoilt[::10] += 50.0
    scales = [residual_scales(rows.sample(np.hstack([y, 1000 * y])), rows.basis.penalties)[0] for y in (clean, spoilt)]
    np.testing.assert_allclose(scales[0], [0.1, 100.0], rtol=0.4)
    np.testing.assert_allclose(scales[1], scales[0], rtol=0.4)
    constant, _ = residual_scales(rows.sample(np.zeros((600, 1))), rows.basis.penalties)
    assert constant[0] > 0.0


def test_a_model_without_centres_and_one_without_intercept() -> None:
    rows = Rows()
    _, targets = rows.classes(2)
    loss = Loss(LOGISTIC, 0.0, np.ones(1))
    none = LossBasis.of(np.ones((1, 1)), rows.s[:1], np.empty((0, 0)))
    columns = none.columns(np.ones((len(targets), 1)))
    fit = choose(LossSample(columns, targets, rows.weights), loss, none.penalties, rows.folds, [1.0])
    share = rows.weights[targets[:, 0] > 0].sum() / rows.weights.sum()
    assert none.orthogonal(fit.coordinates)[0, 0] == pytest.approx(np.log(share / (1 - share)), abs=1e-4)
    bare = LossBasis.of(rows.u, rows.s, rows.gram, intercept=False)
    sample = LossSample(bare.columns(rows_of_q(rows.design, rows.u).copy()), targets, rows.weights)
    assert choose(sample, loss, bare.penalties, rows.folds, [1.0]).coordinates[0, 0] == 0.0

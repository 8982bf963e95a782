"""The paper's sets: the exact order of Algorithm 1, orthogonality over hundreds of centres, and test errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import distkern as dk
from distkern.monitoring.events import EventBus
from distkern.scheduler.blocks.pool_tiles import borrow_columns
from distkern.scheduler.execution.executor import SerialExecutor
from distkern.scheduler.training.driver_loop import TrainingResult, train
from distkern.selection.factors import kernel_weights
from distkern.storage import ArraySource
from tests.markers import marked, variants
from tests.references import DenseResidualOROLS, dense_kernel_columns, gaussian_gram

Array = NDArray[Any]
Sets = Callable[[str], dict[str, Array]]

pytestmark = pytest.mark.slow

N_CENTERS = 300


def pendigits(sets: Sets) -> tuple[Array, Array, dict[str, Any]]:
    """Digit 0 against the rest."""
    data = sets("pendigits")
    return data["X_train"], np.where(data["y_train"] == 0, 1.0, -1.0), {"sigma": 80.0, "standardize": False}


def kin40k(sets: Sets) -> tuple[Array, Array, dict[str, Any]]:
    data = sets("kin40k")
    return data["X"][:5000], data["y"][:5000], {"sigma": 2.5, "standardize": True}


PROBLEMS = [pendigits, kin40k]


def train_inside(model: dk.OROLSRegressor, X: Array, y: Array) -> tuple[TrainingResult, Array]:
    """Train in this process; return the result and the rows of Q."""
    source = ArraySource(X, y)
    executor = SerialExecutor(source)
    result = train(model.training_job(), source, executor, EventBus())
    tiles = [(block.problems[0], tile) for block in executor._blocks for tile in block.views[0].tiles]
    return result, np.concatenate(
        [np.vstack([borrow_columns(q, tile) for q in state.slabs])[: state.n_columns].T for state, tile in tiles]
    )


def kernel_space(X: Array, settings: dict[str, Any]) -> Array:
    return (X - X.mean(axis=0)) / (X.std(axis=0) if settings["standardize"] else 1.0)


def dense_design(X: Array, rows: Array, settings: dict[str, Any]) -> Array:
    """[1 K] of some centres."""
    Z = kernel_space(X, settings)
    return np.column_stack(
        [np.ones(len(X)), dense_kernel_columns(dk.Gaussian(settings["sigma"]), Z, Z[rows], rows, 0.0)]
    )


@pytest.mark.parametrize("problem", variants([kin40k], PROBLEMS), ids=lambda f: f.__name__)
def test_criterion_residual_picks_the_centres_of_algorithm_1_in_its_order(
    problem: Callable[[Sets], tuple[Array, Array, dict[str, Any]]], shared_data: Sets
) -> None:
    X, y, settings = problem(shared_data)
    model = dk.OROLSRegressor(criterion="residual", max_centers=N_CENTERS, stop=None, **settings).fit(X, y)
    gram = gaussian_gram(kernel_space(X, settings), settings["sigma"])
    reference = DenseResidualOROLS(gram, y, N_CENTERS)
    assert model.center_indices_.tolist() == reference.rows
    np.testing.assert_allclose(model.history_["lambda_"], reference.lambdas[1:], rtol=1e-5)
    np.testing.assert_allclose(model.history_["q_norm"] ** 2, reference.s[1:], rtol=1e-6)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("criterion", ["residual", "error-reduction"])
def test_q_stays_orthogonal(
    problem: Callable[[Sets], tuple[Array, Array, dict[str, Any]]], criterion: str, shared_data: Sets
) -> None:
    X, y, settings = problem(shared_data)
    model = dk.OROLSRegressor(criterion=criterion, max_centers=N_CENTERS, stop=None, regularization="none", **settings)
    result, q = train_inside(model, X, y)
    (path,) = result.paths
    # The last panel ends the path and is not applied to the rows any more.
    n_columns = q.shape[1]
    assert n_columns > N_CENTERS - 16
    lengths = np.linalg.norm(q, axis=0)
    np.testing.assert_allclose(lengths**2, path.s[:n_columns], rtol=1e-10)
    cosines = q.T @ q / np.outer(lengths, lengths)
    assert np.abs(cosines - np.eye(n_columns)).max() < 1e-10
    design = dense_design(X, path.rows[: n_columns - 1], settings)
    error = np.linalg.norm(q @ path.u[:n_columns, :n_columns] - design, axis=0) / np.linalg.norm(design, axis=0)
    assert error.max() < 1e-10


def test_weights_are_those_of_lstsq_where_that_is_well_conditioned(shared_data: Sets) -> None:
    X, y, _ = kin40k(shared_data)
    settings = {"sigma": 1.0, "standardize": True}
    model = dk.OROLSRegressor(max_centers=N_CENTERS, stop=None, regularization="none", **settings)
    result, _ = train_inside(model, X, y)
    (path,) = result.paths
    design = dense_design(X, path.rows, settings)
    assert np.linalg.cond(design) < 1e4
    expected = np.linalg.lstsq(design, y, rcond=None)[0]
    weights = kernel_weights(path.u, path.s, path.z, path.lambdas[-1])[:, 0]
    weights[0] += result.target_means[0]
    np.testing.assert_allclose(weights, expected, atol=1e-6 * np.abs(expected).max())


def mean_error(data: dict[str, Array], **parameters: Any) -> float:
    """Percent wrong on the test rows, mean of three seeds."""
    errors = []
    for seed in range(3):
        model = dk.OROLSClassifier(random_state=seed, **parameters).fit(data["X_train"], data["y_train"])
        errors.append(100 * (model.predict(data["X_test"]) != data["y_test"]).mean())
    return float(np.mean(errors))


@pytest.mark.parametrize(
    ("name", "limit", "parameters"),
    [
        ("optdigits", 1.25, {"sigma": 20.8, "max_centers": 800, "standardize": False, "stop": None}),
        ("satimage", 9.2, {"sigma": 3.0, "max_centers": 600}),
        ("pendigits", 1.95, {"sigma": 80.0, "max_centers": 600, "standardize": False}),
    ],
)
def test_classification_error(name: str, limit: float, parameters: dict[str, Any], shared_data: Sets) -> None:
    assert mean_error(shared_data(name), **parameters) <= limit


@pytest.mark.parametrize(
    ("selection_rows", "limit"), [(7_500, 0.28), *marked(pytest.mark.nightly, (None, 0.275), (3_750, 0.29))]
)
def test_kin40k_error(selection_rows: int | None, limit: float, shared_data: Sets) -> None:
    data = shared_data("kin40k")
    order = np.random.default_rng(0).permutation(40_000)
    train_rows, test_rows = order[:30_000], order[30_000:]
    scale = data["y"][train_rows].std()
    errors = []
    for seed in range(3):
        model = dk.OROLSRegressor(sigma=2.5, max_centers=500, random_state=seed, selection_rows=selection_rows)
        model.fit(data["X"][train_rows], data["y"][train_rows] / scale)
        residual = model.predict(data["X"][test_rows]) - data["y"][test_rows] / scale
        errors.append(np.sqrt(np.square(residual).mean()))
    assert np.mean(errors) <= limit

"""Statistics gathered block by block equal those of scikit-learn and numpy for all rows at once."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.calibration import calibration_curve

from distkern.report.evaluation import GRID, POINTS, Reliability, ResidualGrid, Residuals

Array = NDArray[np.float64]


def drawn(n_rows: int, n_classes: int, seed: int = 0) -> tuple[NDArray[np.str_], NDArray[np.str_], Array]:
    """Labels, truth and probabilities that are too sure of themselves."""
    rng = np.random.default_rng(seed)
    chances = rng.dirichlet(np.full(n_classes, 0.5), n_rows)
    labels = np.array([f"class {i}" for i in range(n_classes)])
    softened = 0.7 * chances + 0.3 / n_classes
    truth = np.array([rng.choice(n_classes, p=row) for row in softened])
    return labels, labels[truth], chances


@pytest.mark.parametrize("blocks", [1, 7])
@pytest.mark.parametrize("n_classes", [2, 5])
def test_reliability_equals_scikit_learn(blocks: int, n_classes: int) -> None:
    labels, truth, chances = drawn(700, n_classes)
    reliability = Reliability(labels)
    for part in np.array_split(np.arange(700), blocks):
        reliability.update(truth[part], truth[part], chances[part])
    assert reliability.n_rows == 700
    for index, label in enumerate(labels):
        right, predicted = calibration_curve(truth == label, chances[:, index], n_bins=10)
        found, fraction, counts = reliability.curve(index)
        np.testing.assert_allclose(found, predicted)
        np.testing.assert_allclose(fraction, right)
        assert counts.sum() == 700
    top = chances.argmax(axis=1)
    right, predicted = calibration_curve(labels[top] == truth, chances.max(axis=1), n_bins=10)
    found, fraction, counts = reliability.curve()
    np.testing.assert_allclose(found, predicted)
    np.testing.assert_allclose(fraction, right)
    np.testing.assert_allclose(reliability.calibration_error(), np.sum(counts * np.abs(right - predicted)) / 700)


def test_certainty_is_in_the_outer_bins() -> None:
    reliability = Reliability(np.array([0, 1]))
    reliability.update(np.array([0, 1]), np.array([0, 1]), np.array([[1.0, 0.0], [0.0, 1.0]]))
    predicted, right, counts = reliability.curve(1)
    assert predicted.tolist() == [0.0, 1.0]
    assert right.tolist() == [0.0, 1.0]
    assert counts.tolist() == [1, 1]


def test_a_label_that_the_model_never_saw_is_never_right() -> None:
    reliability = Reliability(np.array([0, 1]))
    reliability.update(np.array([7, 7]), np.array([0, 1]), np.array([[0.9, 0.1], [0.2, 0.8]]))
    assert reliability.curve()[1].tolist() == [0.0, 0.0]


def test_without_probabilities_there_are_no_counts() -> None:
    reliability = Reliability(np.array([0, 1]))
    reliability.update(np.array([0, 1]), np.array([0, 1]), None)
    assert reliability.n_rows == 0
    assert np.isnan(reliability.calibration_error())


def counted(grid: ResidualGrid) -> int:
    assert grid.counts is not None
    return int(grid.counts.sum())


def test_few_residuals_are_kept_one_by_one() -> None:
    grid, rng = ResidualGrid(), np.random.default_rng(0)
    rows = rng.standard_normal((POINTS, 2))
    for part in np.array_split(rows, 9):
        grid.update(part[:, 0], part[:, 1])
    assert grid.points is not None
    np.testing.assert_array_equal(grid.points, rows)
    grid.update(np.zeros(1), np.zeros(1))
    assert grid.points is None
    assert counted(grid) + grid.outside == POINTS + 1


@pytest.mark.parametrize("blocks", [1, 13])
def test_many_residuals_are_counted_as_numpy_does(blocks: int) -> None:
    grid, rng = ResidualGrid(), np.random.default_rng(1)
    x, residual = rng.normal(10, 3, 40_000), rng.standard_normal(40_000)
    for part in np.array_split(np.arange(40_000), blocks):
        grid.update(x[part], residual[part])
    expected = np.histogram2d(x, residual, bins=[grid.x_edges, grid.y_edges])[0]
    assert grid.counts is not None
    assert grid.counts.shape == GRID
    np.testing.assert_array_equal(grid.counts, expected)
    assert grid.outside == 40_000 - expected.sum()
    assert grid.outside < 800


@pytest.mark.parametrize("sign", [1, -1])
def test_the_grid_grows_for_later_rows_outside(sign: int) -> None:
    """Rows that are sorted by target, as stores often are."""
    grid = ResidualGrid()
    x = sign * np.linspace(0.0, 1000.0, 50_000)
    residual = np.sin(x) * np.linspace(1, 40, 50_000)
    for part in np.array_split(np.arange(50_000), 25):
        grid.update(x[part], residual[part])
    expected = np.histogram2d(x, residual, bins=[grid.x_edges, grid.y_edges])[0]
    assert grid.counts is not None
    # Rows that were beyond the grid before it grew are counted as outside, all others where they belong.
    assert counted(grid) + grid.outside == 50_000
    assert grid.outside <= 0.02 * 50_000
    assert np.abs(grid.counts - expected).sum() <= grid.outside
    assert grid.x_edges[-1] - grid.x_edges[0] < 4200


def test_outliers_do_not_make_the_rest_unreadable() -> None:
    grid, rng = ResidualGrid(), np.random.default_rng(2)
    x, residual = rng.standard_normal(30_000), rng.standard_normal(30_000)
    residual[::1000] = 1e9
    residual[1] = np.inf
    x[2] = np.nan
    for part in np.array_split(np.arange(30_000), 10):
        grid.update(x[part], residual[part])
    assert grid.y_edges[-1] - grid.y_edges[0] < 40
    assert counted(grid) + grid.outside == 30_000


def test_equal_values_have_a_grid() -> None:
    grid = ResidualGrid()
    grid.update(np.full(POINTS + 5, 3.0), np.zeros(POINTS + 5))
    assert counted(grid) == POINTS + 5


def test_several_targets_have_a_grid_each() -> None:
    residuals, rng = Residuals(), np.random.default_rng(3)
    truth = rng.standard_normal((50, 9))
    residuals.update(truth, truth - 1.0, None)
    assert residuals.n_targets == 9
    assert len(residuals.grids) == 6
    points = residuals.grids[2].points
    assert points is not None
    np.testing.assert_allclose(points[:, 0], truth[:, 2] - 1.0)
    np.testing.assert_allclose(points[:, 1], 1.0)

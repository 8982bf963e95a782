"""Small entries on stand-in data, and the published sets where they are present."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import distkern as dk
from reproduction import Report, Study, Verdict, find
from reproduction.competitors import COMPETITORS, measured
from reproduction.panels import Boundary, Curve, Fit
from reproduction.sets import Partition
from reproduction.settings import Choice, chosen_settings
from reproduction.sinc import draw, ridge_regression
from reproduction.widths import cross_validated_width, median_distance, path_errors, prediction_error
from tests.conftest import shared_data_folder


def run(name: str, study: Study) -> Report:
    (entry,) = find([name])
    return entry.run(study)


# --- pieces ----------------------------------------------------------------------------------------------------------


def test_errors_of_prefixes_are_those_of_trainings_of_that_length() -> None:
    part = draw(0)
    model = dk.OROLSRegressor(sigma=2.0, max_centers=12, stop=None, standardize=False)
    errors = path_errors(model, part, (4, 12, 99))
    short = dk.OROLSRegressor(sigma=2.0, max_centers=4, stop=None, standardize=False).fit(part.X, part.y)
    assert errors[0] == pytest.approx(np.mean((short.predict(part.X_test) - part.y_test) ** 2))
    assert errors[1] == errors[2] == pytest.approx(prediction_error(model, part))


def test_the_search_finds_the_setting_that_fits() -> None:
    parts = [draw(run) for run in range(2)]
    base = dk.NPDRegressor(standardize=False)
    choice = chosen_settings(base, 2.0 * 2**0.5, parts, (0.02, 0.2), (0.0, 100.0))
    assert choice.epsilon == 0.0
    assert choice.share == 0.2
    assert choice.sigma < 3
    model = choice.model(base, 50)
    assert (model.max_centers, model.stop, model.standardize) == (10, None, False)
    assert base.max_centers == 1000
    assert Choice(1.0, 0.1, 0.001).model(base, 50).max_centers == 1


@pytest.mark.nightly
def test_a_single_partition_is_searched_with_other_folds() -> None:
    part = draw(1)
    model = dk.OROLSRegressor(standardize=False, max_centers=10)
    widths = [
        dk.OROLSRegressor(standardize=False, max_centers=10, sigma="cv", random_state=seed).fit(part.X, part.y)
        for seed in range(3)
    ]
    assert cross_validated_width(model, [part], 3) == np.median([fitted.kernel_.sigma for fitted in widths])
    assert model.sigma == "median"


def test_median_distance() -> None:
    X = np.array([[0.0], [1.0], [3.0]])
    assert median_distance(X) == pytest.approx(2.0)


def test_ridge_regression_interpolates_and_shrinks() -> None:
    part = draw(0, 20, 0.0)
    same = Partition(part.X, part.y, part.X, part.y)
    np.testing.assert_allclose(ridge_regression(same, 0.3, 1e-12), part.y, atol=1e-4)
    assert np.abs(ridge_regression(same, 0.3, 1e9)).max() < 1e-6


@pytest.mark.parametrize(("name", "size"), [("SVM", 60), ("KFD", 60), ("OLS", 24)])
def test_the_methods_of_the_sources_are_measured(name: str, size: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 2))
    y = np.where(X[:, 0] * X[:, 1] > 0, "in", "out")
    part = Partition(X[:60], y[:60], X[60:], y[60:])
    (error,), (evaluations,), (sigma, constant) = measured(name, [part])
    assert error < 0.3
    assert 1 <= evaluations <= size
    assert sigma > 0
    assert constant in COMPETITORS[name][1]


# --- entries ---------------------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_ripley(small_sets: Path) -> None:
    report = run("thesis-figure-3.2", Study(small_sets))
    npd, full = report.rows
    assert (npd.centers, full.centers) == (10, 250)
    assert npd.ours is not None
    assert npd.ours < 25
    assert [type(panel) for panel in report.panels] == [Boundary, Boundary]
    panel = report.panels[1]
    assert isinstance(panel, Boundary)
    assert panel.values.shape == (200, 200)
    assert panel.centers.shape == (10, 2)


@pytest.mark.slow
def test_spirals_are_separated(small_sets: Path) -> None:
    report = run("thesis-figure-5.1", Study(small_sets))
    assert [row.ours for row in report.rows] == [0.0, 0.0]
    assert [row.centers for row in report.rows] == [90, 120]
    assert {row.verdict for row in report.rows} == {Verdict.EQUAL}


@pytest.mark.nightly
def test_forward_selection_by_leave_one_out_error(small_sets: Path) -> None:
    error, size = run("loo-heart", Study(small_sets)).rows
    assert error.runs == size.runs == 2
    assert size.measure == "centres"
    assert size.ours == error.centers
    (once,) = {row.runs for row in run("loo-heart", Study(small_sets, runs=1)).rows}
    assert once == 1


@pytest.mark.nightly
def test_the_thirteen_sets_with_one_present(small_sets: Path) -> None:
    study = Study(small_sets, runs=1)
    report = run("thesis-table-5.3", study)
    found = [row for row in report.rows if row.verdict is not Verdict.ABSENT]
    assert [(row.data, row.method, row.runs) for row in found] == [
        ("heart", method, 1) for method in ("OROLS, width only", "OROLS", "NPD", "SVM", "KFD", "OLS")
    ]
    assert {row.verdict for row in found} == {Verdict.ONE_PARTITION}
    assert len(report.rows) == 78


def test_absent_sets_are_rows_too(tmp_path: Path) -> None:
    study = Study(tmp_path)
    for name, count in {"paper-table-2": 5, "thesis-table-5.2": 10, "paper-table-4": 7, "thesis-table-5.5": 9}.items():
        report = run(name, study)
        assert len(report.rows) == count
        assert {row.verdict for row in report.rows} == {Verdict.ABSENT}
    for name in ("thesis-figure-3.2", "thesis-figure-5.1", "loo-heart"):
        assert {row.verdict for row in run(name, study).rows} == {Verdict.ABSENT}


@pytest.mark.slow
def test_sinc_with_three_runs() -> None:
    study = Study(None, runs=3)
    report = run("paper-table-3", study)
    assert [row.method for row in report.rows] == ["OROLS", "OROLS, defaults"]
    for row in report.rows:
        assert row.runs == 9
        assert row.ours is not None
        assert 0.02 < row.ours < 0.1
    assert "hindsight" in report.notes[-1]
    assert run("thesis-table-5.4", study) is report
    example = run("paper-figure-1", study)
    assert example.rows[0].verdict is Verdict.NOT_COMPARED
    (panel,) = example.panels
    assert isinstance(panel, Fit)
    assert len(panel.centers) == example.rows[0].centers


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "points"), [("paper-figure-2", 11), ("paper-figure-3", 8)])
def test_sinc_curves(name: str, points: int) -> None:
    report = run(name, Study(None, runs=3))
    (panel,) = report.panels
    assert isinstance(panel, Curve)
    assert len(panel.x) == len(panel.mean) == points
    falls = panel.mean[0] > panel.mean[-1]
    assert falls == (name == "paper-figure-2")


def test_the_worked_example_is_equal_or_left_out() -> None:
    report = run("mse-example", Study(None))
    if hasattr(dk, "MSEClassifier"):
        assert [row.verdict for row in report.rows] == [Verdict.EQUAL] * 3
    else:
        assert not report.rows
        assert "MSEClassifier" in report.notes[0]


# --- marks on the published sets -------------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("thesis-figure-3.2", "ripley"),
        ("thesis-figure-5.1", "spirals"),
        ("loo-breast-cancer", "raetsch_breast_cancer"),
        ("loo-diabetis", "raetsch_diabetis"),
        ("loo-heart", "raetsch_heart"),
    ],
)
def test_as_good_as_published(name: str, file: str) -> None:
    folder = shared_data_folder()
    if not (folder / f"{file}.npz").exists():
        pytest.skip(f"{file} is not in {folder}; set DISTKERN_DATA to its folder")
    report = run(name, Study(folder))
    for row in report.rows:
        assert row.verdict.as_good is not False, row


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["optdigits", "satimage"])
def test_shared_centres_are_as_good_with_fewer_evaluations(name: str, tmp_path: Path) -> None:
    file = shared_data_folder() / f"{name}.npz"
    if not file.exists():
        pytest.skip(f"{name} is not in {file.parent}; set DISTKERN_DATA to its folder")
    (tmp_path / file.name).symlink_to(file)
    report = run("paper-table-2", Study(tmp_path))
    (row,) = [row for row in report.rows if row.verdict is not Verdict.ABSENT]
    assert row.data == name
    assert row.verdict.as_good, row
    assert row.evaluations is not None
    assert row.published_evaluations is not None
    assert row.evaluations < row.published_evaluations / 2

"""The parts of a report agree with the run, the model and scikit-learn; missing parts are named."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support, r2_score, root_mean_squared_error

import distkern as dk
from distkern.cli.main import main
from distkern.monitoring.events import (
    EVENTS,
    BlocksReplayed,
    ExchangeDone,
    MetricRoundDone,
    RoundDone,
    RunCutShort,
    RunResumed,
    RunStarted,
    WorkerLost,
)
from distkern.monitoring.progress import LineDisplay, RunDisplay
from distkern.monitoring.progress.messages import line
from distkern.monitoring.progress.rich_view import picture
from distkern.monitoring.prometheus import families
from distkern.monitoring.run_state import RunFigures
from distkern.report import read_run, render_report
from distkern.report.predictions import MOST_CLASSES
from distkern.report.record import MOST_INCIDENTS
from distkern.storage import Journal, RunDirectory
from tests.report.conftest import WIDE
from tests.report.report_pages import Node, addresses, parse

Report = Callable[..., tuple[str, Node]]

NAMES = ("curves", "test", "probabilities", "centres", "plan", "timeline", "job")


def parts(root: Node) -> set[str]:
    return {str(section.attributes["id"]) for section in root.all("section")}


def summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "it.run" / "summary.json").read_text())
    return found


def test_the_headline_equals_the_summary(report: Report, digits: Path) -> None:
    _, root = report(digits / "it.run")
    figures, kept = root.figures(), summary(digits)
    assert parts(root) == set(NAMES)
    for name, key in (("centres", "n_centers"), ("λ", "lambda"), ("GCV", "gcv"), ("training", "seconds")):
        assert float(figures[name][1] or "nan") == kept[key]
    assert float(figures["test error"][1] or "nan") == pytest.approx(kept["test"]["error"], rel=1e-12)
    assert f"Stopped: {kept['stop_reason']}." in root.text
    assert dk.StopReason(kept["stop_reason"]).advice in root.text


def test_the_curves_are_those_of_the_figures(report: Report, waves: Path) -> None:
    _, root = report(waves / "it.run")
    figures = RunFigures.of_records(RunDirectory.open(waves / "it.run").events())
    charts = root.one("section", id="curves").all("svg")
    assert [chart.one("title").text for chart in charts] == [
        "generalised cross validation",
        "λ",
        "largest residual",
        "held-out squared residual",
        "centres",
    ]
    for chart, name in zip(charts, ("gcv", "lambda_", "residual_max", "validation"), strict=False):
        values = figures.series[name]
        assert f"to {values[-1]:.4g} at {figures.n_centers}" in chart.one("desc").text
        assert f"lowest {min(values):.4g}, highest {max(values):.4g}" in chart.one("desc").text
        line = next(path for path in chart.all("path") if path.attributes["class"] == "line c1")
        points = [[float(n) for n in point.split()] for point in str(line.attributes["d"])[1:].split("L")]
        assert len(points) == len(values)
        # Points go down where values go up, and along with the centres.
        assert np.array_equal(np.argsort([-y for _, y in points]), np.argsort(values))
        step = np.diff([x for x, _ in points]) / np.diff(figures.series["n_centers"])
        np.testing.assert_allclose(step, step[0], atol=0.01)


def test_confusion_and_classes_equal_scikit_learn(report: Report, digits: Path) -> None:
    _, root = report(digits / "it.run")
    model, test = dk.load_model(digits / "it.model"), dk.open_dataset(digits / "test.zarr")
    truth, predicted = test.targets(0, test.n_rows), model.predict(test)
    header, *rows = root.table("Confusion matrix")
    assert header[1:] == [str(label) for label in model.classes_]
    counts = [[0 if cell == "·" else int(cell) for cell in row[1:]] for row in rows]
    assert counts == confusion_matrix(truth, predicted).tolist()
    precision, recall, f1, support = precision_recall_fscore_support(truth, predicted)
    for index, row in enumerate(root.table("Classes")[1:]):
        assert row[1] == str(support[index])
        assert [float(cell) for cell in row[2:]] == pytest.approx(
            [precision[index], recall[index], f1[index]], abs=5e-5
        )


def test_reliability_equals_scikit_learn(report: Report, digits: Path) -> None:
    _, root = report(digits / "it.run")
    model, test = dk.load_model(digits / "it.model"), dk.open_dataset(digits / "test.zarr")
    chances = model.predict_proba(test.X[:])
    top = chances.argmax(axis=1)
    hit = model.classes_[top] == test.targets(0, test.n_rows)
    right, predicted = calibration_curve(hit, chances.max(axis=1), n_bins=10)
    rows = root.table("Bins of the reliability, likeliest class")[1:]
    assert [float(row[0]) for row in rows] == pytest.approx(predicted, abs=5e-5)
    assert [float(row[1]) for row in rows] == pytest.approx(right, abs=5e-5)
    assert sum(int(row[2]) for row in rows) == test.n_rows
    charts = root.one("section", id="probabilities").all("svg")
    assert len(charts) == 1 + len(model.classes_)
    circles = charts[0].all("circle")
    assert len(circles) == len(right)
    assert f"predicted {predicted[0]:.3f}, right {right[0]:.3f}" in circles[0].text


def test_centres_of_images_are_images(report: Report, digits: Path) -> None:
    from PIL import Image

    _, root = report(digits / "it.run")
    model = dk.load_model(digits / "it.model")
    images = root.one("section", id="centres").all("img")
    assert len(images) == min(60, model.n_centers_)
    low, high = model.centers_.min(), model.centers_.max()
    for index in (0, 7):
        node = images[index]
        said = f"centre {index + 1}, row {model.center_indices_[index]}, predicted as"
        assert str(node.attributes["alt"]).startswith(said)
        content = base64.b64decode(str(node.attributes["src"]).partition(",")[2])
        pixels = np.asarray(Image.open(io.BytesIO(content)))
        expected = np.round(255 - 255 * (model.centers_[index].reshape(8, 8) - low) / (high - low))
        np.testing.assert_array_equal(pixels, expected)


def test_a_regression_has_residuals_and_features(report: Report, waves: Path) -> None:
    page, root = report(waves / "it.run")
    model, test = dk.load_model(waves / "it.model"), dk.open_dataset(waves / "test.zarr")
    truth, predicted = test.targets(0, test.n_rows), model.predict(test)
    figures = root.figures()
    assert float(figures["test RMSE"][1] or "nan") == pytest.approx(root_mean_squared_error(truth, predicted))
    assert float(figures["R²"][1] or "nan") == pytest.approx(r2_score(truth, predicted))
    (chart,) = root.one("section", id="test").all("svg")
    assert len(chart.all("circle")) == test.n_rows
    assert f"residuals from {(truth - predicted).min():.4g} to {(truth - predicted).max():.4g}" in page
    rows = root.table("Centres along each feature")[1:]
    assert [row[0] for row in rows] == ["time", "<b>depth</b>", "a & b"]
    quartiles = np.quantile(model.centers_[:, 1], [0, 0.25, 0.5, 0.75, 1])
    assert [float(cell) for cell in rows[1][2:]] == pytest.approx(quartiles, rel=1e-3)
    assert parts(root) == set(NAMES) - {"probabilities"}


def test_several_targets_are_shown_apart(report: Report, train: Any) -> None:
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (300, 2))
    folder = train(X, np.column_stack([X[:, 0], X[:, 1] ** 2, X[:, 0] * X[:, 1]]), "regression")
    _, root = report(folder / "it.run")
    model, test = dk.load_model(folder / "it.model"), dk.open_dataset(folder / "test.zarr")
    truth, predicted = test.targets(0, test.n_rows), model.predict(test)
    rows = root.table("Targets, counted from 0")[1:]
    each = root_mean_squared_error(truth, predicted, multioutput="raw_values")
    assert [float(row[1]) for row in rows] == pytest.approx(each, rel=1e-3)
    assert len(root.one("section", id="test").all("svg")) == 3


def test_two_classes_have_the_reliability_of_the_second(report: Report, train: Any) -> None:
    rng = np.random.default_rng(2)
    X = rng.standard_normal((600, 2))
    y = np.where(X[:, 0] + rng.standard_normal(600) > 0, "<script>yes</script>", "no")
    folder = train(X, y, "classification", sigma=1.0)
    page, root = report(folder / "it.run")
    model, test = dk.load_model(folder / "it.model"), dk.open_dataset(folder / "test.zarr")
    assert model.classes_[1] == "no"
    hit = test.targets(0, test.n_rows) == "no"
    right, predicted = calibration_curve(hit, model.predict_proba(test.X[:])[:, 1], n_bins=10)
    rows = root.table("Bins of the reliability, class no")[1:]
    assert [float(row[0]) for row in rows] == pytest.approx(predicted, abs=5e-5)
    assert [float(row[1]) for row in rows] == pytest.approx(right, abs=5e-5)
    assert root.table("Confusion matrix")[0][1:] == ["<script>yes</script>", "no"]
    assert "<script" not in page


def test_many_classes_have_a_list_of_confusions(report: Report, train: Any) -> None:
    rng = np.random.default_rng(3)
    n_classes = MOST_CLASSES + 5
    X = rng.uniform(0, n_classes, (n_classes * 20, 1))
    y = np.clip(X[:, 0] + 0.4 * rng.standard_normal(len(X)), 0, n_classes - 1).astype(int)
    folder = train(X, y, "classification", sigma=0.1)
    _, root = report(folder / "it.run")
    model, test = dk.load_model(folder / "it.model"), dk.open_dataset(folder / "test.zarr")
    counts = confusion_matrix(test.targets(0, test.n_rows), model.predict(test), labels=model.classes_)
    np.fill_diagonal(counts, 0)
    rows = root.table("Most frequent confusions")[1:]
    assert [int(row[2]) for row in rows] == sorted(counts.ravel().tolist())[::-1][: len(rows)]
    assert counts[int(rows[0][0]), int(rows[0][1])] == int(rows[0][2])
    assert not root.all("div", role="region", aria_label="Confusion matrix")


def test_plan_and_measured_figures_are_side_by_side(report: Report, digits: Path) -> None:
    _, root = report(digits / "it.run")
    kept = summary(digits)
    rows = {row[0]: row for row in root.table("Planned and measured")[1:]}
    for name in ("rounds", "exchanges", "kernel_columns"):
        row = rows[name.replace("_", " ")]
        planned, measured = (int(cell.replace("\u202f", "")) for cell in row[1:3])
        assert measured == kept[name]
        assert measured <= planned
        assert row[3] == f"{100 * measured / planned:.0f} %"
    assert "peak memory, this process" in rows


def test_settings_and_data_of_the_job_are_shown(report: Report, waves: Path) -> None:
    _, root = report(waves / "it.run")
    assert ["stop", "validation"] in root.table("model")
    assert ["train", str(waves / "train.zarr")] in root.table("data")
    assert ["n_rows", "600"] in root.table("data as read")
    assert any(row[0] == "BLAS" for row in root.table("software"))


# Untrusted text and self-containment.


def test_the_page_makes_no_request(report: Report, digits: Path, waves: Path) -> None:
    for folder in (digits, waves):
        page, root = report(folder / "it.run")
        assert all(found.startswith(("data:", "#")) for found in addresses(page))
        assert not root.all("script")
        policy = root.one("meta", http_equiv="Content-Security-Policy").attributes["content"]
        assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
        assert len(page) < 2_000_000


def test_all_links_of_the_page_lead_somewhere(report: Report, digits: Path) -> None:
    page, root = report(digits / "it.run")
    ids = set(re.findall(r'id="([^"]*)"', page))
    assert {str(a.attributes["href"])[1:] for a in root.all("a")} <= ids
    assert set(re.findall(r'aria-labelledby="([^"]*)"', page)) <= ids


NASTY = "</style><script>alert(1)</script><img src=x onerror=alert(1)>\"'&{{ 7 * 7 }}"


def test_whatever_a_run_directory_holds_is_text(tmp_path: Path) -> None:
    job = {"data": {"train": NASTY, NASTY: NASTY}, NASTY: {NASTY: [NASTY]}, "loose": NASTY}
    run = RunDirectory.create(tmp_path / "<b>run</b>", job)
    run.record(started().as_record())
    for _ in range(2):
        run.record(ExchangeDone(name=NASTY, seconds=0.1).as_record())
    run.record(WorkerLost(worker=NASTY, blocks=(1,), reason=NASTY).as_record())
    run.record(RunCutShort(error=NASTY, message=NASTY).as_record())
    run.write_summary({"stop_reason": NASTY, "n_centers": NASTY, "lambda": NASTY, "test": {NASTY: 1.0}})
    page = render_report(read_run(run), missing=[NASTY])
    root = parse(page)
    assert not root.all("script")
    assert not root.all("img")
    assert not root.all("b")
    assert page.count("alert(1)") == page.count("&lt;script&gt;alert(1)") + page.count("onerror=alert(1)")
    assert NASTY in root.text


def test_credentials_stay_hidden(report: Report, tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", {"data": {"train": "s3://key:hunter2@host/b", "secret": "hunter2"}})
    run.record(started().as_record())
    job = json.loads((run.path / "job.json").read_text())
    job["job"]["data"]["token"] = "hunter2"  # written by hand
    job["job"]["data"]["test"] = "s3://key:hunter2@host/test.zarr"
    (run.path / "job.json").write_text(json.dumps(job))
    page, _ = report(run.path)
    assert "hunter2" not in page
    assert "s3://***@host/b" in page


# What is missing, and runs that have not ended.


def started(run_id: str = "r") -> RunStarted:
    shapes = {"n_rows": 90, "n_features": 3, "n_targets": 2, "n_problems": 1, "n_blocks": 4, "max_centers": 64}
    return RunStarted(run_id=run_id, workers=2, **shapes)


def a_round(number: int, **changes: Any) -> RoundDone:
    count = 16 * (number + 1)
    figures = {"lambda_": 0.1, "gcv": 1.0 / count, "residual_max": 1.0, "seconds": 1.0 + number}
    return RoundDone(round=number, n_centers=count, **(figures | changes))


def written(run: RunDirectory, *events: Any) -> Node:
    for event in events:
        run.record(event.as_record())
    return parse(render_report(read_run(run)))


@pytest.fixture
def bare(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "run", {"data": {}})


def test_an_empty_run_has_a_report(bare: RunDirectory) -> None:
    root = written(bare)
    assert parts(root) == {"job"}
    assert root.one("span", class_="badge warn").text == "running or cut short"


def test_a_run_in_work_has_a_report_of_its_results_so_far(bare: RunDirectory) -> None:
    journal = Journal.claim(bare.path)
    root = written(bare, started(), *(a_round(n) for n in range(3)))
    journal.close()
    assert root.one("span", class_="badge warn").text == "running"
    assert root.figures()["centres"] == ("48", "48")
    assert float(root.figures()["GCV"][1] or "nan") == 1 / 48
    assert len(root.one("section", id="curves").all("svg")) == 4


def test_the_rounds_of_a_metric_are_shown_while_they_are_made(bare: RunDirectory) -> None:
    facts = {"kernel": "gaussian", "shape": "<i>", "round": 0, "factor": 0.5}
    root = written(bare, *(MetricRoundDone(error=1 / n, rounds=n, **facts) for n in (1, 2, 1, 2, 3)))
    assert parts(root) == {"metric", "job"}
    assert "not finished: 3 rounds so far" in root.one("section", id="metric").text
    rows = root.table("Rounds of the metric")[1:]
    assert rows == [[str(n), "gaussian", "<i>", "0", "0.5", f"{1 / n:.4g}", ""] for n in (1, 2, 3)]
    assert not root.one("section", id="metric").all("svg")


def test_a_learnt_metric_is_in_the_report(report: Report, metric: Path) -> None:
    _, root = report(metric / "it.run")
    model = dk.load_model(metric / "it.model")
    section = root.one("section", id="metric")
    header, *rows = root.table("Rounds of the metric")
    assert header == ["", "kernel", "map", "round", "width factor", "error on held-out rows", "kept"]
    assert [row[5] for row in rows] == [f"{made['error']:.4g}" for made in model.metric_rounds_]
    assert [row[6] for row in rows] == ["kept" if made["kept"] else "" for made in model.metric_rounds_]
    assert [row[6] for row in rows].count("kept") == 1
    chart = section.one("svg")
    ordered = np.argsort(-model.feature_importances_, kind="stable")[:20]
    shares = model.feature_importances_[ordered]
    described = [f"{name} {100 * share:.1f} %" for name, share in zip(np.array(WIDE)[ordered], shares, strict=True)]
    assert chart.one("desc").text == "; ".join(described)
    lengths = [float(str(bar.attributes["width"])) for bar in chart.all("rect")]
    assert lengths == pytest.approx(160 * shares / shares[0], abs=0.01)
    assert "2 more features are left out" in section.text
    assert "Map: a factor for each standardised feature" in section.text


def test_a_run_that_was_cut_short_names_the_error(bare: RunDirectory) -> None:
    root = written(bare, started(), a_round(0), RunCutShort(error="MemoryError", message="no room"))
    assert root.one("span", class_="badge warn").text == "cut short"
    assert "Cut short. no room" in root.one("div", class_="callout warn").text


def test_incidents_are_listed_and_marked(bare: RunDirectory) -> None:
    now = 1e9
    events = [
        started(),
        a_round(0, timestamp=now + 1),
        ExchangeDone(name="kernel-columns", seconds=2.0, timestamp=now + 2),
        WorkerLost(worker="tcp://a", blocks=(1, 2), timestamp=now + 3),
        BlocksReplayed(worker="tcp://b", blocks=(1, 2), messages=7, timestamp=now + 4),
        a_round(1, timestamp=now + 5),
        RunStarted(**{**started().__dict__, "timestamp": now + 5000}),
        RunResumed(run_id="r", exchanges=4, seconds=4.0, timestamp=now + 5000),
        a_round(2, timestamp=now + 5001),
    ]
    events[0] = RunStarted(**{**started().__dict__, "timestamp": now})
    root = written(bare, *events)
    rows = root.table("Incidents")[1:]
    assert [row[1] for row in rows] == ["16", "16", "32"]
    assert "lost worker tcp://a" in rows[0][2]
    assert rows[2][0] == "5.0 s"  # the hours between the processes do not count
    timeline = root.one("div", role="region", aria_label="Timeline").one("svg")
    assert len([g for g in timeline.all("g") if "flag" in str(g.attributes["class"])]) == 3
    assert "6 seconds from the first event to the last" in timeline.one("desc").text
    first = root.one("section", id="curves").all("svg")[0]
    assert len(first.all("line", class_="mark")) == 2
    assert ["workers lost", "1"] in root.table("The run")


def test_a_run_of_many_incidents_has_a_page_of_some_size(bare: RunDirectory) -> None:
    lost = [WorkerLost(worker="tcp://a", blocks=(1,)) for _ in range(MOST_INCIDENTS + 50)]
    root = written(bare, started(), a_round(0), *lost)
    assert len(root.table("Incidents")) == 1 + MOST_INCIDENTS
    assert "50 more are left out" in root.text


def test_a_path_of_many_rounds_is_thinned(bare: RunDirectory) -> None:
    values = np.random.default_rng(0).uniform(1, 2, 4000)
    values[1234] = 5.0
    for n, value in enumerate(values):
        bare.record(a_round(n, gcv=float(value)).as_record())
    page = render_report(read_run(bare))
    assert len(page) < 200_000
    assert "highest 5" in page


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, "text"])
def test_figures_that_are_no_numbers_are_skipped(bare: RunDirectory, value: Any) -> None:
    records = [a_round(n).as_record() for n in range(3)]
    records[1]["gcv"] = value
    for record in records:
        bare.record(record)
    page = render_report(read_run(bare))
    assert "nan" not in page.lower().replace("generalised", "")
    assert len(parse(page).one("section", id="curves").all("svg")) == 4


def test_missing_model_and_test_data_are_named(report: Report, digits: Path, tmp_path: Path) -> None:
    run = tmp_path / "copy.run"
    shutil.copytree(digits / "it.run", run)
    document = json.loads((run / "job.json").read_text())
    document["job"]["output"]["model"] = str(tmp_path / "gone.model")
    (run / "job.json").write_text(json.dumps(document))
    _, root = report(run)
    assert "there is no model at" in root.one("ul", class_="missing").text
    assert parts(root) == set(NAMES) - {"test", "probabilities", "centres"}
    # What was measured when the run ended is still there.
    assert float(root.figures()["test error"][1] or "nan") == summary(digits)["test"]["error"]

    document["job"]["output"]["model"] = str(digits / "it.model")
    document["job"]["data"] = {"train": "gone.zarr", "test": "gone-test.zarr"}
    (run / "job.json").write_text(json.dumps(document))
    _, root = report(run)
    assert "gone-test.zarr" in root.one("ul", class_="missing").text
    assert parts(root) == set(NAMES) - {"test", "probabilities"}
    assert root.table("Planned and measured")[2][1] == "\u2013"


def test_another_model_than_that_of_the_run_has_a_note(report: Report, digits: Path, tmp_path: Path) -> None:
    run = tmp_path / "copy.run"
    shutil.copytree(digits / "it.run", run)
    kept = json.loads((run / "summary.json").read_text())
    kept["test"]["error"] = 0.5
    (run / "summary.json").write_text(json.dumps(kept))
    _, root = report(run)
    assert "When the run ended, the test error was 0.5" in root.text


def test_paths_of_a_job_are_those_of_where_it_ran(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report: Report
) -> None:
    place = tmp_path / "there"
    shutil.copytree(digits, place)
    document = json.loads((place / "it.run" / "job.json").read_text())
    document["job"]["data"] = {"train": "train.zarr", "test": "./test.zarr"}
    document["job"]["output"] = {"model": "it.model", "run": "it.run"}
    (place / "it.run" / "job.json").write_text(json.dumps(document))
    monkeypatch.chdir(tmp_path)
    _, root = report(Path("there/it.run"))
    assert parts(root) == set(NAMES)


def test_a_run_of_python_takes_model_and_test_data_from_the_command(report: Report, waves: Path) -> None:
    data = dk.open_dataset(waves / "train.zarr")
    folder = waves / "python"
    model = dk.OROLSRegressor(max_centers=30, sigma=1.0, run_dir=folder / "py.run").fit(data)
    model.save(folder / "py.model")
    _, root = report(folder / "py.run")
    assert "the job names no model" in root.one("ul", class_="missing").text
    assert ["max_centers", "30"] in root.table("parameters")
    assert float(root.figures()["λ"][1] or "nan") == pytest.approx(model.lambda_)
    _, root = report(folder / "py.run", "--model", folder / "py.model", "--test", waves / "test.zarr")
    assert {"test", "centres"} <= parts(root)
    assert not root.all("ul", class_="missing")
    model.truncate(20).save(folder / "short.model")
    _, root = report(folder / "py.run", "--model", folder / "short.model", "--test", waves / "test.zarr")
    assert {"test", "centres"} <= parts(root)
    assert "The run ended with 30 centres. The present model has 20" in root.text


# The command.


def test_by_default_the_report_is_in_the_run_directory(
    digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "copy.run"
    shutil.copytree(digits / "it.run", run)
    before = set(os.listdir(run))
    assert main(["report", str(run)]) == 0
    assert set(os.listdir(run)) == before | {"report.html"}
    assert str(run / "report.html") in capsys.readouterr().out
    content = (run / "report.html").read_bytes()
    assert main(["report", str(run)]) == 6
    assert "exists already" in capsys.readouterr().err
    assert (run / "report.html").read_bytes() == content
    assert main(["report", str(run), "--overwrite"]) == 0
    assert main(["info", str(run)]) == 0


def test_only_a_report_is_overwritten(digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "thesis.html"
    other.write_text("<!doctype html><title>mine</title>")
    assert main(["report", str(digits / "it.run"), "--out", str(other), "--overwrite"]) == 6
    assert "not of the kind" in capsys.readouterr().err
    assert other.read_text().endswith("mine</title>")
    assert os.listdir(tmp_path) == ["thesis.html"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["{tmp}/nothing"], 6, "there is no run"),
        (["{data}/it.model"], 6, "not a run directory"),
        (["{data}/it.run", "--out", "s3://bucket/r.html"], 6, "s3://bucket/r.html is a URL"),
        (["{data}/it.run", "--model", "{tmp}/nothing", "--out", "{tmp}/r.html"], 6, "there is no model"),
        (["{data}/it.run", "--test", "{tmp}/nothing", "--out", "{tmp}/r.html"], 3, "nothing"),
        (["{data}/it.run", "--out", "{data}/it.run/job.json/r.html"], 6, "cannot be written"),
    ],
)
def test_a_report_that_cannot_be_made_leaves_nothing(
    digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str
) -> None:
    filled = [argument.format(tmp=tmp_path, data=digits) for argument in arguments]
    assert main(["report", *filled]) == code
    assert said in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


# Run directories that come from elsewhere.

KINDS = tuple(EVENTS)
FIELDS = (
    *("n_rows", "n_features", "n_blocks", "max_centers", "workers", "n_centers", "seconds", "gcv", "lambda_", "blocks"),
    *("residual_max", "validation", "messages", "exchanges", "name", "worker", "reason", "unusable", "run_id", "count"),
    *("busy", "memory", "bytes_read", "part", "round", "rounds", "factor", "kernel", "shape"),
    *("stop_reason", "timestamp", "error", "message", "array", "address"),
)
ANY = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.just(10**400),
    st.just(1e300),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
METRIC_ROUND = {"kernel": "gaussian", "shape": "full", "round": 0, "factor": 1.0, "error": 0.5, "rounds": 1}
ONES = {"shape": [2], "data": "AAAAAAAA8D8AAAAAAADwPw=="}
METRIC = {
    "map": ONES,
    "shift": ONES,
    "scale": ONES,
    "importances": ONES,
    "kernel": {"name": "gaussian", "parameters": {"sigma": 1.0}},
    "rounds": [METRIC_ROUND | {"kept": True}],
    "bytes_read": 1,
    "seconds": 1.0,
}
RECORD = st.dictionaries(st.sampled_from(FIELDS), ANY, max_size=8)
EVENT = st.builds(
    lambda kind, fields: {**fields, "event": kind},
    st.sampled_from((*KINDS, "Other")),
    RECORD,
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(EVENT, max_size=12),
    st.none()
    | st.dictionaries(
        st.sampled_from(
            ("n_centers", "lambda", "gcv", "seconds", "stop_reason", "test", "planned_peak_bytes", "rounds")
        ),
        ANY,
    ),
    st.dictionaries(st.text(max_size=4), ANY, max_size=4),
    st.sets(st.sampled_from(("event", *METRIC)), max_size=2),
    ANY,
)
def test_nonsense_in_a_run_directory_makes_a_page(
    events: list[dict[str, Any]], kept: dict[str, Any] | None, job: dict[str, Any], damaged: set[str], value: Any
) -> None:
    events = [{**METRIC_ROUND, **event} if event["event"] == "MetricRoundDone" else event for event in events]
    with tempfile.TemporaryDirectory() as folder:
        run = RunDirectory.create(Path(folder, "run"), job)
        lines = "\n".join(json.dumps(event) for event in events)
        (run.path / "events.jsonl").write_text(lines)
        if kept is not None:
            (run.path / "summary.json").write_text(json.dumps(kept))
        (run.path / "metric.json").write_text(json.dumps(METRIC | dict.fromkeys(damaged, value)))
        page = render_report(read_run(run))
        show = RunDisplay(LineDisplay(lambda level, text: None, interval=0.0))
        for event in run.events():
            show.take(event)
        picture(show.figures)
        line(show.figures)
        list(families([("r", "run", RunFigures.of_records(run.events()))]))
    parse(page)
    assert len(page) < 500_000


@pytest.mark.slow
def test_a_large_job_makes_no_large_page(tmp_path: Path) -> None:
    job = {f"section {i}": {f"key {j}" * 100: "x" * 1000 for j in range(250)} for i in range(25)}
    run = RunDirectory.create(tmp_path / "run", job)
    events = [ExchangeDone(name=f"phase {number}" * 50, seconds=0.1).as_record() for number in range(3000)]
    (run.path / "events.jsonl").write_text("\n".join(map(json.dumps, events)))
    assert len(render_report(read_run(run))) < 4_000_000

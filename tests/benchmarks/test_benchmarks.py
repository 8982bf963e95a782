"""The benchmarks at tiny sizes: what they report must make sense."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from benchmarks import (
    accuracy_time,
    baselines,
    command,
    compact_support,
    gemm_share,
    generated,
    large_model,
    memory,
    methods,
    norm_refit,
    ours,
    peers,
    probabilities,
    profiling,
    reference_loop,
    scaling,
    single_widths,
    speech_size,
    stop_rule,
    tables,
)
from benchmarks.__main__ import main
from benchmarks.cluster import simulated
from benchmarks.datasets import Recipe, Split
from benchmarks.flops import FlopCounter, counted
from benchmarks.generated import Mixture
from distkern import OROLSRegressor
from distkern.monitoring.events import EventBus
from distkern.scheduler.execution.dask_executor import DaskExecutor
from distkern.scheduler.execution.executor import SerialExecutor
from distkern.scheduler.training.driver_loop import train
from distkern.selection.stopping import StopReason
from tests.scheduler.trainings import assert_same_bits

pytestmark = pytest.mark.nightly

MIXTURE = Mixture(5, 2, 6, subspace=3, middles=2.0, spread=3.0)


def split_of(*, classification: bool, n: int = 900) -> Split:
    if classification:
        X, y = generated.in_memory(MIXTURE.draw(n + 300))
        recipe = Recipe("mixture", True, 40, 2.0)
    else:
        X, y = generated.in_memory(generated.waves(n + 300, 4))
        recipe = Recipe("waves", False, 40, 2.0)
    X = X.astype(np.float64)
    return Split(recipe, X[:n], y[:n], X[n:], y[n:])


# --- generated data --------------------------------------------------------------------------------------------------


def test_a_shorter_set_is_the_beginning_of_a_longer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generated, "PIECE", 64)
    for make in (lambda n: generated.waves(n, 3), MIXTURE.draw):
        (X, y), (X_short, y_short) = generated.in_memory(make(300)), generated.in_memory(make(100))
        np.testing.assert_array_equal(X[:100], X_short)
        np.testing.assert_array_equal(y[:100], y_short)
        assert not (X[:64] == X[64:128]).any()


def test_the_best_guess_is_that_of_the_densities() -> None:
    X, y = generated.in_memory(MIXTURE.draw(400, part=1))
    distances = np.square(X[:, None, :].astype(np.float64) - MIXTURE.means).sum(axis=2)
    densities = np.exp(-0.5 * distances).reshape(len(X), 5, 2).sum(axis=2)
    np.testing.assert_array_equal(MIXTURE.best_guess(X), densities.argmax(axis=1))
    assert np.mean(MIXTURE.best_guess(X) != y) < 0.5


def test_stores_hold_the_generated_rows(tmp_path: Path) -> None:
    data = generated.store(tmp_path / "m.zarr", 500, MIXTURE.draw(500), "classification", chunk_rows=128)
    X, y = generated.in_memory(MIXTURE.draw(500))
    seen: list[Any] = []
    generated.rows_of(data, lambda X, y: seen.append((X, y)))
    np.testing.assert_array_equal(np.concatenate([X for X, _ in seen]), X)
    np.testing.assert_array_equal(np.concatenate([y for _, y in seen]), y)


# --- accuracy and time -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("classification", [True, False])
def test_accuracy_time_compares_on_one_scale(classification: bool) -> None:
    split = split_of(classification=classification)
    rows = list(accuracy_time.curve(split, (5, 40)))
    assert [row["centers"] for row in rows] == [5, 40]
    trivial = 1 - np.bincount(split.y_test).max() / 300 if classification else 1.0
    for row in rows:
        assert 0 < row["distkern"] < trivial
        assert 0 < row["nystroem"] < trivial
        assert row["time/nystroem"] == row["s"] / row["nystroem s"]
        assert row["svm"] == rows[0]["svm"]
    assert rows[1]["distkern"] < rows[0]["distkern"]
    assert (rows[0]["sampled"] is not None) == ours.takes("selection_rows")


def test_fewer_centers_gives_distkern_six_tenths() -> None:
    row = accuracy_time.fewer_centers(split_of(classification=False), 40, 2.0)
    assert (row["centers"], row["nystroem centers"]) == (24, 40)


def test_nystroem_keeps_the_best_penalty(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = baselines.prepare(split_of(classification=False))
    best = baselines.nystroem(problem, 30).error
    errors = []
    for penalty in baselines.RIDGES:
        monkeypatch.setattr(baselines, "RIDGES", (penalty, penalty))
        errors.append(baselines.nystroem(problem, 30).error)
    assert best == min(errors) < max(errors)


@pytest.mark.skipif(importlib.util.find_spec("falkon") is not None, reason="falkon is installed")
def test_falkon_is_reported_as_absent() -> None:
    row = next(accuracy_time.curve(split_of(classification=True), (10,)))
    assert row["falkon"] == row["falkon s"] == row["time/falkon"] == "not installed"


# --- the plain loop --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["columns", "rows"])
def test_the_loop_solves_the_regularised_problem(layout: str) -> None:
    X, y = generated.in_memory(generated.waves(200, 3))
    loop = reference_loop.plain_loop(X, y, 1.5, 12, layout)
    # The same fit from dense algebra: orthogonalise the kernel columns, shrink by lambda.
    distances = np.square(X[:, None] - X[loop.centers]).sum(axis=2)
    K = np.column_stack([np.ones(200), np.exp(-distances / (2 * 1.5**2))])
    Q, R = np.linalg.qr(K)
    s = np.square(np.diag(R))
    z = Q.T @ (y - y.mean()) * np.sqrt(s)
    squares = np.sum(np.square(y - y.mean() - (Q * np.sqrt(s)) @ (z / (s + loop.lambda_))))
    trace = 200 - np.sum(s / (s + loop.lambda_))
    assert loop.gcv == pytest.approx(200 * squares / trace**2, rel=1e-8)
    assert len(set(loop.centers)) == 12
    assert loop.centers[0] == np.abs(y - y.mean()).argmax()


def test_the_loop_passes_over_dependent_rows() -> None:
    X, y = generated.in_memory(generated.waves(30, 2))
    loop = reference_loop.plain_loop(np.repeat(X, 2, axis=0), np.repeat(y, 2), 1.0, 60, "columns")
    first = np.array(loop.centers) // 2
    assert len(set(first.tolist())) == len(first) <= 30


def test_distkern_takes_the_loops_centres() -> None:
    row = next(reference_loop.run(1500, 4, (25,)))
    assert row["same order"] is True
    assert row["same first"] == row["centers"] == 25
    assert row["lambda difference"] < 1e-9
    assert row["loop/distkern"] == row["loop s"] / row["distkern s"]


# --- operations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"candidates": 64, "panel": 8, "max_centers": 50},
        {"candidates": 60, "panel": 7, "max_centers": 33},
        {"candidates": 40, "panel": 8, "max_centers": 30, "dtype": "float32"},
        {"candidates": 500, "panel": 16, "max_centers": 40},
    ],
)
def test_counted_operations_are_those_of_the_rounds(options: dict[str, Any]) -> None:
    """Straight from the widths: what every round must do, and what a second pass and fresh Gram matrices may add."""
    n, d = 400, 3
    X, y = generated.in_memory(generated.waves(n, d))
    counter = FlopCounter(n, d, 1)
    with counted(counter):
        model = OROLSRegressor(sigma=1.5, stop=None, **options).fit(X, y)
    assert model.stop_reason_ == StopReason.MAX_CENTERS
    settings = model.training_job().selection(n)
    pool, panel, batch = settings.pool, settings.panel, settings.batch
    accepted = np.bincount(model.history_["round"])
    accepted = accepted[accepted > 0].tolist()
    before = np.cumsum([1, *accepted]).tolist()
    fresh = 0 if settings.all_rows else batch
    filling = -(-pool // batch)
    # The last round ends with its first exchange: nobody asks for the rows of Q after the last centre.
    later = before[1:-1]
    cross = filling * (1 + panel) * (panel + batch) + sum((m + panel) * (panel + fresh) for m in before[:-1])
    projection = filling * batch + sum(m * fresh for m in later)
    expected = {
        "kernel": d * (filling * batch + len(accepted) * fresh),
        "cross": cross,
        "projection": projection,
        "form": sum(p * panel for p in accepted),
        "pool": pool * (filling * batch + len(later) * (fresh + panel)),
    }
    for kind, value in expected.items():
        assert counter.by_kind[kind] == 2 * n * value, kind
    combined = sum(panel * p for p in accepted[:-1])
    corrected = sum(m * p for m, p in zip(before, accepted[:-1], strict=False))
    assert 2 * n * combined <= counter.by_kind["append"] <= 2 * n * (combined + corrected)
    assert counter.by_kind["refresh"] % (2 * n * pool * (pool + 2)) == 0
    assert counter.total == sum(counter.by_kind.values())


def test_the_share_of_the_matrix_rate_is_a_share() -> None:
    row = next(gemm_share.run(6000, 8, 60, ("float64",), 512))
    assert row["centers"] == 60
    assert 0 < row["share"] < 1.2
    assert row["share"] == pytest.approx(row["Gflop"] / row["selection s"] / row["GEMM GF/s"])
    assert row["flops/centre/2Mm"] == pytest.approx(row["Gflop"] * 1e9 / 60 / (2 * 6000 * 30.5))
    assert sum(value for name, value in row.items() if name.endswith("%")) == pytest.approx(100)
    assert row["selection s"] <= row["fit s"] * 1.01


# --- scaling, memory, speech -----------------------------------------------------------------------------------------


def test_scaling_in_rows(tmp_path: Path) -> None:
    rows = list(scaling.by_rows((1000, 2000), 4, 20, 0, folder=tmp_path))
    assert [row["rows"] for row in rows] == [1000, 2000]
    assert rows[0]["time ratio"] == 1
    assert rows[1]["time ratio"] == rows[1]["s"] / rows[0]["s"]
    assert rows[1]["rows ratio"] == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.cluster
def test_scaling_in_workers(tmp_path: Path) -> None:
    rows = list(scaling.by_workers(3000, 4, 20, (1, 2), folder=tmp_path))
    assert [row["workers"] for row in rows] == [1, 2]
    assert rows[1]["workers ratio"] == 2
    assert all(row["same centres"] and row["centers"] == 20 for row in rows)
    assert not list(tmp_path.iterdir())


def test_scaling_on_a_given_client(tmp_path: Path) -> None:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0", silence_logs=50
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        (row,) = scaling.by_workers(2000, 4, 20, (), client=client, folder=tmp_path)
    assert row["workers"] == 2
    assert row["centers"] == 20


def test_memory_reports_peaks_of_the_command(tmp_path: Path) -> None:
    (row,) = memory.run((2000,), 4, 20, 0, (None,), "float64", tmp_path)
    assert row["outcome"] == "done"
    assert row["worker MiB"] == 0
    assert row["driver MiB"] > 20
    assert row["measured/planned"] == pytest.approx(row["driver MiB"] / row["planned MiB"])
    assert not list(tmp_path.iterdir())


@pytest.mark.cluster
def test_memory_reports_peaks_of_workers(tmp_path: Path) -> None:
    (row,) = memory.run((2000,), 4, 20, 1, ("1GiB",), "float32", tmp_path)
    assert row["outcome"] == "done"
    assert 20 < row["worker MiB"] < 1024
    assert row["measured/planned"] == pytest.approx(row["worker MiB"] / row["planned MiB"])


def test_a_failed_command_is_reported(tmp_path: Path) -> None:
    trained = command.train(tmp_path, {"data": {"train": "absent.zarr"}})
    assert trained.code == 3
    assert "absent.zarr" in trained.outcome()
    assert trained.value("seconds") is None


def test_a_large_model_is_compared_with_fewer_and_with_random_centres(tmp_path: Path) -> None:
    rows = list(large_model.run(6000, 6, 300, 100, workers=1, memory="2GiB", folder=tmp_path))
    assert [row["outcome"] for row in rows] == ["done"] * 3
    assert rows[0]["rmse"] < rows[1]["rmse"]
    assert rows[0]["planned driver MiB"] > 250


def test_speech_size_compares_four_classifiers(tmp_path: Path) -> None:
    rows = {
        row["method"]: row
        for row in speech_size.run(3000, 1000, 60, MIXTURE, sigma=2.5, workers=0, selection_rows=None, folder=tmp_path)
    }
    assert list(rows) == ["best possible", "linear", "GaussianNB", "distkern"]
    errors = {method: row["error"] for method, row in rows.items()}
    assert all(row["outcome"] == "done" for row in rows.values())
    # On a thousand rows luck may put a good classifier a little below the best possible one.
    assert errors["best possible"] - 0.03 < errors["distkern"] < errors["linear"] - 0.1 < 0.7
    assert errors["best possible"] < errors["GaussianNB"] < 0.8
    assert rows["distkern"]["wall s"] > rows["distkern"]["s"]


def test_the_linear_model_is_ridge_regression_to_indicators(tmp_path: Path) -> None:
    data = generated.store(tmp_path / "m.zarr", 400, MIXTURE.draw(400), "classification")
    X, y = generated.in_memory(MIXTURE.draw(400))
    rows = np.column_stack([np.ones(400), X.astype(np.float64)])
    weights = np.linalg.lstsq(rows, np.eye(5)[y], rcond=None)[0]
    np.testing.assert_array_equal(speech_size.linear(data, 5)(X), (rows @ weights).argmax(axis=1))


@pytest.mark.skipif(ours.takes("selection_rows"), reason="selection_rows is there")
def test_speech_size_without_selection_rows_says_so(tmp_path: Path) -> None:
    rows = list(
        speech_size.run(
            300, 100, 10, MIXTURE, sigma=2.5, workers=0, selection_rows=200, all_rows=False, folder=tmp_path
        )
    )
    assert rows[-1]["outcome"] == "selection_rows is not there yet"
    assert rows[-1]["error"] is None


@pytest.mark.skipif(not ours.takes("selection_rows"), reason="selection_rows is not there yet")
def test_speech_size_with_selection_rows(tmp_path: Path) -> None:
    rows = list(
        speech_size.run(
            3000, 1000, 40, MIXTURE, sigma=2.5, workers=0, selection_rows=1000, all_rows=False, folder=tmp_path
        )
    )
    assert [row["method"] for row in rows[3:]] == ["distkern, centres chosen on 1000 rows"]
    assert rows[-1]["outcome"] == "done"
    assert rows[-1]["error"] < rows[1]["error"] - 0.1


# --- profile ---------------------------------------------------------------------------------------------------------


def test_the_profile_accounts_for_the_wall_time() -> None:
    rows = profiling.measure(6000, 4, 60, "float64", "error-reduction", 5)
    phases = {row["phase"]: row for row in rows if row["part"] != "driver sample"}
    assert {
        "kernel columns", "cross products", "products with Q for both passes", "append, eliminate, project", "form",
        "pool products", "draw", "reduction", "driver algebra",
    } <= set(phases)  # fmt: skip
    shares = [row["share"] for row in phases.values()]
    assert sum(shares) == pytest.approx(1)
    assert all(-0.05 < share < 1 for share in shares)
    assert phases["append, eliminate, project"]["calls"] >= phases["products with Q for both passes"]["calls"] > 0
    assert phases["draw"]["calls"] > 0
    samples = [row for row in rows if row["part"] == "driver sample"]
    assert 0 < len(samples) <= 5
    assert all(0 < row["share"] <= 1 for row in samples)


def test_the_package_is_left_as_it_was() -> None:
    before = profiling.tiles.answer, profiling.block.Block.step, profiling.reduction.TreeReducer.add
    with profiling.instrumented(profiling.Clock()):
        assert profiling.tiles.answer is not before[0]
    assert (profiling.tiles.answer, profiling.block.Block.step, profiling.reduction.TreeReducer.add) == before


def test_inner_time_is_taken_from_the_outer() -> None:
    clock = profiling.Clock()
    inner = clock.wrap(lambda: math.fsum(range(200_000)), "inner")
    outer = clock.wrap(lambda: inner(), "outer")
    outer()
    assert clock.calls == {"inner": 1, "outer": 1}
    assert 0 <= clock.seconds["outer"] < clock.seconds["inner"]


# --- tables and command line -----------------------------------------------------------------------------------------


def test_tables_align_and_fill_gaps() -> None:
    text = tables.markdown([{"a": 1.23456, "b": None}, {"a": 2, "c": "x"}])
    assert text.splitlines() == [
        "| a     | b | c |",
        "| ----- | - | - |",
        "| 1.235 | - | - |",
        "| 2     | - | x |",
    ]


def test_many_simulated_workers_select_as_one_process_does() -> None:
    """With no more blocks than compute, nothing is repeated: the real driver, its graphs and trees give every bit."""
    source = simulated.RepeatedRows(simulated.REAL_BLOCKS, 4)
    job = OROLSRegressor(sigma=2.0, max_centers=20, stop=None, selection_rows=None).training_job()
    client = simulated.SimulatedClient(40, source)
    executor = DaskExecutor(client, source, EventBus())
    try:
        result = train(job, source, executor, EventBus())
    finally:
        executor.close()
        client.close()
    assert_same_bits(result, train(job, source, SerialExecutor(source), EventBus()))
    assert client.tasks > 40 * executor.exchanges


def test_the_driver_with_many_simulated_workers() -> None:
    few, many = (simulated.run(workers, 10**6, 4, 20)[0] for workers in (8, 200))
    assert many["workers"] == 200
    assert many["centers"] == 20
    assert many["blocks"] >= 200
    assert 0 < many["driver ms an exchange, median"] <= many["largest"]
    assert many["exchanges"] == few["exchanges"]
    assert many["MB received"] < 2 * few["MB received"]
    assert many["planned MiB"] > 0


def test_a_benchmark_prints_its_table_and_saves_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    done = CliRunner().invoke(
        main, ["reference-loop", "--rows", "500", "--features", "3", "--centers", "5", "--json", str(path)]
    )
    assert done.exit_code == 0, done.output
    saved = json.loads(path.read_text())
    assert saved["machine"]["cores"] >= 1
    assert [row["centers"] for row in saved["rows"]] == [5]
    assert "| rows | features | centers |" in done.stdout


@pytest.mark.parametrize("name", sorted(main.commands))
def test_every_benchmark_has_help(name: str) -> None:
    done = CliRunner().invoke(main, [name, "--help"])
    assert done.exit_code == 0
    assert "--json" in done.output


# --- probabilities ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 5])
def test_probabilities_are_scored_beside_the_svm(n_classes: int) -> None:
    X, y = generated.in_memory(Mixture(n_classes, 2, 6, subspace=3).draw(900))
    X = X.astype(np.float64)
    rows = list(probabilities.measure(X[:500], y[:500], X[500:], y[500:], probabilities.Setting(2.0, 40), (0, 1)))
    assert [row["form"] for row in rows][:2] == ["SVC", "linear estimate"]
    assert len(rows) == (8 if n_classes > 2 else 6)
    by_form = {row["form"]: row for row in rows}
    assert by_form["predict_proba"]["log loss"] < by_form["linear estimate"]["log loss"]
    assert all(0 <= row["Brier"] <= 2 and math.isfinite(row["log loss"]) for row in rows)
    assert by_form["predict_proba"]["log loss - SVC"] == pytest.approx(
        by_form["predict_proba"]["log loss"] - by_form["SVC"]["log loss"]
    )


# --- kernels of compact support ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("classification", [True, False])
def test_both_ways_to_predict_with_compact_support_agree(classification: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    split = split_of(classification=classification)
    parts = split.X[:, :2], split.y, split.X_test[:, :2], split.y_test
    monkeypatch.setattr(compact_support, "load", lambda name: parts)
    row = compact_support.measure("drawn", 0.5, 100)
    assert row["difference"] < 1e-10
    assert 0 < row["density"] < 1
    assert 0 < row["kernel_share_of_fit"] < 1


# --- rules of the sources ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("classification", [True, False])
def test_stop_rules_are_held_against_the_best_of_the_path(classification: bool) -> None:
    (row,) = stop_rule.run([split_of(classification=classification)], 0, longer=2)
    for rule in stop_rule.RULES:
        assert 1 <= row[f"{rule} centers"] <= 80
        assert row[f"{rule} ratio"] == row[rule] / row["best"]
    assert row["mdl centers"] <= row["bic centers"]


def test_refits_are_held_against_the_weights_of_the_path() -> None:
    (row,) = norm_refit.run([split_of(classification=False, n=300)], 0)
    assert row["whole centers"] == 40
    assert all(0.0 < row[f"{place} {kind}"] < 1.5 for place in ("stopped", "whole") for kind in ("path", "rkhs"))


# --- all methods -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("classification", [True, False])
def test_methods_are_measured_on_the_same_rows(classification: bool) -> None:
    rows = list(methods.run([split_of(classification=classification, n=200)]))
    assert {row["method"] for row in rows} >= {"OROLS, shared centres", "NPD", "KRLS, nu 0.01", "LS-SVM", "QR forward"}
    assert ("Fisher" in {row["method"] for row in rows}) == classification
    assert all(0 <= row["error"] < 1.5 for row in rows)
    assert len(methods.pivoted(rows)) == len(rows)


# --- single widths ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("classification", [True, False])
def test_a_learnt_metric_is_compared_with_the_best_single_width(classification: bool) -> None:
    row = single_widths.compare(split_of(classification=classification, n=200), 20, 1)
    best = min(row[kernel] for kernel in single_widths.KERNELS)
    assert row["above best"] == pytest.approx(row["auto"] / best - 1)
    assert row["holds"] == (row["above best"] <= max(single_widths.TOLERATED, row["standard error"]))
    assert row["CPU/one width"] > 0


def test_the_standard_error_is_that_of_the_difference_of_the_errors() -> None:
    rng = np.random.default_rng(0)
    split = split_of(classification=False, n=200)
    learnt, best = rng.random((2, 3, 400))

    def errors(rows: NDArray[np.intp]) -> float:
        return single_widths._error(split, list(learnt[:, rows])) - single_widths._error(split, list(best[:, rows]))

    found = np.std([errors(rng.integers(0, 400, 400)) for _ in range(2000)])
    assert single_widths._standard_error(split, list(learnt), list(best)) == pytest.approx(found, rel=0.15)


# --- peers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("classification", [True, False])
@pytest.mark.parametrize("name", peers.METHODS)
def test_peers_predict_better_than_a_constant(classification: bool, name: str) -> None:
    method = peers.METHODS[name]
    pytest.importorskip(method.package)
    split = split_of(classification=classification)
    trained = method.train(split, 30, 0)
    assert trained.size > 0
    assert baselines.error_of(split)(trained.predict(split.X_test)) < 0.8


def test_peers_are_measured_in_their_own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    method = peers.Method("absent", "no_such_package", peers.METHODS["exact kernel"].train)
    monkeypatch.setattr(peers, "METHODS", {"absent": method, "exact kernel": peers.METHODS["exact kernel"]})
    monkeypatch.setattr(peers, "LEAST_ROWS", 100)
    rows = list(peers.run(("ripley",), (), (), 1))
    if not rows:
        pytest.skip("the set ripley is not in DISTKERN_DATA")
    assert [row["outcome"] for row in rows] == ["not installed", "done"]
    assert 0 < rows[1]["error"] < 0.2
    assert rows[1]["peak MiB"] > 50

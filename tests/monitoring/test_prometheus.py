"""Metrics say what the figures say, in Prometheus' form, and Grafana's dashboard asks for no others."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from distkern.monitoring.events import (
    BlocksReplayed,
    ExchangeDone,
    MetricRoundDone,
    RoundDone,
    RunEnded,
    RunStarted,
    StorageRetried,
    WorkerLost,
)
from distkern.monitoring.prometheus import families
from distkern.monitoring.run_state import RunFigures
from tests.locations import ROOT

GRAFANA = ROOT / "deploy" / "grafana" / "distkern.json"


def a_run(run_id: str = "r", gcv: float = 0.25) -> RunFigures:
    figures = RunFigures()
    memory = {"tcp://a": {"resident": 7, "cache": 3, "scratch": 2, "planned": 9}}
    for event in (
        MetricRoundDone(kernel="gaussian", shape="full", round=1, factor=1.0, error=0.375, rounds=1),
        MetricRoundDone(kernel="gaussian", shape="full", round=2, factor=1.0, error=0.5, rounds=2),
        ExchangeDone(
            name="load-blocks", seconds=0.5, bytes_read=640, busy={"read": 0.75, "waiting": 0.25}, memory=memory
        ),
        RunStarted(
            run_id=run_id, n_rows=90, n_features=3, n_targets=1, n_problems=1, n_blocks=4, max_centers=64, workers=2
        ),
        WorkerLost(worker="tcp://b", blocks=(1, 2)),
        BlocksReplayed(worker="tcp://a", blocks=(1, 2), messages=3),
        StorageRetried(array="X", count=3),
        ExchangeDone(name="form-panel", seconds=0.25, exchanges=2, busy={"update": 0.5}),
        RoundDone(round=0, n_centers=16, lambda_=0.5, gcv=gcv, residual_max=2.0, seconds=1.5, validation=0.125),
    ):
        figures(event)
    return figures


class Collector:
    def __init__(self, *runs: tuple[str, str, RunFigures]) -> None:
        self.runs = runs

    def collect(self) -> Iterator[Any]:
        return families(self.runs)


def exported(*runs: tuple[str, str, RunFigures]) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector(*runs))
    return generate_latest(registry).decode()


def values(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_run_under_way() -> None:
    found = values(exported(("r", "letter.run", a_run())))
    run = ("run", "r")
    expected: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {
        ("distkern_run_info", (("title", "letter.run"),)): 1,
        ("distkern_run_running", ()): 1,
        ("distkern_run_rows", ()): 90,
        ("distkern_run_seconds", ()): 1.5,
        ("distkern_centers", ()): 16,
        ("distkern_steps_total", ()): 16,
        ("distkern_max_centers", ()): 64,
        ("distkern_gcv", ()): 0.25,
        ("distkern_lambda", ()): 0.5,
        ("distkern_residual_max", ()): 2.0,
        ("distkern_validation_error", ()): 0.125,
        ("distkern_exchanges_total", ()): 3,
        ("distkern_search_exchanges_total", ()): 0,
        ("distkern_messages_total", (("message", "form-panel"),)): 1,
        ("distkern_message_seconds_total", (("message", "load-blocks"),)): 0.5,
        ("distkern_thread_seconds_total", (("phase", "read"),)): 0.75,
        ("distkern_thread_seconds_total", (("phase", "waiting"),)): 0.25,
        ("distkern_metric_rounds", ()): 2,
        ("distkern_metric_error", ()): 0.375,
        ("distkern_read_bytes_total", ()): 640,
        ("distkern_workers_lost_total", ()): 1,
        ("distkern_replayed_blocks_total", ()): 2,
        ("distkern_storage_retries_total", ()): 3,
        ("distkern_resumptions_total", ()): 0,
        ("distkern_worker_resident_bytes", (("worker", "tcp://a"),)): 7,
        ("distkern_worker_cache_bytes", (("worker", "tcp://a"),)): 3,
        ("distkern_worker_scratch_bytes", (("worker", "tcp://a"),)): 2,
        ("distkern_worker_planned_bytes", (("worker", "tcp://a"),)): 9,
    }
    for (name, labels), value in expected.items():
        assert found[name, frozenset((run, *labels))] == value, name
    assert not any(name == "distkern_stop_reason_info" for name, _ in found)


def test_a_finished_run_has_the_figures_of_its_model() -> None:
    figures = a_run()
    figures(RunEnded(n_centers=16, stop_reason="gcv-risen", seconds=2.5))
    figures.conclude(
        {"n_centers": 12, "gcv": 0.125, "lambda": [0.25, 0.75], "exchanges": 9, "stop_reason": "gcv-risen"}
    )
    found = values(exported(("r", "t", figures)))
    run = frozenset({("run", "r")})
    assert found["distkern_centers", run] == 12
    assert found["distkern_steps_total", run] == 16
    assert found["distkern_gcv", run] == 0.125
    assert found["distkern_lambda", run] == 0.75, "the largest where there are several"
    assert found["distkern_exchanges_total", run] == 9
    assert found["distkern_run_running", run] == 0
    assert found["distkern_stop_reason_info", run | {("reason", "gcv-risen")}] == 1


def test_several_runs_and_none() -> None:
    found = values(exported(("a", "x", a_run("a", gcv=0.5)), ("b", 'with "quotes" \\ and\nlines', a_run("b"))))
    assert found["distkern_gcv", frozenset({("run", "a")})] == 0.5
    assert found["distkern_gcv", frozenset({("run", "b")})] == 0.25
    assert found["distkern_run_info", frozenset({("run", "b"), ("title", 'with "quotes" \\ and\nlines')})] == 1
    assert values(exported()) == {}
    new = values(exported(("new", "t", RunFigures())))
    assert new["distkern_run_running", frozenset({("run", "new")})] == 1
    assert not any(name.startswith("distkern_metric") for name, _ in new)


def test_names_follow_the_conventions_and_have_a_help_text() -> None:
    for family in text_string_to_metric_families(exported(("r", "t", a_run()))):
        assert family.name.startswith("distkern_")
        assert len(family.documentation) > 10
        assert family.documentation.endswith(".")
        counter = family.type == "counter"
        assert all(sample.name.endswith("_total") == counter for sample in family.samples)


def expressions() -> list[str]:
    found: list[str] = []

    def look(value: Any) -> None:
        if isinstance(value, dict):
            found.extend(text for name, text in value.items() if name in ("expr", "definition"))
            for part in value.values():
                look(part)
        elif isinstance(value, list):
            for part in value:
                look(part)

    look(json.loads(GRAFANA.read_text()))
    return found


def test_grafana_asks_for_metrics_that_there_are_by_labels_that_they_have() -> None:
    figures = a_run()
    figures(RunEnded(n_centers=16, stop_reason="gcv-risen", seconds=2.5))
    text = exported(("r", "t", figures))
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    exported_names = {sample.name for sample in samples} | {"distkern_run_left_seconds"}
    asked = expressions()
    assert len(asked) > 20
    used = set()
    for expression in asked:
        names = set(re.findall(r"distkern_\w+", expression))
        assert names <= exported_names, expression
        used |= names
        labels = set(re.findall(r"\{(\w+)=~", expression)) | set(re.findall(r"by \((\w+)\)", expression))
        for name in names - {"distkern_run_left_seconds"}:
            assert all(labels <= sample.labels.keys() for sample in samples if sample.name == name), expression
    assert {"distkern_gcv", "distkern_lambda", "distkern_exchanges_total", "distkern_thread_seconds_total"} <= used


def test_grafana_draws_every_panel_somewhere_of_its_own() -> None:
    dashboard = json.loads(GRAFANA.read_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.parametrize("value", [None, "text", {}])
def test_a_summary_of_another_kind_is_passed_over(value: Any) -> None:
    figures = a_run()
    figures.conclude({"gcv": value, "lambda": value, "n_centers": value, "exchanges": value})
    found = values(exported(("r", "t", figures)))
    assert ("distkern_gcv", frozenset({("run", "r")})) not in found
    assert found["distkern_exchanges_total", frozenset({("run", "r")})] == 3


def test_the_page_on_watching_names_metrics_that_there_are() -> None:
    text = (ROOT / "docs" / "watching.md").read_text()
    figures = a_run()
    figures(RunEnded(n_centers=16, stop_reason="gcv-risen", seconds=2.5))
    found = {name for name, _ in values(exported(("r", "t", figures)))} | {"distkern_run_left_seconds"}
    named = {name for name in re.findall(r"`(distkern_\w+)", text) if name != "distkern_"}
    assert len(named) > 20
    assert named <= found

"""The page /distkern as a browser shows it, while two worker processes train."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import dask
import numpy as np
import pytest
import zarr
from prometheus_client.parser import text_string_to_metric_families

from distkern import OROLSRegressor
from distkern.monitoring.events import Event, RoundDone
from tests.locations import ROOT

pytestmark = pytest.mark.cluster

POINTS = """
const found = {};
for (const doc of Bokeh.documents)
  for (const model of doc.all_models)
    if (model.type === "Figure" && model.title)
      for (const renderer of model.renderers)
        if (renderer.glyph && renderer.glyph.type === "MultiLine") {
          const data = renderer.data_source.data;
          found[model.title.text] = {runs: Array.from(data.run), y: Array.from(data.y, values => Array.from(values))};
        }
return found;
"""
TEXTS = """
return Bokeh.documents.flatMap(doc => Array.from(doc.all_models)).filter(m => m.type === "Div").map(m => m.text);
"""


@pytest.fixture
def client() -> Iterator[Any]:
    from distributed import Client, LocalCluster

    with (
        dask.config.set({"distributed.worker.profile.enabled": False}),
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as local,
        Client(local, set_as_default=False) as client,
    ):
        yield client


def rows() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 4))
    return zarr.array(X, chunks=(1000, 4)), zarr.array(np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2], chunks=(1000,))


class Gate:
    """Holds a training after a round until it is let go on."""

    def __init__(self) -> None:
        self.rounds = threading.Semaphore(0)

    def __call__(self, event: Event) -> None:
        if isinstance(event, RoundDone):
            assert self.rounds.acquire(timeout=120)

    def let(self, count: int) -> None:
        for _ in range(count):
            self.rounds.release()


@contextmanager
def training(client: Any, **settings: Any) -> Iterator[tuple[Gate, list[Any]]]:
    """A training under way, which goes round by round."""
    gate, models = Gate(), []
    model = OROLSRegressor(max_centers=160, panel=16, client=client, callbacks=[gate], **settings)
    thread = threading.Thread(target=lambda: models.append(model.fit(*rows())))
    thread.start()
    try:
        yield gate, models
    finally:
        gate.let(1000)
        thread.join(120)


def until(look: Callable[[], Any], wanted: Callable[[Any], bool], seconds: float = 60) -> Any:
    deadline = monotonic() + seconds
    while not wanted(seen := look()):
        assert monotonic() < deadline, f"still {seen!r}"
        sleep(0.1)
    return seen


def test_the_page_follows_a_run_and_a_second_one_appears_beside_it(browser: Any, client: Any, tmp_path: Path) -> None:
    def curves() -> Any:
        ready = browser.execute_script("return typeof Bokeh !== 'undefined' && Bokeh.documents.length > 0")
        return browser.execute_script(POINTS) if ready else {}

    def texts() -> str:
        return "".join(browser.execute_script(TEXTS))

    page = client.dashboard_link.replace("/status", "/distkern")
    with training(client) as (gate, models):
        gate.let(3)
        until(lambda: client.cluster.scheduler.plugins.keys(), lambda names: "distkern-board" in names)
        browser.get(client.dashboard_link)
        link = until(
            lambda: browser.find_elements("css selector", "#myTopnav a[href='distkern']"), lambda found: len(found) == 1
        )
        link[0].click()
        until(lambda: browser.current_url, lambda url: url == page)
        first = until(curves, lambda found: "GCV" in found and len(found["GCV"]["y"][0]) >= 3)
        gate.let(3)
        grown = until(curves, lambda found: len(found["GCV"]["y"][0]) >= 6)
        assert grown["GCV"]["y"][0][:3] == first["GCV"]["y"][0][:3]
        assert {"GCV", "lambda", "largest residual", "seconds"} <= grown.keys()
        assert "selecting" in texts()
        browser.save_screenshot(str(tmp_path / "one-run.png"))
        with training(client, stop="validation") as (other_gate, _):
            other_gate.let(4)
            both = until(curves, lambda found: len(found["GCV"]["runs"]) == 2 and len(found["GCV"]["y"][1]) >= 4)
            assert both["GCV"]["runs"] == ["OROLSRegressor #1", "OROLSRegressor #2"]
            assert len(both["validation error"]["y"]) == 1
    assert models[0].n_centers_ == 160
    ended = until(curves, lambda found: all(len(values) == 10 for values in found["GCV"]["y"]))
    assert ended["GCV"]["runs"] == both["GCV"]["runs"]
    until(texts, lambda text: text.count('class="state done"') == 2)
    browser.refresh()
    assert until(curves, lambda found: "GCV" in found and len(found["GCV"]["runs"]) == 2), "runs stay on the page"
    sleep(0.5)
    picture = tmp_path / "two-runs.png"
    browser.save_screenshot(str(picture))
    assert picture.stat().st_size > 20_000
    severe = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert [message for message in severe if "favicon" not in message] == []


def test_the_task_stream_has_the_colours_of_the_phases(process_client: Any) -> None:
    from distributed.diagnostics.task_stream import rectangles

    from distkern.scheduler.dashboard.colours import TASK_COLOURS

    process_client.get_task_stream()  # the scheduler keeps tasks from now on
    OROLSRegressor(max_centers=32, panel=16, client=process_client).fit(*rows())
    drawn = rectangles(process_client.get_task_stream())
    colours = dict(zip(drawn["name"], drawn["color"], strict=True))
    for name in ("load-blocks", "kernel-columns", "append-panel"):
        assert colours[name] == TASK_COLOURS[name]


def test_a_scheduler_of_its_own_process_shows_runs(tmp_path: Path) -> None:
    """As on a cluster that others started: nothing but the address is known."""
    from distributed import Client

    place = tmp_path / "scheduler.json"
    scheduler = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--scheduler-file", str(place)]
    scheduler += ["--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0"]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(place), "--no-nanny"]
    worker += ["--nthreads", "1", "--host", "127.0.0.1", "--local-directory", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with ExitStack() as stack:
        for command in (scheduler, worker):
            process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(process.wait, 30)
            stack.callback(process.terminate)
        until(place.exists, bool)
        client = stack.enter_context(Client(scheduler_file=str(place), set_as_default=False, timeout=60))
        client.wait_for_workers(1, timeout=60)
        model = OROLSRegressor(max_centers=32, client=client).fit(*rows())
        with urllib.request.urlopen(client.dashboard_link.replace("status", "metrics"), timeout=30) as answer:
            text = answer.read().decode()
        found = {
            sample.name: sample.value for family in text_string_to_metric_families(text) for sample in family.samples
        }
        assert found["distkern_gcv"] == model.gcv_
        assert found["distkern_exchanges_total"] == model.summary_["exchanges"]
        with urllib.request.urlopen(client.dashboard_link.replace("status", "distkern"), timeout=30) as answer:
            assert '<a href="distkern">' in answer.read().decode()

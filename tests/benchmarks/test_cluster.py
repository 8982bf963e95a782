"""Workers in network namespaces: what the table says of a few of them must hold for many."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from time import monotonic, sleep

import pytest

from benchmarks.cluster import many_workers
from benchmarks.cluster.network_hosts import not_permitted
from tests.locations import ROOT

pytestmark = [pytest.mark.nightly, pytest.mark.cluster]


@pytest.fixture(autouse=True)
def nothing_remains() -> Iterator[None]:
    reason = not_permitted()
    if reason is not None:
        pytest.skip(reason)
    before = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    yield
    assert subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout == before


def test_a_terminated_measurement_removes_its_namespaces() -> None:
    process = subprocess.Popen([sys.executable, "-m", "benchmarks", "cluster", "--workers", "2"], cwd=ROOT)
    mine = f"distkern-{process.pid}-"
    deadline = monotonic() + 120
    while mine not in subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout:
        assert monotonic() < deadline
        assert process.poll() is None
        sleep(0.05)
    process.terminate()
    assert process.wait(60) != 0


def test_a_few_workers() -> None:
    rows = list(many_workers.run((2, 10), 9600, 48, 0.5, "200mbit"))
    assert [row["trouble"] for row in rows[:2]] == ["none", "none"]
    assert all(row["same bits"] for row in rows)
    assert all(row["driver ms a round"] > 0 for row in rows)
    assert all(row["driver kB a round"] > 0 for row in rows)
    unplugged = rows[2]
    assert unplugged["lost"] >= 1
    assert unplugged["noticed s"] <= unplugged["replaced s"] < 60

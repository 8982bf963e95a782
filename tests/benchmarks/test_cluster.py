"""Workers in network namespaces: what the table says of a few of them must hold for many."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from benchmarks.cluster import many_workers
from benchmarks.cluster.network_hosts import not_permitted

pytestmark = [pytest.mark.nightly, pytest.mark.cluster]


@pytest.fixture(autouse=True)
def nothing_remains() -> Iterator[None]:
    reason = not_permitted()
    if reason is not None:
        pytest.skip(reason)
    before = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    yield
    assert subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout == before


def test_a_few_workers() -> None:
    rows = list(many_workers.run((2, 10), 9600, 48, 0.5, "200mbit"))
    assert [row["trouble"] for row in rows[:2]] == ["none", "none"]
    assert all(row["same bits"] for row in rows)
    assert all(row["driver ms a round"] > 0 for row in rows)
    assert all(row["driver kB a round"] > 0 for row in rows)
    unplugged = rows[2]
    assert unplugged["lost"] >= 1
    assert unplugged["noticed s"] <= unplugged["replaced s"] < 60

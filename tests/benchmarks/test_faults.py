"""The campaign of faults, once for every kind: same bits, in time, nothing left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import faults, record_cost
from distkern.scheduler import local_client

pytestmark = [pytest.mark.nightly, pytest.mark.cluster]


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[faults.Campaign]:
    with local_client(faults.WORKERS) as client:
        yield faults.Campaign(client, Path(tmp_path_factory.mktemp("campaign")), rows=8000, features=4, centers=150)


@pytest.mark.parametrize("kind", faults.KINDS)
def test_every_kind_of_fault_ends_in_the_same_bits(kind: str, campaign: faults.Campaign) -> None:
    outcome = campaign.run(kind, seed=faults.KINDS.index(kind))
    assert outcome.message == ""
    assert outcome.result == campaign.undisturbed.result
    assert outcome.seconds <= outcome.limit
    assert outcome.leftovers == []
    if kind not in ("kill-driver", "reads-fail"):
        assert outcome.failed_workers >= 1
    if kind not in ("kill-driver", "reads-fail", "kill-in-load"):
        # While blocks are loaded for the first time there may be nothing to replay yet.
        assert outcome.replays >= 1
    if kind == "kill-driver":
        assert outcome.resumed >= 1
    if kind == "reads-fail":
        assert outcome.retried >= 1


def test_a_campaign_has_all_kinds_in_proportion() -> None:
    kinds = faults.schedule(40)
    assert {kind: kinds.count(kind) for kind in faults.KINDS} == faults.PROPORTIONS
    assert len(set(faults.schedule(12))) > 3


def test_the_cost_of_the_record(tmp_path: Path) -> None:
    (row,) = record_cost.run(2000, 3, 30, 2, tmp_path)
    assert row["with/without"] > 0
    assert 0 < row["inside %"] < 100
    assert row["record MB"] > 0.01
    assert list(tmp_path.iterdir()) == []

"""The campaign of faults, once for every kind: same bits, in time, nothing left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import record_cost
from benchmarks.faults import campaign, soak
from benchmarks.faults.driver import PHASES, TRAINING
from benchmarks.faults.kinds import KINDS
from tests.s3_server import leading_to, s3_server


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[campaign.Campaign]:
    phases = ("selection", "predictions", "appends")
    with s3_server() as server, leading_to(server):
        shared = campaign.Campaign(Path(tmp_path_factory.mktemp("campaign")), phases, server)
        try:
            yield shared
        finally:
            shared.close()


@pytest.mark.nightly
@pytest.mark.cluster
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_fault_ends_in_the_same_bits(kind: str, small: campaign.Campaign) -> None:
    number = list(KINDS).index(kind)
    phase = "selection" if KINDS[kind].training else ("selection", "predictions", "appends")[number % 3]
    outcome = small.run(phase, kind, seed=number)
    assert outcome.failure == ""
    assert outcome.digest == small.undisturbed[phase].digest
    assert outcome.left == []


def test_a_campaign_has_all_kinds_in_all_phases() -> None:
    runs = list(campaign.schedule(200))
    assert [seed for *_, seed in runs] == list(range(200))
    assert {(phase, kind) for phase, kind, _ in runs} == {
        (phase, name) for name, kind in KINDS.items() for phase in PHASES if phase in TRAINING or not kind.training
    }
    assert list(campaign.schedule(3, 7)) == list(campaign.schedule(10))[7:]


def test_the_totals_of_a_campaign() -> None:
    row = {"fault": "kill", "s": 2.0, "typed errors": "", "same bits": True, "left": "", "failure": ""}
    rows = [{**row, "seed": 3}, {**row, "seed": 9, "s": 4.0, "same bits": False, "typed errors": "RunError disk-full"}]
    (table,) = campaign.totals(rows)
    assert table["runs"] == 2
    assert table["seeds"] == "3 to 9"
    assert (table["median s"], table["largest s"]) == (3.0, 4.0)
    assert (table["resumed"], table["other bits"], table["left"], table["failures"]) == (1, 1, 0, 0)


def test_the_slope_of_a_memory() -> None:
    assert soak.slope([100.0, 101.0, 102.0]) == pytest.approx(1.0)
    assert soak.slope([5.0] * 7) == pytest.approx(0.0)


@pytest.mark.nightly
@pytest.mark.cluster
def test_a_short_soak() -> None:
    rows = soak.run(0.2)
    assert [row["process"] for row in rows[:2]] == ["driver", "scheduler"]
    assert all(row["different models"] == 1 for row in rows)
    assert all(row["trainings"] >= 1 for row in rows)


@pytest.mark.nightly
def test_the_cost_of_the_record(tmp_path: Path) -> None:
    (row,) = record_cost.run(2000, 3, 30, 2, tmp_path)
    assert row["with/without"] > 0
    assert 0 < row["inside %"] < 100
    assert row["record MB"] > 0.01
    assert list(tmp_path.iterdir()) == []

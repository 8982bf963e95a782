from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.command_line import Call


@pytest.fixture(autouse=True)
def no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISTKERN_DATA", raising=False)


@pytest.fixture
def ripley(here: Path) -> Path:
    """A folder with stand-ins for Ripley's set."""
    rng = np.random.default_rng(0)
    folder = here / "sets"
    folder.mkdir()
    arrays = {}
    for part, n in (("train", 250), ("test", 1000)):
        y = np.arange(n) % 2
        arrays |= {f"X_{part}": rng.normal(size=(n, 2)) + y[:, None], f"y_{part}": y}
    np.savez(folder / "ripley.npz", **arrays)
    return folder


def test_the_list_needs_no_data(call: Call) -> None:
    done = call("--list")
    assert done.code == 0
    for name in ("paper-table-2", "thesis-figure-5.1", "loo-heart", "mse-example"):
        assert name in done.out
    assert "needs none" in done.out
    assert "0 of 13 sets" in done.out


def test_the_list_says_what_is_there(call: Call, ripley: Path) -> None:
    done = call("--list", "--json", "--data", ripley, "thesis-figure-3.2", "loo-heart")
    entries = {entry["name"]: entry for entry in json.loads(done.out)["entries"]}
    assert entries["thesis-figure-3.2"]["present"] == ["ripley"]
    assert entries["loo-heart"]["absent"] == ["raetsch_heart"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "give the names of tables or figures"),
        (["paper-tabel-2"], 2, "did you mean 'paper-table-2'?"),
        (["paper-table-2"], 3, "--data DIR or set DISTKERN_DATA"),
        (["all"], 3, "DISTKERN_DATA"),
        (["paper-table-2", "--data", "nowhere"], 3, "nowhere"),
        (["--list", "--data", "nowhere"], 3, "nowhere"),
        (["paper-table-3", "--runs", "0"], 2, "runs"),
    ],
)
def test_what_is_wrong_is_said(call: Call, arguments: list[str], code: int, message: str) -> None:
    done = call(*arguments)
    assert done.code == code
    assert message in done.err
    assert done.out == ""


def test_absent_sets_are_listed(call: Call, ripley: Path) -> None:
    done = call("paper-table-2", "--data", ripley)
    assert done.code == 0
    assert "Absent: usps, letter, optdigits, pendigits, satimage" in done.out
    assert "17888" in done.out


@pytest.mark.nightly
def test_json_is_one_object(call: Call, ripley: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTKERN_DATA", str(ripley))
    done = call("thesis-figure-3.2", "loo-heart", "--json", "--runs", "1")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert (result["data"], result["runs"]) == (str(ripley), 1)
    figure, table = result["entries"]
    assert figure["figure"] is None
    npd = figure["rows"][0]
    assert (npd["method"], npd["published"], npd["centers"]) == ("NPD", 9.2, 10)
    assert npd["verdict"] in ("better", "within", "worse")
    assert table["absent"] == ["raetsch_heart"]
    assert table["rows"][0]["verdict"] == "absent"


@pytest.mark.nightly
def test_the_same_numbers_each_time(call: Call) -> None:
    first, second = (json.loads(call("paper-figure-1", "--json").out)["entries"] for _ in range(2))
    assert first == second


def test_figures_need_matplotlib(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = call("paper-figure-1", "--plot", "figures")
    assert done.code == 2
    assert "pip install 'distkern[plot]'" in done.err


@pytest.mark.nightly
def test_figures_are_drawn_and_kept(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    command = ("paper-figure-1", "mse-example", "--plot", "figures")
    done = call(*command)
    assert done.code == 0, done.err
    assert Path("figures/paper-figure-1.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in Path("figures").iterdir()] == ["paper-figure-1.png"]
    assert "Drawn: figures/paper-figure-1.png" in done.out
    again = call(*command)
    assert again.code == 6
    assert "--overwrite replaces it" in again.err
    assert call(*command, "--overwrite").code == 0

from __future__ import annotations

import json

import numpy as np
import pytest

from distkern.cli.console.output import columns, pairs, print_json, print_table
from distkern.selection.stopping import StopReason


def test_json_holds_no_nan_and_no_numpy(capsys: pytest.CaptureFixture[str]) -> None:
    print_json(
        {
            "a": float("nan"),
            "b": np.float64("inf"),
            "c": np.int64(3),
            "d": np.array([1.0, np.nan]),
            "e": StopReason.MAX_CENTERS,
            "f": {1: (True, None)},
        }
    )
    line = capsys.readouterr().out
    assert line.count("\n") == 1
    assert "NaN" not in line
    assert json.loads(line) == {
        "a": None,
        "b": None,
        "c": 3,
        "d": [1.0, None],
        "e": "max-centers",
        "f": {"1": [True, None]},
    }


def test_tables_off_a_terminal_are_plain_and_unwrapped(capsys: pytest.CaptureFixture[str]) -> None:
    path = "/very/long/" + "directory/" * 12 + "[red]model"
    print_table(pairs([("model", path)]), columns("title", ("a", "b"), [["x", 1]]))
    out = capsys.readouterr().out
    assert path in out
    assert "\x1b" not in out

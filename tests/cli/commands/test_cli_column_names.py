"""Stores of a command are matched by the names of their columns, in any order."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.cli.command_line import Call, job_text

ABC = ["a", "b", "c"]


@pytest.fixture
def stores(here: Path) -> Path:
    from distkern.storage import write_dataset

    X = np.random.default_rng(0).normal(size=(120, 3))
    y = np.where(X[:, 0] > 0, "up", "down")
    for name, names, order in (
        ("train", ABC, [0, 1, 2]),
        ("turned", ["c", "b", "a"], [2, 1, 0]),
        ("renamed", ["q", "b", "c"], [0, 1, 2]),
        ("wide", [*ABC, "d"], [0, 1, 2, 2]),
        ("unnamed", None, [0, 1, 2]),
        ("narrow", None, [0, 1]),
    ):
        write_dataset(f"{name}.zarr", X[:, order], y, feature_names=names)
    return here


def train(call: Call, folder: Path, train: str, **data: str) -> tuple[int, dict[str, float], str]:
    job = {"data": {"train": f"{train}.zarr", **data}, "model": {"method": "fisher"}, "output": {"model": "m.model"}}
    (folder / "j.toml").write_text(job_text(**job))
    done = call("train", "j.toml", "--json", "--overwrite")
    return done.code, json.loads(done.out)["test"] if done.code == 0 and "test" in data else {}, done.err


def test_test_data_are_matched_with_the_training(stores: Path, call: Call) -> None:
    expected = train(call, stores, "train", test="train.zarr")[1]
    assert expected["error"] < 0.1
    for name in ("turned", "unnamed"):
        code, errors, said = train(call, stores, "train", test=f"{name}.zarr")
        assert (code, errors) == (0, expected)
        assert ("matched by name" in said) == (name == "turned")
    assert train(call, stores, "train", test_x="train.zarr/X", test_y="train.zarr/y")[0] == 0
    for name, said in (("renamed", "column 'a'"), ("wide", "column 'd'"), ("narrow", "2 features")):
        code, _, message = train(call, stores, "train", test=f"{name}.zarr")
        assert code == 3
        assert said in message
        assert call("plan", "j.toml").code == 3


@pytest.mark.parametrize("command", [("evaluate", "--json"), ("predict", "--out", "p.zarr", "--overwrite")])
def test_stores_are_matched_with_the_model(stores: Path, call: Call, command: tuple[str, ...]) -> None:
    from distkern.storage import read_predictions

    assert train(call, stores, "train")[0] == 0

    def result(name: str) -> tuple[int, object, str]:
        done = call(command[0], "m.model", f"{name}.zarr", *command[1:])
        if done.code:
            return done.code, None, done.err
        if command[0] == "evaluate":
            return 0, json.loads(done.out)["error"], done.err
        return 0, read_predictions("p.zarr").prediction.tolist(), done.err

    expected = result("train")[1]
    for name in ("turned", "unnamed"):
        code, found, said = result(name)
        assert (code, found) == (0, expected)
        assert ("matched by name" in said) == (name == "turned")
    for name, part in (("renamed", "column 'a'"), ("wide", "column 'd'"), ("narrow", "2 features")):
        code, _, said = result(name)
        assert code == 3
        assert part in said


def test_a_report_predicts_test_data_of_another_order(stores: Path, call: Call) -> None:
    job = {"data": {"train": "train.zarr"}, "model": {"max_centers": 5}, "output": {"model": "o.model", "run": "o.run"}}
    (stores / "j.toml").write_text(job_text(**job))
    assert call("train", "j.toml").code == 0
    pages = []
    for name in ("train", "turned"):
        assert call("report", "o.run", "--test", f"{name}.zarr", "--out", f"{name}.html").code == 0
        pages.append((stores / f"{name}.html").read_text())
    assert pages[0] == pages[1]
    done = call("report", "o.run", "--test", "renamed.zarr", "--out", "renamed.html")
    assert done.code == 3
    assert "column 'a'" in done.err


def test_a_finished_run_is_not_that_of_renamed_columns(stores: Path, call: Call) -> None:
    from distkern.estimators import load_model

    job = {"data": {"train": "train.zarr"}, "model": {"max_centers": 5}, "output": {"model": "o.model", "run": "o.run"}}
    (stores / "j.toml").write_text(job_text(**job))
    for names in (ABC, ABC, ["q", "b", "c"]):
        if names != ABC:
            shutil.rmtree("train.zarr")
            Path("renamed.zarr").rename("train.zarr")
        assert call("train", "j.toml", "--resume", "auto").code == 0
        assert load_model("o.model").feature_names_in_.tolist() == names

from __future__ import annotations

import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distkern.cli.console.terminal import Terminal
from distkern.errors import BudgetError, ClusterError, DataError, JobError, RunError, StoreError
from distkern.storage import write_dataset
from tests.cli.command_line import Call, environment

COMMANDS = ["demo", "ingest", "info", "train", "predict", "evaluate"]


def broken(error: BaseException) -> Any:
    def describe(_: str) -> Any:
        raise error

    return describe


@pytest.fixture
def failing(call: Call, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a command whose work fails with a given error."""

    def run(error: BaseException, *flags: str) -> Any:
        monkeypatch.setattr("distkern.storage.describe", broken(error))
        return call(*flags, "info", "a.zarr")

    return run


def test_version_and_help(shell: Call) -> None:
    version = shell("--version")
    assert version.code == 0
    assert version.out.startswith("distkern ")
    text = shell("--help")
    assert text.code == 0
    for command in COMMANDS:
        assert command in text.out
    assert text.err == ""


def test_help_is_fast_because_it_loads_nothing_heavy(here: Path) -> None:
    code = (
        "import sys; from distkern.cli.main import main; main(['--help']);"
        "heavy = {'zarr', 'dask', 'distributed', 'sklearn', 'scipy', 'numpy', 'pydantic', 'rich'};"
        "sys.exit(' '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), cwd=here, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(call: Call, command: str) -> None:
    done = call(command, "--help")
    assert done.code == 0
    assert "Usage: distkern " + command in done.out
    assert "--quiet" in done.out


@pytest.mark.parametrize(
    "arguments",
    [
        ["nosuch"],
        ["train"],
        ["train", "a.toml", "--nosuch"],
        ["train", "a.toml", "--workers", "two"],
        ["ingest", "--target", "y", "--out", "a.zarr"],
        ["ingest", "a.csv", "--target", "y"],
        ["ingest", "a.csv", "--target", "y", "--out", "b", "--missing", "guess"],
        ["ingest", "a.csv", "--target", "y", "--out", "b", "--chunk-rows", "0"],
        ["predict", "m", "s"],
        ["info"],
    ],
)
def test_wrong_usage_ends_with_2(call: Call, arguments: list[str]) -> None:
    done = call(*arguments)
    assert done.code == 2
    assert done.out == ""
    assert "Usage:" in done.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (JobError("no"), 2),
        (DataError("no"), 3),
        (BudgetError("no"), 4),
        (ClusterError("no"), 5),
        (RunError("no"), 6),
        (StoreError("no"), 6),
    ],
)
def test_each_error_has_its_code_and_one_message(failing: Any, error: Exception, code: int) -> None:
    done = failing(error)
    assert (done.code, done.out, done.err) == (code, "", "distkern: error: no\n")


def test_an_interrupt_ends_with_130(failing: Any) -> None:
    done = failing(KeyboardInterrupt())
    assert done.code == 130
    assert done.err.strip() == "distkern: error: interrupted"


def test_no_memory_ends_with_4(failing: Any) -> None:
    done = failing(MemoryError())
    assert done.code == 4
    assert "max_centers" in done.err


def test_a_surprise_is_one_line_and_a_traceback_only_with_v(failing: Any) -> None:
    done = failing(RuntimeError("what"))
    assert done.code == 1
    assert "RuntimeError: what; run again with -v" in done.err
    assert "Traceback" not in done.err
    loud = failing(RuntimeError("what"), "-v")
    assert loud.code == 1
    assert "Traceback" in loud.err
    assert "run again" not in loud.err


def test_a_surprise_after_v_on_the_command_has_its_traceback_too(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distkern.storage.describe", broken(RuntimeError("what")))
    assert "Traceback" in call("info", "a.zarr", "-v").err


@pytest.mark.parametrize(
    ("flags", "seen"),
    [
        ([], {"warning", "cli info", "library warning"}),
        (["-q"], set()),
        (["-v"], {"warning", "cli info", "info", "library warning"}),
        (["-vv"], {"warning", "cli info", "info", "debug", "library warning", "library info"}),
    ],
)
def test_verbosity_sets_what_is_logged(
    call: Call, monkeypatch: pytest.MonkeyPatch, flags: list[str], seen: set[str]
) -> None:
    def describe(_: str) -> dict[str, Any]:
        logging.getLogger("distkern.storage").warning("<warning>")
        logging.getLogger("distkern.storage").info("<info>")
        logging.getLogger("distkern.storage").debug("<debug>")
        logging.getLogger("distkern.cli").info("<cli info>")
        logging.getLogger("library").warning("<library warning>")
        logging.getLogger("library").info("<library info>")
        return {"rows": 3}

    monkeypatch.setattr("distkern.storage.describe", describe)
    monkeypatch.setattr(logging.getLogger("library"), "level", logging.DEBUG)
    done = call("info", "a.zarr", *flags)
    assert done.code == 0
    assert set(re.findall("<(.*?)>", done.err)) == seen
    assert "<" not in done.out


def test_a_reader_that_goes_away_is_no_error(here: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "distkern", "--help"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        cwd=here,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait() in (0, 1)
    assert errors == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("words", "unbuffered"), [(["info", "d.zarr", "--json"], "1"), (["info", "d.zarr"], ""), (["--help"], "")]
)
def test_output_that_finds_no_room(here: Path, words: list[str], unbuffered: str) -> None:
    write_dataset(here / "d.zarr", np.eye(4), np.arange(4.0), task="regression")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "distkern", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**environment(), "PYTHONUNBUFFERED": unbuffered},
        )
    assert done.returncode == 6, done.stderr
    assert "where standard output goes" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


class AllExit(Exception):
    """Named like the error of dask's tasks that wait for answers."""


@pytest.mark.parametrize(
    ("error", "verbosity", "count"), [(AllExit(), 0, 0), (AllExit(), 2, 1), (OSError(), 0, 1)], ids=str
)
def test_tasks_that_waited_for_a_lost_worker_are_not_reported(
    error: Exception, verbosity: int, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with Terminal(verbosity).log_records():
        logging.getLogger("asyncio").error("Task exception was never retrieved", exc_info=error)
    assert capsys.readouterr().err.count("Task exception was never retrieved") == count

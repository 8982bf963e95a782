"""The page on batch jobs: its commands run, and what it says of exit codes and reasons is what there is."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from distkern import errors
from distkern.estimators import load_model
from distkern.stopping import StopReason

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "batch-jobs.md"
TEXT = PAGE.read_text()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#]+)\)")


@pytest.mark.slow
def test_the_commands_run_in_order(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "distkern").write_text(f'#!/bin/bash\nexec {sys.executable} -m distkern "$@"\n')
    (programs / "python3").symlink_to(sys.executable)
    (programs / "distkern").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    blocks = BLOCK.findall(TEXT)
    (job,) = (text for kind, text in blocks if kind == "toml")
    (tmp_path / "digits.toml").write_text(job)
    for command in (text for kind, text in blocks if kind == "bash"):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, command + done.stdout + done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["stop_reason"] == "gcv-risen"
    assert load_model(tmp_path / "wide" / "digits.model").sigma == 40


def test_the_other_blocks_are_what_they_show() -> None:
    makefile = (ROOT / "examples" / "grid" / "Makefile").read_text()
    for kind, text in BLOCK.findall(TEXT):
        if kind == "make":
            assert text in makefile
        if kind == "json":
            assert json.loads(text)["error"].keys() == {"kind", "message", "exit_code"}


def test_links_lead_somewhere() -> None:
    assert not [link for link in LINK.findall(TEXT) if "://" not in link and not (PAGE.parent / link).exists()]


def test_every_exit_code_has_a_row() -> None:
    rows = {int(code) for code in re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE)}
    classes = [value for value in vars(errors).values() if isinstance(value, type)]
    codes = {cls.exit_code for cls in classes if issubclass(cls, errors.DistkernError)}
    assert rows == codes | {0}


def test_the_reason_is_named() -> None:
    assert f"`{StopReason.TIME_LIMIT}`" in TEXT

"""The page on batch jobs: its exit codes and reasons are those of the code."""

from __future__ import annotations

import json
import re
from pathlib import Path

from distkern import errors
from distkern.selection.stopping import StopReason

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "batch-jobs.md"
TEXT = PAGE.read_text()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_other_blocks_are_what_they_show() -> None:
    makefile = (ROOT / "examples" / "grid" / "Makefile").read_text()
    for kind, text in BLOCK.findall(TEXT):
        if kind == "make":
            assert text in makefile
        if kind == "json":
            assert json.loads(text)["error"].keys() == {"kind", "message", "exit_code"}


def test_every_exit_code_has_a_row() -> None:
    rows = {int(code) for code in re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE)}
    classes = [value for value in vars(errors).values() if isinstance(value, type)]
    codes = {cls.exit_code for cls in classes if issubclass(cls, errors.DistkernError)}
    assert rows == codes | {0}


def test_the_reason_is_named() -> None:
    assert f"`{StopReason.TIME_LIMIT}`" in TEXT

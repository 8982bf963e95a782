"""The page on progress and reports: what it says is run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from distkern.cli.main import main

PAGE = Path(__file__).parents[2] / "docs" / "reports.md"
BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#]*)(?:#([^)]*))?\)")


@pytest.mark.slow
def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    kinds = set()
    for kind, code in BLOCK.findall(PAGE.read_text()):
        kinds.add(kind)
        if kind == "python":
            exec(compile(code, str(PAGE), "exec"), {"__name__": "page"})
            continue
        for line in code.splitlines():
            program, *arguments = shlex.split(line)
            assert program == "distkern"
            assert main(arguments) == 0, capsys.readouterr().err
    assert kinds == {"python", "bash"}
    for run in ("demo/digits.run", "waves.run"):
        page = (tmp_path / run / "report.html").read_text()
        assert 'class="missing"' not in page
        assert 'id="centres"' in page


def test_links_lead_somewhere() -> None:
    text = PAGE.read_text()
    heads = {re.sub(r"[^\w -]", "", head).lower().replace(" ", "-") for head in re.findall(r"^#+ (.*)$", text, re.M)}
    for target, anchor in LINK.findall(text):
        if "://" in target:
            continue
        assert not target or (PAGE.parent / target).exists()
        assert not anchor or target or anchor in heads

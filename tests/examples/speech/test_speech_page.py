"""The page's example in Python runs, on a small part of the recordings."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks_of


@pytest.mark.nightly
def test_the_recogniser_of_the_page_decodes_a_recording(
    digits_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = [block for block in blocks_of(ROOT / "docs" / "speech.md") if block.language == "python"]
    shutil.copy(digits_file, tmp_path / "spoken_digits.npz")
    script = tmp_path / "recognise.py"
    script.write_text(block.text)
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script))
    assert capsys.readouterr().out == "spoken 0, decoded (0,)\n"

"""The figures: drawn by the script beside them, small, and without a ground of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

FIGURES = ROOT / "docs" / "figures"


def test_every_figure_is_on_a_page_and_small() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    figures = sorted(FIGURES.glob("*.svg"))
    assert figures
    assert not [figure.name for figure in figures if f"figures/{figure.name}" not in pages]
    assert not [figure.name for figure in figures if figure.stat().st_size > 150_000]


def test_no_figure_has_black_or_white_in_it() -> None:
    """Black and white lines vanish in one of the two schemes of the site."""
    for figure in FIGURES.glob("*.svg"):
        fills = re.findall(r"(?:fill|stroke): (#\w+)", figure.read_text())
        assert fills
        assert not {"#ffffff", "#fff", "#000000", "#000"} & set(fills), figure.name


@pytest.mark.nightly
def test_the_script_draws_these_figures(tmp_path: Path) -> None:
    subprocess.run([sys.executable, FIGURES / "draw.py", tmp_path], check=True, timeout=300)
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in FIGURES.glob("*.svg")}

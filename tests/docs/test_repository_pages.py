"""README, CONTRIBUTING and glossary: short, wrapped, and true about the files and words that they name."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

NAMED_FILE = re.compile(r"`((?:[\w.-]+/)+[\w.*-]*)`")
SKIPPED = re.compile(r"NAME|^\.ci/|^site/|^dist/")
"""Any name, scripts of the checks, and what a build makes."""
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
WORD = re.compile(r"\*\*([^*]+)\*\*")


def prose(page: Path) -> list[str]:
    """Lines of a page that are no code, table, image or comment."""
    lines = FENCE.sub("", page.read_text()).splitlines()
    return [line for line in lines if not line.lstrip().startswith(("|", "![", "<!--"))]


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 200


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_lines_are_wrapped(name: str) -> None:
    assert not [line for line in prose(ROOT / name) if len(line) > 110]


@pytest.mark.parametrize(
    "page", ["CONTRIBUTING.md", *(f"docs/design/{path.name}" for path in ROOT.glob("docs/design/*"))]
)
def test_files_that_are_named_exist(page: str) -> None:
    places = (ROOT, ROOT / "distkern", ROOT / "distkern" / "estimators")
    named = [name for name in NAMED_FILE.findall((ROOT / page).read_text()) if not SKIPPED.search(name)]
    missing = [name for name in named if not any((place / name).exists() for place in places)]
    assert not missing


def test_the_glossary_defines_each_word_once() -> None:
    words = Counter(word.casefold() for word in WORD.findall((ROOT / "docs" / "glossary.md").read_text()))
    assert len(words) > 60
    assert not [word for word, times in words.items() if times > 1]

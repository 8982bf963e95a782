"""The pages of the methods: no method is missing, and each page has an example."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import distkern
from distkern.cli.job.model_section import METHODS
from tests.docs.pages import ROOT, blocks_of

PAGES = sorted((ROOT / "docs" / "methods").glob("*.md"))

LINK = re.compile(r"\]\(([^)#]+)[^)]*\)")


def estimators() -> list[str]:
    """Names of all public classes that fit."""
    public = (name for name in distkern.__all__ if name != "__version__")
    return [name for name in public if hasattr(getattr(distkern, name), "fit")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_page_has_an_example(page: Path) -> None:
    assert any(block.runs and block.shown for block in blocks_of(page))


def test_every_page_is_in_the_index() -> None:
    index = ROOT / "docs" / "methods" / "README.md"
    assert {page.name for page in PAGES} - {"README.md"} <= set(LINK.findall(index.read_text()))


@pytest.mark.parametrize("name", estimators())
def test_every_estimator_has_a_page(name: str) -> None:
    named = [page for page in PAGES if f"`{name}`" in page.read_text()]
    assert [page for page in named if page.name != "README.md"], f"{name} is on no page"
    assert any(page.name == "README.md" for page in named), f"{name} is not in the index"


@pytest.mark.parametrize("method", METHODS)
def test_every_method_of_a_job_file_is_in_the_index(method: str) -> None:
    index = (ROOT / "docs" / "methods" / "README.md").read_text()
    rows = [line for line in index.splitlines() if f"| `{method}` |" in line]
    assert len(rows) == 1
    assert all(f"`{name}`" in rows[0] for name in METHODS[method] if name is not None)

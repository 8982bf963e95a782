"""The pages of the methods: examples print what the page shows, links lead somewhere, no method is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import distkern
from distkern.cli.parameters import METHODS

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "methods").glob("*.md"))

BLOCK = re.compile(r"^```python\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#]+)[^)]*\)")
NUMBER = re.compile(r"-?\d+(?:\.\d*)?(?:e-?\d+)?")


def estimators() -> list[str]:
    """Names of all public classes that fit."""
    public = (name for name in distkern.__all__ if name != "__version__")
    return [name for name in public if hasattr(getattr(distkern, name), "fit")]


def agree(printed: str, shown: str) -> bool:
    """Whether two outputs have the same words, and numbers that another processor may give."""
    words, expected = ("".join(NUMBER.sub("#", text).split()) for text in (printed, shown))
    if words != expected:
        return False
    pairs = zip(NUMBER.findall(printed), NUMBER.findall(shown), strict=True)
    return all(abs(float(a) - float(b)) <= 0.03 + 0.3 * abs(float(b)) for a, b in pairs)


def test_agreement_sees_words_and_numbers() -> None:
    assert agree("12 centres, error 0.021", "13 centres, error 0.018")
    assert not agree("12 centres, error 0.2", "13 centres, error 0.018")
    assert not agree("12 rows", "12 centres")
    assert not agree("1 2", "1")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_examples_print_what_the_page_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(page.read_text())
    assert blocks, "a page without an example"
    namespace: dict[str, object] = {"__name__": page.stem}
    for code, shown in blocks:
        exec(compile(code, str(page), "exec"), namespace)
        printed = capsys.readouterr().out
        assert agree(printed, shown), f"printed:\n{printed}\nthe page shows:\n{shown}"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    targets = [link for link in LINK.findall(page.read_text()) if "://" not in link]
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing


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

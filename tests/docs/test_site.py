"""The site: built strictly and without a warning, with every public name, and without a request to another host."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import distkern
from tests.docs.pages import ROOT

pytest.importorskip("mkdocs", reason="the documentation's tools are not installed: pip install -e '.[docs]'")
pytestmark = pytest.mark.slow

REQUEST = re.compile(
    r"""<(?:script|img|iframe|source|link(?![^>]*rel="?(?:canonical|next|prev)))\b[^>]*?(?:src|href)=["']?((?:https?:)?//[^"'\s>]+)"""
)
EQUATION = re.compile(r'class="arithmatex">(.{1,20})', re.DOTALL)
STYLE_REQUEST = re.compile(r"""(?:url\(|@import)\s*["']?(?:https?:)?//""")


def test_the_site_is_built_without_a_warning_and_complete(tmp_path: Path) -> None:
    """One test, since a build takes half a minute, and tests of a module may run in several processes."""
    build(tmp_path)
    every_page_is_there(tmp_path)
    every_public_name_is_in_the_reference(tmp_path)
    nothing_is_asked_of_another_host(tmp_path)
    equations_are_mathml(tmp_path)
    links_of_the_readme_stay_on_the_site(tmp_path)


def build(directory: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(directory)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout + done.stderr


def every_page_is_there(site: Path) -> None:
    pages = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    found = [
        site / (page.parent / ("index" if page.name == "README.md" else page.stem)).with_suffix(".html")
        for page in pages
    ]
    assert (site / "index.html").exists()
    assert not [path for path in found if not path.exists()]


def every_public_name_is_in_the_reference(site: Path) -> None:
    reference = "".join(path.read_text() for path in (site / "reference").glob("*.html"))
    anchors = {name.rsplit(".", 1)[-1] for name in re.findall(r'id="(distkern\.[\w.]+)"', reference)}
    assert set(distkern.__all__) - {"__version__"} <= anchors


def nothing_is_asked_of_another_host(site: Path) -> None:
    html, css = list(site.rglob("*.html")), list(site.rglob("*.css"))
    assert html
    assert css
    assert not [(path.name, found) for path in html for found in REQUEST.findall(path.read_text())]
    assert not [path.name for path in css if STYLE_REQUEST.search(path.read_text())]


def equations_are_mathml(site: Path) -> None:
    html = {path.relative_to(site).as_posix(): path.read_text() for path in site.rglob("*.html")}
    pages = [page for page in (ROOT / "docs").rglob("*.md") if "```math\n" in page.read_text()]
    assert len(pages) > 5
    for page in pages:
        place = page.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        assert html[place].count('<math display="block">') == page.read_text().count("```math\n"), place
    left = {place for place, text in html.items() for found in EQUATION.findall(text) if not found.startswith("<math")}
    assert not left


def links_of_the_readme_stay_on_the_site(site: Path) -> None:
    index = (site / "index.html").read_text()
    assert 'href="methods/index.html"' in index
    assert 'href="design/index.html"' in index
    assert 'href="docs/' not in index

"""Every page: its blocks are run or state why not, print the output of the page, and its links exist."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import shared_data_folder
from tests.docs.pages import CHECKED, ROOT, agree, blocks_of, run_page
from tests.docs.spelling import check, check_call, check_job, check_python, distkern_calls

PATTERNS = ("README.md", "CONTRIBUTING.md", "docs/**/*.md", "deploy/**/*.md", "examples/**/*.md")
PAGES = sorted(path for pattern in PATTERNS for path in ROOT.glob(pattern))

STARTS_WORKERS = {"docs/clusters.md"}
NIGHTLY = {f"docs/{name}.md" for name in ("batch-jobs", "clusters", "memory", "reports", "resuming")}
"""Pages of many commands, each a process; the first pages that a user reads run always."""

LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)[^)]*\)")


def place(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def of_page(page: Path) -> object:
    """A page as a parameter; those that start commands take longer than pages of Python."""
    marks = []
    if any(block.runs and block.language != "python" for block in blocks_of(page)):
        marks.append(pytest.mark.nightly if place(page) in NIGHTLY else pytest.mark.slow)
    if place(page) in STARTS_WORKERS:
        marks.append(pytest.mark.cluster)
    return pytest.param(page, id=place(page), marks=marks)


all_pages = pytest.mark.parametrize("page", PAGES, ids=place)


@pytest.mark.parametrize("page", [of_page(page) for page in PAGES if any(block.runs for block in blocks_of(page))])
def test_blocks_print_what_the_page_shows(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [block.marks["data"] for block in blocks_of(page) if "data" in block.marks]:
        source = shared_data_folder() / name
        if not source.exists():
            pytest.skip(f"needs {name} in {source.parent}; set DISTKERN_DATA to its folder")
        shutil.copy(source, tmp_path)
    run_page(page, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=place)
def test_every_block_is_run_or_says_why_not(page: Path) -> None:
    silent = [
        f"line {block.line}: {block.language or 'no language'}"
        for block in blocks_of(page)
        if not (block.runs or block.language in CHECKED or block.output_of or block.marks)
    ]
    assert not silent, f'neither run nor marked, as with "<!-- example: needs a cluster -->": {silent}'


@all_pages
def test_every_block_is_spelt_as_the_product_has_it(page: Path) -> None:
    for block in blocks_of(page):
        try:
            check(block)
        except Exception as error:
            pytest.fail(f"{page}, line {block.line}: {error}")


@all_pages
def test_links_lead_somewhere(page: Path) -> None:
    missing = [target for target in LINK.findall(page.read_text()) if not (page.parent / target).exists()]
    assert not missing


def test_agreement_sees_words_and_numbers() -> None:
    assert agree("12 centres, error 0.021", "13 centres, error 0.018")
    assert not agree("12 centres, error 0.2", "13 centres, error 0.018")
    assert not agree("12 rows", "12 centres")
    assert not agree("1 2", "1")


def test_agreement_leaves_out_what_the_page_leaves_out() -> None:
    assert agree("a\nb\nc\nd\n", "a\n...\nd\n")
    assert agree("a\nb\nc\n", "a\n...\n")
    assert not agree("a\nb\nc\n", "b\n...\n")
    assert not agree("a\nb\nc\n", "a\n...\nb\n")
    assert agree("seconds 4.0\nrows 5", "seconds 12.0\nrows 5")
    assert not agree("rows 4000", "rows 12000")


def test_blocks_are_found_with_their_marks_and_outputs(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nprint(1)\n```\n\n```text\n1\n```\n\n<!-- example: needs a cluster -->\n"
        "```bash\nls\n```\n\nWords.\n\n```text\n2\n```\n\n"
        "* A list\n\n  ```console\n  $ echo a \\\n    b\n  a b\n  $ true\n  ```\n"
    )
    python, output, bash, text, console = blocks_of(page)
    assert (python.shown, output.output_of, python.runs) == ("1\n", "python", True)
    assert (bash.marks, bash.runs) == ({"example": "needs a cluster"}, False)
    assert text.output_of is None
    assert console.commands() == [("echo a \\\n  b", "a b\n"), ("true", "")]


def test_a_page_that_shows_something_else_fails(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    for block in (
        "```python\nprint(1)\n```\n\n```text\n2\n```\n",
        "```console\n$ echo one\ntwo\n```\n",
        "```bash\nfalse\n```\n",
    ):
        page.write_text(block)
        with pytest.raises(AssertionError):
            run_page(page, tmp_path)


def test_calls_in_scripts_are_found_and_checked() -> None:
    script = (
        'srun .venv/bin/distkern train "$JOB" --resume && python -m distkern info RUN  # distkern no\n'
        "echo distkern.log\n"
        "distkern info RUN --json | python3 -c '\nimport json'\n"
    )
    calls = list(distkern_calls(script))
    assert calls == [["train", "$JOB", "--resume"], ["info", "RUN"], ["info", "RUN", "--json"]]
    for call in calls:
        check_call(call)
    for wrong in (["tain"], ["train", "job.toml", "--worker", "2"], ["plan", "-x"]):
        with pytest.raises(AssertionError):
            check_call(wrong)


def test_wrong_names_in_code_and_jobs_are_found() -> None:
    check_python("import distkern as dk\ndk.OROLSClassifier(sigma=2.0)")
    check_job("[cluster]\nworkers = 2")
    with pytest.raises(AssertionError):
        check_python("dk.OROLS()")
    with pytest.raises(AssertionError):
        check_python("dk.OROLSClassifier(sgima=2.0)")
    with pytest.raises(ValueError, match="worker"):
        check_job("[cluster]\nworker = 2")

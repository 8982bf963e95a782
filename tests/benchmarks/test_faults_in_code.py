"""The runner of faults planted in the code, on a checkout of one function."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import click
import pytest

from benchmarks.faults_in_code import campaign, selection
from benchmarks.faults_in_code.faults import ROOT, Fault, copy_tree, load, planted, require_matching

CODE = "def half(x):\n    return x / 2\n"
FAULT = Fault("half-of-it", "mathematics", "code.py", "sign", "x / 2", "-x / 2", ("tests",))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    (root / "tests").mkdir(parents=True)
    (root / "code.py").write_text(CODE)
    (root / "link.py").symlink_to("code.py")
    (root / "tests" / "test_half.py").write_text(
        "import pytest\nfrom link import half\n\n"
        "def test_zero():\n    assert half(0) == 0\n\n"
        "def test_four():\n    assert half(4) == 2\n\n"
        "def test_of_another_machine():\n    assert False\n"
    )
    (root / "pytest.ini").write_text("[pytest]\npythonpath = .\nmarkers =\n    slow:\n    cluster:\n")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    return root


def test_a_fault_is_planted_and_the_file_restored_whatever_happens(root: Path) -> None:
    seen = []

    def interrupted() -> None:
        with planted(FAULT, root):
            seen.append((root / "code.py").read_text())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert seen == [CODE.replace("x / 2", "-x / 2")]
    assert (root / "code.py").read_text() == CODE


@pytest.mark.parametrize(
    "wrong",
    [{"find": "x / 3"}, {"find": "x"}, {"put": "x /"}, {"file": "gone.py"}],
    ids=["absent", "twice", "no-python", "no-file"],
)
def test_a_fault_that_does_not_fit_is_refused_by_name(wrong: dict[str, str], root: Path) -> None:
    require_matching([FAULT], root)
    with pytest.raises(click.ClickException, match="half-of-it"):
        require_matching([FAULT, replace(FAULT, **wrong)], root)


def test_what_git_ignores_is_not_copied_and_links_stay_links(root: Path, tmp_path: Path) -> None:
    (root / ".gitignore").write_text("made.py\n")
    (root / "made.py").touch()
    copy = copy_tree(root, tmp_path / "copy")
    assert sorted(path.name for path in copy.iterdir()) == [".gitignore", "code.py", "link.py", "pytest.ini", "tests"]
    assert (copy / "link.py").is_symlink()


@pytest.mark.nightly
def test_the_test_that_fails_with_the_fault_alone_is_named_once(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "faults.json"
    harmless = replace(FAULT, id="same", put="x * 0.5")
    rows = list(campaign.run([FAULT, harmless], root=root, path=path))
    found = {row["fault"]: (row["caught by"], row["pass"], row["place"]) for row in rows}
    assert found == {
        "half-of-it": ("tests/test_half.py::test_four", "fast", "code.py:2"),
        "same": ("not caught", "-", "code.py:2"),
    }
    assert list(campaign.run([FAULT, harmless], root=root, path=path)) == rows
    assert [list(row.values()) for row in campaign.totals(rows)] == [["mathematics", 2, 1, 0, 1], ["all", 2, 1, 0, 1]]
    assert (root / "code.py").read_text() == CODE


def test_tests_of_a_file_run_together_and_those_that_take_too_long_not_at_all() -> None:
    seconds = {"b.py::short": 1.0, "a.py::short": 1.0, "b.py::middle": 20.0, "a.py::long": 50.0, "c.py::longest": 900.0}
    assert selection.batches(seconds, 100.0) == [["b.py::short", "b.py::middle", "a.py::short"], ["a.py::long"]]


def test_the_tests_of_a_file_are_in_the_folder_that_mirrors_it(tmp_path: Path) -> None:
    (tmp_path / "tests" / "scheduler").mkdir(parents=True)
    assert selection.mirrored("scheduler/blocks/block.py", tmp_path) == "tests/scheduler"
    assert selection.mirrored("distkern/kernels/base.py", tmp_path) == "tests"


def test_every_fault_fits_the_code_and_has_a_name_of_its_own() -> None:
    require_matching(load(), ROOT)
    names = [fault.id for fault in load()]
    assert len(names) >= 84
    assert len(set(names)) == len(names)
    with pytest.raises(click.ClickException, match="no-such"):
        load(["no-such"])

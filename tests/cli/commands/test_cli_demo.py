from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.cli.command_line import Call, environment, tree


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Files of the demo in a folder, and its standard output."""
    folder = tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        [sys.executable, "-m", "distkern", "demo", "--out", "demo"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "demo", done.stdout


def test_the_demo_trains_and_ends_on_its_error(made: tuple[Path, str], call: Call) -> None:
    folder, out = made
    last = out.splitlines()[-1]
    found = re.match(r"test error (0\.\d+) \((\d+) of (\d+) digits wrong\)", last)
    assert found
    assert float(found[1]) < 0.03
    assert float(found[1]) == pytest.approx(int(found[2]) / int(found[3]), abs=1e-4)
    for part in ("split", "1198", "599", "centres", "lambda", "stopped", "predicted class"):
        assert part in out
    for name in ("digits.zarr", "digits-test.zarr", "digits.model"):
        assert (folder / name).is_dir()
    evaluated = call("evaluate", folder / "digits.model", folder / "digits-test.zarr")
    assert found[1] in evaluated.out


def test_an_earlier_demo_is_kept_unless_overwritten(made: tuple[Path, str], here: Path, call: Call) -> None:
    shutil.copytree(made[0], here / "demo")
    before = tree(here)
    done = call("demo", "--out", "demo", "-q")
    assert done.code == 6
    assert "--overwrite" in done.err
    assert tree(here) == before
    assert call("demo", "--out", "demo", "-q", "--overwrite").code == 0


def test_without_out_nothing_stays(here: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(here))
    done = call("demo")
    assert done.code == 0, done.err
    assert "kept in" not in done.out
    assert tree(here) == set()

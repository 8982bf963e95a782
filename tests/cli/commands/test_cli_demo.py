from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest

from tests.cli.command_line import Call, tree


def test_the_demo_trains_and_ends_on_its_error(here: Path, shell: Call) -> None:
    done = shell("demo", "--out", "demo")
    assert done.code == 0, done.err
    last = done.out.splitlines()[-1]
    found = re.match(r"test error (0\.\d+) \((\d+) of (\d+) digits wrong\)", last)
    assert found
    assert float(found[1]) < 0.03
    assert float(found[1]) == pytest.approx(int(found[2]) / int(found[3]), abs=1e-4)
    for part in ("split", "1198", "599", "centres", "lambda", "stopped", "predicted class"):
        assert part in done.out
    for name in ("digits.zarr", "digits-test.zarr", "digits.model"):
        assert (here / "demo" / name).is_dir()
    evaluated = shell("evaluate", "demo/digits.model", "demo/digits-test.zarr")
    assert found[1] in evaluated.out


def test_an_earlier_demo_is_kept_unless_overwritten(here: Path, call: Call) -> None:
    assert call("demo", "--out", "demo", "-q").code == 0
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

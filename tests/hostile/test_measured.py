"""The bounds of hostile input, measured: none runs anything, takes 30 seconds, or 1 GiB of memory."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.hostile.limits import SECONDS
from tests.locations import ROOT


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_hostile_input_alone() -> None:
    command = [sys.executable, "-W", "ignore", "-m", "tests.hostile.measured"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    for one in found:
        print(f"{one['name']:50} {one['end']:20} {one['seconds']:6.2f} s {one['mib']:5} MiB")
    assert len(found) >= 60
    assert [one for one in found if one["end"] not in one["expected"].split(" or ")] == []
    assert [one for one in found if one["seconds"] >= SECONDS or one["mib"] >= 1024] == []

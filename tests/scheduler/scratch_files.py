"""Scratch files are unlinked as they are made: only the processes that hold them still show them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def scratch_files(directory: str | os.PathLike[str], pid: int | str = "self") -> dict[str, int]:
    """Unlinked files in `directory` that a process has open, and their bytes on disk."""
    descriptors = Path(f"/proc/{pid}/fd")
    if not descriptors.exists():
        pytest.skip("open files are read from /proc")
    found = {}
    inside = os.path.realpath(directory) + os.sep
    for descriptor in list(descriptors.iterdir()):
        try:
            target = os.readlink(descriptor)
            if target.startswith(inside) and target.endswith(" (deleted)"):
                found[target] = descriptor.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return found

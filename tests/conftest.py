"""Shared fixtures: the benchmark data, where it is present, and hypothesis profiles."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

# scikit-learn skips its array API checks unless scipy was told before it is imported.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

import numpy as np
import pytest
from hypothesis import settings

settings.register_profile("default", deadline=None, max_examples=25)
settings.register_profile("ci", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


def shared_data_folder() -> Path:
    """DISTKERN_DATA, or shared/data beside the checkout."""
    given = os.environ.get("DISTKERN_DATA")
    return Path(given) if given else Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], dict[str, np.ndarray]]:
    """Load one benchmark set by name; skip where it is absent."""

    def load(name: str) -> dict[str, np.ndarray]:
        path = shared_data_folder() / f"{name}.npz"
        if not path.exists():
            pytest.skip(f"benchmark set {name} is not in {path.parent}; set DISTKERN_DATA to its folder")
        with np.load(path, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}

    return load

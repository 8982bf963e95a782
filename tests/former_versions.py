"""Files that an earlier version wrote, in archives under ``tests/data``, and the comparison with what it predicted."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

DATA = Path(__file__).parent / "data"


def stems(archive: Path, suffix: str) -> list[str]:
    """Return the names at the top of an archive that end in a suffix, without it."""
    with zipfile.ZipFile(archive) as opened:
        tops = {name.split("/")[0] for name in opened.namelist()}
    return sorted(name.removesuffix(suffix) for name in tops if name.endswith(suffix))


def enter_runs(written: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Unpack the runs of a version into a folder, and go there: paths in job files are relative to it."""
    shutil.unpack_archive(written / "runs.zip", folder)
    monkeypatch.chdir(folder)
    return folder


def assert_predicts(found: dict[str, Any], path: Path, tolerance: float = 1e-12) -> None:
    """Compare with predictions that were written beside a model; another BLAS may round them differently."""
    with np.load(path) as expected:
        assert set(found) <= set(expected.files)
        for name, values in found.items():
            assert values.dtype == expected[name].dtype, name
            if values.dtype.kind == "f":
                np.testing.assert_allclose(values, expected[name], rtol=tolerance, atol=tolerance, err_msg=name)
            else:
                np.testing.assert_array_equal(values, expected[name], err_msg=name)

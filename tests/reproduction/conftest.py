from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reproduction.__main__ import main
from tests.cli.command_line import Call, Finished


def blobs(rng: np.random.Generator, n: int, n_features: int = 2) -> tuple[np.ndarray, np.ndarray]:
    y = np.arange(n) % 2
    return rng.normal(size=(n, n_features)) + 1.5 * y[:, None], y


@pytest.fixture
def small_sets(tmp_path: Path) -> Path:
    """A folder with stand-ins of the published sizes for ripley, spirals and heart."""
    folder = tmp_path / "sets"
    folder.mkdir()
    rng = np.random.default_rng(0)
    X, y = blobs(rng, 250)
    X_test, y_test = blobs(rng, 1000)
    np.savez(folder / "ripley.npz", X_train=X, y_train=y, X_test=X_test, y_test=y_test)
    steps = np.repeat(np.arange(97), 2)
    radius, angle, side = 6.5 * (104 - steps) / 104, steps * np.pi / 16, np.tile([1, -1], 97)
    spirals = np.column_stack([side * radius * np.sin(angle), side * radius * np.cos(angle)])
    np.savez(folder / "spirals.npz", X=spirals, y=(side > 0).astype(int))
    X, y = blobs(rng, 270, 5)
    orders = [rng.permutation(270) for _ in range(2)]
    np.savez(
        folder / "raetsch_heart.npz",
        X=X,
        y=2 * y - 1,
        train_idx=[order[:170] for order in orders],
        test_idx=[order[170:] for order in orders],
    )
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def call(here: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs ``python -m reproduction`` in this process."""

    def run(*arguments: object) -> Finished:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Finished(code, captured.out, captured.err)

    return run

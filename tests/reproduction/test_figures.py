"""Every kind of panel can be drawn."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from distkern.errors import JobError
from reproduction.figures import draw
from reproduction.panels import Boundary, Curve, Fit, Panel

LINE = np.linspace(0.0, 1.0, 5)
PANELS: list[Panel] = [
    Fit("fit", LINE, LINE, LINE**2, np.column_stack([LINE, LINE]), np.array([[0.5, 0.5]])),
    Curve("curve", "rows", LINE, LINE, LINE / 10),
    Boundary(
        "boundary",
        LINE,
        LINE[:3],
        np.subtract.outer(LINE[:3], LINE),
        np.column_stack([LINE, LINE]),
        np.array([0, 1, 0, 1, 0]),
        np.empty((0, 2)),
    ),
]


@pytest.mark.parametrize("panels", [PANELS, PANELS[1:2]], ids=["several", "one"])
@pytest.mark.slow
def test_panels_are_drawn(panels: list[Panel], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw(panels, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    # pyplot would look for a display.
    assert "matplotlib.pyplot" not in sys.modules


def test_a_missing_matplotlib_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(JobError, match="--plot needs matplotlib"):
        draw(PANELS, tmp_path / "figure.png")

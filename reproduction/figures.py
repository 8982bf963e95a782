"""Figures drawn with matplotlib, an optional extra, from the panels of a report."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from distkern.errors import JobError

from .panels import Boundary, Curve, Fit, Panel

_PANEL_INCHES = 4.5


def require_matplotlib() -> None:
    """Check that matplotlib is installed, without loading it.

    Raises
    ------
    JobError
        matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise JobError("--plot needs matplotlib: pip install 'distkern[plot]'", kind="no-matplotlib")


def draw(panels: Sequence[Panel], path: Path) -> None:
    """Draw panels side by side into a file.

    Parameters
    ----------
    panels : sequence of Panel
        At least one panel.
    path : Path
        File to write; the suffix determines its format.
    """
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_PANEL_INCHES * len(panels), _PANEL_INCHES), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, panel in zip(np.ravel(figure.subplots(1, len(panels))), panels, strict=True):
        axes.set_title(panel.title, fontsize="medium")
        if isinstance(panel, Fit):
            _draw_fit(axes, panel)
        elif isinstance(panel, Curve):
            _draw_curve(axes, panel)
        else:
            _draw_boundary(axes, panel)
    figure.savefig(path, dpi=150)


def _draw_fit(axes: Any, fit: Fit) -> None:
    axes.plot(fit.x, fit.truth, color="0.6", label="sin(x) / x")
    axes.plot(fit.x, fit.fitted, color="C0", label="fit")
    axes.plot(*fit.rows.T, ".", color="0.3", label="training rows")
    axes.plot(*fit.centers.T, "o", color="C3", fillstyle="none", label="centres")
    axes.set_xlabel("x")
    axes.legend(fontsize="small")


def _draw_curve(axes: Any, curve: Curve) -> None:
    axes.errorbar(curve.x, curve.mean, yerr=curve.deviation, capsize=2, marker=".")
    axes.set_xlabel(curve.label)
    axes.set_ylabel("RMSE")
    axes.set_ylim(bottom=0)


def _draw_boundary(axes: Any, boundary: Boundary) -> None:
    first, second, values = boundary.first, boundary.second, boundary.values
    axes.contourf(first, second, values, levels=[-np.inf, 0, np.inf], colors=["C0", "C1"], alpha=0.2)
    axes.contour(first, second, values, levels=[0], colors="k", linewidths=1)
    for label, mark, colour in zip(np.unique(boundary.y), "x+", ("C0", "C1"), strict=True):
        axes.plot(*boundary.X[boundary.y == label].T, mark, color=colour, markersize=4)
    axes.plot(*boundary.centers.T, "o", color="k", fillstyle="none", markersize=8)

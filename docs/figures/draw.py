"""Draws the figures of the docs, from trainings that run here: python docs/figures/draw.py [DIRECTORY]."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from sklearn.datasets import load_diabetes, make_friedman1, make_moons
from sklearn.model_selection import train_test_split

import distkern as dk

# Middle tones on a transparent ground can be read on white and on black.
GREY, BLUE, ORANGE, GREEN = "#808080", "#3d8bd0", "#e0762a", "#2f9e62"

STYLE = {
    "axes.edgecolor": GREY,
    "axes.facecolor": "none",
    "axes.labelcolor": GREY,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": GREY,
    "axes.titlesize": 10,
    "figure.facecolor": "none",
    "font.size": 10,
    "legend.frameon": False,
    "legend.labelcolor": GREY,
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "svg.hashsalt": "distkern",
    "text.color": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
}


def panels(count: int, height: float = 2.6) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels side by side."""
    figure = Figure(figsize=(8, height), layout="constrained")
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def steps() -> Figure:
    """Draw a fit that grows by a centre at a time."""
    rng = np.random.default_rng(2)
    x = np.sort(rng.uniform(-6, 6, (80, 1)), axis=0)
    y = np.sinc(x[:, 0] / np.pi) + 0.1 * rng.standard_normal(80)
    grid = np.linspace(-6, 6, 200)[:, None]
    model = dk.OROLSRegressor(sigma=1.0, standardize=False, panel=1, max_centers=30).fit(x, y)
    figure, axes = panels(3)
    for axis, m in zip(axes, (1, 2, model.n_centers_), strict=True):
        part = model.truncate(m)
        axis.plot(x[:, 0], y, ".", color=GREY, markersize=3)
        axis.plot(grid[:, 0], part.predict(grid), color=BLUE)
        rows = part.center_indices_
        axis.plot(x[rows, 0], y[rows], "o", markerfacecolor="none", markeredgecolor=ORANGE, markersize=9)
        axis.set_title(f"{m} centre{'s' if m > 1 else ''}")
    return figure


def stop() -> Figure:
    """Draw what is watched along a path, and where it ends."""
    X, X_test, y, y_test = train_test_split(*load_diabetes(return_X_y=True), train_size=300, random_state=0)
    whole = dk.OROLSRegressor(sigma=2.0, max_centers=120, stop=None).fit(X, y)
    kept = dk.OROLSRegressor(sigma=2.0, max_centers=120).fit(X, y).n_centers_
    m = np.arange(1, whole.n_centers_ + 1)
    errors = [np.sqrt(np.mean((whole.truncate(int(count)).predict(X_test) - y_test) ** 2)) for count in m]
    figure, axes = panels(3)
    curves = (whole.history_["gcv"][m - 1], whole.history_["lambda_"][m - 1], errors)
    for axis, curve, title in zip(axes, curves, ("GCV", "lambda", "RMSE on test rows"), strict=True):
        axis.plot(m, curve, color=BLUE)
        axis.axvline(kept, color=ORANGE, linestyle="--")
        axis.set_title(title)
        axis.set_xlabel("centres")
    axes[0].text(kept + 4, max(curves[0]) * 0.97, "the stop rule keeps\nthe model here", color=ORANGE, va="top")
    return figure


def chosen() -> Figure:
    """Draw which rows become centres by two criteria."""
    X, y = make_moons(300, noise=0.2, random_state=0)
    grid = np.stack(np.meshgrid(np.linspace(-2, 3, 60), np.linspace(-1.5, 2, 60)), axis=-1)
    figure, axes = panels(2, 3.0)
    for axis, criterion in zip(axes, ("error-reduction", "residual"), strict=True):
        model = dk.OROLSClassifier(sigma=0.5, criterion=criterion, max_centers=20, stop=None).fit(X, y)
        for label, colour in ((0, BLUE), (1, GREEN)):
            axis.plot(*X[y == label].T, ".", color=colour, markersize=2)
        axis.plot(*X[model.center_indices_].T, "o", markerfacecolor="none", markeredgecolor=ORANGE, markersize=8)
        outputs = model.decision_function(grid.reshape(-1, 2)).reshape(60, 60)
        axis.contour(grid[0, :, 0], grid[:, 0, 1], outputs, [0.0], colors=GREY)
        axis.set_title(f'criterion = "{criterion}", 20 centres')
        axis.set_axis_off()
    return figure


def box(axis: Axes, x: float, y: float, width: float, height: float, text: str, colour: str) -> None:
    """Draw a box with text."""
    axis.add_patch(
        FancyBboxPatch(
            (x, y), width, height, boxstyle="round,pad=0.02", facecolor="none", edgecolor=colour, linewidth=1.5
        )
    )
    axis.text(x + width / 2, y + height / 2, text, ha="center", va="center", color=colour)


def places() -> Figure:
    """Draw who holds what, and what is sent."""
    figure, (axis,) = panels(1, 3.2)
    axis.set_xlim(0, 8)
    axis.set_ylim(0, 3.2)
    axis.set_axis_off()
    box(axis, 2.2, 2.3, 3.6, 0.75, "driver\nU, s, z, lambda, the run's log", ORANGE)
    for number, x in enumerate((0.1, 2.75, 5.4)):
        box(axis, x, 0.1, 2.5, 0.95, f"worker {number}\nits blocks: rows of X, y\nrows of Q, E, pool", BLUE)
        arrow = {"arrowstyle": "->", "color": GREY}
        axis.annotate("", (x + 1.1, 1.1), (3.6 + 0.4 * (number - 1), 2.25), arrowprops=arrow)
        axis.annotate("", (4.1 + 0.4 * (number - 1), 2.25), (x + 1.4, 1.1), arrowprops=arrow)
    axis.text(0.15, 1.75, "candidate rows,\ncoefficients", ha="left", va="center")
    axis.text(7.85, 1.75, "sums over rows,\nnext candidates", ha="right", va="center")
    return figure


def sums() -> Figure:
    """Draw the tree in which blocks are summed, on one worker and on three."""
    figure, axes = panels(2, 2.4)
    homes = ([0] * 8, [0, 0, 0, 0, 1, 1, 2, 2])
    for axis, home, title in zip(axes, homes, ("one worker", "three workers"), strict=True):
        axis.set_axis_off()
        axis.set_title(title)
        axis.set_xlim(-0.7, 7.7)
        axis.set_ylim(-0.6, 3.4)
        colours = (BLUE, ORANGE, GREEN)
        nodes = [(float(block), frozenset({home[block]})) for block in range(8)]
        for block, (x, _) in enumerate(nodes):
            axis.text(x, -0.45, str(block), ha="center", va="center")
        for level in range(4):
            for x, owners in nodes:
                colour = colours[min(owners)] if len(owners) == 1 else GREY
                axis.plot(x, level, "o", color=colour, markersize=9)
            parents = []
            for (a, left), (b, right) in zip(nodes[::2], nodes[1::2], strict=False):
                middle = (a + b) / 2
                axis.plot([a, middle, b], [level, level + 1, level], color=GREY, linewidth=1, zorder=0)
                parents.append((middle, left | right))
            nodes = parents
    return figure


def importances() -> Figure:
    """Draw the importances of the features and the errors of the rounds of a learnt metric."""
    X, y = make_friedman1(2000, n_features=10, noise=0.5, random_state=0)
    X, _, y, _ = train_test_split(X, y, test_size=1000, random_state=0)
    model = dk.OROLSRegressor(max_centers=200, metric="diagonal").fit(X, y)
    figure, (left, right) = panels(2)
    left.bar(np.arange(10), model.feature_importances_, color=BLUE)
    left.set_xticks(np.arange(10))
    left.set_xlabel("feature")
    left.set_title("importance")
    errors = [made["error"] for made in model.metric_rounds_]
    right.plot(errors, "o-", color=BLUE)
    kept = [made["kept"] for made in model.metric_rounds_].index(True)
    right.plot(kept, errors[kept], "o", markerfacecolor="none", markeredgecolor=ORANGE, markersize=12)
    right.annotate("kept", (kept, errors[kept]), (kept - 0.3, errors[kept] + 0.006), color=ORANGE)
    right.set_xlabel("map")
    right.set_ylim(bottom=0)
    right.set_title("error on held-out rows")
    return figure


def main(directory: Path) -> None:
    """Write all figures."""
    with mpl.rc_context(STYLE):
        for draw in (steps, stop, chosen, places, sums, importances):
            draw().savefig(directory / f"{draw.__name__}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)

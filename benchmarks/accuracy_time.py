"""Test error and fit time against the number of centres, beside Nystroem + ridge, an SVM and Falkon, in one run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from benchmarks import baselines, ours
from benchmarks.baselines import Measured, Problem
from benchmarks.datasets import Split

SETS = ("letter", "pendigits", "kin40k", "magic", "skin", "protein", "shuttle")

SHARES = (0.125, 0.25, 0.5, 1.0)
"""Numbers of centres, as shares of the recipe's."""

FEWER = 0.6
"""Number of distkern's centres in `fewer_centers`, as a share of Nystroem's."""

FEWER_CASES = {"kin40k": (1000, 2.5), "letter": (2000, 2.5), "pendigits": (600, 3.0)}
"""Nystroem's centres and the width on standardised rows, for `fewer_centers`."""

ABSENT = "not installed"


def curve(split: Split, centers: Iterable[int] = ()) -> Iterator[dict[str, Any]]:
    """Measure all methods at several numbers of centres, by default `SHARES` of the recipe's."""
    problem = baselines.prepare(split)
    svm = baselines.svm(problem)
    for m in list(centers) or [max(2, round(share * split.recipe.centers)) for share in SHARES]:
        m = min(m, len(split.X) - 2)
        yield _row(problem, m, m, svm)


def fewer_centers(split: Split, centers: int, sigma: float) -> dict[str, Any]:
    """Train distkern with `FEWER` of Nystroem's centres, both on standardised rows with the same width."""
    problem = baselines.prepare(replace(split, recipe=replace(split.recipe, sigma=sigma, standardize=True)))
    return _row(problem, int(FEWER * centers), centers, baselines.svm(problem))


def _row(problem: Problem, centers: int, theirs: int, svm: Measured) -> dict[str, Any]:
    recipe, n = problem.split.recipe, len(problem.X)
    _, own = ours.fit(problem, centers)
    nystroem = baselines.nystroem(problem, theirs)
    falkon = baselines.falkon(problem, theirs)
    rows = ours.sample_rows(n, centers)
    sampled = ours.fit(problem, centers, selection_rows=rows)[1] if ours.takes("selection_rows") else None
    return {
        "set": recipe.name,
        "rows": n,
        "error": "wrong" if recipe.classification else "rmse/std",
        "centers": centers,
        "distkern": own.error,
        "s": own.seconds,
        "selection rows": rows if sampled else None,
        "sampled": sampled.error if sampled else None,
        "sampled s": sampled.seconds if sampled else None,
        "nystroem centers": theirs,
        "nystroem": nystroem.error,
        "nystroem s": nystroem.seconds,
        "falkon": falkon.error if falkon else ABSENT,
        "falkon s": falkon.seconds if falkon else ABSENT,
        "svm": svm.error,
        "svm s": svm.seconds,
        "svm rows": svm.rows,
        "error/nystroem": own.error / nystroem.error if nystroem.error else None,
        "time/nystroem": own.seconds / nystroem.seconds,
        "sampled error/nystroem": sampled.error / nystroem.error if sampled and nystroem.error else None,
        "sampled time/nystroem": sampled.seconds / nystroem.seconds if sampled else None,
        "time/falkon": own.seconds / falkon.seconds if falkon else ABSENT,
        "time/svm": own.seconds / svm.seconds,
    }


def run(splits: Iterable[Split], centers: tuple[int, ...] = (), *, fewer: bool = True) -> Iterator[dict[str, Any]]:
    """Measure the curve of every split, and the rows with fewer centres where `FEWER_CASES` names the set."""
    for split in splits:
        yield from curve(split, centers)
        case = FEWER_CASES.get(split.recipe.name)
        if fewer and case is not None:
            yield fewer_centers(split, *case)

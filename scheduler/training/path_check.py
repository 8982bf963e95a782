"""The check of a training by itself: what its model predicts, against the fit that the training reports.

A path is cut to its longest prefix whose predictions agree with its fit by Q on a sample of the training rows, and
leave the residual that its factors give. Where the weights are too small to magnify rounding that far, nothing is
exchanged. The limits are in `distkern.selection.rounding`, the part of the blocks in `..blocks.fit_comparison`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array
from distkern.selection.rounding import AGREES, SAFETY, in_deviations, longest_prefix, magnified, warn_of_rounding
from distkern.selection.stopping import StopReason

from ..execution.executor import Executor
from ..protocol.answers import CandidateRows
from ..protocol.messages import Compare, Prefixes
from ..protocol.path import Path
from ..protocol.selection_settings import COMPARED_COLUMNS, COMPARED_PROBLEMS, compared_rows
from ..selectors.pool_selector import Unappended

STANDARD_ERRORS = 6.0
"""Standard errors by which an estimate from some of the rows may exceed the value of all rows."""


@dataclass(frozen=True)
class Selected:
    """A path as it was selected, with the factors of the rows that the blocks hold."""

    path: Path
    unappended: Unappended | None
    """Its last columns, where they are not in Q."""


def check_paths(
    paths: Sequence[Path],
    histories: Sequence[NDArray[Any]],
    selected: Sequence[Selected],
    executor: Executor,
    *,
    dtype: str,
    n_rows: int,
    n_fit: int,
) -> tuple[list[Path], list[NDArray[Any]]]:
    """Cut every path to a prefix whose predictions agree with its fit.

    Parameters
    ----------
    paths : sequence of Path
        Final paths.
    histories : sequence of structured array
        History of each path.
    selected : sequence of Selected
        The same paths before weights were fitted to all rows, which may have left some of their centres out.
    executor : Executor
        Executor after the selection.
    dtype : str
        Dtype of the kernel values.
    n_rows : int
        Rows of the data.
    n_fit : int
        Rows that selected the centres.

    Returns
    -------
    paths : list of Path
        With `StopReason.ROUNDING` where the model became shorter.
    histories : list of structured array

    Warns
    -----
    RoundingWarning
        A model became shorter.
    """
    checks = [_Check(path, before, dtype, n_rows, n_fit) for path, before in zip(paths, selected, strict=True)]
    while waiting := [number for number, check in enumerate(checks) if check.lengths]:
        compared = frozenset(waiting[:COMPARED_PROBLEMS])
        message = Compare(tuple(check.message() if i in compared else None for i, check in enumerate(checks)))
        answer = executor.exchange(message)
        for number in sorted(compared):
            checks[number].receive(answer.problems[number].candidates)
    checked = [check.checked() for check in checks]
    return checked, [history[: len(path.rows)] for path, history in zip(checked, histories, strict=True)]


def sensitive(u: Array, s: Array, weights: Array, deviations: Array, dtype: str) -> bool:
    """Return whether weights are so large that rounding of kernel values may matter.

    Parameters
    ----------
    u : array, shape (m + 1, m + 1)
        Unit upper triangular factor of the path.
    s : array, shape (m + 1,)
        Squared column norms of Q; the first one is the sum of the row weights.
    weights : array, shape (m + 1, T)
        Weights in the kernel basis.
    deviations : array, shape (T,)
        Standard deviations of the targets.
    dtype : str
        Dtype of the kernel values.
    """
    norms = np.sqrt(s @ np.square(u) / s[0])
    return bool((SAFETY * magnified(norms, weights, dtype) > AGREES * deviations).any())


class _Check:
    """The check of one path; `lengths` are the prefixes to compare next, none at the end."""

    def __init__(self, path: Path, selected: Selected, dtype: str, n_rows: int, n_fit: int) -> None:
        self._path = path
        self._selected = selected
        self._dtype = dtype
        self._n_rows = n_rows
        self._n_targets = n_targets = path.z.shape[1]
        self._share = min(1.0, compared_rows(n_targets) / max(n_fit, 1))
        self._weight_sum = path.s[0]
        self._deviations = np.sqrt(path.target_norms / self._weight_sum)
        self._worst = 0.0
        self._length = len(path.rows)
        self._search = longest_prefix(path.n_centers, self._length, max(1, COMPARED_COLUMNS // n_targets))
        self.lengths = next(self._search) if self._length else []
        if not any(self._doubtful(length) for length in self.lengths):
            self.lengths = []

    def _doubtful(self, length: int) -> bool:
        """Whether the predictions of a prefix have to be compared."""
        path, k = self._path, length + 1
        large = sensitive(path.u[:k, :k], path.s[:k], path.weights(length), self._deviations, self._dtype)
        impossible = self._squares_left(length) < -AGREES * path.target_norms
        return large or bool(impossible.any())

    def _squares_left(self, length: int) -> Array:
        """Return the squares of the residual that the factors of a prefix give, shape (T,)."""
        path, k = self._path, length + 1
        s, z = path.s[:k, None], path.z[:k]
        shrunk = path.lambdas[length] + s
        return np.asarray(path.target_norms + (z / shrunk * z * (s / shrunk - 2.0)).sum(axis=0))

    def message(self) -> Prefixes:
        """Return the prefixes to compare."""
        path, before, n_targets = self._path, self._selected.path, self._n_targets
        names = path.candidates(self._n_rows)
        weights = np.zeros((len(names) + 1, len(self.lengths) * n_targets))
        fitted = np.zeros((len(before.rows) + 1, weights.shape[1]))
        position = {name: i for i, name in enumerate(before.candidates(self._n_rows).tolist(), start=1)}
        columns = np.array([0, *(position[name] for name in names.tolist())])
        for i, length in enumerate(self.lengths):
            k, own = length + 1, slice(i * n_targets, (i + 1) * n_targets)
            weights[:k, own] = path.weights(length)
            if path is before:
                fitted[:k, own] = path.z[:k] / (path.lambdas[length] + path.s[:k, None])
            else:
                fitted[:, own] = before.u[:, columns[:k]] @ weights[:k, own]
        # The residual was lowered with the lambda of each step.
        steps = before.z / (before.lambdas + before.s[:, None])
        formed = None
        if (last := self._selected.unappended) is not None:
            fitted, new = np.split(fitted, [len(fitted) - last.combine.shape[1]])
            formed, steps = last.combine @ new, steps[: len(fitted)]
            fitted = fitted if last.correct is None else fitted - last.correct @ new
        return Prefixes(names, path.features, weights, fitted, formed, steps, self._share)

    def receive(self, found: CandidateRows | None) -> None:
        """Take the values at the compared rows."""
        n_targets, count = self._n_targets, len(self.lengths)
        agree = [True] * count
        if found is not None:
            edges = np.cumsum([count * n_targets, count * n_targets, n_targets])
            predicted, fitted, targets, weights = np.split(found.values, edges, axis=1)
            for i, length in enumerate(self.lengths):
                own = slice(i * n_targets, (i + 1) * n_targets)
                apart = self._apart(length, predicted[:, own], fitted[:, own], targets, weights)
                agree[i] = bool((apart <= AGREES * self._deviations).all())
                if length == self._path.n_centers:
                    self._worst = in_deviations(apart, self._deviations)
        try:
            self.lengths = self._search.send(agree)
        except StopIteration as end:
            self.lengths, self._length = [], end.value

    def _apart(self, length: int, predicted: Array, fitted: Array, targets: Array, weights: Array) -> Array:
        """Return how far the root mean square residual of a prefix is from what its factors give, shape (T,)."""
        expected = np.sqrt(np.maximum(self._squares_left(length), 0.0) / self._weight_sum)
        # Differences that are small beside the residual add little to it.
        moved = np.sqrt((weights * np.square(predicted - fitted)).sum(axis=0) / weights.sum())
        added: Array = np.hypot(expected, moved) - expected
        if self._path is not self._selected.path:
            # The rows that selected the centres need not stand for all rows.
            return added
        parts = weights * np.square(targets - predicted) / (self._share * self._weight_sum)
        found = parts.sum(axis=0)
        if self._share == 1.0:
            return np.asarray(np.maximum(added, np.abs(np.sqrt(found) - expected)))
        # The sample may lack rows of large residuals: it shows only whether the residual is larger.
        least = found - STANDARD_ERRORS * np.sqrt(np.square(parts).sum(axis=0))
        return np.asarray(np.maximum(added, np.sqrt(np.maximum(least, 0.0)) - expected))

    def checked(self) -> Path:
        """Return the path up to the length that was found; warn if the model became shorter."""
        path, length = self._path, self._length
        if length == len(path.rows):
            return path
        reason = path.reason
        if length < path.n_centers:
            reason = StopReason.ROUNDING
            warn_of_rounding(path.n_centers, self._worst, length, self._dtype)
        k = length + 1
        return replace(
            path,
            n_centers=min(path.n_centers, length),
            rows=path.rows[:length],
            widths=path.widths[:length],
            features=path.features[:length],
            u=path.u[:k, :k],
            s=path.s[:k],
            z=path.z[:k],
            lambdas=path.lambdas[:k],
            gcv=path.gcv[:length],
            reason=reason,
        )

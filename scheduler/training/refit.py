"""Selection on a row sample, in the driver: checks of the sample, and the final pass over all rows.

Selection returns a path for each problem with factors of the sample. A pass over all rows returns the factors of the
same centres over all of them. A second pass with another preconditioner follows where the first was too inaccurate,
which the factors of the sample nearly always predict. So the rows are read two or three times in all. The sums of the
pass are in `..blocks.all_rows_pass`, the factorisation in `distkern.selection.gram_refit`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array
from distkern.errors import DataError
from distkern.selection.gram_refit import Refit, preconditioner_of, refit, regularise
from distkern.selection.stopping import StopReason
from distkern.storage import ReadReport

from ..execution.executor import Executor
from ..protocol.answers import LoadAnswer, ProblemAnswer
from ..protocol.messages import Accumulate, Centers, Message
from ..protocol.selection_settings import SelectionSettings

if TYPE_CHECKING:
    from ..protocol.path import Path

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Refitted:
    """Paths over all rows, and the reads of the passes."""

    paths: list[Path]
    histories: list[NDArray[Any]]
    """History of each path: one row for each centre, with lambda and GCV over all rows."""
    passes: int
    """Number of reads of all rows."""
    bytes_read: int
    """Bytes read."""
    report: ReadReport
    """Retries of the reads."""


class ProblemPasses:
    """Passes over all rows for one problem after another, and what they read.

    Parameters
    ----------
    executor : Executor
        Executor after the selection.
    n_problems : int
        Problems of the training.
    """

    def __init__(self, executor: Executor, n_problems: int) -> None:
        self._executor, self._n_problems = executor, n_problems
        self.count = self._bytes_read = 0
        self._report = ReadReport()

    def exchange(self, message: Message, i: int) -> ProblemAnswer:
        """Send a message of which only problem `i` has a part; return its answer."""
        answer = self._executor.exchange(message)
        self.count, self._bytes_read = self.count + 1, self._bytes_read + answer.bytes_read
        self._report = self._report.merge(answer.report)
        return answer.problems[i]

    def only(self, i: int, part: Any) -> tuple[Any, ...]:
        """Return the parts of a message for problem `i` alone."""
        return tuple(part if j == i else None for j in range(self._n_problems))

    def refitted(self, paths: list[Path], histories: list[NDArray[Any]]) -> Refitted:
        """Return the paths with the reads so far."""
        return Refitted(paths, histories, self.count, self._bytes_read, self._report)


def check_sample(sample: LoadAnswer, selection_rows: int) -> None:
    """Refuse a sample on which no centre can be selected; warn of classes without a row in it.

    Raises
    ------
    DataError
        The sample has too few rows, too little weight, one class only, or one target value only.
    """
    weight_sum, all_rows = sample.features.count, sample.all_rows
    assert all_rows is not None
    if sample.n_fit < 2 or weight_sum <= 2:
        raise DataError(
            f"{sample.n_fit} of the {selection_rows} rows of the selection sample can train, and their weights sum to "
            f"{weight_sum:g}; at least 2 rows and a sum above 2 are needed: raise selection_rows",
            kind="too-few-rows",
        )
    if sample.targets is not None and all_rows.targets is not None:
        if not sample.targets.m2.any() and all_rows.targets.m2.any():
            raise DataError(
                f"the target has one value only on the {sample.n_fit} rows of the selection sample, so that no centre "
                "is better than another: raise selection_rows",
                kind="constant-sample",
            )
        return
    if sample.labels is None or all_rows.labels is None:
        return
    seen = np.count_nonzero(sample.labels.weights > 0)
    if seen < 2:
        raise DataError(
            f"the selection sample of {selection_rows} rows holds one class only; a classifier needs at least two: "
            "raise selection_rows",
            kind="one-class",
        )
    if seen < len(all_rows.labels.values):
        logger.warning(
            "%d of %d classes have no row among the %d that select centres; raise selection_rows if they matter",
            len(all_rows.labels.values) - seen,
            len(all_rows.labels.values),
            sample.n_fit,
        )


def refit_paths(
    paths: Sequence[Path],
    histories: Sequence[NDArray[Any]],
    executor: Executor,
    target_means: Sequence[Array],
    weight_sums: Sequence[float],
    settings: Sequence[SelectionSettings],
    n_rows: int,
    *,
    intercept: bool = True,
) -> Refitted:
    """Fit the weights of the centres of every path to all rows.

    Parameters
    ----------
    paths : sequence of Path
        Paths of the sample.
    histories : sequence of structured array
        History of each path.
    executor : Executor
        Executor after the selection.
    target_means : sequence of array
        Target means of each problem, over all its rows.
    weight_sums : sequence of float
        Sum of the weights of all rows of each problem.
    settings : sequence of SelectionSettings
        Settings of each problem.
    n_rows : int
        Number of rows of the data.
    intercept : bool, default True
        Whether there is a constant column.

    Returns
    -------
    Refitted
        With a stop rule whose number follows from the factors (`gcv`, `bic`, `mdl`, `lambda`), a path keeps the prefix
        that the rule chooses over all rows; with others the one that it chose on the sample.

    Raises
    ------
    DataError
        Products over all rows overflow.
    """
    fits: dict[int, tuple[Refit, Array]] = {}
    preconditioners = [preconditioner_of(path.u, path.s) for path in paths]
    wanted = {i for i, path in enumerate(paths) if len(path.rows)}
    passes = bytes_read = 0
    report = ReadReport()
    while wanted:
        problems = (
            Centers(path.candidates(n_rows), path.features, preconditioners[i], target_means[i])
            if i in wanted
            else None
            for i, path in enumerate(paths)
        )
        answer = executor.exchange(Accumulate(tuple(problems)))
        passes, bytes_read = passes + 1, bytes_read + answer.bytes_read
        report = report.merge(answer.report)
        for i in sorted(wanted):
            sums = require_finite(answer.problems[i])
            given = preconditioners[i]
            complete = given is paths[i].u
            small = sums["refit_gram"], sums["refit_products"]
            fitted = refit(*small, settings[i].dependent, given, complete=complete, intercept=intercept)
            if fitted is not None:
                fits[i] = fitted, sums["target_norms"]
            # The sums are large, and not needed any more.
            answer.problems[i] = ProblemAnswer()
        wanted -= fits.keys()
        for i in wanted:
            preconditioners[i] = paths[i].u
    refitted, rewritten = [], []
    for i, (path, history) in enumerate(zip(paths, histories, strict=True)):
        if i in fits:
            path, history = over_all_rows(path, history, *fits[i], weight_sums[i], settings[i])
        refitted.append(path)
        rewritten.append(history)
    return Refitted(refitted, rewritten, passes, bytes_read, report)


def require_finite(answer: ProblemAnswer) -> dict[str, Array]:
    """Return the sums of an answer; raise `DataError` ``overflow`` where they are not finite."""
    if not all(np.isfinite(array).all() for array in answer.sums.values()):
        raise DataError(
            "the products of kernel columns or targets overflow over all rows: scale the targets, the features "
            "(standardize=True) or sample_weight to ordinary sizes",
            kind="overflow",
        )
    return answer.sums


def over_all_rows(
    path: Path,
    history: NDArray[Any],
    fitted: Refit,
    target_norms: Array,
    weight_sum: float,
    settings: SelectionSettings,
) -> tuple[Path, NDArray[Any]]:
    """Return a path with its factors over all rows, cut by its stop rule, and its history.

    Parameters
    ----------
    path : Path
        Path of other rows.
    history : structured array
        A row for each of its centres.
    fitted : Refit
        Factors over all rows, of at least one centre.
    target_norms : array, shape (T,)
        y'y of each centred target over all rows.
    weight_sum : float
        Sum of the weights of all rows.
    settings : SelectionSettings
        Stop rule and regularisation.
    """
    kept = fitted.kept
    if len(kept) < len(path.rows):
        left_out = np.delete(path.rows, kept)
        logger.warning(
            "%d of %d centres depend on the others over all rows and are left out: rows %s",
            len(left_out),
            len(path.rows),
            ", ".join(str(row) for row in left_out[:10]) + (", ..." if len(left_out) > 10 else ""),
        )
    factors, gcv, scores = regularise(fitted, weight_sum, target_norms, settings.regularization, settings.stop)
    history = history[kept]
    history["lambda_"] = factors.lambdas[1:].max(axis=1)
    history["gcv"] = gcv
    reason, rule = path.reason, settings.stop_rule().reason
    if scores is not None:
        n_centers = int(np.argmin(scores)) + 1 if np.isfinite(scores).any() else 0
    elif settings.stop == "lambda":
        n_centers = _until_converged(history["lambda_"], settings)
    else:
        n_centers, rule = int(np.count_nonzero(kept < path.n_centers)), None
    if 0 < n_centers < len(kept) and rule is not None and reason is not StopReason.TIME_LIMIT:
        reason = rule
    path = replace(
        path,
        n_centers=n_centers,
        reason=reason,
        rows=path.rows[kept],
        widths=path.widths[kept],
        features=path.features[kept],
        u=factors.u.copy(),
        s=factors.s.copy(),
        z=factors.z.copy(),
        lambdas=factors.lambdas.copy(),
        gcv=gcv,
        target_norms=target_norms,
    )
    return path, history


def _until_converged(lambdas: Array, settings: SelectionSettings) -> int:
    """Return the number of centres at which lambda converges, all of them where it does not."""
    rule = settings.stop_rule()
    for n_centers, value in enumerate(lambdas.tolist(), start=1):
        if rule.observe(n_centers, value) is not None:
            return n_centers
    return len(lambdas)

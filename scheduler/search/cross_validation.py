"""K-fold cross-validation of many settings in one training: a problem for each setting and fold, with shared reads.

A problem leaves its fold out as a subset of the rows, so every setting is trained K times, in lockstep, on the same
blocks. The features are scaled by the statistics of all rows, which contain no label. Covers one pass; `search` plans
the passes, and `elimination` chooses the settings of each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array
from distkern.errors import DataError
from distkern.kernels import Kernel, kernel_of_centers
from distkern.monitoring.events import EventBus
from distkern.numerics.scaling import FeatureScaling
from distkern.storage.arrays.source import BlockSource

from ..execution.executor import Executor
from ..protocol.answers import LoadAnswer
from ..protocol.messages import FoldModel, Score
from ..protocol.path import Path
from ..protocol.problems import Folds, OtherFolds
from ..rows.data_checks import check_statistics, fit_kernel_space
from ..rows.numeric_ranges import feature_scales, overflow_ignored
from ..runtime.threads import single_threaded_blas
from ..selectors.problem_setup import Posed, pose, units_of
from ..training.alternating import run_interleaved
from ..training.driver_loop import TrainingJob, load_rows, make_path
from ..training.selection import begin_of, make_selectors, run_steps
from ..training.time_limit import TimeLimit

VARIED = frozenset({"kernel", "sigma", "sigma_factor", "max_centers", "regularization", "stop", "tol", "patience"})
"""Settings that may differ between the jobs of one group; the state of the blocks depends on all others."""


@dataclass(frozen=True)
class Finish:
    """The step from the paths of a job to the model that predicts a fold."""

    multiclass: str
    """Decision rule of the outputs, see `distkern.probability.decisions.decide`."""
    refit: Callable[[Path, int, Kernel, FeatureScaling], Array] | None = None
    """Returns the weights of a path's first centres, as `Path.weights` does, which is the default."""

    def weights(self, path: Path, count: int, kernel: Kernel, scaling: FeatureScaling) -> Array:
        """Return weights of a path's first centres, shape (count + 1, T), the intercept on centred targets first."""
        return path.weights(count) if self.refit is None else self.refit(path, count, kernel, scaling)


@dataclass(frozen=True)
class FoldErrors:
    """Result of a cross-validation."""

    errors: Array
    """(n_models,): fraction of wrong labels, or mean squared error summed over targets, in units of their own if their
    scales differ."""
    n_centers: NDArray[np.int64]
    """(n_models,): centres of each model."""
    kernels: list[Kernel]
    """Kernel of each job."""
    bytes_read: int
    """Bytes of the arrays that were read."""


@single_threaded_blas()
@overflow_ignored
def cross_validate(
    jobs: Sequence[TrainingJob],
    models: Sequence[tuple[int, int]],
    folds: Folds,
    source: BlockSource,
    executor: Executor,
    events: EventBus,
    finishes: Sequence[Finish] | None = None,
    limit: TimeLimit | None = None,
    *,
    interleaved: bool = False,
) -> FoldErrors:
    """Train jobs outside folds, in one pass over the rows.

    With `selection_rows` the folds divide the sample, and no weights are fitted to all rows.

    Parameters
    ----------
    jobs : sequence of TrainingJob
        They differ only in the settings of `VARIED`; all of them hold rows out for the stop rule, or none.
    models : sequence of (int, int)
        Position of a job and the fold to train it outside of.
    folds : Folds
        Partition of the rows.
    source : BlockSource
        The rows, as the executor's blocks read them.
    executor : Executor
        Owner of blocks and factors.
    events : EventBus
        Receives retries and absent chunks; no rounds, since those of many problems have no common path.
    finishes : sequence of Finish, optional
        Step from paths to model for each job; by default the weights of the paths, and the job's decision rule.
    limit : TimeLimit, optional
        Time limit of the search; none by default.
    interleaved : bool
        Whether the problems are interleaved in two halves, which doubles the exchanges; the models are the same.
        False by default.

    Raises
    ------
    RunError
        ``time-limit``: paths that end early at different lengths cannot be compared.
    DataError
        The rows cannot be trained on, or those outside some fold cannot.
    """
    finishes, limit = finishes or [Finish(job.multiclass) for job in jobs], limit or TimeLimit()
    limit.begin()
    first = jobs[0]
    loaded, data = load_rows(jobs, source, executor, events, folds)
    spaces = [fit_kernel_space(data.loaded, job, feature_scales(source)) for job in jobs]
    scaling, encoding = data.scaling, data.encoding
    units = units_of(data.loaded)
    outside = [_outside(loaded, fold) for fold in range(folds.count)]
    for fold in sorted({fold for _, fold in models}):
        _check_outside(outside[fold], fold, folds, source, first)
    problems_of: list[list[Posed]] = []
    for index, fold in models:
        job, rest, kernel = jobs[index], outside[fold], spaces[index][1]
        settings = job.selection(rest.n_fit)
        within = (OtherFolds(folds, fold),)
        problems_of.append(pose(job.multiclass, settings, rest, encoding, kernel, within, job.intercept, units))
    posed = [p for problems in problems_of for p in problems]
    widest = max((p.settings for p in posed), key=lambda settings: settings.pool)
    posed = [_widened(p, widest.pool, widest.batch, widest.panel) for p in posed]
    begin = begin_of(first, data, posed, loaded.selected)
    selectors = make_selectors(posed, loaded.n_held)
    for selector, part in zip(selectors, executor.exchange(begin).problems, strict=True):
        selector.begin(part)
    if interleaved:
        run_interleaved(selectors, executor, limit)
    else:
        run_steps(selectors, executor, EventBus([]), lambda: 0.0, limit)
    limit.require_search()
    paths = iter([make_path(selector, source.n_rows, source.n_features) for selector in selectors])
    waiting = iter(posed)
    scored = []
    for (index, fold), problems in zip(models, problems_of, strict=True):
        parts = [(next(waiting), next(paths)) for _ in problems]
        space = scaling, spaces[index][1]
        scored.append(_fold_model(OtherFolds(folds, fold), space, parts, finishes[index], source.n_features))
    answers = executor.exchange(Score(tuple(scored))).problems
    errors = np.full(len(models), np.nan)
    for number, part in enumerate(answers):
        weight = float(part.sums["weight"][0])
        if weight > 0:
            errors[number] = part.sums["error"][0] / weight
    n_centers = np.array([len(model.features) for model in scored], dtype=np.int64)
    return FoldErrors(errors, n_centers, [kernel for _, kernel in spaces], loaded.bytes_read)


def _outside(loaded: LoadAnswer, fold: int) -> LoadAnswer:
    """Merge the statistics of all folds but one; moments of features, except their count, stay those of all folds."""
    others = [part for number, part in enumerate(loaded.folds) if number != fold]
    rest = others[0]
    for part in others[1:]:
        rest = rest.merge(part)
    return replace(rest, features=replace(loaded.features, count=rest.features.count), n_held=loaded.n_held)


def _widened(posed: Posed, pool: int, batch: int, panel: int) -> Posed:
    """Give a problem the common widths, so that products have the same shapes; unused slots of its pool are empty."""
    settings = replace(posed.settings, pool=pool, batch=batch, panel=panel)
    return replace(posed, settings=settings, problem=replace(posed.problem, draw=settings.draw(0)))


def _check_outside(rest: LoadAnswer, fold: int, folds: Folds, source: BlockSource, job: TrainingJob) -> None:
    try:
        check_statistics(rest, source, job)
    except DataError as error:
        raise DataError(
            f"the rows outside fold {fold + 1} of {folds.count} cannot be trained on: {error.message}; ask for other "
            "folds (folds), or give more rows",
            kind=error.kind,
        ) from error


def _fold_model(
    held: OtherFolds,
    space: tuple[FeatureScaling, Kernel],
    parts: Sequence[tuple[Posed, Path]],
    finish: Finish,
    n_features: int,
) -> FoldModel:
    """Join the kept prefixes of a model's paths."""
    scaling, kernel = space
    n_outputs = sum(len(posed.outputs) for posed, _ in parts)
    counts = [path.n_centers for _, path in parts]
    coef = np.zeros((sum(counts), n_outputs))
    intercept = np.zeros(n_outputs)
    features: list[NDArray[Any]] = [np.empty((0, n_features))]
    widths = [path.widths[:count] for (_, path), count in zip(parts, counts, strict=True)]
    start = 0
    for (posed, path), count in zip(parts, counts, strict=True):
        weights, columns = finish.weights(path, count, kernel, scaling), list(posed.outputs)
        if posed.problem.target_units is not None:
            weights = weights * np.array(posed.problem.target_units)
        coef[start : start + count, columns] = weights[1:]
        intercept[columns] = weights[0] + posed.problem.target_means
        features.append(path.features[:count])
        start += count
    kernel = kernel_of_centers(kernel, np.concatenate(widths))
    return FoldModel(held, kernel, np.concatenate(features), coef, intercept, finish.multiclass)

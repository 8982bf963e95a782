"""The driver loop: load, begin, then steps until the path of every problem has ended.

The same loop serves every criterion, executor and place of the factors. It holds no rows; its memory is the factors,
the Gram matrices of the pools and the log. Covers neither plans and executors, see `run`, nor the choice of centres,
see `..selectors`.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array
from distkern.kernels import Kernel
from distkern.monitoring.events import EventBus, RunEnded, RunStarted
from distkern.numerics.scaling import FeatureScaling
from distkern.selection.losses import SQUARED, LossChoice
from distkern.selection.stopping import StopReason
from distkern.storage import ReadReport
from distkern.storage.arrays.source import BlockSource

from ..execution.executor import Executor
from ..planning.large_plan import CONJUGATE_GRADIENTS, FACTORS
from ..planning.loss_plan import PLANNED_PASSES
from ..planning.workload import Workload
from ..protocol.answers import LoadAnswer
from ..protocol.candidates import rows_and_widths
from ..protocol.messages import WIDTH_UNIT, Load
from ..protocol.path import Path
from ..protocol.problems import Folds
from ..protocol.selection_settings import LOOKAHEAD_PANEL, LOOKAHEAD_POOL, SelectionSettings
from ..rows.data_checks import MEDIAN_SAMPLE, DataSummary, SpaceJob, report_reads
from ..rows.numeric_ranges import overflow, overflow_ignored
from ..runtime.threads import single_threaded_blas
from ..selectors.pool_selector import HISTORY_DTYPE, Selector
from ..selectors.problem_setup import pose, units_of
from .automatic_sample import automatic_rows
from .large_models import LargeFits
from .loss_fits import LossFits
from .path_check import Selected, check_paths
from .refit import check_sample, refit_paths
from .selection import select
from .solver import large_model, selected_centers, solver_of
from .time_limit import TimeLimit, WorkAfter

logger = logging.getLogger(__name__)

HOLDOUT_FRACTION = 0.1
"""Fraction of rows held out for the validation stop rule."""

FIRST_ROWS = "first_rows"
"""Entry of a summary: number of rows of the training itself; absent before rows are appended."""


@dataclass(frozen=True, kw_only=True)
class TrainingJob(SpaceJob):
    """Everything that decides the model, apart from the data."""

    epsilon: float
    multiclass: str
    """"shared", "one-vs-rest" or "one-vs-one"."""
    max_centers: int
    criterion: str
    sampler: str
    candidates: int
    panel: int
    regularization: str | float
    stop: str | None
    tol: float | None
    patience: int | None
    selection_rows: int | str | None = None
    """Rows of the selection sample; None, or a number not below that of all rows, for all; "auto" and
    "auto-after-rounds", see `automatic_sample`."""
    intercept: bool = True
    """Whether there is a constant column."""
    refit: str | None = None
    """Norm of the final weights: "rkhs", or None for the weights of the path; the training itself does not use it."""
    loss: LossChoice | None = None
    """Loss of the final weights; None for squares, which select the centres with any loss."""
    solver: str = FACTORS
    """Way to fit the weights to all rows, see `solver`; "auto" until `resolved`."""

    @property
    def holds_out(self) -> bool:
        """Whether rows are held out for the stop rule."""
        return self.stop == "validation"

    @property
    def n_widths(self) -> int:
        """Number of widths that a centre may have."""
        return len(self.sigma) if isinstance(self.sigma, tuple) else 1

    def resolved(self, n_rows: int) -> TrainingJob:
        """Return the job with the solver that "auto" stands for on `n_rows` rows."""
        return replace(self, solver=solver_of(self, n_rows)) if self.solver == "auto" else self

    def compared(self, n_rows: int) -> TrainingJob:
        """Return the job for a comparison of settings on `n_rows` rows: the centres that are selected, by factors."""
        job = self.resolved(n_rows)
        return replace(job, max_centers=selected_centers(job), solver=FACTORS)

    @property
    def draws_centers(self) -> bool:
        """Whether conjugate gradients solve for the weights, and centres beyond the first ones are drawn."""
        return self.solver == CONJUGATE_GRADIENTS

    def sampled_rows(self, n_rows: int) -> int:
        """Return the rows of the selection sample, 0 where centres are selected on all rows."""
        rows = automatic_rows(self, n_rows) if isinstance(self.selection_rows, str) else self.selection_rows
        return rows if rows and rows < n_rows else 0

    def selection(self, n_rows: int) -> SelectionSettings:
        """Fit the widths of pool, panel and batch to the number of training rows."""
        residual, everything = self.criterion == "residual", n_rows * self.n_widths
        all_rows = not residual and (self.sampler == "all" or everything <= self.candidates)
        pool = LOOKAHEAD_POOL if residual else max(2, everything if all_rows else self.candidates)
        batch = WIDTH_UNIT if residual else max(2, min(max(self.panel, self.candidates // 8), pool))
        panel = LOOKAHEAD_PANEL if residual else max(2, min(self.panel, pool))
        return SelectionSettings(
            max_centers=min(selected_centers(self), n_rows),
            criterion=self.criterion,
            sampler=self.sampler,
            pool=pool,
            accept=panel if residual else 1 if self.criterion == "loo-error" else min(self.panel, pool),
            panel=panel,
            batch=batch,
            all_rows=all_rows,
            regularization=self.regularization,
            stop=self.stop,
            tol=self.tol,
            patience=self.patience,
            seed=self.seed,
            single_precision=self.dtype == "float32",
            n_widths=self.n_widths,
        )


@dataclass(frozen=True)
class TrainingResult:
    """Result of a training; pickles of version 0.1 hold the names of its fields."""

    paths: list[Path]
    outputs: tuple[tuple[int, ...], ...]
    """Outputs of the model that each path determines."""
    kernel: Kernel
    """With several widths, all of them; `kernel_of_centers` returns the kernel of a path."""
    scaling: FeatureScaling
    target_means: Array
    """(n_outputs,): added to the outputs, since targets are centred."""
    classes: NDArray[Any] | None
    class_weights: Array | None
    """(n_classes,): sum of the row weights of each class; None for regression."""
    multiclass: str
    """Problems of several classes, as `TrainingJob.multiclass`."""
    history: NDArray[Any]
    reason: StopReason
    summary: dict[str, Any]
    """Counts of the run: rows, rounds, exchanges, kernel columns, bytes, seconds."""
    weight_scale: float = 1.0
    """Factor on the row weights."""
    weight_roots: float = 0.0
    """Sum of the square roots of the row weights; 0 in pickles of earlier versions."""
    intercept: bool = True
    """Whether there is a constant; True in pickles of earlier versions."""


@single_threaded_blas()
@overflow_ignored
def train(
    job: TrainingJob,
    source: BlockSource,
    executor: Executor,
    events: EventBus,
    run_id: str | None = None,
    clock: Callable[[], float] | None = None,
    limit: TimeLimit | None = None,
) -> TrainingResult:
    """Run one training.

    Parameters
    ----------
    job : TrainingJob
        The settings.
    source : BlockSource
        The rows, as the executor's blocks read them.
    executor : Executor
        Owner of blocks and factors.
    events : EventBus
        Receives the events.
    run_id : str, optional
        Name of the run, for the first event; a unique one by default.
    clock : callable, optional
        Returns the seconds of training so far; by default those since the call.
    limit : TimeLimit, optional
        Time limit of the training; none by default.

    Returns
    -------
    TrainingResult

    Raises
    ------
    DataError
        The rows cannot be trained on.
    """
    run_id, limit, started = run_id or uuid.uuid4().hex, limit or TimeLimit(), perf_counter()
    clock = clock or (lambda: perf_counter() - started)
    limit.begin()
    loaded, data = load_rows([job], source, executor, events)
    all_rows, encoding = data.loaded, data.encoding
    if job.scaling is None:  # a learnt metric has different scales on purpose
        data.warn_about_scales(source)
    settings = job.selection(loaded.n_fit)
    units = units_of(all_rows)
    posed = pose(job.multiclass, settings, loaded, encoding, data.kernel, intercept=job.intercept, units=units)
    n_targets = len(encoding.means(loaded))
    events.emit(
        RunStarted(
            run_id=run_id,
            n_rows=source.n_rows,
            n_features=source.n_features,
            n_targets=n_targets,
            n_problems=len(posed),
            n_blocks=len(source.boundaries) - 1,
            max_centers=min(job.max_centers, source.n_rows) if job.draws_centers else settings.max_centers,
            workers=executor.n_workers,
            selected_centers=settings.max_centers if job.draws_centers else 0,
        )
    )
    whole = None
    if all_rows is not loaded:
        whole = pose(job.multiclass, settings, all_rows, encoding, data.kernel, intercept=job.intercept, units=units)
    after = WorkAfter(
        reads=int(job.classification) + int(all_rows is not loaded) + (0 if job.loss is None else PLANNED_PASSES),
        refit_rows=0.0 if all_rows is loaded or job.draws_centers else all_rows.n_fit / loaded.n_fit,
        norm_refit=job.refit is not None or job.loss is not None,
        seconds=_solving_seconds(job, source, n_targets, len(posed), executor.n_threads),
    )
    selection = select(job, data, loaded, posed, executor, events, clock, limit, whole=whole, after=after)
    selectors = selection.selectors
    paths = [make_path(selector, source.n_rows, source.n_features) for selector in selectors]
    histories = [np.array(selector.history, dtype=HISTORY_DTYPE) for selector in selectors]
    for path, history in zip(paths, histories, strict=True):
        history["center"] = path.rows
    passes, bytes_read = 1, loaded.bytes_read
    selected = [Selected(path, selector.unappended) for path, selector in zip(paths, selectors, strict=True)]
    if whole is not None:
        posed = whole
    fitting: dict[str, Any] = {"regularization": job.regularization, "n_rows": source.n_rows, "seed": job.seed}
    fitting |= {"limit": limit, "live": lambda: not events.muted}
    if job.draws_centers:
        most: dict[str, Any] = {"selected": settings.max_centers, "max_centers": min(job.max_centers, all_rows.n_fit)}
        large = LargeFits(executor, selection.begin, **most, **fitting)
        refitted = large.fit(paths, histories, [p.problem for p in posed])
    elif whole is not None:
        means = [p.problem.target_means for p in posed]
        sums, chosen = [p.problem.weight_sum for p in posed], [p.settings for p in posed]
        refitted = refit_paths(paths, histories, executor, means, sums, chosen, source.n_rows, intercept=job.intercept)
    if job.draws_centers or whole is not None:
        paths, histories = refitted.paths, refitted.histories
        passes, bytes_read = passes + refitted.passes, bytes_read + refitted.bytes_read
        report_reads(ReadReport(retries=refitted.report.retries), source, events)
    sizes = {"n_rows": source.n_rows, "n_fit": loaded.n_fit}
    if not job.draws_centers:
        paths, histories = check_paths(paths, histories, selected, executor, dtype=job.dtype, **sizes)
    paths = [replace(path, target_units=units).in_users_units() for path in paths]
    if job.loss is not None:
        fits = LossFits(job.loss, executor, selection.begin, **fitting)
        refitted = fits.fit(paths, histories, [p.problem for p in posed])
        paths, histories = refitted.paths, refitted.histories
        passes, bytes_read = passes + refitted.passes, bytes_read + refitted.bytes_read
        report_reads(ReadReport(retries=refitted.report.retries), source, events)
    reason = max(zip(selectors, paths, strict=True), key=lambda pair: pair[0].n_centers)[1].reason
    if any(path.reason is StopReason.ROUNDING for path in paths):
        reason = StopReason.ROUNDING
    if any(path.reason is StopReason.TIME_LIMIT for path in paths):
        # Even if another path is longer: the run can be resumed.
        reason = StopReason.TIME_LIMIT
    executor.finish()
    seconds = clock()
    union = np.concatenate([path.candidates(source.n_rows)[: path.n_centers] for path in paths])
    n_union = len(np.unique(union))
    events.emit(RunEnded(n_centers=n_union, stop_reason=str(reason), seconds=seconds))
    return TrainingResult(
        paths=paths,
        outputs=tuple(p.outputs for p in posed),
        kernel=data.kernel,
        scaling=data.scaling,
        target_means=np.concatenate([p.problem.target_means for p in posed]),
        classes=encoding.classes,
        class_weights=encoding.class_weights(all_rows),
        multiclass=job.multiclass,
        history=np.concatenate(histories),
        reason=reason,
        summary={
            "n_rows": source.n_rows,
            "selection_rows": source.n_rows if whole is None else loaded.n_fit + loaded.n_held,
            "selection_dtype": str(selection.begin.selecting_dtype),
            "n_features": source.n_features,
            "n_targets": n_targets,
            "solver": job.solver,
            "loss": SQUARED if job.loss is None else job.loss.name,
            "rounds": selection.rounds,
            "exchanges": executor.exchanges,
            "kernel_columns": selection.kernel_columns,
            "passes": passes,
            "bytes_read": bytes_read,
            "seconds": seconds,
        },
        weight_scale=data.weight_scale,
        weight_roots=all_rows.weight_roots / data.weight_scale**0.5,
        intercept=job.intercept,
    )


def _solving_seconds(job: TrainingJob, source: BlockSource, n_targets: int, n_problems: int, threads: int) -> float:
    """Predict the seconds of draws and conjugate gradients; 0 where weights come from factors."""
    large = large_model(job, source.n_rows)
    # Iterations may end at any time.
    large = None if large is None else replace(large, iterations=1)
    return 0.0 if large is None else large.seconds(Workload.of(source, n_targets, n_problems), threads)


def load_rows(
    jobs: Sequence[TrainingJob],
    source: BlockSource,
    executor: Executor,
    events: EventBus,
    folds: Folds | None = None,
) -> tuple[LoadAnswer, DataSummary]:
    """Load all blocks; return the statistics of the rows that select centres, and the summary of all rows.

    The jobs may differ in the width of the kernel; the first job decides everything else.
    """
    job = jobs[0]
    load = Load(
        classification=job.classification,
        sample_rows=MEDIAN_SAMPLE if any(job.sigma == "median" for job in jobs) else 0,
        seed=job.seed,
        holdout=HOLDOUT_FRACTION if job.holds_out else 0.0,
        selection_rows=job.sampled_rows(source.n_rows),
        folds=folds,
    )
    answer = executor.exchange(load)
    loaded = answer.load
    assert loaded is not None
    data = DataSummary.of(loaded.all_rows or loaded, answer.report, source, job, events=events)
    if loaded.all_rows is None:
        return data.loaded, data
    loaded = loaded.scaled(data.weight_scale)
    check_sample(loaded, load.selection_rows)
    return loaded, data


def make_path(selector: Selector, n_rows: int, n_features: int) -> Path:
    """Return the path of a selector, from data of `n_rows` rows."""
    m, factors = selector.n_centers, selector.factors
    assert selector.reason is not None
    if not all(np.isfinite(part).all() for part in (factors.u, factors.s, factors.z, factors.lambdas[: m + 1])):
        raise overflow()
    features = np.array(selector.features) if m else np.empty((0, n_features))
    rows, widths = rows_and_widths(np.array(selector.rows, dtype=np.int64), n_rows)
    return Path(
        n_centers=selector.best,
        rows=rows,
        widths=widths,
        features=features,
        u=factors.u[: m + 1, : m + 1].copy(),
        s=factors.s[: m + 1].copy(),
        z=factors.z[: m + 1].copy(),
        lambdas=factors.lambdas[: m + 1].copy(),
        gcv=np.array([row[2] for row in selector.history]),
        target_norms=factors.target_norms,
        reason=selector.final_reason,
    )

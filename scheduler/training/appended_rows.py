"""Rows that come after a training: the sums of its centres continue, and only the new rows are read.

The factors of a path are the sums of the rows before: [1 K]'[1 K] = U'SU and [1 K]'Y = U'z. So new rows add the
products of [1 K] inv(U), whose columns are nearly orthogonal, to S and z; a factorisation of the whole gives the
factors over all rows (`distkern.selection.gram_refit`), and lambda follows along the path as after any pass over all
rows. The space of the kernel, the centres and their order stay. Covers the driver; the tasks are in
`..passes.append_tasks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from distkern.arrays import Array
from distkern.errors import DataError
from distkern.models.kernel_model import KernelModel
from distkern.numerics.row_weights import factor_of_weights
from distkern.probability.pairwise import class_pairs
from distkern.selection.gram_refit import refit_square, unpack_gram, without_constant
from distkern.selection.regularization import charged_gcv
from distkern.selection.stopping import StopReason

from ..passes.append_tasks import Errors, NewRows, NewSums, errors_of_block, sums_of_block
from ..passes.first_pass import Statistics, require_same_rows
from ..passes.fit import Fit
from ..planning.limits import WorkerFacts, default_limit
from ..planning.memory import refit_bytes, refit_driver_bytes
from ..planning.plan import Course, Plan
from ..planning.workload import Workload
from ..protocol.answers import LoadAnswer, ProblemAnswer
from ..protocol.messages import Begin, Centers, Load
from ..protocol.path import Path
from ..protocol.problems import ClassPair, Problem
from ..protocol.selection_settings import SelectionSettings
from ..rows.label_encoding import KnownLabels
from ..rows.numeric_ranges import check_ranges, feature_names
from ..runtime.threads import available_cores
from .calibration_rows import CalibrationRows, merged_rows, most_rows
from .driver_loop import FIRST_ROWS, TrainingJob, TrainingResult
from .refit import over_all_rows, require_finite

if TYPE_CHECKING:
    from numpy.typing import NDArray

APPEND_ADVICE = "use smaller chunks of X, fewer threads a worker, or more memory"


@dataclass(frozen=True)
class Drift:
    """Errors on the rows that were appended, of the model before and after."""

    n_rows: int
    """Number of appended rows."""
    rows_before: int
    """Number of rows that the model had before."""
    score: str
    """"rmse", the root of the mean squared error in the units of the targets, or "error", the share of wrong labels."""
    expected: float | None
    """Error that the earlier rows led to expect, the root of generalised cross validation with a centre charged twice;
    None for labels. An error before that is well above it shows that the rows have changed."""
    before: float
    """Error of the earlier model, which has not seen the rows."""
    after: float
    """Error of the present model, which was fitted to them, too."""

    def __str__(self) -> str:
        expected = "" if self.expected is None else f", {self.expected:.4g} expected"
        return (
            f"{self.n_rows} rows after {self.rows_before}: {self.score} on them {self.before:.4g} before{expected}, "
            f"{self.after:.4g} after"
        )


@dataclass(frozen=True)
class Extended:
    """A training after its sums were continued over new rows."""

    result: TrainingResult
    statistics: Statistics
    """Statistics of the new rows, and checksums of their blocks."""
    new: NewRows
    """Numbers and labels of the new rows."""
    rescaled: float
    """Factor on the row weights of the rows before."""


def extend(result: TrainingResult, job: TrainingJob, fit: Fit) -> Extended:
    """Add new rows to the factors of every path, in one pass over them.

    Parameters
    ----------
    result : TrainingResult
        Result of the training and of all rows that were appended to it, with factors.
    job : TrainingJob
        Settings of the training.
    fit : Fit
        Runs tasks on the new rows.

    Raises
    ------
    DataError
        The rows cannot be trained on, or products overflow.
    """
    source = fit.tasks.source
    _require_targets(source.target_shape, result)
    before = result.summary["n_rows"]
    new = NewRows(before, before + source.n_rows, KnownLabels.of(source, result.classes))
    begin = _begin(result, job)
    centers = tuple(
        Centers(path.candidates(new.n_rows), path.features, path.u, problem.target_means)
        for path, problem in zip(result.paths, begin.problems, strict=True)
    )
    load = Load(classification=job.classification, sample_rows=0, seed=job.seed, holdout=0.0)
    hold = fit.tasks.hold
    arguments = (sums_of_block, hold(centers), hold(begin), load, new)
    sums: NewSums = fit.tasks.reduce("append-rows", *arguments, merge=NewSums.merge)
    fit.passes, fit.bytes_read = fit.passes + 1, fit.bytes_read + sums.statistics.reads.bytes_read
    fit.kernel_columns += sum(len(path.rows) for path in result.paths)
    loaded = sums.statistics.loaded
    if not loaded.n_fit:
        raise DataError(
            f"sample_weight is zero for all {source.n_rows} rows, so there is nothing to append", kind="too-few-rows"
        )
    scaled = loaded.scaled(result.weight_scale)
    check_ranges(scaled, job.dtype, standardize=job.standardize, names=feature_names(source))
    settings = job.selection(new.n_rows)
    scale, roots = _scale_of_all(result, loaded)
    factor = scale / result.weight_scale
    histories = [result.history[result.history["problem"] == i] for i in range(len(result.paths))]
    paths, means = [], result.target_means.astype(np.float64).copy()
    for i, path in enumerate(result.paths):
        found = require_finite(ProblemAnswer(sums.problems[i]))
        longer, histories[i], shift = _with_sums(
            path.in_units(), histories[i], found, factor, settings, intercept=job.intercept
        )
        paths.append(longer.in_users_units())
        means[list(result.outputs[i])] += shift if path.target_units is None else shift * np.array(path.target_units)
    extended = replace(
        result,
        paths=paths,
        target_means=means,
        class_weights=_class_weights(result, loaded, scale, new),
        history=np.concatenate(histories),
        reason=_reason(paths),
        weight_scale=scale,
        weight_roots=roots,
        summary=result.summary
        | {"n_rows": new.n_rows, FIRST_ROWS: result.summary.get(FIRST_ROWS, result.summary["n_rows"])},
    )
    return Extended(extended, sums.statistics, new, factor)


def _require_targets(shape: tuple[int, ...], result: TrainingResult) -> None:
    given, known = shape[0] if shape else 1, len(result.target_means)
    if result.classes is None and given != known:
        raise DataError(f"y has {given} targets, and the model has {known}", kind="target-count")


def _begin(result: TrainingResult, job: TrainingJob) -> Begin:
    """Return what the kernel columns of the new rows need; they have no epsilon, as none of the rows is a centre."""
    pairs: Sequence[tuple[int, int]] = ()
    if result.multiclass == "one-vs-one" and result.classes is not None and len(result.classes) > 2:
        pairs = list(class_pairs(len(result.classes)))
    problems = []
    for i, (path, outputs) in enumerate(zip(result.paths, result.outputs, strict=True)):
        columns = (pairs[i][1],) if pairs else outputs
        within = (ClassPair(*pairs[i]),) if pairs else ()
        means = result.target_means[list(outputs)]
        problems.append(Problem(columns, means, float(path.s[0]), result.kernel, within, None, path.target_units))
    return Begin(
        scaling=result.scaling,
        dtype=job.dtype,
        epsilon=0.0,
        classes=result.classes,
        problems=tuple(problems),
        columns=1 + max(len(path.rows) for path in result.paths),
        pool=0,
        panel=0,
        batch=0,
        intercept=job.intercept,
        weight_scale=result.weight_scale,
    )


def _scale_of_all(result: TrainingResult, loaded: LoadAnswer) -> tuple[float, float]:
    """Return the factor on the weights of all rows, as one training on them has it, and the sum of their roots.

    Trainings of earlier versions did not keep the sum; their factor stays.
    """
    if not result.weight_roots:
        return result.weight_scale, 0.0
    roots = result.weight_roots + loaded.weight_roots
    total = result.paths[0].s[0] if result.class_weights is None else result.class_weights.sum()
    return factor_of_weights(float(total / result.weight_scale + loaded.features.count), roots), roots


def _with_sums(
    path: Path,
    history: NDArray[Any],
    new: dict[str, Array],
    factor: float,
    settings: SelectionSettings,
    *,
    intercept: bool,
) -> tuple[Path, NDArray[Any], Array]:
    """Return a path over all rows, its history, and the shift of the targets' means.

    Parameters
    ----------
    path : Path
        Path over the rows before, in its units.
    history : structured array
        A row for each of its centres.
    new : dict
        Sums of the new rows in the columns of Q, with targets centred by the means of the rows before.
    factor : float
        Factor on all row weights so far.
    settings : SelectionSettings
        Settings of the training.
    intercept : bool
        Whether there is a constant column, and targets are centred.
    """
    square = unpack_gram(new["refit_gram"], len(path.s))
    square[np.diag_indices_from(square)] += path.s
    square *= factor
    products = factor * (path.z + new["refit_products"])
    norms = factor * (path.target_norms + new["target_norms"])
    shift = np.zeros(len(norms))
    if intercept:
        # Targets are centred by the mean of all rows: y - (mean + shift).
        shift = products[0] / square[0, 0]
        products = products - square[:, :1] * shift
        norms = np.maximum(norms - square[0, 0] * np.square(shift), 0.0)
    else:
        products = without_constant(square, products)
    fitted = refit_square(square, products, settings.dependent, path.u)
    if not len(fitted.kept):
        empty = path.rows[:0]
        path = replace(path, n_centers=0, rows=empty, widths=path.widths[:0], features=path.features[:0])
        zeros = np.zeros((1, path.lambdas.shape[1]))
        path = replace(path, u=np.eye(1), s=fitted.s, z=fitted.z, lambdas=zeros, gcv=path.gcv[:0], target_norms=norms)
        return path, history[:0], shift
    path, history = over_all_rows(path, history[: len(path.rows)], fitted, norms, float(square[0, 0]), settings)
    return path, history, shift


def _class_weights(result: TrainingResult, loaded: LoadAnswer, scale: float, new: NewRows) -> Array | None:
    """Return the weight of every class over all rows."""
    if result.class_weights is None:
        return None
    assert loaded.labels is not None
    codes = new.labels.codes(loaded.labels.values)
    weights = result.class_weights * (scale / result.weight_scale)
    assert codes is not None
    np.add.at(weights, codes, loaded.labels.weights * scale)
    return weights


def _reason(paths: Sequence[Path]) -> StopReason:
    """Return the reason of the training: that of its longest path, unless one was cut short."""
    reasons = [path.reason for path in paths]
    for reason in (StopReason.TIME_LIMIT, StopReason.ROUNDING):
        if reason in reasons:
            return reason
    return max(paths, key=lambda path: len(path.rows)).reason


def compare(
    extended: Extended,
    before: TrainingResult,
    models: tuple[KernelModel, KernelModel],
    multiclass: str,
    sample: CalibrationRows | None,
    fit: Fit,
    seed: int,
) -> tuple[Drift, CalibrationRows | None]:
    """Compute the errors on the new rows, and the rows that calibrate, in a second pass over the new rows.

    Parameters
    ----------
    extended : Extended
        From `extend`.
    before : TrainingResult
        Result of the training before.
    models : tuple of KernelModel
        Model before and after.
    multiclass : str
        How classes follow from outputs.
    sample : CalibrationRows or None
        Rows of the training before that calibrate; None where nothing is calibrated.
    fit : Fit
        Runs tasks on the new rows.
    seed : int
        Key of the draw.

    Raises
    ------
    DataError
        ``changed``: a block is not what the first pass read.
    """
    result, new = extended.result, extended.new
    errors: Errors = fit.tasks.reduce(
        "appended-errors", errors_of_block, fit.tasks.hold(models), multiclass, new, merge=Errors.merge
    )
    fit.passes, fit.bytes_read = fit.passes + 1, fit.bytes_read + errors.reads.bytes_read
    require_same_rows(fit.tasks, extended.statistics.reads, errors.reads)
    if sample is not None:
        shares = np.ones(1) if result.class_weights is None else result.class_weights / result.class_weights.sum()
        sample = merged_rows(
            fit.tasks, sample, shares, new, seed=seed, weight_scale=result.weight_scale, rescaled=extended.rescaled
        )
        fit.passes, fit.bytes_read = fit.passes + 1, fit.bytes_read + sample.bytes_read
    before_after = [_mean(total, errors.weight, result.classes is None) for total in (errors.before, errors.after)]
    drift = Drift(
        n_rows=fit.n_rows,
        rows_before=new.first,
        score="rmse" if result.classes is None else "error",
        expected=None if result.classes is not None else _expected(before),
        before=before_after[0],
        after=before_after[1],
    )
    return drift, sample


def _mean(total: Array, weight: float, squares: bool) -> float:
    """Return the mean over the targets of the mean errors, or of their roots."""
    means = total / weight
    return float(np.mean(np.sqrt(means) if squares else means))


def _expected(result: TrainingResult) -> float:
    """Return the root of GCV, the mean over the targets, for a regression, which has one path."""
    path = result.paths[0]
    k = path.n_centers + 1
    if path.mu is not None and path.n_centers:
        return float(np.sqrt(path.gcv[path.n_centers - 1] / len(path.target_norms)))
    lam = np.broadcast_to(path.lambdas[k - 1], path.target_norms.shape).astype(np.float64)
    return float(np.sqrt(charged_gcv(path.s[:k], path.z[:k], path.target_norms, lam, float(path.s[0]))).mean())


def plan_append(
    work: Workload,
    facts: WorkerFacts | None,
    memory_limit: int | None,
    settings: SelectionSettings,
    sample: CalibrationRows | None,
) -> Plan:
    """Plan the passes over new rows.

    Parameters
    ----------
    work : Workload
        Shapes of the new rows, with targets and problems of the training.
    facts : WorkerFacts or None
        Workers; None for this process alone.
    memory_limit : int or None
        Bytes that a process may take beside its baseline; None for most of the available memory.
    settings : SelectionSettings
        Settings of the training, with the number of its centres as `max_centers`.
    sample : CalibrationRows or None
        Rows of the training that calibrate; None where nothing is calibrated.
    """
    together = facts is None or facts.in_process
    n_workers = 1 if facts is None else facts.n_workers
    threads = available_cores() if facts is None else facts.threads * (n_workers if together else 1)
    m = settings.max_centers
    row = work.row_bytes + 8 * work.target_columns + 24
    drawn = kept = 0
    if sample is not None:
        drawn = most_rows(work.n_rows, work.row_bytes, work.n_targets) * (row + 24)
        kept = len(sample.rows) * (row + 24)
    centers = work.n_problems * m * (work.row_bytes + 8 * work.n_features)
    driver = {"sums": refit_driver_bytes(work, settings), "centres": 2 * centers, "sample": 2 * (kept + drawn)}
    worker = {
        "blocks": (2 * threads + 1) * work.block_rows * row,
        "refit": refit_bytes(work, settings, threads, work.n_blocks) + 2 * centers,
        "errors": threads * work.block_rows * 8 * 6 * max(2, work.n_targets) + threads * (4 << 20),
        "drawn_rows": drawn,
    }
    limit = memory_limit or default_limit(None if together else facts)
    plan = Plan.by_passes(
        work, 2 + (sample is not None), driver, worker, together=together, limit=limit, advice=APPEND_ADVICE
    )
    columns = work.n_rows * work.memberships * m
    flops = {
        "kernel": 3 * 2 * columns * work.n_features,
        # Columns of Q by a triangular solution, and their products with each other.
        "refit": 2 * columns * m,
        "errors": 2 * 2 * columns * work.targets_of_a_problem,
    }
    course = Course(
        selected_rows=0,
        n_workers=n_workers,
        threads=threads,
        rounds=0,
        exchanges=0,
        kernel_columns=work.n_problems * m,
        flops={**flops, "total": sum(flops.values())},
        bytes_read=plan.passes * work.n_rows * (work.row_bytes + 8 * work.target_columns),
        scratch_bytes=0,
        scratch_written=0,
        scratch_read=0,
        bytes_sent=0,
        in_driver=False,
        together=together,
        read_ahead=0,
        loss_passes=0,
        solver="factors",
        solving_seconds=0.0,
        norm_refit=0,
    )
    return replace(plan, course=course)

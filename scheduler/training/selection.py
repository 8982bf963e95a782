"""The selection of one training: its first message, the steps of all problems, and the precision of the factors.

Where a sample of the rows selects, weights are fitted to all rows afterwards in the precision of the job, so Q and E of
the sample decide only which centres are chosen. They are kept in float32 there where that suffices: half of the bytes,
and about twice the speed of the products. A path that float32 ends early is selected again in the precision of the job.
Covers neither the choice of centres, see `..selectors`, nor the other parts of a training, see `driver_loop`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from distkern.errors import DataError
from distkern.kernels import Gaussian, Gaussians, Kernel
from distkern.kernels.radial import Radial
from distkern.monitoring.events import EventBus, RoundDone
from distkern.numerics.scaling import DirectionScaling
from distkern.selection.factors import kernel_weights
from distkern.selection.stopping import StopReason

from ..execution.executor import Executor
from ..protocol.answers import LoadAnswer, ProblemAnswer
from ..protocol.messages import Begin, LookaheadStep, ProblemStep, Step
from ..protocol.selected_rows import SelectedRows
from ..rows.data_checks import DataSummary
from ..rows.numeric_ranges import LARGEST_TARGET, SMALLEST, overflow_ignored
from ..runtime.threads import map_tiles
from ..selectors.loo_selector import LooSelector
from ..selectors.lookahead_selector import LookaheadSelector
from ..selectors.pool_selector import PoolSelector, Selector
from ..selectors.problem_setup import Posed
from .path_check import sensitive
from .time_limit import NOTHING, TimeLimit, WorkAfter

if TYPE_CHECKING:
    from .driver_loop import TrainingJob

logger = logging.getLogger(__name__)

R = TypeVar("R")

NARROWEST = 0.03
"""Least width of a kernel over the spread of the rows with which float32 selects: a squared distance has an error of
some roundings of the squared spread, here below 0.001 in units of the squared width."""

SHORT = (StopReason.ILL_CONDITIONED, StopReason.CANDIDATES_EXHAUSTED)
"""Reasons to end a path that depend on the precision."""


@dataclass(frozen=True)
class Selection:
    """The paths of all problems at their ends."""

    begin: Begin
    """The first message."""
    selectors: list[Selector]
    """The state machine of every problem, whose factors are those of the path."""
    kernel_columns: int
    """Kernel columns that were computed."""
    rounds: int
    """Number of rounds."""


def select(
    job: TrainingJob,
    data: DataSummary,
    loaded: LoadAnswer,
    posed: Sequence[Posed],
    executor: Executor,
    events: EventBus,
    clock: Callable[[], float],
    limit: TimeLimit,
    *,
    whole: Sequence[Posed] | None = None,
    after: WorkAfter = NOTHING,
) -> Selection:
    """Select the centres of every problem.

    Parameters
    ----------
    job : TrainingJob
        The settings.
    data : DataSummary
        Summary of all rows.
    loaded : LoadAnswer
        Statistics of the rows that select.
    posed : sequence of Posed
        The problems.
    executor : Executor
        Executor after `Load`.
    events : EventBus
        Receives the events of rounds.
    clock : callable
        Returns the seconds of training so far.
    limit : TimeLimit
        Time limit of the training.
    whole : sequence of Posed, optional
        The same problems over all rows, where a sample selects and weights are fitted to all rows; None by default.
    after : WorkAfter
        The steps of the training after the selection; none by default.

    Raises
    ------
    DataError
        ``overflow``: sums overflow in the precision of the job.
    """
    kernel_columns = 0
    for dtype in _precisions(job, data, sampled=whole is not None):
        last = dtype == job.dtype
        own = posed if last else [replace(p, settings=replace(p.settings, single_precision=True)) for p in posed]
        begin = begin_of(job, data, own, loaded.selected, dtype)
        selectors = make_selectors(own, loaded.n_held, whole)
        for selector, answer in zip(selectors, executor.exchange(begin).problems, strict=True):
            selector.begin(answer)
        try:
            columns, rounds = run_steps(selectors, executor, events, clock, limit, after)
        except DataError as error:
            if last or error.kind != "overflow":
                raise
            logger.info("products overflow in %s: centres are selected again in %s", dtype, job.dtype)
            continue
        kernel_columns += columns
        short = [] if last else [selector for selector in selectors if _insufficient(selector, job.dtype)]
        if not short:
            break
        logger.info(
            "the selection in %s ended at %d centres (%s): centres are selected again in %s",
            dtype,
            min(selector.n_centers for selector in short),
            short[0].reason,
            job.dtype,
        )
    return Selection(begin, selectors, kernel_columns, rounds)


def _precisions(job: TrainingJob, data: DataSummary, *, sampled: bool) -> list[str]:
    """Return the dtypes in which centres are selected, the next one where the one before does not suffice."""
    if not sampled or job.dtype == "float32" or job.criterion != "error-reduction":
        return [job.dtype]
    targets = data.loaded.targets
    spreads = np.ones(1) if targets is None else targets.std()
    ordinary = bool(((spreads > SMALLEST["float32"]) & (spreads < LARGEST_TARGET["float32"])).all())
    return ["float32", job.dtype] if ordinary and _wide(data.kernel, data) else [job.dtype]


def _insufficient(selector: Selector, dtype: str) -> bool:
    """Return whether another precision would give a longer path, or its weights show rounding even in `dtype`."""
    factors = selector.factors
    if selector.reason in SHORT or not all(np.isfinite(part).all() for part in (factors.u, factors.s, factors.z)):
        return selector.reason is not StopReason.TIME_LIMIT
    weights = kernel_weights(factors.u, factors.s, factors.z, factors.lambda_)
    deviations = np.sqrt(factors.target_norms / factors.weight_sum)
    return sensitive(factors.u, factors.s, weights, deviations, dtype)


def _wide(kernel: Kernel, data: DataSummary) -> bool:
    """Return whether a kernel hardly changes over the rounding of distances in float32."""
    if isinstance(kernel, (Gaussian, Gaussians)):
        width = float(np.min(kernel.sigma))
    elif isinstance(kernel, Radial):
        width = kernel.width
    else:
        return False
    spread = data.scaling.spread(data.loaded.features)
    if isinstance(data.scaling, DirectionScaling):
        spread = spread * np.linalg.norm(data.scaling.directions, axis=0)
    return width >= NARROWEST * float(np.linalg.norm(spread))


def begin_of(
    job: TrainingJob,
    data: DataSummary,
    posed: Sequence[Posed],
    selected: SelectedRows | None = None,
    dtype: str | None = None,
) -> Begin:
    """Return the message that starts problems of common widths with the settings of a job, on the rows of a sample.

    `dtype` is that of K, Q and E, by default the job's.
    """
    settings = posed[0].settings
    return Begin(
        scaling=data.scaling,
        dtype=job.dtype,
        epsilon=job.epsilon,
        classes=data.encoding.classes,
        problems=tuple(p.problem for p in posed),
        columns=1 + max(p.settings.max_centers for p in posed),
        pool=settings.pool,
        panel=settings.panel,
        batch=settings.batch,
        intercept=job.intercept,
        judged=job.criterion == "loo-error",
        weight_scale=data.weight_scale,
        selected=selected,
        selection_dtype=None if dtype == job.dtype else dtype,
    )


def make_selectors(posed: Sequence[Posed], n_held: int, whole: Sequence[Posed] | None = None) -> list[Selector]:
    """Return the state machine of every problem.

    Parameters
    ----------
    posed : sequence of Posed
        The problems.
    n_held : int
        Number of held-out rows.
    whole : sequence of Posed, optional
        The same problems over all rows, where these are of a sample and their paths are fitted to all rows.
    """
    machines: dict[str, type[Selector]] = {"residual": LookaheadSelector, "loo-error": LooSelector}
    return [
        machines.get(p.settings.criterion, PoolSelector)(
            p.settings, i, p.problem.weight_sum, n_held, None if whole is None else whole[i].problem.weight_sum
        )
        for i, p in enumerate(posed)
    ]


def run_steps(
    selectors: list[Selector],
    executor: Executor,
    events: EventBus,
    clock: Callable[[], float],
    limit: TimeLimit,
    after: WorkAfter = NOTHING,
) -> tuple[int, int]:
    """Step all problems in lockstep until each has ended or the time limit ends them; return kernel columns and rounds.

    An event of a round is emitted when more centres are accepted than at the last one, and no panel is open.
    """
    kernel_columns = reported = 0
    while True:
        steps = tuple(_side_by_side(next_step, selectors))
        if all(step is None for step in steps):
            break
        kernel_columns += sum(len(s.columns.rows) for s in steps if s is not None and s.columns is not None)
        answer = executor.exchange(Step(steps))
        answered = [
            (selector, part)
            for selector, step, part in zip(selectors, steps, answer.problems, strict=True)
            if step is not None
        ]
        for _ in _side_by_side(receive, answered):
            pass
        if not events.muted:  # answers from the record of an earlier process take no time
            end_in_time(selectors, limit, after)
        accepted = sum(selector.n_centers for selector in selectors)
        if accepted > reported and not any(s.mid_round for s in selectors if s.reason is None):
            reported = accepted
            events.emit(_round_event(selectors, clock()))
    return kernel_columns, max(selector.round for selector in selectors)


def end_in_time(selectors: Sequence[Selector], limit: TimeLimit, after: WorkAfter = NOTHING) -> None:
    """End all paths if the time limit requires it."""
    running = [selector for selector in selectors if selector.reason is None]
    # A path needs a centre: without one there is no model.
    if running and all(s.n_centers for s in running) and limit.ends(after, [s.n_centers for s in selectors]):
        for selector in running:
            selector.reason = StopReason.TIME_LIMIT


def _side_by_side(function: Callable[[Any], R], items: Sequence[Any]) -> Iterator[R]:
    """Apply a function to selectors, which share no state; several of them run on the tile pool."""
    return map(function, items) if len(items) == 1 else map_tiles(function, items)


@overflow_ignored
def next_step(selector: Selector) -> ProblemStep | LookaheadStep | None:
    """Return the next step of a problem, None where its path has ended."""
    return selector.next_step()


@overflow_ignored
def receive(item: tuple[Selector, ProblemAnswer]) -> None:
    """Pass a problem the answer to its last step."""
    item[0].receive(item[1])


def _round_event(selectors: list[Selector], seconds: float) -> RoundDone:
    validation = [s.validation for s in selectors if s.validation is not None]
    started = [s for s in selectors if s.n_centers]
    return RoundDone(
        round=max(int(s.history[-1][5]) for s in started),
        n_centers=max(s.n_centers for s in selectors),
        lambda_=max(float(s.factors.lambda_.max()) for s in selectors),
        gcv=float(np.mean([s.gcv for s in started])),
        residual_max=max(s.residual_max for s in selectors),
        seconds=seconds,
        validation=float(np.mean(validation)) if validation else None,
    )

"""Width and regularisation of a training on few rows, chosen in the driver by the evidence of all of them.

With a few hundred rows every row can be a centre: the evidence of that model compares widths without rows held out,
and gives the regularisation too. All rows are collected in one pass, as the sample of a metric is, and the kernel
matrices are decomposed in the driver's process, so the result does not depend on workers. The training that follows
selects centres with this width, until the fit with this regularisation is nearly that of all rows as centres. With
``kernel="auto"`` or ``metric="auto"`` the same evidence also decides between the kernels, and between the standardised
features and the map of the rounds: a quarter of few rows, held out, cannot. Covers the choice, its plan and its record
in a run directory; the mathematics are in `distkern.selection.evidence`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np

from distkern.kernels import make_kernel
from distkern.kernels.standard import WITH_SIGMA
from distkern.monitoring.events import EventBus
from distkern.numerics.learnt_metric import LinearMap
from distkern.numerics.moments import weighted_median_distance
from distkern.selection.evidence import DistinctRows, Setting, best_setting, evidence_bytes, tried_settings
from distkern.selection.rkhs_refit import norm_fit_bytes
from distkern.storage import RunDirectory
from distkern.storage.arrays.source import BlockSource

from ..planning.limits import WorkerFacts
from ..planning.workload import Workload
from ..rows.data_checks import distance_norm
from ..runtime.threads import available_cores, map_tiles, single_threaded_blas
from ..search.search_record import driving
from ..training.driver_loop import TrainingJob
from ..training.run_identity import hash_of, identity_of, journal_note
from .driver_room import DriverRoom
from .learning import FAMILIES, LearntMetric
from .sample import MetricSample, draw_sample

FEW_ROWS = 600
"""Most rows at which the width is chosen by the evidence: a kernel matrix of all rows takes a fraction of a second."""

FEW_ROWS_FEATURES = 2000
"""Most features of such rows: they are dense in the driver, in several copies."""

COARSE = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0)
"""Tried widths, in multiples of the median distance."""

FINE = (2.0**-0.5, 2.0**0.5)
"""Multiples of the best of them that are tried after that."""

STRONG = 3.0
"""Log evidence by which another kernel, or a map, must exceed that of the first one: strong evidence by the scale of
Kass and Raftery (1995)."""


@dataclass(frozen=True)
class Space:
    """A kernel, and the map of the standardised features that it sees."""

    kernel: str
    """Name of the kernel."""
    map: LinearMap | None = None
    """The map; none by default."""

    def charge(self, n_rows: int) -> float:
        """Return the log evidence that the map must bring: half the logarithm of the rows for each of its numbers."""
        if self.map is None:
            return 0.0
        k = self.map.width
        numbers = k if self.map.diagonal else k * self.map.factors.shape[1] - k * (k - 1) // 2
        return 0.5 * numbers * float(np.log(n_rows))


def spaces_of(job: TrainingJob, learnt: LearntMetric | None = None) -> tuple[Space, ...]:
    """Return what the evidence decides between, the simplest first.

    Parameters
    ----------
    job : TrainingJob
        Settings before the rounds; its kernel may be "auto".
    learnt : LearntMetric, optional
        Result of the rounds; none by default.
    """
    assert isinstance(job.kernel, str)
    plain = tuple(map(Space, FAMILIES)) if job.kernel == "auto" else (Space(job.kernel),)
    if learnt is None or learnt.map is None:
        return plain
    return (*plain, Space(learnt.kernel.name, learnt.map))


@dataclass(frozen=True)
class FewRowsChoice:
    """The settings that were chosen, or that there was nothing to choose by."""

    kernel: str
    """Name of the kernel."""
    mapped: bool
    """Whether the map of the rounds is kept."""
    sigma: float
    """Width; 0 where the evidence could not be computed, and the rounds or the median distance decide."""
    mu: float
    """Regularisation of the norm in the kernel's space."""
    factor: float
    """Width, in multiples of the median distance."""
    log_evidence: float
    """Logarithm of the evidence, without its constants."""
    share: float
    """Penalised squared error with all rows as centres, over the centred squares of the targets; a mean over them."""
    rows: int
    """Rows of positive weight."""
    bytes_read: int
    """Bytes that the pass read."""
    seconds: float
    """Time of the choice."""

    def applied(self, job: TrainingJob) -> TrainingJob:
        """Return the job of a training with this width, whose path is as long as it can be."""
        return replace(job, kernel=self.kernel, sigma=self.sigma, stop=None) if self.sigma else job

    def kept(self, learnt: LearntMetric) -> LearntMetric:
        """Return the result of the rounds without its map, where that is not kept."""
        if not self.sigma or self.mapped:
            return learnt
        return learnt.without_map(make_kernel(self.kernel, self.sigma))


def may_choose(job: TrainingJob, n_rows: int, n_features: int) -> bool:
    """Return whether a job leaves the choice to the evidence: few rows, and default settings of all that it decides.

    Parameters
    ----------
    job : TrainingJob
        Settings, with the width "median".
    n_rows : int
        Rows of any weight, so that a plan needs no read.
    n_features : int
        Features; wide rows, as sparse ones, keep the median distance.
    """
    return (
        n_rows <= FEW_ROWS
        and n_features <= FEW_ROWS_FEATURES
        and isinstance(job.kernel, str)
        and (job.kernel in WITH_SIGMA or job.kernel == "auto")
        and job.sigma == "median"
        and job.scaling is None
        and job.multiclass == "shared"
        and job.criterion == "error-reduction"
        and job.regularization == job.stop == "gcv"
        and job.patience is None
        and job.tol is None
        and job.epsilon == 0.0
        and job.refit is None
        and job.loss is None
        and job.intercept
        and job.dtype == "float64"
        and not job.resolved(n_rows).draws_centers
        and not job.sampled_rows(n_rows)
    )


def choose(
    job: TrainingJob, source: BlockSource, client: Any = None, learnt: LearntMetric | None = None
) -> FewRowsChoice:
    """Choose width and regularisation of a job, and its kernel and map where the rounds leave them open.

    Parameters
    ----------
    job : TrainingJob
        Settings, for which `may_choose` is true.
    source : BlockSource
        Training rows.
    client : distributed.Client, optional
        Cluster whose workers read the rows; this process by default.
    learnt : LearntMetric, optional
        Result of the rounds; none by default.

    Raises
    ------
    DataError
        The rows cannot be trained on.
    """
    started = perf_counter()
    spaces = spaces_of(job, learnt)
    # Incidents of reading are reported by the training, which reads the same rows.
    sample = draw_sample(replace(job, kernel=spaces[0].kernel), source, source.n_rows, 0.0, client, EventBus())
    n = len(sample.features)
    with single_threaded_blas():
        found = [(space, *_best(space, sample)) for space in spaces]
    costs: dict[str, Any] = {"rows": n, "bytes_read": sample.bytes_read, "seconds": perf_counter() - started}
    usable = [(space, median, setting) for space, median, setting in found if setting is not None]
    if not usable:
        return FewRowsChoice(spaces[0].kernel, False, 0.0, 0.0, 1.0, 0.0, 0.0, **costs)

    def net(entry: tuple[Space, float, Setting]) -> float:
        # The first one is the simplest, and wins unless the evidence against it is strong.
        return entry[2].evidence - entry[0].charge(n) - (0.0 if entry is usable[0] else STRONG)

    space, median, best = max(usable, key=net)
    return FewRowsChoice(
        kernel=space.kernel,
        mapped=space.map is not None,
        sigma=best.factor * median,
        mu=best.mu,
        factor=best.factor,
        log_evidence=best.evidence,
        share=best.share,
        **costs,
    )


def _best(space: Space, sample: MetricSample) -> tuple[float, Setting | None]:
    """Return the median distance in a space and the best setting there; None where there is none."""
    features = sample.features if space.map is None else space.map.apply(sample.features)
    weights = None if sample.weights is None else sample.weights * sample.weight_scale
    median = weighted_median_distance(features, sample.weights, distance_norm(make_kernel(space.kernel, 1.0)))
    rows = DistinctRows.of(features, sample.targets, weights)
    if not median > 0.0 or rows is None:
        return median, None
    tried = _tried(space.kernel, rows, median, COARSE)
    if not tried:
        return median, None
    tried += _tried(space.kernel, rows, median, [best_setting(tried).factor * step for step in FINE])
    return median, best_setting(tried)


def _tried(name: str, rows: DistinctRows, median: float, factors: Sequence[float]) -> list[Setting]:
    """Return the settings of some widths, in their order, for any number of threads."""

    def of(factor: float) -> list[Setting]:
        kernel = make_kernel(name, factor * median)
        gram = np.array(kernel.block(rows.features, rows.features.copy()), dtype=np.float64)
        return tried_settings(gram, rows, factor)

    return [setting for settings in map_tiles(of, factors) for setting in settings]


def choose_once(
    run: RunDirectory | None,
    job: TrainingJob,
    source: BlockSource,
    client: Any = None,
    learnt: LearntMetric | None = None,
) -> FewRowsChoice:
    """Return the same choice from a run directory, or choose and write it there; arguments as for `choose`."""
    if run is None:
        return choose(job, source, client, learnt)
    facts = identity_of(job, source)
    name = hash_of(facts if learnt is None else [facts, identity_of(learnt.applied(job), source)])
    kept = run.search
    found = None if kept is None or kept.get("of") != name else _restored(kept.get("few_rows"))
    if found is None:
        with driving(run, journal_note(job)):
            found = choose(job, source, client, learnt)
        run.write_search({"of": name, "few_rows": asdict(found)})
    return found


def _restored(kept: Any) -> FewRowsChoice | None:
    try:
        found = FewRowsChoice(**kept)
        numbers = np.array([float(value) for name, value in asdict(found).items() if name != "kernel"])
    except (TypeError, ValueError):
        return None
    usable = found.kernel in WITH_SIGMA and np.isfinite(numbers).all() and min(found.sigma, found.mu, found.factor) >= 0
    return found if usable else None


class FewRowsRoom(DriverRoom):
    """Memory and reads of the choice, and of the factors that follow the training.

    Parameters
    ----------
    job : TrainingJob
        Settings.
    work, facts, memory_limit
        As for `DriverRoom`.
    """

    advice = "use sigma='median'"

    def __init__(
        self, job: TrainingJob, work: Workload, facts: WorkerFacts | None, memory_limit: int | None = None
    ) -> None:
        super().__init__(work, facts, memory_limit)
        self._job = job

    @property
    def terms(self) -> dict[str, int]:
        """Bytes in the driver's process beside its baseline, by buffer."""
        work, n = self._work, self._work.n_rows
        m, threads = min(self._job.max_centers, n), min(available_cores(), len(COARSE))
        matrices = max(threads * evidence_bytes(n, work.n_targets), norm_fit_bytes(m, work.n_targets))
        return {
            # The last of the features are the mapped ones.
            "evidence_rows": n * (2 * work.row_bytes + 4 * 8 * work.n_features + 8 * (3 * work.n_targets + 4)),
            "evidence_matrices": matrices,
        }

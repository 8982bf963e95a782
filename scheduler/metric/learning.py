"""Choice of a metric and a kernel by rounds on a sample of the rows.

A chain is a kernel and a shape of the map. All chains begin with the standardised rows; each round takes the outer
products of the last one. The round with the lowest error on the rows held out is kept, which may be one with the
standardised rows. Covers the order of the rounds; one round is in `rounds`, the record on disk in `metric_record`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array
from distkern.errors import DataError
from distkern.kernels import Kernel
from distkern.monitoring.events import EventBus, MetricRoundDone, Subscriber
from distkern.numerics.learnt_metric import LinearMap
from distkern.numerics.scaling import FeatureScaling
from distkern.storage.arrays.source import BlockSource

from ..runtime.threads import single_threaded_blas
from ..training.driver_loop import TrainingJob
from ..training.time_limit import TimeLimit
from .chains import LEAST_GAIN, Chain, Made, error_of, hopeful, rough, turned
from .metric_job import DIAGONAL, FULL, MetricJob
from .rounds import Round, run_round
from .sample import MetricSample, draw_sample

FAMILIES: dict[str, tuple[float, ...]] = {
    "gaussian": (0.6, 0.35, 1.0),
    "laplacian": (2.0,),
    "laplacian-l1": (0.5,),
}
"""Kernels of ``kernel="auto"``, with the multiples of the median distance that are tried as width."""

ISOTROPIC, ARCSINH = "isotropic", "arcsinh"
"""Names of rounds without a map: of the standardised features, and of those after arcsinh of some columns."""

L1 = "laplacian-l1"
"""Name of the kernel that is a product over the features."""

WIDTH_STEPS = (1.4, 0.7)
"""Factors by which the width of the best round is changed at the end."""

FIRST_ROUNDS = 2
"""Rounds after which the better chain of a kernel goes on alone, unless the kernel is the best one."""

MORE_ROUNDS = 2
"""Most rounds of another kernel that begins with the best map."""

FINALISTS = 2
"""Rounds that are repeated with more centres, each of another kernel or shape of the map; beside them the best one with
factors where these have matrices, and the best one of another kernel where these have the same."""

FINAL_ROUNDS = 2
"""Most rounds after the best repeated one, with as many centres."""

NEAR_LOWEST = 1.06
"""A round is repeated if its error is at most this times the lowest."""

MORE_CENTERS = 1.5
"""Rounds are repeated only where the centres are at least this times more."""

NEAR_LEADER = 1.05
"""A chain of the second best kernel has all its rounds, too, if its error is at most this times the lowest; other
kernels get the best map."""

ARCSINH_ROWS = 1_000
"""Least rows of a sample at which columns are mapped by arcsinh: quantiles of fewer say little about tails."""

LEAST_FITTED = 3
"""Least rows that train a model of a round."""

MUCH_LOWER = 0.5
"""Kernels that were hopeless without a map get the best one, too, where it lowers the error to this share or less: the
order of the kernels in the standardised space says little about that in the space of such a map."""

SHARE_OF_TIME = 0.5
"""Share of a time limit after which no further round begins."""


@dataclass(frozen=True)
class LearntMetric:
    """Result of the rounds."""

    map: LinearMap | None
    """Map of the standardised features; None for the standardised features themselves."""
    standardized: FeatureScaling
    """From raw to standardised features, some of them after arcsinh."""
    kernel: Kernel
    """Kernel with its width."""
    importances: Array
    """(d,): share of each standardised feature in the mean squared gradient, by `MetricSample.variances`."""
    rounds: list[dict[str, Any]]
    """Kernel, shape, round, width factor and error of each round, and whether it is kept."""
    bytes_read: int
    """Bytes that the draw of the sample read."""
    seconds: float

    @property
    def scaling(self) -> FeatureScaling:
        """The map from raw features to kernel space."""
        return self.standardized if self.map is None else self.map.onto(self.standardized)

    def applied(self, job: TrainingJob, *, with_width: bool = True) -> TrainingJob:
        """Return a job that trains in this space, with the width of the rounds unless a search follows."""
        if not with_width:
            return replace(job, scaling=self.scaling)
        return replace(job, scaling=self.scaling, kernel=self.kernel, sigma=1.0)

    def without_map(self, kernel: Kernel) -> LearntMetric:
        """Return the result with the standardised features and a kernel that was chosen after the rounds."""
        own = [row for row in self.rounds if row["round"] == 0 and row["kernel"] == kernel.name]
        best = min(own, key=lambda row: row["error"], default=None)
        return replace(self, map=None, kernel=kernel, rounds=[{**row, "kept": row is best} for row in self.rounds])


class Rounds:
    """Makes the rounds of one sample, in a fixed order, as long as there is time.

    Parameters
    ----------
    search : MetricJob
        Settings.
    sample : MetricSample
        Rows.
    n_rows : int
        Rows of the training.
    note : callable
        Gets a record of every round.
    in_time : callable
        Returns whether another round may begin.

    Attributes
    ----------
    made : list of Made
        Every round, in order.
    """

    def __init__(
        self,
        search: MetricJob,
        sample: MetricSample,
        n_rows: int,
        note: Callable[[dict[str, Any]], None],
        in_time: Callable[[], bool],
    ) -> None:
        self._search, self._whole, self._note, self._in_time = search, sample, note, in_time
        self._sample = sample.fewer(search.sample_rows(n_rows)[0])
        self._final_centers, _ = search.final(n_rows)
        # A map of few directions needs few centres, and a model with more of them has a misleading error.
        self._job = replace(search.job, max_centers=search.centers(n_rows), stop="gcv", patience=None)
        self._auto = search.job.kernel == "auto"
        self._factors: dict[str, float] = {}
        self._hopeless: set[str] = set()
        self.made: list[Made] = []

    @property
    def scaling(self) -> FeatureScaling:
        """From raw features to those of the maps: standardised, some after arcsinh."""
        return self._whole.scaling

    @property
    def _comparable(self) -> list[Made]:
        """The rounds with the same features before the map."""
        return [found for found in self.made if found[1].sample.scaling is self.scaling]

    def best(self) -> Round:
        """Make the rounds and return the simplest one that is as good as the best."""
        chains = [self._begun(name) for name in self._families]
        if self._search.shapes:
            chains = self._with_arcsinh(chains)
            chains += self._learn_maps(chains)
        winner = min(chains, key=error_of)
        if self._auto:
            winner = self._other_kernels(winner)
            self._tune_width(winner)
        updates, chain, best = self._simplest(self._with_more_centers() or self._comparable)
        rank = self._search.rank
        # The standardised features have no longest directions.
        if rank is not None and best.map.changes and rank < best.map.width:
            best = self._make(chain, best.map.leading(rank), updates)
        return best

    def _with_more_centers(self) -> list[Made]:
        """Repeat the best rounds with more centres and go on from the better; none where there are no rows for more.

        Kernels and maps that are best with few centres need not be best with many, and a better model has better
        gradients.
        """
        best: dict[tuple[Any, ...], Made] = {}
        for found in self._comparable:
            kind = found[1].kernel, found[0] > 0, found[2].map.diagonal
            if kind not in best or found[2].error < best[kind][2].error:
                best[kind] = found
        ordered = sorted(best.values(), key=lambda found: found[2].error)
        near = [found for found in ordered if found[2].error <= NEAR_LOWEST * ordered[0][2].error]
        chosen, others = near[:FINALISTS], near[FINALISTS:]
        if not any(made.map.diagonal for *_, made in chosen):
            chosen += [found for found in others if found[2].map.diagonal][:1]
        if len({chain.kernel for _, chain, _ in chosen}) == 1:
            chosen += [found for found in others if found[1].kernel != chosen[0][1].kernel][:1]
        n_centers, before = self._final_centers, len(self.made)
        if n_centers < MORE_CENTERS * self._job.max_centers or not self._in_time():
            return []
        repeated = []
        for updates, chain, made in chosen:
            job = replace(chain.job, max_centers=n_centers)
            again = replace(chain, job=job, sample=self._whole, done=[], start=updates)
            again.done.append(self._make(again, made.map, updates))
            repeated.append(again)
        # The further rounds would hide that the Gaussian is not clearly better with the same updates.
        again_made = self.made[before:]
        leading = min(rough(again_made) if self._auto else again_made, key=lambda made: made[2].error)[2]
        winner = next(chain for chain in repeated if chain.best is leading)
        if winner.start:
            for _ in range(min(FINAL_ROUNDS, self._search.rounds - winner.start)):
                # These rounds take the most time: none follows one that is not better.
                if winner.best is winner.done[-1]:
                    self._extend(winner, len(winner.done))
        return self.made[before:]

    def _simplest(self, among: Sequence[Made]) -> Made:
        """Return the simplest round whose error is not clearly above the lowest.

        No map is simpler than factors, and factors are simpler than a matrix; then fewer updates are simpler.
        The lowest of many errors is below its expectation, and most so where the rounds differ by noise alone.
        """
        if self._auto:
            among = rough(among)
        lowest = min((made for *_, made in among), key=lambda made: made.error)
        as_good = [found for found in among if found[2].as_good_as(lowest)]
        return min(as_good, key=lambda found: (found[0] > 0, not found[2].map.diagonal, found[0], found[2].error))

    @property
    def _families(self) -> Mapping[str, tuple[float, ...]]:
        kernel = self._job.kernel
        return FAMILIES if self._auto else {kernel.name if isinstance(kernel, Kernel) else kernel: (1.0,)}

    def _begun(self, name: str) -> Chain:
        """Return the chain of a kernel after its first round, with the best of its widths."""
        job = replace(self._job, kernel=name) if self._auto else self._job
        space = LinearMap.identity(self._sample.features.shape[1], diagonal=True)
        tried: list[Chain] = []
        for factor in self._families[name]:
            chain = Chain(job, name, DIAGONAL, factor, self._sample, [])
            # The centres of one width serve the others.
            chain.done.append(self._make(chain, space, 0, tried[0].best.centers if tried else None))
            tried.append(chain)
        start = min(tried, key=error_of)
        self._factors[name] = start.factor
        return start

    def _with_arcsinh(self, chains: list[Chain]) -> list[Chain]:
        """Return the first rounds with arcsinh of some columns where that lowers the error of the best kernel."""
        mapped = self._whole.with_arcsinh() if len(self._whole.features) >= ARCSINH_ROWS else None
        if mapped is None or not self._in_time():
            return chains
        before = self._sample
        leader = min(chains, key=error_of)
        self._sample = mapped.fewer(int(np.count_nonzero(~before.held)))
        first = self._again(leader)
        if first.best.error > (1 - LEAST_GAIN) * leader.best.error:
            self._sample = before
            return chains
        self._whole = mapped
        return [first if chain is leader else self._again(chain) for chain in hopeful(chains)]

    def _again(self, chain: Chain) -> Chain:
        """Return a chain with the first round of another one, on the present sample."""
        again = replace(chain, sample=self._sample, done=[])
        again.done.append(self._make(again, LinearMap.identity(self._sample.features.shape[1], diagonal=True), 0))
        return again

    def _learn_maps(self, chains: list[Chain]) -> list[Chain]:
        """Make a few rounds of all kernels, then all of the best ones; return the chains of matrices.

        With many features that do not matter, the outer products of a first fit have more noise in d x d numbers than
        a few rounds of factors leave. So matrices begin with the best factors where factors are better at first.
        """
        rounds, begun, matrices = self._search.rounds, hopeful(chains), list[Chain]()
        if FULL in self._search.shapes and rounds:
            # Functions of the l1 kernel have steps along single features.
            turning = [chain for chain in begun if not (self._auto and chain.kernel == L1)]
            matrices = [turned(min(turning, key=error_of))] if turning else []
        begun += matrices
        for number in range(1, min(FIRST_ROUNDS, rounds) + 1):
            begun = hopeful(begun)
            for chain in begun:
                self._extend(chain, number)
        of_kernels = [
            min(own, key=error_of) for name in self._families if (own := [c for c in begun if c.kernel == name])
        ]
        of_kernels = hopeful(of_kernels)
        self._hopeless = self._factors.keys() - {chain.kernel for chain in of_kernels}
        of_kernels.sort(key=error_of)
        limit = NEAR_LEADER * error_of(of_kernels[0])
        for leader in [chain for chain in of_kernels[:2] if error_of(chain) <= limit]:
            self._extend(leader, rounds)
            if leader.shape == DIAGONAL and any(chain.kernel == leader.kernel for chain in matrices):
                full = turned(leader)
                self._extend(full, rounds)
                matrices.append(full)
        return matrices

    def _extend(self, chain: Chain, rounds: int) -> None:
        while len(chain.done) <= rounds and not chain.ended and self._in_time():
            last = chain.done[-1]
            updates = chain.start + len(chain.done)
            chain.done.append(self._make(chain, last.map.updated(last.outer), updates, chain.given))

    def _other_kernels(self, winner: Chain) -> Chain:
        """Try the other kernels with the best map; return the best chain, extended from there if its kernel is new."""
        if not winner.best.map.changes:
            return winner
        tried = [winner]
        without = min(made.error for updates, _, made in self._comparable if not updates)
        skipped = self._hopeless if winner.best.error > MUCH_LOWER * without else set[str]()
        for name, factor in self._factors.items():
            if name != winner.kernel and name not in skipped:
                start = winner.start + winner.done.index(winner.best)
                other = replace(
                    winner, job=replace(self._job, kernel=name), kernel=name, factor=factor, done=[], start=start
                )
                other.done.append(self._make(other, winner.best.map, start))
                tried.append(other)
        best = min(tried, key=lambda chain: chain.best.error)
        if best is not winner:
            self._extend(best, MORE_ROUNDS)
        return best

    def _tune_width(self, chain: Chain) -> None:
        """Change the width step by step, as long as the error falls."""
        updates, first = chain.start + chain.done.index(chain.best), chain.best
        for step in WIDTH_STEPS:
            if chain.best is not first:
                # Smaller widths were tried on the way.
                break
            while self._in_time():
                before = chain.best
                chain.factor *= step
                chain.done.append(self._make(chain, before.map, updates))
                if chain.best is before:
                    chain.factor /= step
                if chain.best.error > (1 - LEAST_GAIN) * before.error:
                    break

    def _make(self, chain: Chain, space: LinearMap, updates: int, centers: NDArray[np.int64] | None = None) -> Round:
        """Make a round with a map that has been updated a number of times, and given centres or its own."""
        products = FULL in self._search.shapes
        made = run_round(chain.sample, chain.job, space, chain.factor, with_products=products, centers=centers)
        self.made.append((updates, replace(chain, done=[]), made))
        self._note(
            {
                "kernel": chain.kernel,
                "shape": chain.shape if updates else ISOTROPIC if chain.sample.scaling.arcsinh is None else ARCSINH,
                "round": updates,
                "factor": chain.factor,
                "error": made.error,
            }
        )
        return made


def learn_metric(
    search: MetricJob,
    source: BlockSource,
    *,
    client: Any = None,
    subscribers: Iterable[Subscriber] = (),
    limit: TimeLimit | None = None,
) -> LearntMetric:
    """Run the rounds.

    Parameters
    ----------
    search : MetricJob
        Settings.
    source : BlockSource
        Training rows.
    client : distributed.Client, optional
        Cluster whose workers read the rows; this process by default.
    subscribers : iterable of callable
        Receive an event for each round.
    limit : TimeLimit, optional
        Time limit; none by default.

    Raises
    ------
    DataError
        The rows cannot be trained on, or are too few for a part that is held out.
    """
    started, limit, events = perf_counter(), limit or TimeLimit(), EventBus(subscribers)
    held, (_, fitted) = search.sample_rows(source.n_rows)[1], search.final(source.n_rows)
    stationary = search.job.kernel if isinstance(search.job.kernel, Kernel) else "gaussian"
    sample = draw_sample(
        replace(search.job, kernel=stationary), source, fitted + held, held / (fitted + held), client, events
    )
    n_held = np.count_nonzero(sample.held)
    if not n_held or len(sample.held) - n_held < LEAST_FITTED:
        raise DataError(
            f"{len(sample.held)} rows of positive weight: the rounds of a metric train on {LEAST_FITTED} or more, "
            "and others score them: give more rows, or train with metric='isotropic' and a kernel other than 'auto'",
            kind="too-few-rows",
        )
    table: list[dict[str, Any]] = []

    def note(row: dict[str, Any]) -> None:
        table.append(row)
        events.emit(MetricRoundDone(**row, rounds=len(table)))

    def in_time() -> bool:
        return limit.seconds is None or limit.elapsed < SHARE_OF_TIME * limit.seconds

    with single_threaded_blas():
        rounds = Rounds(search, sample, source.n_rows, note, in_time)
        best = rounds.best()
    for row, (*_, made) in zip(table, rounds.made, strict=True):
        row["kept"] = made is best
    return LearntMetric(
        map=best.map.simplest if best.map.changes else None,
        standardized=rounds.scaling,
        kernel=best.kernel,
        importances=best.map.importances(best.outer, sample.variances),
        rounds=table,
        bytes_read=sample.bytes_read,
        seconds=perf_counter() - started,
    )

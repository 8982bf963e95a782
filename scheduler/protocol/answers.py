"""Answers of blocks to messages, and their merge.

Every merge here is associative up to rounding; the fixed tree of `..runtime.tree_reducer` makes the rounding the same
every time. Covers no computation of answers, see `..blocks`, and no bytes, see `answer_codec`. Records of version 0.1
hold the names of these classes and fields, so they must not change.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array, Rows
from distkern.numerics.moments import Moments
from distkern.numerics.row_draws import Shortlist
from distkern.storage import ReadReport

from ..runtime.timings import Costs
from .selected_rows import SelectedRows

OPTIONAL = ("validation",)
"""Sums that only blocks with held-out rows have."""

STATISTICS = -1
"""Number of the statistics of the rows where the parts of an answer are counted, beside those of its problems."""


@dataclass
class Drawn:
    """The best rows so far as candidates, with their raw features where the block has them."""

    top: Shortlist
    """Rows with the largest residual."""
    race: Shortlist
    """Rows of a weighted draw without replacement."""
    rows: Rows
    """(n,): ascending, the rows of both shortlists."""
    features: NDArray[Any] | None
    """(n, d): raw features of `rows`."""
    sizes: tuple[int, int]
    """Most rows of either shortlist, in the order of the fields."""
    largest: float
    """Largest absolute residual of any row, drawn or not."""

    def merge(self, other: Drawn) -> Drawn:
        """Merge the draws of disjoint sets of rows."""
        top, weighted = self.top.merge(other.top, self.sizes[0]), self.race.merge(other.race, self.sizes[1])
        named = np.union1d(top.rows, weighted.rows)
        where = _positions(np.concatenate([self.rows, other.rows]), named)
        features = None
        if self.features is not None and other.features is not None:
            features = np.concatenate([self.features, other.features])[where]
        return Drawn(top, weighted, named, features, self.sizes, max(self.largest, other.largest))


@dataclass
class Sample:
    """Rows drawn uniformly by weight, with their raw features and weights."""

    shortlist: Shortlist
    features: NDArray[Any]
    """(n, d): in the order of the shortlist."""
    weights: Array
    """(n,): in the order of the shortlist."""
    size: int

    def merge(self, other: Sample) -> Sample:
        """Merge the samples of disjoint sets of rows."""
        merged = self.shortlist.merge(other.shortlist, self.size)
        where = _positions(np.concatenate([self.shortlist.rows, other.shortlist.rows]), merged.rows)
        return Sample(
            merged,
            np.concatenate([self.features, other.features])[where],
            np.concatenate([self.weights, other.weights])[where],
            self.size,
        )


@dataclass
class Labels:
    """Labels of the rows and the row weight of each."""

    values: NDArray[Any]
    """Sorted distinct labels."""
    weights: Array
    """Weight sums, aligned with `values`."""

    @classmethod
    def of(cls, labels: NDArray[Any], weights: Array | None) -> Labels:
        """Count the labels of the rows with a positive weight."""
        if weights is None:
            return cls.count(labels, np.ones(len(labels)))
        present = weights > 0
        return cls.count(labels[present], weights[present].astype(np.float64))

    @classmethod
    def count(cls, labels: NDArray[Any], weights: Array) -> Labels:
        """Count one block of labels, shape (n,)."""
        values, inverse = np.unique(labels, return_inverse=True)
        counts = np.bincount(inverse.ravel(), weights=weights, minlength=len(values))
        return cls(values, np.asarray(counts, dtype=np.float64))

    def merge(self, other: Labels) -> Labels:
        """Merge two counts."""
        values = np.union1d(self.values, other.values)
        weights = np.zeros(len(values))
        weights[np.searchsorted(values, self.values)] += self.weights
        weights[np.searchsorted(values, other.values)] += other.weights
        return Labels(values, weights)


@dataclass
class LoadAnswer:
    """Statistics of the rows of a block."""

    features: Moments
    """Moments of the raw features over the training rows."""
    targets: Moments | None
    """Moments of the target columns, for regression."""
    labels: Labels | None
    """Label counts, for classification."""
    sample: Sample | None
    """Rows drawn uniformly by weight."""
    n_fit: int
    """Number of training rows."""
    n_held: int
    """Number of held-out rows."""
    bytes_read: int
    """Bytes of the arrays that were read."""
    checksums: dict[int, int] = field(default_factory=dict)
    """Block number to the checksum of the arrays that were read (`rows_checksum`)."""
    all_rows: LoadAnswer | None = None
    """The same of all rows with a positive weight, where the other fields are of a selection sample."""
    folds: list[LoadAnswer] = field(default_factory=list)
    """The same of the training rows of every fold, for cross-validation."""
    weight_roots: float = 0.0
    """Sum of the square roots of the row weights of the training rows; 0 in records of version 0.1."""
    selected: SelectedRows | None = None
    """The rows of a selection sample; None without a sample, and in records of version 0.1."""

    def merge(self, other: LoadAnswer) -> LoadAnswer:
        """Merge the statistics of disjoint sets of rows."""
        return LoadAnswer(
            features=self.features.merge(other.features),
            targets=_merged(self.targets, other.targets),
            labels=_merged(self.labels, other.labels),
            sample=_merged(self.sample, other.sample),
            n_fit=self.n_fit + other.n_fit,
            n_held=self.n_held + other.n_held,
            bytes_read=self.bytes_read + other.bytes_read,
            checksums=self.checksums | other.checksums,
            all_rows=_merged(self.all_rows, other.all_rows),
            folds=[a.merge(b) for a, b in zip(self.folds, other.folds, strict=True)],
            weight_roots=self.weight_roots + other.weight_roots,
            selected=_merged(self.selected, other.selected),
        )

    def scaled(self, factor: float) -> LoadAnswer:
        """Return the statistics of the same rows with weights times `factor`; the sample keeps its own."""
        if factor == 1.0:
            return self
        return replace(
            self,
            features=self.features.scaled(factor),
            targets=None if self.targets is None else self.targets.scaled(factor),
            labels=None if self.labels is None else Labels(self.labels.values, self.labels.weights * factor),
            all_rows=None if self.all_rows is None else self.all_rows.scaled(factor),
            folds=[fold.scaled(factor) for fold in self.folds],
            weight_roots=self.weight_roots * factor**0.5,
        )


@dataclass
class Leaders:
    """The rows with the largest residuals after each of n tried steps.

    They include the leader of every step, and rows that may lead later.
    """

    largest: Array
    """(n,): largest residual of all rows, taken ones included."""
    rows: Rows
    """(k,): rows not yet taken by the path."""
    norms: Array
    """(k, n): their residual after each step; -1 from the step that takes the row."""
    features: NDArray[Any] | None
    """(k, d): their raw features, where the block has them."""
    floor: float
    """A row whose residual never reaches this is kept only if it leads."""
    most: int
    """Most rows that are kept without leading."""

    @classmethod
    def select(
        cls,
        largest: Array,
        rows: Rows,
        norms: Array,
        features: NDArray[Any] | None,
        floor: float,
        most: int,
    ) -> Leaders:
        """Keep the rows that lead or may lead; largest residual first, ties to the lowest row."""
        peaks = norms.max(axis=1, initial=-1.0)
        wanted = peaks >= floor
        if np.count_nonzero(wanted) > most:
            order = np.lexsort((rows, -peaks))
            wanted[:] = False
            wanted[order[:most]] = True
        if len(rows):
            # Rows ascend, so the first of several maxima is the lowest row.
            wanted[norms.argmax(axis=0)] = True
        kept = np.flatnonzero(wanted & (peaks >= 0.0))
        return cls(largest, rows[kept], norms[kept], None if features is None else features[kept], floor, most)

    def leader(self, step: int) -> int:
        """Return the row with the largest residual after a step, the lowest of several; -1 if every row is taken."""
        if not len(self.rows):
            return -1
        best = int(self.norms[:, step].argmax())
        return int(self.rows[best]) if self.norms[best, step] >= 0.0 else -1

    def merge(self, other: Leaders) -> Leaders:
        """Merge the leaders of disjoint sets of rows."""
        rows = np.concatenate([self.rows, other.rows])
        order = np.argsort(rows)
        features = None
        if self.features is not None and other.features is not None:
            features = np.concatenate([self.features, other.features])[order]
        return Leaders.select(
            np.maximum(self.largest, other.largest),
            rows[order],
            np.concatenate([self.norms, other.norms])[order],
            features,
            self.floor,
            self.most,
        )


@dataclass
class CandidateRows:
    """Values of E, K and Q at candidates' rows."""

    rows: Rows
    """(k,): global rows."""
    values: Array
    """(k, T + B + m + 1): E, the kernel columns of all slots, and Q."""

    def merge(self, other: CandidateRows) -> CandidateRows:
        """Merge the values of disjoint sets of rows."""
        if not len(other.rows):
            return self
        if not len(self.rows):
            return other
        return CandidateRows(np.concatenate([self.rows, other.rows]), np.concatenate([self.values, other.values]))


@dataclass
class ProblemAnswer:
    """Sums over rows for one problem, by name, and its draw."""

    sums: dict[str, Array] = field(default_factory=dict)
    """``cross`` (w, m + 1), ``gram`` (p, w), ``products`` (p, T), ``norms`` (n,), ``pool_gram`` (B, n),
    ``pool_products`` (n, T), ``target_norms`` (T,), ``validation`` (k,), ``misclassified`` (n,): those that a step
    needs. For `Accumulate` ``refit_gram``, packed, ``refit_products`` (m + 1, T) and ``target_norms``. For `Score`
    ``error`` (1,) and ``weight`` (1,), one answer for each model."""
    drawn: Drawn | None = None
    leaders: Leaders | None = None
    candidates: CandidateRows | None = None
    """Values at rows of candidates, or for `Compare` at a sample of the rows: (k, 2c + T + 1), predictions, fits by Q,
    centred targets and row weights."""
    blocks: int = field(default=0, compare=False, metadata={"recorded": False})
    """Number of blocks whose rows are in the sums; not recorded."""

    @property
    def has_sums(self) -> bool:
        """Whether there are sums over training rows."""
        return bool(self.sums.keys() - OPTIONAL)

    def merge(self, other: ProblemAnswer) -> ProblemAnswer:
        """Add the sums of `other` into this answer's arrays.

        Raises
        ------
        ValueError
            Sums of different shapes, or a sum that one answer with training rows has and the other has not.
        """
        if self.sums.keys() != other.sums.keys() and self.has_sums and other.has_sums:
            lone = (self.sums.keys() ^ other.sums.keys()) - set(OPTIONAL)
            if lone:
                raise ValueError(f"one has sums {sorted(lone)} and the other has none")
        self.blocks += other.blocks
        for name, value in other.sums.items():
            if name in self.sums:
                if self.sums[name].shape != value.shape:  # numpy would repeat the smaller one
                    raise ValueError(f"the sums {name} have shapes {self.sums[name].shape} and {value.shape}")
                self.sums[name] += value
            else:
                self.sums[name] = value
        self.drawn = _merged(self.drawn, other.drawn)
        self.leaders = _merged(self.leaders, other.leaders)
        self.candidates = _merged(self.candidates, other.candidates)
        return self


@dataclass
class Answer:
    """The answer to one message, over any set of blocks."""

    problems: list[ProblemAnswer] = field(default_factory=list)
    load: LoadAnswer | None = None
    columns: dict[int, list[NDArray[Any] | None]] = field(default_factory=dict)
    """Block number to kernel columns of each problem (`KernelColumns`)."""
    rows: dict[int, NDArray[Any]] = field(default_factory=dict)
    """Global row to raw features (`FetchRows`)."""
    bytes_read: int = 0
    """Bytes read from the source (`Accumulate`)."""
    report: ReadReport = field(default_factory=ReadReport)
    """Retries and absent chunks of the reads (`Load`, `Accumulate`)."""
    costs: Costs = field(default_factory=Costs, compare=False, metadata={"recorded": False})
    """Time and memory of the workers; not recorded."""

    def parts(self) -> set[int]:
        """Return the numbers of the problems with sums, and `STATISTICS` with statistics of rows."""
        found = {number for number, problem in enumerate(self.problems) if problem.has_sums}
        return found if self.load is None else {STATISTICS, *found}

    def copy(self) -> Answer:
        """Copy the parts that `merge` changes, with aligned, C-contiguous sums."""
        problems = [
            ProblemAnswer(
                {name: np.array(value, order="C") for name, value in p.sums.items()},
                p.drawn,
                p.leaders,
                p.candidates,
                p.blocks,
            )
            for p in self.problems
        ]
        return Answer(
            problems, self.load, dict(self.columns), dict(self.rows), self.bytes_read, self.report, self.costs
        )

    def merge(self, other: Answer) -> Answer:
        """Merge `other` into this answer and return it."""
        if not self.problems:
            self.problems = other.problems
        elif other.problems:
            self.problems = [a.merge(b) for a, b in zip(self.problems, other.problems, strict=True)]
        self.load = _merged(self.load, other.load)
        self.columns.update(other.columns)
        self.rows.update(other.rows)
        self.bytes_read += other.bytes_read
        self.report = self.report.merge(other.report)
        self.costs = self.costs.merge(other.costs)
        return self


def _merged(left: Any, right: Any) -> Any:
    """Merge what either side may lack."""
    return right if left is None else left if right is None else left.merge(right)


def _positions(rows: Rows, wanted: Rows) -> NDArray[np.intp]:
    """Return the position of every wanted row among rows in any order."""
    order = np.argsort(rows, kind="stable")
    return order[np.searchsorted(rows, wanted, sorter=order)]

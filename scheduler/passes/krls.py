"""Kernel recursive least squares in the driver: one pass over the rows, in waves of blocks.

Workers search the rows of a wave for those whose distance from the span of the dictionary may be too large. The
distance of a row only falls as the dictionary grows, so the other rows can never join. The driver adds the survivors in
the order of rows. Then the workers, which still hold the rows of the wave, sum over all of them, each row expanded in
the dictionary at its time, while the next wave is read and searched. The rows that join do not depend on waves, and the
sums of a block use the centres up to its own last row, so the bits of the model do not depend on workers. The recursion
itself is in `distkern.methods.krls`, the tasks are in `krls_tasks`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array
from distkern.errors import BudgetError, DataError, DistkernWarning
from distkern.kernels import Kernel, make_kernel
from distkern.methods.krls import Dictionary, ReducedSums, Snapshot, reduced_weights
from distkern.monitoring.events import EventBus
from distkern.numerics.scaling import FeatureScaling
from distkern.storage import ReadReport
from distkern.text import byte_size

from ..planning.plan import Plan, largest
from ..protocol.answers import Labels, LoadAnswer
from ..protocol.messages import Load
from ..rows.block_reading import require_unchanged
from ..rows.data_checks import (
    MEDIAN_SAMPLE,
    DataSummary,
    SpaceJob,
    check_statistics,
    distinct_labels,
    report_reads,
    weight_scale,
)
from ..rows.label_encoding import KnownLabels
from ..rows.numeric_ranges import feature_names, overflow, warn_about_scales
from ..runtime.threads import single_threaded_blas
from ..runtime.tree_reducer import TreeReducer
from .block_tasks import Handle
from .first_pass import Reads, Statistics
from .fit import Fit
from .krls_tasks import Survivors, count_labels, find_survivors, sum_rows


@dataclass(frozen=True, kw_only=True)
class KRLSJob(SpaceJob):
    """Everything that decides the model, apart from the data."""

    nu: float
    """Least delta of a row that joins the dictionary."""
    max_centers: int | None

    @property
    def needs_statistics(self) -> bool:
        """Whether the kernel's space is known only after a pass over all rows."""
        return self.standardize or self.samples


@dataclass(frozen=True)
class Recursion:
    """The state of the recursion after some rows; pickles of version 0.1 hold the names of its fields."""

    dictionary: Dictionary
    sums: ReducedSums
    classes: NDArray[Any] | None
    """Sorted labels; None for regression."""
    n_rows: int
    """Number of rows so far, including those of weight zero."""
    dtype: str
    """Precision of the kernel values."""

    @single_threaded_blas()
    def weights(self) -> Array:
        """Return the weights of k + 1, shape (m, T).

        Raises
        ------
        DataError
            ``overflow``.
        """
        if not (np.isfinite(self.sums.gram).all() and np.isfinite(self.sums.products).all()):
            raise overflow()
        solved = reduced_weights(self.dictionary.factor, self.sums)
        if not np.isfinite(solved).all():
            raise overflow()
        return solved


def train_krls(
    job: KRLSJob,
    fit: Fit,
    plan_for: Callable[[int], Plan],
    *,
    before: Recursion | None = None,
    classes: NDArray[Any] | None = None,
    checked: bool = True,
) -> Recursion:
    """Fit a recursion, or continue one.

    Parameters
    ----------
    job : KRLSJob
        The settings.
    fit : Fit
        Rows, which follow those of `before`; its plan is replaced by that of the final number of centres.
    plan_for : callable
        Returns the plan for a number of centres.
    before : Recursion, optional
        Recursion after earlier rows, which does not change; a new one by default.
    classes : array, optional
        Sorted labels, where they are known; by default those of the rows.
    checked : bool
        Whether to check the statistics of the rows (default).

    Returns
    -------
    Recursion

    Raises
    ------
    DataError
        The rows cannot be trained on.
    BudgetError
        ``memory``: the dictionary outgrows the limit.
    """
    recursion = _Training(job, fit, plan_for, before, checked).run(classes)
    fit.n_rows, fit.n_targets = recursion.n_rows, recursion.sums.products.shape[1]
    fit.n_centers = fit.kernel_columns = len(recursion.dictionary)
    fit.plan = plan_for(fit.n_centers)
    fit.passes = fit.plan.passes
    return recursion


class _Training:
    """One pass over the blocks of a source, and another one before it where the kernel's space needs it."""

    def __init__(
        self,
        job: KRLSJob,
        fit: Fit,
        plan_for: Callable[[int], Plan],
        before: Recursion | None,
        checked: bool,
    ) -> None:
        self._job = job
        self._fit = fit
        self._tasks = fit.tasks
        self._source = fit.tasks.source
        self._plan_for = plan_for
        self._before = before
        self._first_row = 0 if before is None else before.n_rows
        # Without a pass for statistics, they are computed during the search.
        self._load = Load(job.classification, 0, 0, 0.0) if checked and not job.needs_statistics else None
        self._loaded: LoadAnswer | None = None
        self._first = Reads()
        self._report = ReadReport()
        self._scaling: FeatureScaling | None = None
        self._kernel: Kernel | None = None
        self._dictionary: Dictionary | None = None

    def run(self, classes: NDArray[Any] | None) -> Recursion:
        job, before = self._job, self._before
        if before is not None:
            classes = before.classes
            self._dictionary = before.dictionary.copy(job.nu, self._most(len(before.dictionary)))
        elif job.needs_statistics:
            data = self._summarise(classes)
            classes, self._scaling, self._kernel = data.encoding.classes, data.scaling, data.kernel
            data.warn_about_scales(self._source)
        else:
            self._kernel = make_kernel(job.kernel, 1.0 if isinstance(job.sigma, str) else job.sigma)
            if job.classification and classes is None:
                classes = self._find_classes()
        if classes is not None and len(classes) < 2:
            only = np.asarray(classes).tolist()[0]
            raise DataError(
                f"the target holds one class only ({only!r}); a classifier needs at least two classes: give all "
                "of them to the first partial_fit (classes)",
                kind="one-class",
            )
        encoding = KnownLabels.of(self._source, classes)
        if before is not None and encoding.n_targets != before.sums.products.shape[1]:
            raise DataError(
                f"y has {encoding.n_targets} columns, but the model was begun with {before.sums.products.shape[1]}: "
                "give the same targets in every call",
                kind="shape-mismatch",
            )
        sums = self._waves(encoding)
        report_reads(self._report, self._source, EventBus())
        if before is not None:
            sums = before.sums.merge(sums)
        dictionary = self._checked_dictionary(sums)
        return Recursion(dictionary, sums, classes, self._first_row + self._source.n_rows, job.dtype)

    def _most(self, known: int) -> int:
        most = largest(lambda m: self._plan_for(m).fits, known + self._source.n_rows)
        return most if self._job.max_centers is None else max(known, min(self._job.max_centers, most))

    def _summarise(self, classes: NDArray[Any] | None) -> DataSummary:
        """Read all rows once for their statistics."""
        load = Load(self._job.classification, MEDIAN_SAMPLE if self._job.samples else 0, 0, 0.0)
        found = self._tasks.reduce("statistics", Statistics.of, load, merge=Statistics.merge)
        self._fit.exchanges += 1
        self._fit.bytes_read += found.reads.bytes_read
        self._first = found.reads
        return DataSummary.of(found.loaded, found.reads.report, self._source, self._job, classes=classes)

    def _find_classes(self) -> NDArray[Any] | None:
        """Read the targets alone where a source does not know its labels."""
        if self._source.classes is not None:
            return self._source.classes
        tasks, blocks = self._tasks, range(self._tasks.n_blocks)
        if self._source.inline:
            counts = [count_labels(self._source, block) for block in blocks]
        else:
            held = tasks.hold(self._source)
            counts = [tasks.result(h) for h in [tasks.submit("count-labels", count_labels, held, b) for b in blocks]]
        self._fit.exchanges += 1
        return distinct_labels(reduce(Labels.merge, counts).values)

    def _waves(self, encoding: KnownLabels) -> ReducedSums:
        """Process the blocks in waves, each twice as large as the one before until enough blocks are in flight."""
        tasks, sums = self._tasks, TreeReducer[Handle](self._tasks.n_blocks, self._merge)
        summing: list[Handle] = []
        first, size = 0, 1
        held, held_centers = self._hold(), self._n_centers
        while first < tasks.n_blocks:
            wave = range(first, min(first + size, tasks.n_blocks))
            looking = self._dictionary is None or not self._dictionary.full
            reads = [tasks.read(block) for block in wave]
            found = [tasks.submit("find-survivors", find_survivors, read, held, looking, self._load) for read in reads]
            checksums = [self._receive(block, tasks.result(handle)) for block, handle in zip(wave, found, strict=True)]
            del found
            if self._n_centers != held_centers:
                held, held_centers = self._hold(), self._n_centers
            for handle in summing:
                tasks.wait(handle)
            summing = [
                tasks.submit("sum-rows", sum_rows, read, checksum, held, encoding, self._first_row, self._job.dtype)
                for read, checksum in zip(reads, checksums, strict=True)
            ]
            del reads
            for block, handle in zip(wave, summing, strict=True):
                sums.add(handle, block)
            self._fit.rounds += 1
            self._fit.exchanges += 2
            first, size = wave.stop, min(2 * size, max(1, tasks.in_flight // 2))
        summing.clear()
        total: ReducedSums = tasks.result(sums.root())
        return total

    def _merge(self, left: Handle, right: Handle) -> Handle:
        return self._tasks.submit("add-sums", ReducedSums.merge, left, right)

    @property
    def _n_centers(self) -> int:
        return 0 if self._dictionary is None else len(self._dictionary)

    def _hold(self) -> Handle | None:
        """Send the current dictionary to where tasks run; return None for an empty one."""
        if self._dictionary is None or not len(self._dictionary):
            return None
        snapshot: Snapshot = self._dictionary.snapshot()
        return self._tasks.hold(snapshot)

    def _receive(self, block: int, found: Survivors) -> int:
        """Add the survivors of a block; return its checksum."""
        before = self._first.checksums.get(self._source.boundaries[block])
        require_unchanged(self._source, block, before, found.checksum)
        self._fit.bytes_read += found.nbytes
        # Absent chunks were reported by the first read.
        self._report = self._report.merge(found.report if before is None else replace(found.report, absent={}))
        if found.loaded is not None:
            self._loaded = found.loaded if self._loaded is None else self._loaded.merge(found.loaded)
        if len(found.rows):
            if self._dictionary is None:
                self._dictionary = self._begin(found.features[0])
            self._dictionary.consider(found.rows + self._first_row, found.features)
            self._require_room(self._source.boundaries[block + 1])
        return found.checksum

    def _begin(self, first: NDArray[Any]) -> Dictionary:
        """Return an empty dictionary; without statistics its space is shifted to the first row."""
        kernel, scaling = self._kernel, self._scaling
        assert kernel is not None
        if scaling is None:
            shift = first.astype(np.float64) if kernel.stationary else np.zeros(len(first))
            scaling = FeatureScaling(shift, np.ones(len(first)))
        return Dictionary(kernel, scaling, self._job.nu, self._most(0))

    def _require_room(self, rows: int) -> None:
        dictionary, most = self._dictionary, self._job.max_centers
        assert dictionary is not None
        if dictionary.full and (most is None or len(dictionary) < most):
            raise BudgetError(
                f"the dictionary holds {len(dictionary)} centres after {self._first_row + rows} rows, and one more "
                f"does not fit within {byte_size(self._fit.plan.limit)} (memory_limit, [cluster] memory): raise nu "
                f"({self._job.nu:g}) so that fewer rows join, widen the kernel (sigma), or set max_centers",
                kind="memory",
            )

    def _checked_dictionary(self, sums: ReducedSums) -> Dictionary:
        """Check the dictionary and the statistics, and return the dictionary."""
        job, dictionary = self._job, self._dictionary
        if self._loaded is not None and self._before is None:
            check_statistics(self._loaded.scaled(weight_scale(self._loaded)), self._source, job)
            assert dictionary is not None
            warn_about_scales(self._loaded.features, dictionary.scaling, dictionary.kernel, feature_names(self._source))
        if dictionary is None:
            raise DataError(
                f"sample_weight is zero for all {self._source.n_rows} rows: the recursion begins with a row of "
                "positive weight",
                kind="too-few-rows",
            )
        if not len(dictionary):
            raise DataError(
                f"no row joined the dictionary: k(x, x) + 1 is at most nu={job.nu:g} for every row, or not a number; "
                "lower nu, or use another kernel",
                kind="empty-dictionary",
            )
        if dictionary.full and (self._before is None or not self._before.dictionary.full):
            largest = max(sums.largest, dictionary.refused)
            warnings.warn(
                f"the dictionary is full with max_centers={job.max_centers}, and rows as far as delta={largest:.3g} "
                f"from its span cannot join: raise nu ({job.nu:g}) towards that, or raise max_centers",
                DistkernWarning,
                stacklevel=2,
            )
        return dictionary

"""Checks and summary of the data before a training: classes, scaling of the features, and the kernel's width.

Covers the merged statistics of all blocks, from `block_reading`; sizes of numbers are checked in `numeric_ranges`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array
from distkern.errors import DataError
from distkern.kernels import Kernel, Laplacian, make_kernel
from distkern.kernels.standard import WITH_SIGMA
from distkern.monitoring.events import ChunksAbsent, EventBus, StorageRetried
from distkern.numerics.moments import weighted_median_distance
from distkern.numerics.row_weights import factor_of_weights
from distkern.numerics.scaling import FeatureScaling
from distkern.storage import ReadReport
from distkern.storage.arrays.source import BlockSource

from ..protocol.answers import LoadAnswer
from .label_encoding import LabelEncoding
from .numeric_ranges import SMALLEST_WEIGHT, check_ranges, feature_names, feature_scales, warn_about_scales

logger = logging.getLogger(__name__)

MEDIAN_SAMPLE = 1000
"""Rows drawn for the median-distance rule."""


@dataclass(frozen=True, kw_only=True)
class SpaceJob:
    """The part of a job that decides the checks of the data, and the space of the kernel."""

    classification: bool
    """Whether targets are labels."""
    kernel: str | Kernel
    """Name of a kernel, or a kernel."""
    sigma: float | str | tuple[float, ...]
    """Width, "median", or several widths that a centre may have."""
    sigma_factor: float = 1.0
    """The width is this times the median distance, where `sigma` is "median"."""
    standardize: bool
    """Whether features get unit standard deviation."""
    dtype: str = "float64"
    """Precision of the arithmetic."""
    seed: int = 0
    """Key of the row draws."""
    scaling: FeatureScaling | None = None
    """From raw features to kernel space, where a metric was learnt; by default chosen by the statistics of the rows."""

    @property
    def holds_out(self) -> bool:
        """Whether rows are held out for a stop rule."""
        return False

    @property
    def samples(self) -> bool:
        """Whether the width comes from a sample of rows."""
        return self.sigma == "median" and isinstance(self.kernel, str) and self.kernel in WITH_SIGMA


@dataclass(frozen=True)
class DataSummary:
    """Result of the first pass over the rows: statistics, classes and the space of the kernel."""

    loaded: LoadAnswer
    """Statistics of all training rows."""
    encoding: LabelEncoding
    """Encoding of the targets."""
    scaling: FeatureScaling
    """From raw features to kernel space."""
    kernel: Kernel
    """Kernel with its width."""
    weight_scale: float
    """Factor on the row weights, which the statistics contain."""

    @classmethod
    def of(
        cls,
        loaded: LoadAnswer,
        report: ReadReport,
        source: BlockSource,
        job: SpaceJob,
        *,
        events: EventBus | None = None,
        classes: NDArray[Any] | None = None,
    ) -> DataSummary:
        """Check and summarise the statistics of a pass.

        Parameters
        ----------
        loaded : LoadAnswer
            Statistics of all training rows.
        report : ReadReport
            Retries and absent chunks of the pass.
        source : BlockSource
            The rows.
        job : SpaceJob
            Kernel, precision and scaling.
        events : EventBus, optional
            Receives retries and absent chunks; nothing by default.
        classes : array, optional
            Sorted labels, where they are known because these rows are the first of many; by default those of the rows.

        Raises
        ------
        DataError
            The rows cannot be trained on.
        """
        report_reads(report, source, events or EventBus())
        scale = weight_scale(loaded)
        loaded = loaded.scaled(scale)
        check_statistics(loaded if classes is None else replace(loaded, labels=None), source, job)
        encoding = encoding_of(loaded, source, job) if classes is None else LabelEncoding.of(source, classes)
        return cls(loaded, encoding, *fit_kernel_space(loaded, job, feature_scales(source)), scale)

    def warn_about_scales(self, source: BlockSource) -> None:
        """Warn where one feature dominates the distances, or a centre reaches no other row."""
        warn_about_scales(self.loaded.features, self.scaling, self.kernel, feature_names(source))


def weight_scale(loaded: LoadAnswer) -> float:
    """Return the factor by which small row weights are multiplied; see `factor_of_weights`.

    Parameters
    ----------
    loaded : LoadAnswer
        Statistics of all training rows.

    Raises
    ------
    DataError
        ``underflow``: weighted sums of squares would underflow.
    """
    total = loaded.features.count
    if 0.0 < total < SMALLEST_WEIGHT:
        raise DataError(
            f"the row weights sum to {total:g}, and {SMALLEST_WEIGHT:g} is the least: multiply sample_weight by a "
            "common factor",
            kind="underflow",
        )
    return factor_of_weights(total, loaded.weight_roots)


def report_reads(report: ReadReport, source: BlockSource, events: EventBus) -> None:
    """Emit events of retries and absent chunks; log a warning of absent chunks too."""
    for array, count in sorted(report.retries.items()):
        events.emit(StorageRetried(array=array, count=count))
    for array, (count, chunks) in sorted(report.absent.items()):
        logger.warning(
            "%d chunks of %s (%s) are absent and read as the array's fill value, the first: %s",
            count,
            array,
            source.place,
            ", ".join("/".join(map(str, chunk)) for chunk in chunks),
        )
        events.emit(ChunksAbsent(array=array, count=count, chunks=chunks))


def check_statistics(loaded: LoadAnswer, source: BlockSource, job: SpaceJob) -> None:
    """Refuse data that no kernel model can be fitted to."""
    if job.holds_out and loaded.n_fit and not loaded.n_held:
        raise DataError(
            f"stop='validation' holds out a tenth of the rows, and none of {source.n_rows} was drawn: "
            "use another stop rule for so few rows",
            kind="too-few-rows",
        )
    weight_sum = check_rows(loaded, source, dtype=job.dtype, standardize=job.standardize)
    if weight_sum <= 2 and weight_sum == loaded.n_fit:
        raise DataError(
            f"{loaded.n_fit} rows can train, and the first centre already leaves no degree of freedom: "
            "at least 3 are needed",
            kind="too-few-rows",
        )
    if weight_sum <= 2:
        raise DataError(
            f"the row weights count as {weight_sum:g} rows, because few rows have nearly all the weight, and the first "
            "centre already leaves no degree of freedom: more than 2 are needed; give more even weights, or more rows",
            kind="weight-sum",
        )


def check_rows(loaded: LoadAnswer, source: BlockSource, *, dtype: str, standardize: bool) -> float:
    """Refuse rows that no method can be trained on; return the sum of their weights."""
    if loaded.n_fit == 0:
        raise DataError(
            f"sample_weight is zero for all {source.n_rows} rows; at least 2 rows need a positive weight",
            kind="too-few-rows",
        )
    if loaded.n_fit < 2:
        raise DataError(
            f"{loaded.n_fit} of {source.n_rows} rows can train (sample_weight above zero, not held out); "
            "at least 2 are needed",
            kind="too-few-rows",
        )
    check_ranges(loaded, dtype, standardize=standardize, names=feature_names(source))
    if not (loaded.features.m2 > 0).any():
        raise DataError(
            f"all {len(loaded.features.m2)} features are constant over the training rows: "
            "there is nothing to learn from; check which columns were taken as features",
            kind="constant-features",
        )
    if loaded.labels is not None and np.count_nonzero(loaded.labels.weights > 0) < 2:
        only = loaded.labels.values[0]
        only = only if source.classes is None else source.classes[only]
        only = only.item() if isinstance(only, np.generic) else only
        raise DataError(
            f"the target holds one class only ({only!r}); a classifier needs at least two classes",
            kind="one-class",
        )
    return loaded.features.count


def encoding_of(loaded: LoadAnswer, source: BlockSource, job: SpaceJob) -> LabelEncoding:
    """Return the encoding of the targets of a job, by the labels of the source or of the rows."""
    if not job.classification:
        return LabelEncoding()
    assert loaded.labels is not None
    return LabelEncoding.of(source, distinct_labels(loaded.labels.values) if source.classes is None else source.classes)


def distinct_labels(values: NDArray[Any]) -> NDArray[Any]:
    """Return the labels of the rows; refuse values of a continuous target."""
    if values.dtype.kind == "f" and (values != np.floor(values)).any():
        raise DataError(
            f"y holds {len(values)} distinct values such as {values[values != np.floor(values)][0]:g}, a continuous "
            "target: use a regressor, or give labels",
            kind="continuous-target",
        )
    return values


def fit_kernel_space(loaded: LoadAnswer, job: SpaceJob, scales: Array | None) -> tuple[FeatureScaling, Kernel]:
    """Choose the scaling of the features and the kernel's width; `scales` are those of `feature_scales`."""
    prototype = make_kernel(job.kernel, 1.0 if isinstance(job.sigma, str) else job.sigma)
    scaling = job.scaling or FeatureScaling.fit(
        loaded.features, standardize=job.standardize, shift_allowed=prototype.stationary, scales=scales
    )
    if not job.samples:
        return scaling, prototype
    assert loaded.sample is not None
    sample = scaling.apply(loaded.sample.features, np.dtype(np.float64))
    order = np.argsort(loaded.sample.shortlist.rows)
    weights = loaded.sample.weights[order] if len(order) == loaded.n_fit else None
    median = weighted_median_distance(sample[order], weights, distance_norm(prototype))
    return scaling, make_kernel(job.kernel, job.sigma_factor * median)


def distance_norm(kernel: Kernel) -> str:
    """Return the norm, "l1" or "l2", of the distances to which the width of a kernel belongs."""
    return kernel.norm if isinstance(kernel, Laplacian) else "l2"

"""What the rows tell before anything is trained: whether they can be, their classes, and the space of the kernel."""

from __future__ import annotations

import logging
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from distkern.errors import DataError
from distkern.kernels import Kernel, make_kernel
from distkern.kernels.standard import WITH_SIGMA
from distkern.monitoring.events import ChunksAbsent, EventBus, StorageRetried
from distkern.numerics.moments import weighted_median_distance
from distkern.numerics.scaling import FeatureScaling
from distkern.storage import ReadReport
from distkern.storage.arrays.source import BlockSource

from ..protocol.answers import LoadAnswer
from .label_encoding import LabelEncoding
from .numeric_ranges import check_ranges, feature_names

logger = logging.getLogger(__name__)

MEDIAN_SAMPLE = 1000
"""Rows drawn for the median-distance rule."""


class SpaceJob(Protocol):
    """The part of a job that decides what is asked of the data, and the space that the kernel sees."""

    @property
    def classification(self) -> bool:
        """Whether targets are labels."""

    @property
    def kernel(self) -> str | Kernel:
        """Name, or kernel."""

    @property
    def sigma(self) -> float | str | tuple[float, ...]:
        """Width, "median", or widths to choose from."""

    @property
    def standardize(self) -> bool:
        """Whether features get unit standard deviation."""

    @property
    def dtype(self) -> str:
        """Precision of the arithmetic."""


def tell_of_reads(report: ReadReport, source: BlockSource, events: EventBus) -> None:
    """Emit what is worth knowing about reads that succeeded; chunks that are absent are warned of too."""
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


def check_statistics(loaded: LoadAnswer, source: BlockSource, job: SpaceJob, *, holds_out: bool = False) -> None:
    """Refuse data that no kernel model can be fitted to, by a stop rule that holds rows out or without."""
    if holds_out and loaded.n_fit and not loaded.n_held:
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
            f"the row weights sum to {weight_sum:g}; the formulas count weights as rows and need a sum above 2: "
            "scale sample_weight so that an ordinary row counts 1, or give more rows",
            kind="weight-sum",
        )


def check_rows(loaded: LoadAnswer, source: BlockSource, *, dtype: str, standardize: bool) -> float:
    """Refuse rows that nothing can be learnt from; return the sum of their weights."""
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
    """Encoding of the targets of a job, from the labels that were seen or the source's own."""
    if not job.classification:
        return LabelEncoding()
    assert loaded.labels is not None
    return LabelEncoding.of(source, distinct_labels(loaded.labels.values) if source.classes is None else source.classes)


def distinct_labels(values: NDArray[Any]) -> NDArray[Any]:
    """Return the labels that were seen, if they are labels."""
    if values.dtype.kind == "f" and (values != np.floor(values)).any():
        raise DataError(
            f"y holds {len(values)} distinct values such as {values[values != np.floor(values)][0]:g}, a continuous "
            "target: use a regressor, or give labels",
            kind="continuous-target",
        )
    return values


def fit_kernel_space(loaded: LoadAnswer, job: SpaceJob, sigma_factor: float = 1.0) -> tuple[FeatureScaling, Kernel]:
    """Choose the scaling of the features and the kernel's width; `sigma_factor` multiplies the median distance."""
    prototype = make_kernel(job.kernel, 1.0 if isinstance(job.sigma, str) else job.sigma)
    scaling = FeatureScaling.fit(loaded.features, standardize=job.standardize, shift_allowed=prototype.stationary)
    if job.sigma == "median" and isinstance(job.kernel, str) and job.kernel in WITH_SIGMA:
        assert loaded.sample is not None
        sample = scaling.apply(loaded.sample.features, np.dtype(np.float64))
        order = np.argsort(loaded.sample.shortlist.rows)
        whole = len(order) == loaded.n_fit
        weights = loaded.sample.weights[order] if whole else None
        return scaling, make_kernel(job.kernel, sigma_factor * weighted_median_distance(sample[order], weights))
    return scaling, prototype

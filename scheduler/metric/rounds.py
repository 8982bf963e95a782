"""One round: a model of the mapped sample, its error on the rows held out, and the outer products of its gradients.

The model is a training of the engine in this process. Covers one round; which rounds are made, and which one is kept,
is decided in `learning`.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array
from distkern.kernels import Kernel, make_kernel
from distkern.monitoring.events import EventBus
from distkern.numerics.learnt_metric import LinearMap
from distkern.numerics.moments import weighted_median_distance
from distkern.numerics.row_draws import row_uniforms
from distkern.storage.datasets.sources import ArraySource

from ..execution.executor import SerialExecutor
from ..rows.block_reading import SAMPLE_STREAM
from ..rows.data_checks import MEDIAN_SAMPLE, distance_norm
from ..runtime.threads import map_tiles
from ..training.automatic_sample import AUTO_SAMPLE
from ..training.driver_loop import TrainingJob, train
from .given_centers import can_be_given, weights_of_given
from .sample import MetricSample

ROWS_OF_A_PART = 512
"""Rows of which one thread computes gradients at a time."""

BLOCK_ROWS = 2048
"""Rows of a block of the sample: enough for full products, and blocks enough for several threads."""

TOLERATED_ERRORS = 1.0
"""Standard errors by which the error of a simpler round may be above the lowest."""

CAPPED_SHARE = 0.02
"""Share of the rows held out whose errors count as the largest of the others: a few outliers must not decide."""

TOLERATED_SHARE = 0.02
"""Most of the lowest error by which the error of a simpler round may be above it."""

GRADIENT_WORK = 1 << 30
"""Most products of rows, centres, features and targets of the gradients of a round; with more, of some of the rows."""

SLOWER_L1 = 8
"""Times that such a product takes longer for the l1 norm: it is no matrix product, but a pass for each feature."""

LEAST_GRADIENT_ROWS = 2_000
"""Least rows at which gradients are taken, of any size."""

MOST_TARGETS = 32
"""Targets whose gradients are computed; more of them are replaced by as many random sums."""


@dataclass(frozen=True, eq=False)
class Round:
    """Result of one round."""

    map: LinearMap
    """Map of the standardised features that the model was trained with."""
    kernel: Kernel
    """Kernel of the mapped rows, with its width."""
    errors: Array
    """(n_held,): weighted squared error of each row held out, summed over targets, over the sum of all squared
    deviations from the mean; the largest are capped, see `CAPPED_SHARE`."""
    outer: Array
    """(k,) or (k, k): mean outer products of the gradients with respect to the mapped rows, summed over targets."""
    centers: NDArray[np.int64]
    """(m,): positions of the selected centres among the rows that train, in order."""
    weight_sum: float
    """Sum of the absolute weights of one target, in deviations of the target: the largest of all targets."""

    @cached_property
    def error(self) -> float:
        """Capped squared error on the rows held out, over that of their mean."""
        return float(self.errors.sum())

    def as_good_as(self, best: Round) -> bool:
        """Whether the error is above that of the best round by no more than the standard error of the difference.

        A few rows with large errors may make that standard error as large as the error itself; `TOLERATED_SHARE` of the
        error is then the limit.
        """
        differences = self.errors - best.errors
        tolerated = TOLERATED_ERRORS * np.sqrt(len(differences)) * differences.std()
        return bool(differences.sum() <= min(tolerated, TOLERATED_SHARE * best.error))


def run_round(
    sample: MetricSample,
    job: TrainingJob,
    space: LinearMap,
    factor: float,
    *,
    with_products: bool = False,
    centers: NDArray[np.int64] | None = None,
) -> Round:
    """Train a model of the sample in the space of a map, or give the centres of another round new weights.

    Parameters
    ----------
    sample : MetricSample
        Standardised rows.
    job : TrainingJob
        Settings of the model; a number of `sigma` is a width at the median distance of the standardised rows.
    space : LinearMap
        Map of the standardised rows.
    factor : float
        Multiple of the median distance of the mapped rows, where the width is not a number.
    with_products : bool, default False
        Whether the products of different components of the gradients are computed for a diagonal map too.
    centers : array, shape (m,), optional
        Centres of another round of the sample, which get new weights; by default, and where their columns depend on
        each other too much, centres are selected.

    Returns
    -------
    Round
        With the map scaled so that the median distance is that of the standardised rows.
    """
    features, targets, weights = sample.part(~sample.held)
    space, kernel = _scaled_space(job, space, features, weights, factor)
    mapped = space.apply(features)
    found = None
    if centers is not None and can_be_given(job):
        found = weights_of_given(mapped, targets, weights, centers, kernel, job)
    if centers is None or found is None:
        centers, found = _selected(mapped, targets, weights, kernel, job)
    squares_only = space.diagonal and not with_products
    outputs, outer = _evaluate(
        sample,
        space.apply(sample.features),
        mapped[centers[: len(found) - 1]],
        kernel,
        found[1:],
        diagonal=squares_only,
        seed=job.seed,
    )
    errors = _held_errors(sample, outputs + found[0])
    return Round(space, kernel, errors, outer, centers, _weight_sum(found[1:], targets, weights))


def _selected(
    mapped: Array, targets: Array, weights: Array | None, kernel: Kernel, job: TrainingJob
) -> tuple[NDArray[np.int64], Array]:
    """Select centres; return their positions, and constant and weights of those that the model keeps."""
    source = ArraySource(mapped, targets, weights, boundaries=_boundaries(len(mapped)))
    settings = replace(
        job.compared(len(mapped)),
        kernel=kernel,
        sigma=1.0,
        classification=False,
        standardize=False,
        multiclass="shared",
        selection_rows=AUTO_SAMPLE,
        dtype="float32",
    )
    with warnings.catch_warnings():
        # The error on the rows held out decides.
        warnings.simplefilter("ignore")
        result = train(settings, source, SerialExecutor(source), EventBus())
    path = result.paths[0]
    found = path.weights(path.n_centers).copy()
    found[0] += result.target_means
    return path.rows, found


def _scaled_space(
    job: TrainingJob, space: LinearMap, features: Array, weights: Array | None, factor: float
) -> tuple[LinearMap, Kernel]:
    """Return the map whose rows have the median distance of the standardised ones, and the kernel of that space."""
    if isinstance(job.kernel, Kernel) and not job.kernel.stationary:
        return space, job.kernel
    rows = np.linspace(0, len(features) - 1, min(MEDIAN_SAMPLE, len(features))).astype(np.intp)
    mass = None if weights is None else weights[rows]
    norm = distance_norm(make_kernel(job.kernel, 1.0))
    plain = weighted_median_distance(features[rows], mass, norm)
    mapped = weighted_median_distance(space.apply(features[rows]), mass, norm)
    if mapped > 0:
        space = space.scaled(plain / mapped)
    sigma = factor * plain if isinstance(job.sigma, str) else job.sigma
    return space, make_kernel(job.kernel, sigma)


def _boundaries(n_rows: int) -> tuple[int, ...]:
    return (*range(0, n_rows, BLOCK_ROWS), n_rows)


def _evaluate(
    sample: MetricSample, rows: Array, centers: Array, kernel: Kernel, weights: Array, *, diagonal: bool, seed: int
) -> tuple[Array, Array]:
    """Return the outputs of the rows held out, and the mean outer products of the gradients at all rows."""
    n, d = rows.shape
    sums = weights
    if weights.shape[1] > MOST_TARGETS:
        # The expectation of the outer products of random sums of the targets is that of all targets.
        signs = np.where(row_uniforms(seed, SAMPLE_STREAM, 0, weights.shape[1] * MOST_TARGETS) < 0.5, -1.0, 1.0)
        sums = weights @ (signs.reshape(weights.shape[1], MOST_TARGETS) / np.sqrt(MOST_TARGETS))
    # Rows at equal distances.
    work = GRADIENT_WORK // SLOWER_L1 if distance_norm(kernel) == "l1" else GRADIENT_WORK
    most = max(LEAST_GRADIENT_ROWS, work // max(1, len(centers) * d * sums.shape[1]))
    at = np.linspace(0, n - 1, min(n, most)).astype(np.intp)
    held = np.flatnonzero(sample.held)
    outputs = np.empty((len(held), weights.shape[1]))
    mass = np.ones(len(at)) if sample.weights is None else sample.weights[at]

    def outer_of(start: int) -> Array:
        part = slice(start, start + ROWS_OF_A_PART)
        gradients = kernel.gradients(rows[at[part]], centers, sums)
        gradients *= np.sqrt(mass[part])[:, None]
        flat = gradients.reshape(-1, d)
        return np.asarray(np.einsum("ij,ij->j", flat, flat) if diagonal else flat.T @ flat)

    def predict(start: int) -> None:
        part = slice(start, start + ROWS_OF_A_PART)
        outputs[part] = kernel.block(rows[held[part]], centers) @ weights

    for _ in map_tiles(predict, range(0, len(held), ROWS_OF_A_PART)):
        pass
    # In the order of the rows, so that the sums have the same bits for any number of threads.
    outer = np.zeros(d if diagonal else (d, d))
    for part in map_tiles(outer_of, range(0, len(at), ROWS_OF_A_PART)):
        outer += part
    return outputs, outer / mass.sum()


def _held_errors(sample: MetricSample, outputs: Array) -> Array:
    _, targets, weights = sample.part(sample.held)
    mass = np.ones(len(targets)) if weights is None else weights
    mean = mass @ targets / mass.sum()
    total = float(mass @ np.square(targets - mean).sum(axis=1))
    errors = np.square(targets - outputs).sum(axis=1)
    np.minimum(errors, np.quantile(errors, 1 - CAPPED_SHARE, method="lower"), out=errors)
    return np.asarray(mass * errors / (total if total > 0 else 1.0))


def _weight_sum(found: Array, targets: Array, weights: Array | None) -> float:
    """Return the largest sum of absolute weights of a target, over the target's deviation; 0 for constant targets."""
    deviations = np.sqrt(np.average(np.square(targets - np.average(targets, axis=0, weights=weights)), 0, weights))
    sums = np.abs(found).sum(axis=0)
    return float(np.divide(sums, deviations, out=np.zeros_like(sums), where=deviations > 0).max())

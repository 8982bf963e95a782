"""Rows that calibrate probabilities and intervals, and the leave-one-out outputs of the model for them.

One more pass draws rows by their number and class alone, so the sample is the same for any blocks and workers, and its
size does not grow with the data. This process computes the leave-one-out outputs from the sample. The calibration
itself is in `distkern.probability`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array
from distkern.kernels import kernel_of_centers
from distkern.numerics.row_draws import row_uniforms, uniforms_for_rows
from distkern.probability.leave_one_out import left_out_outputs, rows_of_q
from distkern.probability.pairwise import class_pairs
from distkern.storage.arrays.source import BlockSource

from ..passes.block_tasks import block_tasks
from ..protocol.path import Path
from ..rows.block_reading import HOLDOUT_STREAM, BlockRows
from ..rows.label_encoding import LabelEncoding
from ..rows.tiles import positions
from ..runtime.threads import map_tiles, single_threaded_blas
from .driver_loop import HOLDOUT_FRACTION, TrainingResult

CALIBRATION_STREAM = HOLDOUT_STREAM + 4
"""Stream of the row draws that decides which rows are in the sample."""

MOST_ROWS = 20_000
"""About the rows drawn of a large set; five times as many reduced the log loss by 0.0006 with five classes."""

LEAST_ROWS = 2_000
"""Least rows that are drawn, of any size."""

SAMPLE_BYTES = 64 << 20
"""Most bytes of features in the sample, unless `LEAST_ROWS` need more."""

ROWS_OF_A_CLASS = 200
"""About the rows drawn of a rare class, if it has as many."""

ROWS_AT_A_TIME = 1024
"""Rows of which each thread computes kernel columns at a time."""


@dataclass(frozen=True, eq=False)
class CalibrationRows:
    """Training rows, in ascending order; pickles of version 0.1 hold the names of the fields."""

    rows: NDArray[np.int64]
    """(n,): global row numbers."""
    features: NDArray[Any]
    """(n, d): raw features."""
    codes: NDArray[np.intp] | None
    """(n,): classes, counted from 0; None for regression."""
    weights: Array
    """(n,): row weights, above zero."""
    shares: Array
    """(n,): factor on the weight; below one where the class of the row was drawn more often."""
    bytes_read: int
    """Bytes read by the pass."""
    targets: Array | None = None
    """(n, T): targets of a regression; None, the default, for classes."""

    @property
    def mass(self) -> Array:
        """(n,): weight of each row in a sum over the sample."""
        return self.weights * self.shares


def draw_rows(
    source: BlockSource, classes: NDArray[Any] | None, shares: Array, *, seed: int, client: Any
) -> CalibrationRows:
    """Draw rows for calibration in one pass.

    Parameters
    ----------
    source : BlockSource
        Training rows.
    classes : array, shape (C,), or None
        Sorted labels; None for regression.
    shares : array, shape (C,)
        Share of each class among the training rows; a regression has one class of all rows.
    seed : int
        Key of the draw.
    client : distributed.Client or None
        Cluster whose workers read the rows; None for this process.

    Returns
    -------
    CalibrationRows
        All rows of a small set, or a sample.
    """
    row_bytes = max(1, source.n_features * source.feature_dtype.itemsize)
    wanted = max(LEAST_ROWS, min(MOST_ROWS, SAMPLE_BYTES // row_bytes))
    usual = min(1.0, wanted / source.n_rows)
    rare = ROWS_OF_A_CLASS / (source.n_rows * np.maximum(shares, 1 / source.n_rows))
    chances = np.minimum(np.maximum(usual, rare), 1.0)
    with block_tasks(source, classification=classes is not None, client=client) as tasks:
        encoding = LabelEncoding.of(source, classes)
        parts = list(tasks.each("calibration-rows", pick_rows, encoding, chances, usual, seed))
    rows, features, targets, weights, shares_of_rows, nbytes = zip(*parts, strict=True)
    values = np.concatenate(targets)
    return CalibrationRows(
        rows=np.concatenate(rows),
        features=np.concatenate(features),
        codes=None if classes is None else values,
        weights=np.concatenate(weights),
        shares=np.concatenate(shares_of_rows),
        bytes_read=sum(nbytes),
        targets=values if classes is None else None,
    )


def pick_rows(block: BlockRows, encoding: LabelEncoding, chances: Array, usual: float, seed: int) -> tuple[Any, ...]:
    """Draw the rows of one block.

    Parameters
    ----------
    block : BlockRows
        The block, with features.
    encoding : LabelEncoding
        Encoding of the targets.
    chances : array, shape (C,)
        Probability that a row of a class is drawn.
    usual : float
        Probability that a row of a common class is drawn.
    seed : int
        Key of the draw.

    Returns
    -------
    tuple
        Rows, features, codes or targets, weights, shares and bytes, as the fields of `CalibrationRows`.
    """
    assert block.features is not None
    weights = np.ones(len(block.rows)) if block.weights is None else block.weights.astype(np.float64)
    found = encoding.codes(block.targets)
    codes = np.zeros(len(block.rows), dtype=np.int64) if found is None else found
    # A row of weight zero is ignored, and its label may belong to no class.
    chance = np.where(weights > 0, chances[np.minimum(codes, len(chances) - 1)], 0.0)
    uniforms = (
        row_uniforms(seed, CALIBRATION_STREAM, int(block.rows[0]), len(block.rows)) if len(block.rows) else chance
    )
    drawn = uniforms < chance
    return (
        block.rows[drawn],
        block.features[drawn],
        encoding.columns(block.targets[drawn]) if found is None else codes[drawn],
        weights[drawn],
        usual / chance[drawn],
        block.nbytes,
    )


def outputs_left_out(
    result: TrainingResult,
    n_centers: Sequence[int],
    sample: CalibrationRows,
    *,
    epsilon: float,
    held_out_seed: int | None = None,
) -> Array:
    """Compute the outputs for the rows of the sample, each by the model without this row.

    Parameters
    ----------
    result : TrainingResult
        Result of the training.
    n_centers : sequence of int
        Length of each path's prefix in the model.
    sample : CalibrationRows
        Rows of `draw_rows`.
    epsilon : float
        Added to each kernel column at its own row.
    held_out_seed : int, optional
        Key of the draw of held-out rows; None, the default, without them.

    Returns
    -------
    array, shape (n, T)
        Outputs, which are not finite where a kernel overflows.
    """
    n = len(sample.rows)
    targets = _targets(result, sample)
    held = None
    if held_out_seed is not None:
        held = uniforms_for_rows(held_out_seed, HOLDOUT_STREAM, sample.rows) < HOLDOUT_FRACTION
    centers = [
        result.scaling.apply(path.features[:count], np.dtype(np.float64))
        for path, count in zip(result.paths, n_centers, strict=True)
    ]
    outputs = np.empty(targets.shape)

    def leave_out(start: int) -> None:
        part = slice(start, start + ROWS_AT_A_TIME)
        with np.errstate(over="ignore", invalid="ignore"):
            leave_out_rows(part)

    def leave_out_rows(part: slice) -> None:
        features = result.scaling.apply(sample.features[part], np.dtype(np.float64))
        for path, columns, chosen in zip(result.paths, result.outputs, centers, strict=True):
            k, where = len(chosen) + 1, list(columns)
            design = _design(result, path, features, sample.rows[part], chosen, epsilon)
            outputs[part, where] = left_out_outputs(
                rows_of_q(design, path.u[:k, :k]),
                targets[part, where],
                result.target_means[where],
                path.s[:k],
                path.z[:k],
                path.lambdas[k - 1],
                sample.weights[part],
                None if held is None else held[part],
            )

    with single_threaded_blas():
        for _ in map_tiles(leave_out, range(0, n, ROWS_AT_A_TIME)):
            pass
    return outputs


def rows_of_path(result: TrainingResult, path: Path, count: int, sample: CalibrationRows) -> Array:
    """Return the first `count` + 1 columns of Q on the rows of the sample, without epsilon, shape (n, count + 1)."""
    centers = result.scaling.apply(path.features[:count], np.dtype(np.float64))
    made = np.empty((len(sample.rows), count + 1))
    with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, len(made), ROWS_AT_A_TIME):
            part = slice(start, start + ROWS_AT_A_TIME)
            features = result.scaling.apply(sample.features[part], np.dtype(np.float64))
            design = _design(result, path, features, sample.rows[part], centers, 0.0)
            made[part] = rows_of_q(design, path.u[: count + 1, : count + 1])
    return made


def _targets(result: TrainingResult, sample: CalibrationRows) -> Array:
    """Return the targets of the outputs, shape (n, n_outputs); those of a pair have no meaning on other classes."""
    if result.classes is None:
        assert sample.targets is not None
        return sample.targets
    assert sample.codes is not None
    encoded = LabelEncoding(result.classes, True).columns(sample.codes)
    if len(result.outputs) <= 1 or result.multiclass != "one-vs-one":
        return encoded
    seconds = [second for _, second in class_pairs(len(result.classes))]
    return encoded[:, seconds]


def _design(
    result: TrainingResult, path: Path, features: Array, rows: NDArray[np.int64], centers: Array, epsilon: float
) -> Array:
    """Return [1 K] on some rows, with epsilon as in the training."""
    design = np.ones((len(features), len(centers) + 1))
    if not len(centers):
        return design
    design[:, 1:] = kernel_of_centers(result.kernel, path.widths[: len(centers)]).block(features, centers)
    if epsilon:
        where, own = positions(rows, path.rows[: len(centers)])
        design[where, 1 + own] += epsilon
    return design

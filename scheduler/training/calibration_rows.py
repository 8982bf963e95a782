"""Rows to calibrate probabilities on, and what the model says about each of them when it is left out.

One more pass picks rows by their number and class alone, so the sample is the same for any blocks and workers, and
its size does not grow with the data. The leave-one-out outputs are computed from it in this process.
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
"""Stream of the row draws that decides which rows calibrate."""

MOST_ROWS = 20_000
"""Rows that are drawn of a large set, about; five times as many gained 0.0006 of log loss with five classes."""

LEAST_ROWS = 2_000
"""Rows that are drawn whatever their size."""

SAMPLE_BYTES = 64 << 20
"""Features of the sample that are kept with the model, unless `LEAST_ROWS` are more."""

ROWS_OF_A_CLASS = 200
"""Rows that are drawn of a rare class, about, if it has as many."""

ROWS_AT_A_TIME = 1024
"""Rows whose kernel columns are in memory at a time, by thread."""


@dataclass(frozen=True, eq=False)
class CalibrationRows:
    """Training rows, in ascending order."""

    rows: NDArray[np.int64]
    """(n,): global row numbers."""
    features: NDArray[Any]
    """(n, d): raw."""
    codes: NDArray[np.intp]
    """(n,): classes, counted from 0."""
    weights: Array
    """(n,): row weights, above zero."""
    shares: Array
    """(n,): what a row counts beside that; below one where its class was drawn more often."""
    bytes_read: int
    """Bytes of the pass."""

    @property
    def mass(self) -> Array:
        """(n,): what a row counts in a sum over the sample."""
        return self.weights * self.shares


def draw_rows(source: BlockSource, classes: NDArray[Any], shares: Array, *, seed: int, client: Any) -> CalibrationRows:
    """Pick rows for calibration in one pass.

    Parameters
    ----------
    source : BlockSource
        Training rows.
    classes : array, shape (C,)
        Sorted labels.
    shares : array, shape (C,)
        Share of each class among the training rows.
    seed : int
        Key of the draw.
    client : distributed.Client or None
        Workers to read on.

    Returns
    -------
    CalibrationRows
        All rows of a small set.
    """
    row_bytes = max(1, source.n_features * source.feature_dtype.itemsize)
    wanted = max(LEAST_ROWS, min(MOST_ROWS, SAMPLE_BYTES // row_bytes))
    usual = min(1.0, wanted / source.n_rows)
    rare = ROWS_OF_A_CLASS / (source.n_rows * np.maximum(shares, 1 / source.n_rows))
    chances = np.minimum(np.maximum(usual, rare), 1.0)
    with block_tasks(source, classification=True, client=client) as tasks:
        encoding = LabelEncoding.of(source, classes)
        parts = list(tasks.each("calibration-rows", pick_rows, encoding, chances, usual, seed))
    rows, features, codes, weights, shares_of_rows, nbytes = zip(*parts, strict=True)
    return CalibrationRows(
        rows=np.concatenate(rows),
        features=np.concatenate(features),
        codes=np.concatenate(codes),
        weights=np.concatenate(weights),
        shares=np.concatenate(shares_of_rows),
        bytes_read=sum(nbytes),
    )


def pick_rows(block: BlockRows, encoding: LabelEncoding, chances: Array, usual: float, seed: int) -> tuple[Any, ...]:
    """Pick the rows of one block.

    Parameters
    ----------
    block : BlockRows
        With features.
    encoding : LabelEncoding
        Of the targets.
    chances : array, shape (C,)
        Probability that a row of a class is drawn.
    usual : float
        The same of the common classes.
    seed : int
        Key of the draw.

    Returns
    -------
    tuple
        The fields of `CalibrationRows`.
    """
    assert block.features is not None
    weights = np.ones(len(block.rows)) if block.weights is None else block.weights.astype(np.float64)
    codes = encoding.codes(block.targets)
    assert codes is not None
    # A row of weight zero is absent, and its label may be of no class.
    chance = np.where(weights > 0, chances[np.minimum(codes, len(chances) - 1)], 0.0)
    uniforms = (
        row_uniforms(seed, CALIBRATION_STREAM, int(block.rows[0]), len(block.rows)) if len(block.rows) else chance
    )
    drawn = uniforms < chance
    return (
        block.rows[drawn],
        block.features[drawn],
        codes[drawn],
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
    """Outputs of the sample's rows, each from a model without it.

    Parameters
    ----------
    result : TrainingResult
        Of a classification.
    n_centers : sequence of int
        Length of the prefix of each path that makes the model.
    sample : CalibrationRows
        From `draw_rows`.
    epsilon : float
        Added to each kernel column at its own row.
    held_out_seed : int, optional
        Key of the draw by which rows were held out from the training; None if none were.

    Returns
    -------
    array, shape (n, T)
        Not finite where a kernel overflows.
    """
    assert result.classes is not None
    n = len(sample.rows)
    targets = _targets(result, sample.codes)
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


def _targets(result: TrainingResult, codes: NDArray[np.intp]) -> Array:
    """Targets of the outputs, shape (n, n_outputs); those of a pair mean nothing on rows of other classes."""
    assert result.classes is not None
    encoded = LabelEncoding(result.classes, True).columns(codes)
    if len(result.outputs) <= 1 or result.multiclass != "one-vs-one":
        return encoded
    seconds = [second for _, second in class_pairs(len(result.classes))]
    return encoded[:, seconds]


def _design(
    result: TrainingResult, path: Path, features: Array, rows: NDArray[np.int64], centers: Array, epsilon: float
) -> Array:
    """[1 K] on some rows, as the training saw it."""
    design = np.ones((len(features), len(centers) + 1))
    if not len(centers):
        return design
    design[:, 1:] = kernel_of_centers(result.kernel, path.widths[: len(centers)]).block(features, centers)
    if epsilon:
        where, own = positions(rows, path.rows[: len(centers)])
        design[where, 1 + own] += epsilon
    return design

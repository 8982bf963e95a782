"""Rows that calibrate probabilities and intervals, and the leave-one-out outputs of the model for them.

One more pass draws rows by their number and class alone, so the sample is the same for any blocks and workers, and its
size does not grow with the data. This process computes the leave-one-out outputs from the sample. The calibration
itself is in `distkern.probability`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array
from distkern.kernels import kernel_of_centers
from distkern.numerics.row_draws import row_uniforms, uniforms_for_rows
from distkern.probability.leave_one_out import left_out_outputs, rows_of_q
from distkern.probability.pairwise import class_pairs
from distkern.storage.arrays.source import BlockSource

from ..passes.append_tasks import NewRows
from ..passes.block_tasks import BlockTasks, block_tasks
from ..protocol.path import Path
from ..rows.block_reading import HOLDOUT_STREAM, BlockRows
from ..rows.label_encoding import KnownLabels, LabelEncoding
from ..rows.tiles import positions
from ..runtime.threads import map_tiles, single_threaded_blas
from .driver_loop import FIRST_ROWS, HOLDOUT_FRACTION, TrainingResult

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
    usual: float = 1.0
    """Probability that a row of a common class was drawn; 1.0 by default, and in pickles of earlier versions."""

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
    chances, usual = _chances(source, source.n_rows, shares)
    with block_tasks(source, classification=classes is not None, client=client) as tasks:
        encoding = LabelEncoding.of(source, classes)
        parts = list(tasks.each("calibration-rows", pick_rows, encoding, chances, usual, seed))
    return _joined(parts, classes is not None, usual)


def _chances(source: BlockSource, n_rows: int, shares: Array) -> tuple[Array, float]:
    """Return the probability that a row of each class is drawn, shape (C,), and that of a common class."""
    row_bytes = max(1, source.n_features * source.feature_dtype.itemsize)
    usual = min(1.0, _wanted(row_bytes) / n_rows)
    rare = ROWS_OF_A_CLASS / (n_rows * np.maximum(shares, 1 / n_rows))
    return np.minimum(np.maximum(usual, rare), 1.0), usual


def _wanted(row_bytes: int) -> int:
    """Return about the rows that are drawn of a large set."""
    return max(LEAST_ROWS, min(MOST_ROWS, SAMPLE_BYTES // max(1, row_bytes)))


def most_rows(n_rows: int, row_bytes: int, n_classes: int) -> int:
    """Return the rows of a draw that are planned for."""
    return min(n_rows, _wanted(row_bytes) + max(2, n_classes) * ROWS_OF_A_CLASS)


def _joined(parts: Sequence[tuple[Any, ...]], classification: bool, usual: float) -> CalibrationRows:
    """Join what `pick_rows` returned for each block."""
    rows, features, targets, weights, shares_of_rows, nbytes = zip(*parts, strict=True)
    values = np.concatenate(targets)
    return CalibrationRows(
        rows=np.concatenate(rows),
        features=np.concatenate(features),
        codes=values if classification else None,
        weights=np.concatenate(weights),
        shares=np.concatenate(shares_of_rows),
        bytes_read=sum(nbytes),
        targets=None if classification else values,
        usual=usual,
    )


def merged_rows(
    tasks: BlockTasks,
    sample: CalibrationRows,
    shares: Array,
    new: NewRows,
    *,
    seed: int,
    weight_scale: float,
    rescaled: float,
) -> CalibrationRows:
    """Draw rows among new ones and thin out those of earlier draws, as one draw of all rows would.

    A row is drawn where its own uniform number is below a chance, which falls as rows are added: so the rows that one
    draw of all rows has are among those kept. Only where a class loses weight beside the others its chance may rise,
    and the rows keep the chance at which they were drawn.

    Parameters
    ----------
    tasks : BlockTasks
        Runs tasks on the new rows.
    sample : CalibrationRows
        The rows so far.
    shares : array, shape (C,)
        Share of each class among all rows.
    new : NewRows
        Numbers and labels of the new rows.
    seed : int
        Key of the draws.
    weight_scale : float
        Factor on the weights of the new rows.
    rescaled : float
        Factor on the weights of the rows so far.
    """
    chances, usual = _chances(tasks.source, new.n_rows, shares)
    kept = uniforms_for_rows(seed, CALIBRATION_STREAM, sample.rows)
    own = np.zeros(len(sample.rows), dtype=np.intp) if sample.codes is None else sample.codes
    chance = np.minimum(chances[own], sample.usual / sample.shares)
    keep = kept < chance
    parts = list(tasks.each("calibration-rows", pick_new_rows, new, chances, usual, seed))
    drawn = _joined(parts, sample.codes is not None, usual)

    def joined(name: str) -> Any:
        old, more = getattr(sample, name), getattr(drawn, name)
        return None if old is None else np.concatenate([old[keep], more])

    return replace(
        drawn,
        rows=joined("rows"),
        features=joined("features"),
        codes=joined("codes"),
        weights=np.concatenate([sample.weights[keep] * rescaled, drawn.weights * weight_scale]),
        shares=np.concatenate([usual / chance[keep], drawn.shares]),
        targets=joined("targets"),
    )


def pick_new_rows(block: BlockRows, new: NewRows, chances: Array, usual: float, seed: int) -> tuple[Any, ...]:
    """Draw the rows of one block of new rows, see `pick_rows`."""
    return pick_rows(new.numbered(block), new.labels, chances, usual, seed)


def pick_rows(
    block: BlockRows, encoding: LabelEncoding | KnownLabels, chances: Array, usual: float, seed: int
) -> tuple[Any, ...]:
    """Draw the rows of one block.

    Parameters
    ----------
    block : BlockRows
        The block, with features.
    encoding : LabelEncoding or KnownLabels
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
        # Rows that were appended are all trained on.
        held &= sample.rows < result.summary.get(FIRST_ROWS, result.summary["n_rows"])
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
    """Return [1 K] on some rows, or [0 K] without a constant, with epsilon as in the training."""
    design = np.full((len(features), len(centers) + 1), float(result.intercept))
    if not len(centers):
        return design
    design[:, 1:] = kernel_of_centers(result.kernel, path.widths[: len(centers)]).block(features, centers)
    if epsilon:
        where, own = positions(rows, path.rows[: len(centers)])
        design[where, 1 + own] += epsilon
    return design

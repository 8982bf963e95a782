"""The rows that a metric is learnt on: drawn on the workers in one pass, and kept in the driver.

The rounds take a small part of the rows many times. In one process, in whole tiles, they need no exchanges, and their
result does not depend on the workers. The scaling is of all rows, which the pass reads anyway.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array
from distkern.monitoring.events import EventBus
from distkern.numerics.arcsinh_columns import ArcsinhColumns
from distkern.numerics.moments import Moments
from distkern.numerics.row_draws import uniforms_for_rows
from distkern.numerics.scaling import FeatureScaling
from distkern.storage.arrays.source import BlockSource

from ..passes.block_tasks import block_tasks
from ..passes.first_pass import Reads, Statistics
from ..protocol.messages import Load
from ..rows.block_reading import HOLDOUT_STREAM, BlockRows, block_statistics, selecting_rows
from ..rows.data_checks import DataSummary
from ..rows.numeric_ranges import feature_scales
from ..selectors.problem_setup import units_of
from ..training.driver_loop import TrainingJob

METRIC_STREAM = HOLDOUT_STREAM + 6
"""Stream of the row draws that decides which rows of the sample are held out."""


@dataclass(frozen=True, eq=False)
class MetricSample:
    """Rows of positive weight, in the order of the source."""

    features: Array
    """(n, d): standardised."""
    targets: Array
    """(n, T): encoded, those of different scale in units of their own."""
    weights: Array | None
    """(n,): row weights, as given."""
    held: NDArray[np.bool_]
    """(n,): mask of the rows that score the models and train none."""
    draws: Array
    """(n,): uniform number of each row; those with the least are held out, then those with the least train."""
    scaling: FeatureScaling
    """From raw features to the standardised ones, by the statistics of all rows."""
    bytes_read: int
    """Bytes that the pass read."""
    variances: Array | None = None
    """(d,): variances of the standardised features over all rows, default None: ones."""
    weight_scale: float = 1.0
    """Factor on the row weights of a training on all rows."""
    own_scale: NDArray[np.bool_] | None = None
    """(d,): mask of the features that are divided by their standard deviation, default None: none."""

    def part(self, rows: NDArray[np.bool_]) -> tuple[Array, Array, Array | None]:
        """Return features, targets and weights of some rows."""
        return self.features[rows], self.targets[rows], None if self.weights is None else self.weights[rows]

    def with_arcsinh(self) -> MetricSample | None:
        """Return the sample with arcsinh of the columns that are unlike normal ones; None where there are none."""
        if self.own_scale is None:
            return None
        found = ArcsinhColumns.fit(self.features, self.weights, self.own_scale)
        if found is None:
            return None
        columns, before = found.columns, self.scaling
        mapped = found.apply(self.features)
        moments = Moments.from_rows(mapped, self.weights)
        shift, scale, features = before.shift.copy(), before.scale.copy(), self.features.copy()
        shift[columns], scale[columns] = moments.mean, moments.std()
        features[:, columns] = (mapped - shift[columns]) / scale[columns]
        scaling = FeatureScaling(shift, scale, arcsinh=found.of_raw(before.shift, before.scale))
        return replace(self, features=features, scaling=scaling)

    def fewer(self, n_fitted: int) -> MetricSample:
        """Return the rows that are held out, and `n_fitted` others, or this sample where it has no more."""
        others = np.flatnonzero(~self.held)
        if len(others) <= n_fitted:
            return self
        kept = self.held.copy()
        kept[others[np.argsort(self.draws[others], kind="stable")[:n_fitted]]] = True
        features, targets, weights = self.part(kept)
        return replace(
            self, features=features, targets=targets, weights=weights, held=self.held[kept], draws=self.draws[kept]
        )


def draw_sample(
    job: TrainingJob, source: BlockSource, n_rows: int, held_share: float, client: Any, events: EventBus
) -> MetricSample:
    """Draw rows in one pass.

    Parameters
    ----------
    job : TrainingJob
        Settings of the training that follows.
    source : BlockSource
        Training rows.
    n_rows : int
        Rows of the sample; all rows if there are no more.
    held_share : float
        Share of the rows that is held out.
    client : distributed.Client or None
        Cluster whose workers read the rows; None for this process.
    events : EventBus
        Receives retries and absent chunks.

    Raises
    ------
    DataError
        The rows cannot be trained on.
    """
    load = Load(job.classification, 0, job.seed, 0.0, selection_rows=min(n_rows, source.n_rows))
    found: Statistics | None = None
    blocks = []
    with block_tasks(source, classification=job.classification, client=client) as tasks:
        for statistics, drawn in tasks.each("metric-rows", _drawn, load, source.n_rows):
            found = statistics if found is None else found.merge(statistics)
            blocks.append(drawn)
    assert found is not None
    # The width of the kernel is chosen in the rounds.
    space = replace(job, sigma=1.0, stop=None)
    data = DataSummary.of(found.loaded, found.reads.report, source, space, events=events)
    weights = [np.ones(len(block.rows)) if block.weights is None else block.weights for block in blocks]
    rows = np.concatenate([block.rows for block in blocks])
    raw = np.concatenate([block.features for block in blocks])
    held = np.zeros(len(rows), dtype=bool)
    uniforms = uniforms_for_rows(job.seed, METRIC_STREAM, rows)
    held[np.argsort(uniforms, kind="stable")[: int(held_share * len(rows))]] = True
    units = units_of(data.loaded)
    targets = np.concatenate([data.encoding.columns(block.targets) for block in blocks])
    scales = feature_scales(source)
    return MetricSample(
        features=data.scaling.apply(raw, np.dtype(np.float64)),
        targets=targets if units is None else targets / np.array(units),
        weights=None if blocks[0].weights is None else np.concatenate(weights).astype(np.float64),
        held=held,
        draws=uniforms,
        scaling=data.scaling,
        bytes_read=found.reads.bytes_read,
        variances=_variances(data, scales) if job.standardize else None,
        weight_scale=data.weight_scale,
        own_scale=(np.ones(raw.shape[1], dtype=bool) if scales is None else np.isnan(scales))
        if job.standardize
        else None,
    )


def _variances(data: DataSummary, scales: Array | None) -> Array | None:
    """Return the variances of features whose scale is given, and ones for those with their standard deviation."""
    if scales is None:
        return None
    return np.where(np.isnan(scales), 1.0, data.loaded.features.variance() / np.square(data.scaling.scale))


def _drawn(block: BlockRows, load: Load, n_rows: int) -> tuple[Statistics, BlockRows]:
    """Return the statistics of all rows of positive weight of a block, and the drawn rows."""
    present = np.ones(len(block.rows), dtype=bool) if block.weights is None else block.weights > 0
    first = int(block.rows[0]) if len(block.rows) else 0
    chosen = selecting_rows(load, present, first, n_rows)
    assert block.features is not None
    drawn = block._replace(
        rows=block.rows[chosen],
        features=block.features[chosen],
        targets=block.targets[chosen],
        weights=None if block.weights is None else block.weights[chosen],
    )
    return Statistics(block_statistics(block.present(), load), Reads.of(block)), drawn

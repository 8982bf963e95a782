"""The first pass of a method by passes: statistics of all rows, and checksums of the blocks.

Later passes must read the same rows. The statistics are checked in `..rows.data_checks`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from distkern.numerics.class_scatter import ClassScatter
from distkern.storage import ReadReport

from ..protocol.answers import LoadAnswer
from ..protocol.messages import Load
from ..rows.block_reading import BlockRows, block_statistics, require_unchanged
from .block_tasks import BlockTasks


@dataclass(frozen=True)
class Reads:
    """Bytes, checksums and report of reads, for the summary and for comparison with other passes."""

    bytes_read: int = 0
    """Bytes read."""
    checksums: dict[int, int] = field(default_factory=dict)
    """First row of each block to its checksum."""
    report: ReadReport = field(default_factory=ReadReport)
    """Retries and absent chunks."""

    @classmethod
    def of(cls, block: BlockRows) -> Reads:
        """Return the reads of one block."""
        return cls(block.nbytes, {int(block.rows[0]): block.checksum}, block.report)

    def merge(self, other: Reads) -> Reads:
        """Merge the reads of other blocks."""
        report = self.report.merge(other.report)
        return Reads(self.bytes_read + other.bytes_read, self.checksums | other.checksums, report)


@dataclass(frozen=True)
class Statistics:
    """Result of a first pass."""

    loaded: LoadAnswer
    """Moments, the weight of every label, and a sample of rows."""
    reads: Reads
    """Reads of the pass."""
    scatter: ClassScatter | None = None
    """Means and scatter of the classes, for methods that need them."""

    @classmethod
    def of(cls, block: BlockRows, load: Load) -> Statistics:
        """Compute the statistics of one block."""
        return cls(block_statistics(block, load), Reads.of(block))

    @property
    def labels(self) -> NDArray[Any]:
        """Sorted labels, or codes, of the classes that have a row of weight above 0."""
        assert self.loaded.labels is not None
        return self.loaded.labels.values

    def merge(self, other: Statistics) -> Statistics:
        """Merge the statistics of other rows."""
        scatter = self.scatter.merge(other.scatter) if self.scatter and other.scatter else None
        return Statistics(self.loaded.merge(other.loaded), self.reads.merge(other.reads), scatter)


def require_same_rows(tasks: BlockTasks, first: Reads, again: Reads) -> None:
    """Refuse rows that changed between two passes.

    Raises
    ------
    DataError
        ``changed``.
    """
    for number, row in enumerate(tasks.source.boundaries[:-1]):
        if row in again.checksums:
            require_unchanged(tasks.source, number, first.checksums.get(row), again.checksums[row])

"""Shapes of data, which decide the plan of a training."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, fields
from typing import Any

from numpy.typing import NDArray

from distkern.storage import block_boundaries, chunk_rows_for
from distkern.storage.arrays.source import BlockSource

from ..runtime.read_ahead import blocks_ahead, is_remote

UNKNOWN_CLASSES = 10
"""Assumed number of classes of a plan, where it is known only after the rows are read."""

_NOT_SHOWN = ("remote", "inline", "lazy_results")


def problem_counts(multiclass: str, n_targets: int) -> tuple[int, int]:
    """Return the number of problems of a training, and of those that each row takes part in."""
    if multiclass == "one-vs-one" and n_targets > 1:
        return n_targets * (n_targets - 1) // 2, n_targets - 1
    n_problems = n_targets if multiclass == "one-vs-rest" else 1
    return n_problems, n_problems


@dataclass(frozen=True)
class Workload:
    """The shapes that decide how much a training needs."""

    n_rows: int
    """Rows of X."""
    n_features: int
    """Columns of X."""
    feature_itemsize: int
    """Bytes of a number of X as stored."""
    block_rows: int
    """Rows of the largest block."""
    n_blocks: int
    """Number of blocks."""
    target_columns: int
    """Columns of y as stored."""
    n_targets: int
    """Number of encoded target columns."""
    n_problems: int
    """Number of problems: one, or one for each class (one-vs-rest) or pair of classes (one-vs-one)."""
    memberships: int
    """Number of problems that each row takes part in."""
    remote: bool = False
    """Whether reads wait on a network, and therefore run ahead."""
    inline: bool = False
    """Whether the rows are arrays in memory, and a pass over them reads nothing."""
    lazy_results: int = 0
    """Most bytes of results that lazily computed rows keep for all blocks."""

    @classmethod
    def known(
        cls,
        source: BlockSource,
        *,
        classification: bool,
        multiclass: str = "shared",
        classes: NDArray[Any] | None = None,
    ) -> Workload:
        """Return the shapes that a source knows before it is read; labels are those of the source, or `classes`."""
        n_targets = source.target_shape[0] if source.target_shape else 1
        if classification:
            labels = source.classes if classes is None else classes
            n_classes = UNKNOWN_CLASSES if labels is None else len(labels)
            n_targets = 1 if n_classes <= 2 else n_classes
        return cls.of(source, n_targets, *problem_counts(multiclass, n_targets))

    @classmethod
    def of(cls, source: BlockSource, n_targets: int, n_problems: int, memberships: int | None = None) -> Workload:
        """Return the shapes of a source; by default every row takes part in all problems."""
        return cls(
            n_rows=source.n_rows,
            n_features=source.n_features,
            feature_itemsize=source.feature_dtype.itemsize,
            block_rows=max(b - a for a, b in itertools.pairwise(source.boundaries)),
            n_blocks=len(source.boundaries) - 1,
            target_columns=source.target_shape[0] if source.target_shape else 1,
            n_targets=n_targets,
            n_problems=n_problems,
            memberships=n_problems if memberships is None else memberships,
            remote=is_remote(source),
            inline=source.inline,
            lazy_results=getattr(source, "lazy_results", 0),
        )

    @classmethod
    def imagined(
        cls,
        n_rows: int,
        n_features: int,
        itemsize: int,
        n_targets: int,
        n_problems: int = 1,
        memberships: int | None = None,
        chunk_rows: int | None = None,
        target_columns: int = 1,
    ) -> Workload:
        """Return the shapes of data that does not exist, in chunks as distkern would write them."""
        row_bytes = n_features * itemsize
        boundaries = block_boundaries(n_rows, row_bytes, chunk_rows or chunk_rows_for(row_bytes, n_rows))
        return cls(
            n_rows=n_rows,
            n_features=n_features,
            feature_itemsize=itemsize,
            block_rows=boundaries[1],
            n_blocks=len(boundaries) - 1,
            target_columns=target_columns,
            n_targets=n_targets,
            n_problems=n_problems,
            memberships=n_problems if memberships is None else memberships,
        )

    @property
    def subsets(self) -> bool:
        """Whether a problem has some of the rows only."""
        return self.memberships < self.n_problems

    @property
    def targets_of_a_problem(self) -> int:
        """Most target columns of a problem."""
        return max(1, -(-self.n_targets // self.n_problems))

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of X."""
        return self.n_features * self.feature_itemsize

    def record(self) -> dict[str, int]:
        """Return the shapes as plain numbers."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _NOT_SHOWN}

    def read_ahead(self, limit: int | None) -> int:
        """Return the number of blocks that reads run ahead in a process that may take `limit` bytes."""
        return blocks_ahead(self.remote, self.block_rows * self.row_bytes, limit)

    def rows_of_a_worker(self, n_workers: int) -> int:
        """Return the most rows that one of `n_workers` owns."""
        return min(self.n_rows, -(-self.n_blocks // max(1, n_workers)) * self.block_rows)

"""A pass over all rows of one block, and the sums of the final pass that determine the weights of given centres.

A block reads its rows once more, adds up its tiles in order and drops the rows; all problems share the read. Blocks run
concurrently on the tile pool. Rows outside the selection sample, and rows held out for the validation stop rule, take
part like all others. The weights are solved in `..training.refit`; passes for models with many centres are in
`center_products`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array
from distkern.kernels import Kernel
from distkern.selection.gram_refit import Preconditioner, add_gram, add_gram_of_some, empty_gram

from ..protocol.answers import Answer, ProblemAnswer
from ..protocol.candidates import Candidates
from ..protocol.messages import Accumulate, Begin, Centers
from ..protocol.problems import Problem
from ..rows.block_reading import BlockRows, require_unchanged
from ..rows.label_encoding import KnownLabels, LabelEncoding
from ..rows.problem_rows import cut_tiles
from ..runtime.threads import workspace
from ..runtime.timings import READ, busy
from . import pool_tiles as tiles
from .block import Block

MOST_NEAR = 0.7
"""Largest share of the columns that are not zero on a tile with which the others are left out of the products: the
copy of the columns takes some of the time that is saved."""

T = TypeVar("T")


class Part(Protocol):
    """Computation of a pass for one problem on one block."""

    def add(self, raw: NDArray[Any], rows: NDArray[np.int64], roots: Array | None, encoded: Array) -> None:
        """Add one tile: raw features, row numbers, root weights, and all encoded target columns."""
        ...

    def answer(self) -> ProblemAnswer:
        """Return the answer for all tiles."""
        ...


def accumulate(block: Block, message: Accumulate, take: Callable[[int], BlockRows]) -> Answer:
    """Compute ``refit_gram``, ``refit_products`` and ``target_norms`` of one block, see `pass_over`."""
    return pass_over(block, message.problems, _Sums, take)


def pass_over(
    block: Block,
    asked: Sequence[T | None],
    make: Callable[[T, Begin, Problem, int], Part],
    take: Callable[[int], BlockRows],
) -> Answer:
    """Read one block and compute the answer for every problem over all its rows.

    Parameters
    ----------
    block : Block
        A block after `Begin`; its state does not change.
    asked : sequence
        What is asked of each problem; None for nothing.
    make : callable
        Returns a new `Part` from what is asked, `Begin`, the problem, and the number of rows of the data.
    take : callable
        Reads the rows of a block.

    Raises
    ------
    DataError
        ``changed``: the rows differ from those that were loaded.
    """
    begin, source, number = block.begin, block.source, block.number
    assert begin is not None
    with busy(READ):
        rows = take(number).present()
        require_unchanged(source, number, block.checksum, rows.checksum)
    answer = Answer(bytes_read=rows.nbytes, report=rows.report)
    encoding = LabelEncoding.of(source, begin.classes)
    answer.problems = over_rows(rows, begin, encoding, source.n_rows, asked, make)
    return answer


def over_rows(
    block: BlockRows,
    begin: Begin,
    encoding: LabelEncoding | KnownLabels,
    n_rows: int,
    asked: Sequence[T | None],
    make: Callable[[T, Begin, Problem, int], Part],
) -> list[ProblemAnswer]:
    """Compute the answer for every problem over the rows of a block, all with a weight above zero.

    Parameters
    ----------
    block : BlockRows
        The rows, with features.
    begin : Begin
        The problems, and what their kernel columns need.
    encoding : LabelEncoding or KnownLabels
        Encoding of the targets.
    n_rows : int
        Number of rows of the data.
    asked : sequence
        What is asked of each problem; None for nothing.
    make : callable
        As for `pass_over`.
    """
    rows, features, targets, weights = block[:4]
    assert features is not None
    roots = None if weights is None else np.sqrt(weights * begin.weight_scale)
    codes = encoding.codes(targets)
    parts = [
        None if wanted is None else make(wanted, begin, problem, n_rows)
        for wanted, problem in zip(asked, begin.problems, strict=True)
    ]
    taking = [problem.takes(rows, codes) for problem in begin.problems]
    for tile in cut_tiles(len(rows), 0):
        encoded = encoding.columns(targets[tile.rows])
        tile_roots = None if roots is None else roots[tile.rows]
        for part, problem_takes in zip(parts, taking, strict=True):
            if part is None:
                continue
            arrays = features[tile.rows], rows[tile.rows], tile_roots, encoded
            if problem_takes is not None:
                chosen = problem_takes[tile.rows]
                arrays = features[tile.rows][chosen], rows[tile.rows][chosen], None, encoded[chosen]
                if tile_roots is not None:
                    arrays = *arrays[:2], tile_roots[chosen], arrays[3]
            if len(arrays[0]):
                part.add(*arrays)
    return [ProblemAnswer() if part is None else part.answer() for part in parts]


def sums_over_rows(
    block: BlockRows, begin: Begin, encoding: LabelEncoding | KnownLabels, n_rows: int, centers: Sequence[Centers]
) -> list[ProblemAnswer]:
    """Compute the sums of `accumulate` over the rows of a block, see `over_rows`."""
    return over_rows(block, begin, encoding, n_rows, centers, _Sums)


def columns_not_zero(columns: NDArray[Any], kernel: Kernel) -> NDArray[np.intp] | None:
    """Return the columns of a tile that are not zero, None for all columns.

    Parameters
    ----------
    columns : array, shape (w, n)
        Kernel columns, with or without others.
    kernel : Kernel
        Only where it is zero beyond a distance is it worth a look.
    """
    if np.isinf(kernel.reach):
        return None
    near = np.flatnonzero(columns.any(axis=1))
    return near if len(near) <= MOST_NEAR * len(columns) else None


def prepare_centers(
    rows: NDArray[np.int64], features: NDArray[Any], begin: Begin, problem: Problem, n_rows: int
) -> Candidates:
    """Return the centres of a pass in kernel space: numbers (m,), raw features (m, d), of data of `n_rows` rows."""
    return Candidates.prepare(
        rows,
        features,
        n_rows=n_rows,
        scaling=begin.scaling,
        kernel=problem.kernel,
        dtype=np.dtype(begin.dtype),
        width=max(len(rows), 2),  # numpy rounds products of one column differently
    )


class CenterColumns:
    """Columns [1 K] of given centres, or [1 K] inv(P), on the tiles of a block.

    Parameters
    ----------
    rows : array, shape (m,)
        Numbers of the centres.
    features : array, shape (m, d)
        Their raw features.
    preconditioner : array, shape (m + 1, m + 1), or None
        P, unit upper triangular; None for the identity.
    begin : Begin
        Settings of the training.
    problem : Problem
        Problem of the centres.
    n_rows : int
        Rows of the data.
    """

    def __init__(
        self,
        rows: NDArray[np.int64],
        features: NDArray[Any],
        preconditioner: Array | None,
        begin: Begin,
        problem: Problem,
        n_rows: int,
    ) -> None:
        self._begin, self._m = begin, len(rows)
        self._preconditioner = None if preconditioner is None else Preconditioner(preconditioner)
        self._centers = prepare_centers(rows, features, begin, problem, n_rows)

    def of(self, raw: NDArray[Any], rows: NDArray[np.int64], roots: Array | None) -> Array:
        """Return the columns of one tile times its root weights, (m + 1, n), in a buffer of this thread."""
        # Rows of this array are columns of [1 K]: the kernel writes them in place, and their product is the fastest.
        full = workspace.array("refit", (len(self._centers.features) + 1, len(rows)), np.dtype(np.float64))
        tiles.columns_of(raw, rows, roots, self._begin, self._centers, out=full[1:])
        columns = full[: self._m + 1]
        columns[0] = 1.0 if roots is None else roots
        if self._preconditioner is not None:
            self._preconditioner.apply(columns)
        return columns


class _Sums:
    """Sums of one problem over the tiles of a block."""

    def __init__(self, centers: Centers, begin: Begin, problem: Problem, n_rows: int) -> None:
        m = len(centers.rows)
        self._problem = problem
        self._means = centers.target_means
        self._n_targets = n_targets = len(problem.columns)
        given = centers.rows, centers.features, centers.preconditioner
        self._columns = CenterColumns(*given, begin, problem, n_rows)
        self._gram = empty_gram(m + 1)
        self._products = np.zeros((m + 1, max(n_targets, 2)))
        self._norms = np.zeros(n_targets)

    def add(self, raw: NDArray[Any], rows: NDArray[np.int64], roots: Array | None, encoded: Array) -> None:
        """Add one tile: raw features, row numbers, root weights, and all encoded target columns."""
        columns = self._columns.of(raw, rows, roots)
        near = columns_not_zero(columns, self._problem.kernel)
        square = workspace.array("square", (len(columns), len(columns)), columns.dtype)
        if near is None:
            add_gram(self._gram, columns, square)
        else:
            columns = columns[near]
            add_gram_of_some(self._gram, columns, near, square)
        targets = self._problem.centred(encoded, self._means)
        if roots is not None:
            targets *= roots[:, None]
        padded = np.zeros((len(rows), self._products.shape[1]))
        padded[:, : self._n_targets] = targets
        self._products[slice(None) if near is None else near] += columns @ padded
        self._norms += np.square(targets).sum(axis=0)

    def answer(self) -> ProblemAnswer:
        """Return the sums by name."""
        products = np.ascontiguousarray(self._products[:, : self._n_targets])
        return ProblemAnswer({"refit_gram": self._gram, "refit_products": products, "target_norms": self._norms})

"""Row matrices: the same content in memory and in scratch, within the budget, and no byte or file left behind."""

from __future__ import annotations

import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from distkern.errors import BudgetError
from distkern.scheduler.runtime.spillable_matrix import LazyScratch, MemoryBudget, RowMatrix
from tests.scheduler.scratch_files import scratch_files

F8 = np.dtype(np.float64)


def make(limit: int | None, rows: int = 30, width: int = 4, dtype: Any = F8, role: str = "work") -> RowMatrix:
    budget = MemoryBudget(limit)
    return RowMatrix(rows, width, dtype, budget, budget.scratch(), role)


ACTIONS = [
    "change",
    "change columns",
    "overwrite",
    "put columns",
    "look",
    "look at columns",
    "fill",
    "prefetch",
    "prefetch columns",
]


@st.composite
def operations(draw: st.DrawFn, rows: int, width: int) -> list[tuple[str, slice, Any]]:
    """Actions of tiles on a matrix: change borrowed rows in place, overwrite blank ones, look, and set everything."""
    made = []
    for number in range(draw(st.integers(1, 12))):
        start = draw(st.integers(0, rows))
        what = draw(st.sampled_from(ACTIONS))
        columns = sorted(draw(st.tuples(st.integers(0, width), st.integers(0, width))))
        made.append((what, slice(start, draw(st.integers(start, rows))), (number, slice(*columns))))
    return made


def apply(matrix: RowMatrix, what: str, rows: slice, number: int, columns: slice) -> bytes:
    n, width = rows.stop - rows.start, matrix.shape[1]
    values = (number + 1.5 + np.arange(n * width).reshape(n, width)).astype(matrix.dtype)
    if what == "fill":
        matrix.fill(np.full(matrix.shape, number, dtype=matrix.dtype))
    elif what == "prefetch":
        matrix.prefetch(rows)
    elif what == "prefetch columns":
        matrix.prefetch(rows, columns.stop)
    elif what == "put columns":
        matrix.put_columns(rows, columns.start, values.reshape(width, n)[columns])
    elif what == "look at columns":
        found = matrix.borrow_columns(rows, columns.start, columns.stop).copy()
        assert found.shape == (columns.stop - columns.start, n)
        np.testing.assert_array_equal(found, matrix.borrow_columns(rows)[columns])
        return found.tobytes()
    elif what == "overwrite":
        blank = matrix.blank(rows)
        blank[...] = values
        matrix.give_back(rows, blank)
    else:
        borrowed = matrix.borrow(rows)
        assert borrowed.shape == (n, width)
        assert borrowed.dtype == matrix.dtype
        if what == "look":
            return borrowed.tobytes()
        part = columns if what == "change columns" else slice(None)
        borrowed[:, part] += values[:, part]
        matrix.give_back(rows, borrowed)
    return b""


@given(st.data(), st.integers(1, 40), st.integers(1, 9), st.sampled_from(["float64", "float32", "int16"]))
def test_the_same_content_in_memory_and_in_scratch(data: st.DataObject, rows: int, width: int, dtype: str) -> None:
    memory, scratch = (make(limit, rows, width, np.dtype(dtype)) for limit in (None, 0))
    assert memory.in_memory
    assert not scratch.in_memory
    for what, part, (number, columns) in data.draw(operations(rows, width)):
        seen = [apply(matrix, what, part, number, columns) for matrix in (memory, scratch)]
        assert seen[0] == seen[1]
        assert memory.whole().tobytes() == scratch.whole().tobytes()
    assert scratch.whole().shape == memory.whole().shape == (rows, width)
    assert scratch.whole().dtype == memory.whole().dtype == dtype


def test_a_new_matrix_is_zero() -> None:
    for limit in (None, 0):
        matrix = make(limit)
        assert not matrix.whole().any()
        assert not matrix.borrow(slice(3, 9)).any()


@given(st.integers(0, 2000), st.lists(st.tuples(st.integers(0, 20), st.integers(1, 5)), max_size=12), st.data())
def test_the_budget_is_never_exceeded(limit: int, shapes: list[tuple[int, int]], data: st.DataObject) -> None:
    budget = MemoryBudget(limit)
    scratch = budget.scratch()
    alive: list[RowMatrix] = []
    for rows, width in shapes:
        free = limit - budget.used
        alive.append(RowMatrix(rows, width, F8, budget, scratch, "work"))
        assert alive[-1].in_memory == (rows * width * 8 <= free)
        if alive and data.draw(st.booleans()):
            alive.pop(data.draw(st.integers(0, len(alive) - 1)))
        assert budget.used == sum(m.shape[0] * m.shape[1] * 8 for m in alive if m.in_memory) <= limit
    alive.clear()
    assert budget.used == 0


class Matrices(RuleBasedStateMachine):
    """Matrices of one block come, change and go; each is compared to an array of the same content."""

    @initialize(limit=st.integers(0, 1500))
    def start(self, limit: int) -> None:
        self.budget = MemoryBudget(limit)
        self.scratch = self.budget.scratch()
        self.pairs: list[tuple[RowMatrix, Any]] = []

    @rule(rows=st.integers(1, 12), width=st.integers(1, 8), role=st.sampled_from(["work", "pool", "slab"]))
    def add(self, rows: int, width: int, role: str) -> None:
        matrix = RowMatrix(rows, width, F8, self.budget, self.scratch, role)
        self.pairs.append((matrix, np.zeros((rows, width))))

    @precondition(lambda self: self.pairs)
    @rule(data=st.data())
    def change(self, data: st.DataObject) -> None:
        matrix, mirror = self.pairs[data.draw(st.integers(0, len(self.pairs) - 1))]
        start = data.draw(st.integers(0, len(mirror) - 1))
        rows = slice(start, data.draw(st.integers(start + 1, len(mirror))))
        borrowed = matrix.borrow(rows)
        np.testing.assert_array_equal(borrowed, mirror[rows])
        mirror[rows] += 1.0 + np.arange(mirror.shape[1])
        borrowed += 1.0 + np.arange(mirror.shape[1])
        matrix.give_back(rows, borrowed)

    @precondition(lambda self: self.pairs)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        self.pairs.pop(data.draw(st.integers(0, len(self.pairs) - 1)))

    @invariant()
    def contents_and_bytes(self) -> None:
        if not hasattr(self, "budget"):
            return
        for matrix, mirror in self.pairs:
            np.testing.assert_array_equal(matrix.whole(), mirror)
        assert self.budget.used == sum(mirror.nbytes for matrix, mirror in self.pairs if matrix.in_memory)
        assert self.budget.used <= self.budget.limit


TestMatrices = Matrices.TestCase
TestMatrices.settings = settings(max_examples=12, stateful_step_count=20)


def test_roles_have_their_own_buffers() -> None:
    """A tile holds rows of several matrices at once; each has its role."""
    budget = MemoryBudget(0)
    scratch = budget.scratch()
    held = {}
    for number, role in enumerate(("features", "work", "pool", "slab")):
        matrix = RowMatrix(8, 3, F8, budget, scratch, role)
        matrix.fill(np.full((8, 3), float(number)))
        held[role] = matrix.borrow(slice(2, 6))
    for number, array in enumerate(held.values()):
        assert (array == number).all()


def test_borrowed_rows_in_memory_are_the_rows_themselves() -> None:
    matrix = make(None)
    matrix.borrow(slice(2, 5))[...] = 3.0
    assert matrix.whole()[2:5].all()
    assert np.count_nonzero(matrix.whole()) == 12


def test_threads_borrow_from_buffers_of_their_own() -> None:
    budget = MemoryBudget(0)
    matrix = RowMatrix(64 * 50, 5, F8, budget, budget.scratch(), "work")
    barrier = threading.Barrier(4)

    def work(tile: int) -> None:
        if tile < 4:
            barrier.wait(20)
        rows = slice(50 * tile, 50 * tile + 50)
        for _ in range(10):
            borrowed = matrix.borrow(rows)
            before = borrowed.copy()
            borrowed += tile + 1
            np.testing.assert_array_equal(borrowed, before + tile + 1)
            matrix.give_back(rows, borrowed)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(64)))
    np.testing.assert_array_equal(matrix.whole(), np.repeat(10.0 * np.arange(1, 65), 50)[:, None] * np.ones(5))


def test_threads_share_a_budget() -> None:
    limit = 4000
    budget = MemoryBudget(limit)
    most = []

    def work(seed: int) -> int:
        rng = np.random.default_rng(seed)
        scratch, alive = budget.scratch(), []
        inside = 0
        for _ in range(60):
            alive.append(RowMatrix(int(rng.integers(1, 40)), 3, F8, budget, scratch, "work"))
            inside += alive[-1].in_memory
            most.append(budget.used)
            if len(alive) > 6:
                alive.pop(int(rng.integers(len(alive))))
        return inside

    with ThreadPoolExecutor(4) as pool:
        assert 0 < sum(pool.map(work, range(8))) < 8 * 60
    assert max(most) <= limit
    gc.collect()
    assert budget.used == 0


def test_a_matrix_that_cannot_be_made_costs_nothing() -> None:
    budget = MemoryBudget(1 << 60)
    with pytest.raises(MemoryError):
        RowMatrix(1 << 40, 1 << 12, F8, budget, budget.scratch(), "work")
    gc.collect()
    assert budget.used == 0


def test_the_file_goes_with_the_last_matrix(tmp_path: Path) -> None:
    budget = MemoryBudget(0, str(tmp_path))
    scratch = budget.scratch()
    assert scratch.nbytes == 0
    assert scratch_files(tmp_path) == {}
    matrices = [RowMatrix(100, 5, F8, budget, scratch, "work") for _ in range(3)]
    assert scratch.nbytes == 3 * 4000
    assert os.listdir(tmp_path) == []
    assert len(scratch_files(tmp_path)) == 1
    del scratch
    matrices.pop()
    assert len(scratch_files(tmp_path)) == 1
    matrices.clear()
    assert scratch_files(tmp_path) == {}


def test_no_file_is_made_while_memory_suffices(tmp_path: Path) -> None:
    budget = MemoryBudget(4000, str(tmp_path / "missing"))
    scratch = budget.scratch()
    kept = RowMatrix(100, 5, F8, budget, scratch, "work")
    assert kept.in_memory
    with pytest.raises(BudgetError) as error:
        RowMatrix(100, 5, F8, budget, scratch, "work")
    assert error.value.kind == "scratch"
    assert budget.used == 4000


def test_scratch_goes_to_the_temporary_directory_by_default() -> None:
    assert MemoryBudget(0).directory == gettempdir()
    assert isinstance(MemoryBudget().scratch(), LazyScratch)

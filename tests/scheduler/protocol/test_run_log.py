from __future__ import annotations

import itertools
from typing import Any
from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from distkern.scheduler.protocol import run_log as log
from distkern.scheduler.protocol.messages import GENESIS, Load, ProblemStep, Project, Step, chain, digest
from distkern.scheduler.protocol.run_log import RunLog


def message(n: int, columns: int) -> Any:
    """A step of about `columns` bytes, different for every `n`."""
    project = Project(np.full((1, columns), float(n)), np.arange(1))
    return Step((ProblemStep(project=project),))


def make_log(sizes: list[int]) -> RunLog:
    made = RunLog()
    for n, size in enumerate(sizes):
        made.append(message(n, size))
    return made


def test_an_empty_log() -> None:
    empty = RunLog()
    assert len(empty) == 0
    assert empty.hashes == [GENESIS]
    assert list(empty.slices(0, 0)) == []


@given(st.lists(st.integers(1, 20), max_size=12))
def test_hashes_chain(sizes: list[int]) -> None:
    made = make_log(sizes)
    assert len(made) == len(made.messages) == len(sizes)
    assert len(made.hashes) == len(sizes) + 1
    for n, sent in enumerate(made.messages):
        assert made.hashes[n + 1] == chain(made.hashes[n], digest(sent))
    assert len(set(made.hashes)) == len(made.hashes)
    assert make_log(sizes).hashes == made.hashes


@given(st.lists(st.integers(1, 40), max_size=15), st.data())
def test_slices_cover_exactly_and_respect_the_limit(sizes: list[int], data: st.DataObject) -> None:
    made = make_log(sizes)
    first = data.draw(st.integers(0, len(sizes)))
    last = data.draw(st.integers(first, len(sizes)))
    limit = data.draw(st.integers(1, 400))
    with mock.patch.object(log, "SLICE_BYTES", limit):
        slices = list(made.slices(first, last))
    covered = [n for start, stop in slices for n in range(start, stop)]
    assert covered == list(range(first, last))
    assert all(start < stop for start, stop in slices)
    heavy = [sum(m.problems[0].project.coefficients.nbytes for m in made.messages[a:b]) for a, b in slices]
    for (start, stop), size in zip(slices, heavy, strict=True):
        assert size <= limit or stop - start == 1
    # Greedy: no slice could have taken the first message of the next one with room for what every message costs beside.
    for (a, b), _ in itertools.pairwise(slices):
        more = sum(m.problems[0].project.coefficients.nbytes + 64 for m in made.messages[a : b + 1])
        assert more > limit


def test_a_log_of_many_small_messages_is_one_slice() -> None:
    made = RunLog()
    for seed in range(50):
        made.append(Load(False, 0, seed, 0.0))
    assert list(made.slices(3, 50)) == [(3, 50)]

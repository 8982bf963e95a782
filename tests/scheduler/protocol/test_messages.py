from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distkern.kernels import Gaussian, Kernel, Linear, Polynomial
from distkern.numerics.scaling import FeatureScaling
from distkern.scheduler.protocol.messages import (
    GENESIS,
    Accumulate,
    Append,
    Begin,
    Centers,
    Columns,
    Commit,
    Eliminate,
    Enter,
    FetchRows,
    Form,
    FormAhead,
    KernelColumns,
    Load,
    LookaheadStep,
    ProblemStep,
    Project,
    Step,
    Trial,
    canonical,
    chain,
    digest,
    message_name,
)
from distkern.scheduler.protocol.problems import ClassPair, Draw, Folds, OtherFolds, Problem

RNG = np.random.default_rng(0)

DRAW = Draw(seed=3, round=1, n_top=2, n_race=4, by_residual=True)
LOAD = Load(classification=False, sample_rows=10, seed=1, holdout=0.1)
BEGIN = Begin(
    scaling=FeatureScaling(np.array([1.0, 2.0]), np.array([0.5, 3.0])),
    dtype="float64",
    epsilon=0.25,
    classes=np.array(["a", "b", "c"]),
    problems=(
        Problem((0,), np.array([0.1]), 9.0, Gaussian(2.0), (), DRAW),
        Problem((1, 2), np.array([-0.2, 0.3]), 7.0, Gaussian(1.0), (OtherFolds(Folds(5, 7), 2),), None),
    ),
    columns=11,
    pool=8,
    panel=4,
    batch=3,
)
STEP = Step(
    (
        None,
        ProblemStep(
            append=Append(5, RNG.normal(size=(4, 2)), RNG.normal(size=(5, 2)), RNG.normal(size=(2, 3))),
            eliminate=Eliminate(RNG.normal(size=(4, 8))),
            project=Project(RNG.normal(size=(5, 3)), np.array([1, 4])),
            form=Form(np.array([2, 3]), RNG.normal(size=(2, 4))),
            columns=Columns(np.array([7, 9]), RNG.normal(size=(2, 2)), np.array([5])),
            draw=DRAW,
            refresh=False,
        ),
    )
)
AHEAD = LookaheadStep(
    form=FormAhead(np.array([4, 1]), RNG.normal(size=(2, 4)), RNG.normal(size=(5, 4)), True),
    trial=Trial(RNG.normal(size=(4, 4)), RNG.normal(size=(5, 4)), RNG.normal(size=(2, 3)), np.array([8, 6]), 0.5, 20),
    commit=Commit(5, np.array([0, 1]), RNG.normal(size=(2, 3)), np.array([8, 6])),
    columns=Columns(np.array([7, 9]), RNG.normal(size=(2, 2)), np.array([5])),
    enter=Enter(np.array([1, 2]), np.array([3, 7, 9])),
)
CENTERS = Centers(np.array([7, 9]), RNG.normal(size=(2, 2)), np.eye(3), np.array([0.5, -1.0]))
ACCUMULATE = Accumulate((None, CENTERS))
MESSAGES = [
    LOAD,
    BEGIN,
    STEP,
    Step((AHEAD,)),
    ACCUMULATE,
    KernelColumns((STEP.problems[1].columns, None)),
    FetchRows(np.array([3, 5])),
]


def changed(value: Any) -> Iterator[Any]:
    """Everything that differs from `value` in one place."""
    if isinstance(value, Kernel):
        yield from (Gaussian(2.5), Linear(), Polynomial(2))
    elif is_dataclass(value):
        for field in fields(value):
            for other in changed(getattr(value, field.name)):
                yield replace(value, **{field.name: other})
    elif isinstance(value, np.ndarray) and value.dtype.kind == "f":
        for place in np.ndindex(value.shape):
            other = value.copy()
            other[place] = np.nextafter(other[place], np.inf)
            yield other
        yield value.astype(np.float32)
        yield value.reshape(value.size, 1) if value.ndim == 1 else value.ravel()
        yield value[:-1]
    elif isinstance(value, np.ndarray):
        yield value[::-1].copy() if len(value) > 1 else value[:0]
        yield np.concatenate([value, value[:1]])
    elif isinstance(value, tuple):
        yield (*value, None)
        if value:
            yield value[:-1]
        for i, item in enumerate(value):
            yield from ((*value[:i], other, *value[i + 1 :]) for other in changed(item))
    elif value is None:
        yield 0
        yield STEP.problems[1]
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, (int, float)):
        yield value + 1
        yield None
    else:
        assert isinstance(value, str)
        yield value + "x"


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_the_digest_depends_on_every_field_and_nothing_else(message: Any) -> None:
    name = digest(message)
    assert len(name) == 16
    assert digest(pickle.loads(pickle.dumps(message))) == name
    others = [digest(other) for other in changed(message)]
    assert len(others) >= 2
    assert name not in others
    assert len(set(others)) == len(others)


def test_the_digest_never_changes() -> None:
    # Run logs outlive a process: these would name other states if the digest changed.
    assert digest(LOAD).hex() == "3df7d61e2f7399aa4bdf5fc9d0ef0f3f"
    assert digest(Step((ProblemStep(draw=DRAW),))).hex() == "5f2427c6b28eb1583ed5e939e4e12486"


def layouts(array: Any) -> Iterator[Any]:
    """The same values in other places: Fortran order, strided, reversed, unaligned, read-only."""
    yield np.asfortranarray(array)
    yield np.repeat(array, 2, axis=0)[::2]
    yield array[::-1].copy()[::-1]
    raw = np.empty(array.nbytes + 1, dtype=np.uint8)
    unaligned = raw[1:].view(array.dtype).reshape(array.shape)
    unaligned[...] = array
    assert not unaligned.flags.aligned or array.dtype.itemsize == 1
    yield unaligned
    frozen = array.copy()
    frozen.flags.writeable = False
    yield frozen


@given(st.integers(1, 5), st.integers(1, 5), st.sampled_from([np.float64, np.float32, np.int64]))
def test_memory_layout_is_not_part_of_a_message(n: int, k: int, dtype: Any) -> None:
    array = np.arange(n * k).reshape(n, k).astype(dtype)
    message = Step((ProblemStep(project=Project(array, np.arange(n))),))
    for other in layouts(array):
        moved = Step((ProblemStep(project=Project(other, np.arange(n))),))
        assert digest(moved) == digest(message)
        received = canonical(moved)
        assert digest(received) == digest(message)
        assert received.problems[0] is not None
        project = received.problems[0].project
        assert project is not None
        assert project.coefficients.flags.c_contiguous
        assert project.coefficients.flags.aligned
        assert project.coefficients.dtype == dtype
        np.testing.assert_array_equal(project.coefficients, array)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_canonical_keeps_everything_else(message: Any) -> None:
    received = canonical(message)
    assert type(received) is type(message)
    assert digest(received) == digest(message)
    assert message_name(received) == message_name(message)


def test_messages_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        LOAD.seed = 2  # type: ignore[misc]


@pytest.mark.parametrize("value", [np.int64(1), [1, 2], {"a": 1}, {1}, object()], ids=lambda v: type(v).__name__)
def test_other_types_are_refused(value: Any) -> None:
    with pytest.raises(TypeError, match=f"messages hold no {type(value).__name__}"):
        digest(replace(LOAD, seed=value))


def test_the_end_of_a_tuple_is_in_its_digest() -> None:
    first, second = BEGIN.problems
    for changes in ({"columns": (1,)}, {"within": (ClassPair(0, 1),)}, {"kernel": Gaussian(3.0)}, {"draw": None}):
        assert digest(BEGIN) != digest(replace(BEGIN, problems=(replace(first, **changes), second)))


def test_the_chain_names_order_and_length() -> None:
    a, b = digest(LOAD), digest(BEGIN)
    names = [GENESIS, chain(GENESIS, a), chain(GENESIS, b), chain(chain(GENESIS, a), b), chain(chain(GENESIS, b), a)]
    assert len(set(names)) == len(names)
    assert all(len(name) == 16 for name in names)


def test_names_are_what_the_dashboard_shows() -> None:
    assert message_name(LOAD) == "load-blocks"
    assert message_name(BEGIN) == "begin-run"
    assert message_name(KernelColumns((None,))) == "kernel-columns"
    assert message_name(FetchRows(np.array([1]))) == "fetch-rows"
    full = STEP.problems[1]
    assert full is not None
    expected = {
        "kernel-columns": full,
        "form-panel": replace(full, columns=None),
        "append-panel": replace(full, columns=None, form=None),
        "project-candidates": replace(full, columns=None, form=None, append=None),
        "residual-argmax": ProblemStep(draw=DRAW),
    }
    for name, step in expected.items():
        assert message_name(Step((None, step))) == name
    ahead = {
        "kernel-columns": AHEAD,
        "form-panel": replace(AHEAD, columns=None),
        "append-panel": replace(AHEAD, columns=None, form=None),
        "residual-argmax": replace(AHEAD, columns=None, form=None, commit=None),
    }
    for name, step in ahead.items():
        assert message_name(Step((None, step))) == name

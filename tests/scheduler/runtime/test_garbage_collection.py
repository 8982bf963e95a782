"""Garbage collections skip what is older than a run, and only that, until its end."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from distkern.monitoring.events import EventBus
from distkern.scheduler.execution.dask_executor import DaskExecutor
from distkern.scheduler.runtime.garbage_collection import FROZEN_BY_PYTHON, end_exemption, exempt_present_objects
from distkern.storage import ArraySource


class Node:
    """An object in a cycle, which only the garbage collector frees."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def no_frozen_objects() -> Iterator[None]:
    assert gc.get_freeze_count() < FROZEN_BY_PYTHON
    yield
    assert gc.get_freeze_count() < FROZEN_BY_PYTHON


def test_garbage_of_before_is_freed_and_what_is_alive_exempt_until_the_last_run_ends() -> None:
    garbage = weakref.ref(Node())
    alive = Node()
    kept = weakref.ref(alive)
    assert exempt_present_objects()
    assert garbage() is None
    assert exempt_present_objects()
    del alive
    end_exemption()
    gc.collect()
    assert kept() is not None
    end_exemption()
    gc.collect()
    assert kept() is None


def test_garbage_of_a_run_is_freed_during_it() -> None:
    assert exempt_present_objects()
    try:
        garbage = weakref.ref(Node())
        gc.collect()
        assert garbage() is None
    finally:
        end_exemption()


def test_objects_that_the_program_froze_stay_frozen() -> None:
    gc.freeze()
    try:
        garbage = weakref.ref(Node())
        assert not exempt_present_objects()
        gc.collect()
        assert garbage() is None
        assert gc.get_freeze_count() > FROZEN_BY_PYTHON
    finally:
        gc.unfreeze()


def test_only_executors_with_trees_of_workers_exempt_objects(in_process_client: Any) -> None:
    rng = np.random.default_rng(0)
    source = ArraySource(rng.standard_normal((40, 2)), rng.standard_normal(40), boundaries=(0, 20, 40))
    few = DaskExecutor(in_process_client, source, EventBus())
    assert gc.get_freeze_count() < FROZEN_BY_PYTHON
    few.close()
    many = DaskExecutor(in_process_client, source, EventBus(), fan_in=1)
    assert gc.get_freeze_count() > FROZEN_BY_PYTHON
    many.close()
    many.close()

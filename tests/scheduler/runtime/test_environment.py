"""Facts that are compared between driver and workers."""

from __future__ import annotations

import platform

import numpy as np
import pytest

import distkern
from distkern.scheduler.runtime.environment import Difference, difference, process_facts

FACTS = {
    "distkern": "1.0",
    "Python": "3.12",
    "numpy": "2.1.0",
    "BLAS": "openblas 0.3.27 Haswell, openblas 0.3.30 Haswell",
}


def test_the_facts_of_this_process() -> None:
    facts = process_facts()
    assert facts["distkern"] == distkern.__version__
    assert facts["numpy"] == np.__version__
    assert platform.python_version().startswith(facts["Python"] + ".")
    assert set(facts) == set(FACTS)
    assert difference(facts, dict(facts)) is None


@pytest.mark.parametrize("what", FACTS)
def test_a_fact_that_differs_is_named_with_both_values(what: str) -> None:
    found = difference(FACTS, {**FACTS, what: "other"})
    assert found == Difference(what, FACTS[what], "other")
    assert str(found) == f"{what} is other there and {FACTS[what]} here"


def test_a_worker_that_does_not_say_differs() -> None:
    found = difference(FACTS, {"distkern": "1.0"})
    assert found == Difference("Python", "3.12", "unknown")


@pytest.mark.parametrize(
    ("theirs", "same"),
    [
        ("openblas 0.3.30 Haswell, openblas 0.3.27 Haswell", True),
        ("openblas 0.3.30 Haswell", True),
        (FACTS["BLAS"] + ", mkl 2024.1", True),
        ("", True),
        ("openblas 0.3.27 SkylakeX, openblas 0.3.30 SkylakeX", False),
        ("openblas 0.3.28 Haswell, openblas 0.3.30 Haswell", False),
    ],
)
def test_blas_libraries_that_only_one_side_has_loaded_do_not_count(theirs: str, same: bool) -> None:
    assert (difference(FACTS, {**FACTS, "BLAS": theirs}) is None) == same
    assert (difference({**FACTS, "BLAS": theirs}, FACTS) is None) == same

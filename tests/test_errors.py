"""The error tree: bases, exit codes, kinds and pickling."""

from __future__ import annotations

import copy
import pickle

import pytest

from distkern import errors
from distkern.errors import (
    BudgetError,
    Cancelled,
    ClusterError,
    DataError,
    DistkernError,
    JobError,
    RunError,
    StoreError,
)

TREE = [
    (JobError, ValueError, 2),
    (DataError, ValueError, 3),
    (BudgetError, ValueError, 4),
    (ClusterError, RuntimeError, 5),
    (RunError, RuntimeError, 6),
    (StoreError, OSError, 6),
    (Cancelled, RuntimeError, 130),
]


@pytest.mark.parametrize(("kind", "base", "code"), TREE)
def test_an_error_is_caught_by_its_builtin_base_and_has_its_exit_code(
    kind: type[DistkernError], base: type[Exception], code: int
) -> None:
    assert issubclass(kind, DistkernError)
    assert issubclass(kind, base)
    assert kind.exit_code == code
    with pytest.raises(base):
        raise kind("boom")


def test_the_tree_is_complete_and_drawn() -> None:
    assert {kind for kind, _, _ in TREE} == set(DistkernError.__subclasses__())
    assert errors.__doc__ is not None
    lines = errors.__doc__.splitlines()
    for kind, base, code in TREE:
        (line,) = [line for line in lines if f" {kind.__name__} " in line]
        assert f"({base.__name__})" in line
        assert f" {code} " in line


@pytest.mark.parametrize("kind", [DistkernError, *(kind for kind, _, _ in TREE)])
def test_errors_survive_pickling_and_copying(kind: type[DistkernError]) -> None:
    """A worker's error comes back to the driver as what it was."""
    error = kind("X has 3 rows but y has 4", kind="shape-mismatch")
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is kind
        assert str(twin) == twin.message == "X has 3 rows but y has 4"
        assert twin.kind == "shape-mismatch"
        assert twin.exit_code == kind.exit_code


def test_the_kind_has_a_default() -> None:
    assert DataError("x").kind == "unspecified"
    assert DistkernError.exit_code == 1


def test_the_message_of_a_store_error_is_not_taken_for_an_errno() -> None:
    """OSError treats two arguments specially; ours has one."""
    error = StoreError("there is no model at m", kind="missing")
    assert str(error) == "there is no model at m"
    assert error.args == ("there is no model at m",)
    assert error.errno is None


def test_long_messages_lose_their_middle() -> None:
    secret = "s3://name:secret@place/bucket"
    for before in (0, 7_990, 15_000, 10**6):
        error = JobError("x" * before + " " + secret + " " + "y" * 10**6 + " move the knob", kind="invalid-job")
        assert len(error.message) < 11_000
        assert error.message.endswith("move the knob")
        assert "secret" not in error.message
        again = pickle.loads(pickle.dumps(error))
        assert len(again.message) < 11_000

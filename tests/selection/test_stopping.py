"""Stop rules on made-up sequences."""

from __future__ import annotations

import pickle
from collections.abc import Iterable

import pytest

from distkern.selection.stopping import LambdaConverged, MinimumPassed, StopReason, StopRule


def run(rule: StopRule, values: Iterable[float]) -> tuple[int, StopReason | None]:
    """Feed values of models with 1, 2, ... centres; return where the rule stopped and why."""
    n_centers = 0
    for n_centers, value in enumerate(values, start=1):
        reason = rule.observe(n_centers, value)
        if reason is not None:
            return n_centers, reason
    return n_centers, None


@pytest.mark.parametrize("reason", list(StopReason))
def test_every_reason_has_one_sentence_of_advice(reason: StopReason) -> None:
    assert reason.advice.endswith(".")
    assert reason.advice[0].isupper()
    assert ". " not in reason.advice


def test_reasons_are_their_text() -> None:
    assert StopReason("gcv-risen") is StopReason.GCV_RISEN
    assert str(StopReason.MAX_CENTERS) == "max-centers"
    assert pickle.loads(pickle.dumps(StopReason.RESIDUAL_BELOW)) is StopReason.RESIDUAL_BELOW
    assert len({str(reason) for reason in StopReason}) == len(StopReason)


def test_the_base_rule_never_stops() -> None:
    rule = StopRule()
    assert run(rule, [1.0, 2.0, float("inf"), float("nan")] * 50) == (200, None)
    assert rule.best(200) == 200
    assert not rule.watches_validation


@pytest.mark.parametrize("reason", [StopReason.GCV_RISEN, StopReason.VALIDATION_RISEN])
def test_minimum_stops_twenty_centres_after_an_early_minimum(reason: StopReason) -> None:
    rule = MinimumPassed(reason)
    values = [10.0 - i for i in range(1, 6)] + [6.0] * 100
    assert run(rule, values) == (25, reason)
    assert rule.best(25) == 5
    assert rule.watches_validation == (reason is StopReason.VALIDATION_RISEN)


def test_minimum_waits_a_fifth_of_a_long_path() -> None:
    rule = MinimumPassed(StopReason.GCV_RISEN)
    minimum = 400
    values = [1000.0 - i for i in range(1, minimum + 1)] + [1000.0] * 1000
    stopped, reason = run(rule, values)
    assert reason is StopReason.GCV_RISEN
    # The first m with m - 400 >= 0.2 m.
    assert stopped == 500
    assert rule.best(stopped) == minimum


def test_minimum_takes_the_patience_it_is_given() -> None:
    rule = MinimumPassed(StopReason.GCV_RISEN, patience=3)
    assert run(rule, [5.0, 4.0, 4.5, 4.2, 4.1, 1.0]) == (5, StopReason.GCV_RISEN)
    assert rule.best(5) == 2


def test_a_new_minimum_starts_the_wait_again() -> None:
    rule = MinimumPassed(StopReason.GCV_RISEN, patience=3)
    assert run(rule, [5.0, 6.0, 6.0, 4.0, 6.0, 6.0, 3.0, 6.0, 6.0, 6.0]) == (10, StopReason.GCV_RISEN)
    assert rule.best(10) == 7


def test_an_equal_value_is_no_new_minimum() -> None:
    rule = MinimumPassed(StopReason.GCV_RISEN, patience=2)
    assert run(rule, [4.0, 4.0, 4.0]) == (3, StopReason.GCV_RISEN)
    assert rule.best(3) == 1


def test_minimum_of_a_falling_path_is_its_end() -> None:
    rule = MinimumPassed(StopReason.GCV_RISEN)
    assert run(rule, [1.0 / m for m in range(1, 300)]) == (299, None)
    assert rule.best(299) == 299


@pytest.mark.parametrize("nothing", [float("inf"), float("nan")])
def test_values_that_are_no_numbers_are_no_minimum(nothing: float) -> None:
    rule = MinimumPassed(StopReason.GCV_RISEN, patience=4)
    assert run(rule, [2.0, 1.0] + [nothing] * 10) == (6, StopReason.GCV_RISEN)
    assert rule.best(6) == 2


def test_minimum_without_any_value_keeps_nothing() -> None:
    assert MinimumPassed(StopReason.GCV_RISEN).best(0) == 0


def test_best_is_never_past_the_end() -> None:
    """A panel may be cut after a value of its later centres was seen."""
    rule = MinimumPassed(StopReason.VALIDATION_RISEN)
    run(rule, [3.0, 2.0, 1.0])
    assert rule.best(2) == 2


def test_lambda_has_converged_after_several_small_changes() -> None:
    rule = LambdaConverged(tol=0.01, patience=3)
    assert run(rule, [1.0, 2.0, 2.001, 2.002, 2.003, 5.0]) == (5, StopReason.LAMBDA_CONVERGED)
    assert rule.best(5) == 5
    assert not rule.watches_validation


def test_a_jump_of_lambda_starts_the_count_again() -> None:
    rule = LambdaConverged(tol=0.01, patience=2)
    assert run(rule, [1.0, 1.001, 3.0, 3.001, 4.0, 4.001, 4.002]) == (7, StopReason.LAMBDA_CONVERGED)


def test_a_change_of_exactly_tol_counts_as_converged() -> None:
    rule = LambdaConverged(tol=0.5, patience=1)
    assert run(rule, [1.0, 2.0]) == (2, StopReason.LAMBDA_CONVERGED)


def test_lambda_at_zero_has_not_converged() -> None:
    """At the start lambda is zero for a while: that is no convergence."""
    assert run(LambdaConverged(tol=0.01, patience=2), [0.0] * 50) == (50, None)


def test_lambda_that_drifts_has_not_converged() -> None:
    assert run(LambdaConverged(tol=0.01, patience=2), [1.05**m for m in range(100)]) == (100, None)

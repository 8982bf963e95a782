"""Leave-one-out outputs from thin factors against models that are fitted again without the row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from distkern.probability.leave_one_out import left_out_outputs, rows_of_q

Array = NDArray[Any]


def factors(design: Array, targets: Array, weights: Array) -> tuple[Array, Array, Array, Array]:
    """U, s, z and the targets' means of weighted rows, by a QR decomposition."""
    roots = np.sqrt(weights)[:, None]
    means = weights @ targets / weights.sum()
    q, r = np.linalg.qr(design * roots)
    scale = r.diagonal()
    return r / scale[:, None], scale**2, (q.T @ ((targets - means) * roots)) * scale[:, None], means


def refitted(features: Array, targets: Array, weights: Array, lam: float) -> Array:
    """Ridge regression with an intercept that is not penalised, by its normal equations."""
    design = np.column_stack([np.ones(len(features)), features])
    penalty = lam * np.eye(design.shape[1])
    penalty[0, 0] = 0.0
    return np.linalg.solve((design * weights[:, None]).T @ design + penalty, (design * weights[:, None]).T @ targets)


def problem(seed: int, n: int, m: int, n_targets: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    design = np.column_stack([np.ones(n), rng.standard_normal((n, m)) @ rng.standard_normal((m, m))])
    return design, np.sign(rng.standard_normal((n, n_targets)))


@given(
    seed=st.integers(0, 1000),
    m=st.integers(1, 6),
    lam=st.sampled_from([0.0, 0.1, 5.0]),
    kind=st.sampled_from(["ones", "repeats", "fractions"]),
)
def test_outputs_are_those_of_refits(seed: int, m: int, lam: float, kind: str) -> None:
    n = 20
    rng = np.random.default_rng(seed)
    design, targets = problem(seed, n, m, 2)
    weights = {"ones": np.ones(n), "repeats": rng.integers(1, 4, n) * 1.0, "fractions": rng.uniform(0.1, 2.5, n)}[kind]
    u, s, z, means = factors(design, targets, weights)
    q = rows_of_q(design, u)
    found = left_out_outputs(q, targets, means, s, z, np.array([lam]), weights)
    for i in range(n):
        without = weights.copy()
        without[i] -= min(without[i], 1.0)
        coefficients = refitted(q[:, 1:], targets, without, lam)
        np.testing.assert_allclose(found[i], q[i] @ coefficients, rtol=1e-6, atol=1e-8)


def test_without_regularisation_the_whole_model_may_be_fitted_again() -> None:
    """No feature map is kept fixed: kernel columns themselves, another mean, another orthogonalisation."""
    design, targets = problem(3, 25, 5, 3)
    u, s, z, means = factors(design, targets, np.ones(25))
    found = left_out_outputs(rows_of_q(design, u), targets, means, s, z, np.zeros(1))
    for i in range(25):
        rest = np.arange(25) != i
        expected = design[i] @ np.linalg.lstsq(design[rest], targets[rest], rcond=None)[0]
        np.testing.assert_allclose(found[i], expected, rtol=1e-8, atol=1e-10)


def test_a_weight_is_the_same_as_repeated_rows() -> None:
    design, targets = problem(5, 15, 4, 2)
    repeats = np.random.default_rng(5).integers(1, 4, 15)
    several = np.repeat(np.arange(15), repeats)
    outputs = []
    for rows, weights in ((np.arange(15), repeats * 1.0), (several, np.ones(len(several)))):
        u, s, z, means = factors(design[rows], targets[rows], weights)
        q = rows_of_q(design[rows], u)
        outputs.append(left_out_outputs(q, targets[rows], means, s, z, np.array([0.3]), weights))
    np.testing.assert_allclose(outputs[0][several], outputs[1], rtol=1e-8)


def test_a_lambda_a_target_and_rows_that_were_held_out() -> None:
    design, targets = problem(7, 30, 4, 2)
    u, s, z, means = factors(design, targets, np.ones(30))
    q = rows_of_q(design, u)
    both = left_out_outputs(q, targets, means, s, z, np.array([0.1, 2.0]))
    for t, lam in enumerate((0.1, 2.0)):
        alone = left_out_outputs(q, targets[:, [t]], means[[t]], s, z[:, [t]], np.array([lam]))
        np.testing.assert_allclose(both[:, [t]], alone, rtol=1e-12)
    held = np.arange(30) < 4
    mixed = left_out_outputs(q, targets, means, s, z, np.array([0.1]), held_out=held)
    shrunk = np.r_[s[0], s[1:] + 0.1]
    np.testing.assert_allclose(mixed[held], (means + q @ (z / shrunk[:, None]))[held])
    assert (mixed[~held] == left_out_outputs(q, targets, means, s, z, np.array([0.1]))[~held]).all()


def test_a_row_that_alone_holds_a_column_says_nothing_about_itself() -> None:
    design = np.column_stack([np.ones(6), np.eye(6)[:, 0]])
    targets = np.array([[1.0], [-1], [-1], [1], [-1], [-1]])
    u, s, z, means = factors(design, targets, np.ones(6))
    found = left_out_outputs(rows_of_q(design, u), targets, means, s, z, np.zeros(1))
    assert np.isfinite(found).all()
    assert found[0] == pytest.approx(means[0])

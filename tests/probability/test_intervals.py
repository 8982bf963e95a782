"""Quantiles of residuals, the scale of the residuals and leverages, against plain references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from distkern.errors import JobError
from distkern.probability.intervals import (
    KEPT_LARGEST,
    KEPT_SIZES,
    ResidualQuantiles,
    choice_of_centers,
    fit_scale,
)
from distkern.probability.leverage import Leverage

Array = NDArray[Any]


@given(n=st.integers(20, 200), coverage=st.sampled_from([0.5, 0.8, 0.9, 0.95]), targets=st.integers(1, 3))
def test_a_quantile_is_the_size_of_that_rank(n: int, coverage: float, targets: int) -> None:
    sizes = np.random.default_rng(n).exponential(size=(n, targets))
    found = ResidualQuantiles.of(sizes, np.ones(n)).at(coverage)
    rank = int(np.ceil(np.round(coverage * (n + 1), 9)))
    np.testing.assert_array_equal(found, np.sort(sizes, axis=0)[rank - 1])


@given(seed=st.integers(0, 1000), coverage=st.floats(0.1, 0.9))
def test_a_weight_counts_as_repeated_rows(seed: int, coverage: float) -> None:
    rng = np.random.default_rng(seed)
    sizes, repeats = rng.exponential(size=(30, 2)), rng.integers(1, 4, 30)
    several = np.repeat(np.arange(30), repeats)
    weighted = ResidualQuantiles.of(sizes, repeats * 1.0).at(coverage)
    np.testing.assert_array_equal(weighted, ResidualQuantiles.of(sizes[several], np.ones(len(several))).at(coverage))


def test_too_few_rows_promise_no_coverage() -> None:
    quantiles = ResidualQuantiles.of(np.arange(1.0, 20)[:, None], np.ones(19))
    assert quantiles.at(0.95) == 19.0
    with pytest.raises(JobError, match=r"at most 0\.95"):
        quantiles.at(0.96)


def test_sizes_of_many_rows_are_thinned() -> None:
    sizes = np.random.default_rng(0).exponential(size=(30_000, 2))
    quantiles = ResidualQuantiles.of(sizes, np.ones(30_000))
    assert len(quantiles.sizes) <= KEPT_SIZES + KEPT_LARGEST
    for coverage in (0.05, 0.5, 0.9, 0.999):
        share = (sizes <= quantiles.at(coverage)).mean(axis=0)
        assert (share >= coverage).all()
        assert (share <= coverage + 1 / 1000).all()


def scaled_residuals(n: int = 400, k: int = 6) -> tuple[Array, Array, Array, Array]:
    """[1 K] with its QR factors, and residuals whose size follows the first column."""
    rng = np.random.default_rng(0)
    design = np.column_stack([np.ones(n), rng.standard_normal((n, k))])
    _, r = np.linalg.qr(design)
    u = r / r.diagonal()[:, None]
    residuals = np.exp(0.7 * design[:, 1:3]) * rng.standard_normal((n, 2))
    return design, design @ np.linalg.inv(u), u, residuals


def test_the_scale_follows_the_residuals() -> None:
    design, q, u, residuals = scaled_residuals()
    scale, _ = fit_scale(q, u, residuals, np.ones(len(q)))
    found = np.log(scale.evaluate(design[:, 1:]))
    for t in range(2):
        assert np.corrcoef(found[:, t], design[:, 1 + t])[0, 1] > 0.95
    # A row beyond all others has no larger scale than rows may have.
    assert np.isfinite(scale.evaluate(1e6 * design[:1, 1:])).all()
    np.testing.assert_array_equal(scale.aligned().evaluate(design[:, 1:]), scale.evaluate(design[:, 1:]))


def test_the_scale_of_a_row_rests_on_the_other_rows() -> None:
    """The ridge regression of the logarithms, fitted again without each row; its penalty stays."""
    from distkern.probability import intervals

    design, q, u, residuals = scaled_residuals(80, 4)
    scale, scales = fit_scale(q, u, residuals[:, :1], np.ones(80))
    sizes = np.abs(residuals[:, :1])
    targets = np.log(sizes + intervals.LEAST_RESIDUAL * np.median(sizes, axis=0))
    centred = q[:, 1:] - q[:, 1:].mean(axis=0)
    s, basis = np.linalg.eigh(centred.T @ centred)
    z = (centred @ basis).T @ (targets - targets.mean(axis=0))
    lam = intervals._penalties(s, z, np.square(targets - targets.mean(axis=0)).sum(axis=0), 80.0)[0]
    full = np.column_stack([np.ones(80), centred])
    penalty = lam * np.diag([0.0, *np.ones(4)])
    whole = np.linalg.solve(full.T @ full + penalty, full.T @ targets)
    np.testing.assert_allclose(np.log(scale.evaluate(design[:, 1:])), full @ whole, rtol=1e-6, atol=1e-8)
    for row in range(0, 80, 9):
        rest = np.arange(80) != row
        without = np.linalg.solve(full[rest].T @ full[rest] + penalty, full[rest].T @ targets[rest])
        np.testing.assert_allclose(np.log(scales[row]), full[row] @ without, rtol=1e-6, atol=1e-8)


@given(seed=st.integers(0, 100), lam=st.sampled_from([0.0, 0.3, 4.0]))
def test_deviations_are_those_of_the_posterior(seed: int, lam: float) -> None:
    """Bishop, eq 3.59, with the inverse of the precision of the weights of Q's columns."""
    rng = np.random.default_rng(seed)
    design = np.column_stack([np.ones(40), rng.standard_normal((40, 5))])
    _, r = np.linalg.qr(design)
    u, s = r / r.diagonal()[:, None], r.diagonal() ** 2
    q = design @ np.linalg.inv(u)
    penalty = lam * np.eye(6)
    penalty[0, 0] = 0.0
    covariance = np.linalg.inv(q.T @ q + penalty)
    variance = np.array([0.5, 2.0])
    new = rng.standard_normal((9, 5))
    phi = np.column_stack([np.ones(9), new]) @ np.linalg.inv(u)
    expected = np.sqrt(variance * (1 + np.einsum("ij,jk,ik->i", phi, covariance, phi))[:, None])
    leverage = Leverage.of(u, s, np.array([lam]), variance)
    np.testing.assert_allclose(leverage.aligned().evaluate(new), expected, rtol=1e-9)


def test_the_choice_of_centres_widens_residuals_of_rows_that_selected() -> None:
    trace, charged = np.array([90.0]), np.array([80.0])
    assert choice_of_centers(trace, charged, 0.0) == 1.0
    assert choice_of_centers(trace, charged, 1.0) == pytest.approx(1.125)
    assert choice_of_centers(trace, charged, 0.5) == pytest.approx(1.0625)
    assert choice_of_centers(trace, np.array([-5.0]), 1.0) == 2.0

"""The small half of the factors against dense Gram-Schmidt, ridge regression and generalised cross validation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from distkern.selection.factors import Factors, PanelUpdate, finish_panel, kernel_weights
from tests.references import lambda_step

Array = NDArray[Any]

seeds = st.integers(0, 2**32 - 1)
DEPENDENT = 1e-10


def orthogonal_columns(rng: np.random.Generator, n: int, m: int) -> Array:
    """Return Q, (n, m + 1): the constant, then orthogonal columns of different lengths."""
    q, _ = np.linalg.qr(np.column_stack([np.ones(n), rng.standard_normal((n, m))]))
    q *= 10.0 ** rng.uniform(-2, 2, m + 1)
    q[:, 0] = 1.0
    return q


@dataclass
class FormedPanel:
    """A panel as the workers form it, with some candidates that stay in the pool."""

    q: Array
    columns: Array
    """Kernel columns of the panel."""
    coefficients: Array
    """Of `columns`, from the first pass."""
    others: Array
    """Kernel columns of the candidates that stay."""
    other_coefficients: Array
    formed: Array
    """F."""
    lower: Array
    """Projected panel columns are F @ lower."""
    multipliers: Array
    """Multiples of F in the other candidates."""
    survivors: Array
    """The other candidates' columns after elimination."""
    residual: Array
    targets: Array

    def finish(self) -> PanelUpdate:
        s = np.square(self.q).sum(axis=0)
        return finish_panel(
            self.q.T @ self.formed,
            self.formed.T @ self.formed,
            self.formed.T @ self.residual,
            s,
            self.q.T @ self.residual,
            self.lower,
            np.square(self.columns).sum(axis=0),
            DEPENDENT,
        )


def form_panel(
    seed: int, m: int, sizes: list[float], n_targets: int = 2, n_others: int = 3, slack: float = 1e-9
) -> FormedPanel:
    """Form a panel whose column j has a part of relative length `sizes[j]` that no earlier column explains.

    The first pass is wrong by `slack`, so that the second has something to do.
    """
    rng = np.random.default_rng(seed)
    n = 40
    q = orthogonal_columns(rng, n, m)
    s = np.square(q).sum(axis=0)
    unit = q / np.sqrt(s)
    columns, known, direction = np.empty((n, 0)), unit, np.zeros(n)
    for size in sizes:
        # Parts that are new are alike, so that later columns hold something of earlier ones, dropped ones too.
        direction = rng.standard_normal(n) + 0.5 * direction
        column = direction
        if size < 1:
            # Coefficients are not near zero: the column is about as long as what it depends on.
            held = rng.choice([-1.0, 1.0], known.shape[1]) * rng.uniform(0.5, 1.5, known.shape[1])
            column = known @ held + size * direction / np.linalg.norm(direction)
        else:
            known = np.column_stack([known, column / np.linalg.norm(column)])
        columns = np.column_stack([columns, column])
    others = rng.standard_normal((n, n_others))
    everything = np.column_stack([columns, others])
    coefficients = q.T @ everything / s[:, None]
    noise = np.linalg.norm(everything, axis=0) / np.sqrt(s)[:, None]
    coefficients += slack * noise * rng.uniform(-1, 1, coefficients.shape)
    projected = everything - q @ coefficients

    p = len(sizes)
    lower, multipliers = np.eye(p), np.zeros((p, n_others))
    for j in range(p):
        f = projected[:, j]
        held = f @ projected[:, j + 1 :] / (f @ f)
        projected[:, j + 1 :] -= np.outer(f, held)
        lower[j, j + 1 :], multipliers[j] = held[: p - j - 1], held[p - j - 1 :]

    targets = rng.standard_normal((n, n_targets))
    lam = 0.1 * s.max()
    residual = targets - q @ ((q.T @ targets) / (lam + s)[:, None])
    return FormedPanel(
        q,
        columns,
        coefficients[:, :p],
        others,
        coefficients[:, p:],
        projected[:, :p].copy(),
        lower,
        multipliers,
        projected[:, p:].copy(),
        residual,
        targets,
    )


def check_update(panel: FormedPanel, update: PanelUpdate, kept: list[int], accurate: float = 1e-11) -> None:
    """Hold a panel update to all its equations; errors are relative to the columns they are about."""
    assert list(update.kept) == kept
    new = panel.formed @ update.combine - panel.q @ update.correct
    lengths = np.linalg.norm(new, axis=0)
    sizes = np.linalg.norm(panel.columns, axis=0)
    q_lengths = np.linalg.norm(panel.q, axis=0)

    np.testing.assert_allclose(panel.q.T @ new / np.outer(q_lengths, lengths), 0.0, atol=accurate)
    cosines = new.T @ new / np.outer(lengths, lengths)
    np.testing.assert_allclose(cosines, np.eye(len(kept)), atol=accurate)
    np.testing.assert_allclose(update.s, lengths**2, rtol=accurate)
    projections = new.T @ panel.targets
    np.testing.assert_allclose(
        (update.z - projections) / np.outer(lengths, np.linalg.norm(panel.targets, axis=0)), 0.0, atol=accurate
    )

    np.testing.assert_array_equal(np.tril(update.u_new), np.eye(len(kept)))
    rebuilt = panel.q @ (panel.coefficients[:, kept] + update.u_top) + new @ update.u_new
    np.testing.assert_allclose((rebuilt - panel.columns[:, kept]) / sizes[kept], 0.0, atol=accurate)

    assert (update.restore is None) == (len(kept) == len(sizes))
    waiting = panel.survivors
    if update.restore is not None:
        waiting = waiting + panel.formed @ (update.restore @ panel.multipliers)
    held = update.survivors @ panel.multipliers
    norms = np.linalg.norm(panel.others, axis=0)
    rebuilt = panel.q @ (panel.other_coefficients + update.correct @ held) + new @ held + waiting
    np.testing.assert_allclose((rebuilt - panel.others) / norms, 0.0, atol=accurate)
    np.testing.assert_allclose(new.T @ waiting / np.outer(lengths, norms), 0.0, atol=accurate)


@given(seeds, st.integers(0, 6), st.integers(1, 6), st.integers(1, 3))
def test_a_panel_of_independent_columns_is_kept_whole(seed: int, m: int, p: int, n_targets: int) -> None:
    panel = form_panel(seed, m, [1.0] * p, n_targets)
    check_update(panel, panel.finish(), list(range(p)))


@given(seeds, st.integers(0, 6), st.lists(st.booleans(), min_size=1, max_size=6))
def test_columns_below_the_limit_are_dropped_and_given_back(seed: int, m: int, keep: list[bool]) -> None:
    panel = form_panel(seed, m, [1.0 if k else 1e-6 for k in keep], slack=0.0)
    check_update(panel, panel.finish(), [j for j, k in enumerate(keep) if k], accurate=1e-9)


@given(seeds, st.integers(0, 4), st.permutations([1.0, 3e-2, 1e-3, 3e-4]))
def test_small_pivots_keep_their_digits(seed: int, m: int, sizes: list[float]) -> None:
    """Pivots over seven orders of magnitude, each as accurate as its own column is."""
    panel = form_panel(seed, m, sizes, slack=0.0)
    check_update(panel, panel.finish(), [0, 1, 2, 3], accurate=1e-10)


def test_small_pivots_keep_their_digits_beside_dropped_columns() -> None:
    for seed in range(20):
        panel = form_panel(seed, 3, [1.0, 1e-6, 1e-3, 1e-6, 3e-4], slack=0.0)
        check_update(panel, panel.finish(), [0, 2, 4], accurate=1e-8)


def test_the_second_pass_mends_a_first_pass_that_is_off() -> None:
    """By 10^-6: what it leaves on the survivors is of second order."""
    panel = form_panel(0, 5, [1.0] * 4, slack=1e-6)
    first = panel.q.T @ panel.formed / np.linalg.norm(panel.q, axis=0)[:, None]
    assert np.abs(first).max() > 1e-7
    check_update(panel, panel.finish(), [0, 1, 2, 3])


def test_a_panel_that_depends_wholly_on_q_leaves_everything_as_it_was() -> None:
    panel = form_panel(3, 4, [1e-6, 1e-6], slack=0.0)
    update = panel.finish()
    assert update.kept == ()
    assert update.combine.shape == (2, 0)
    assert update.correct.shape == (5, 0)
    assert update.z.shape == (0, 2)
    assert update.survivors.shape == (0, 2)
    np.testing.assert_array_equal(update.restore, np.eye(2))


def test_the_updated_z_does_not_depend_on_lambda() -> None:
    """F'E serves for F'Y whatever lambda shrank E by: Q'E is taken off again."""
    panel = form_panel(5, 4, [1.0, 1.0])
    shrunk = panel.finish().z
    panel.residual = panel.targets
    np.testing.assert_allclose(shrunk, panel.finish().z, rtol=1e-12)


# --- Factors ---------------------------------------------------------------------------------------------------------


def column_path(seed: int, n: int = 30, m: int = 8, n_targets: int = 1) -> tuple[Array, Array, Array, Array]:
    """Return Q, U, kernel columns [1 K] = Q U, and centred targets."""
    rng = np.random.default_rng(seed)
    q = orthogonal_columns(rng, n, m)
    u = np.triu(rng.standard_normal((m + 1, m + 1)), k=1) + np.eye(m + 1)
    targets = q[:, 1 : m // 2 + 1] @ rng.standard_normal((m // 2, n_targets)) + rng.standard_normal((n, n_targets))
    return q, u, q @ u, targets - targets.mean(axis=0)


def grow(q: Array, u: Array, targets: Array, regularization: str | float) -> tuple[Factors, list[Array], list[float]]:
    """Append all columns; return the factors, the residual after every step, and the scores."""
    n, columns = q.shape
    factors = Factors(float(n), np.square(targets).sum(axis=0), columns - 1, regularization)
    residual, residuals, scores = targets, [], []
    for j in range(1, columns):
        step, score = factors.append(u[:j, j], float(q[:, j] @ q[:, j]), q[:, j] @ targets)
        residual = residual - np.outer(q[:, j], step)
        residuals.append(residual)
        scores.append(score)
        np.testing.assert_allclose(factors.residual_products, q[:, : j + 1].T @ residual, atol=1e-9 * n)
    return factors, residuals, scores


def dense_gcv(q: Array, targets: Array, lam: float) -> float:
    """GCV with the n x n smoother written out."""
    n = len(q)
    smoother = np.eye(n) - q @ np.linalg.solve(q.T @ q + lam * np.eye(q.shape[1]), q.T)
    return float(n * np.square(smoother @ targets).sum() / np.trace(smoother) ** 2)


@given(seeds)
def test_append_follows_the_dense_path_of_lambda(seed: int) -> None:
    q, u, _, targets = column_path(seed)
    factors, residuals, scores = grow(q, u, targets, "gcv")
    assert factors.n_columns == q.shape[1]
    np.testing.assert_array_equal(factors.u, u)
    np.testing.assert_allclose(factors.s, np.square(q).sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(factors.z, q.T @ targets, atol=1e-9)
    yy, lam, residual = float(targets[:, 0] @ targets[:, 0]), 0.0, targets
    for j in range(1, q.shape[1]):
        lam = lambda_step(factors.s[: j + 1], factors.z[: j + 1, 0], yy, lam, len(q))
        np.testing.assert_allclose(factors.lambdas[j], [lam], rtol=1e-6)
        lam = float(factors.lambdas[j, 0])
        np.testing.assert_allclose(scores[j - 1], dense_gcv(q[:, : j + 1], targets, lam), rtol=1e-7)
        # (3.82) with the lambda of its own step.
        residual = residual - np.outer(q[:, j], q[:, j] @ targets / (lam + q[:, j] @ q[:, j]))
        np.testing.assert_allclose(residuals[j - 1], residual, atol=1e-10 * np.sqrt(yy))


@given(seeds)
def test_one_lambda_a_target_equals_separate_factors(seed: int) -> None:
    q, u, _, targets = column_path(seed, n_targets=3)
    together, _, scores = grow(q, u, targets, "gcv-per-target")
    assert together.lambdas.shape == (q.shape[1], 3)
    assert together.lambda_.shape == (3,)
    alone = [grow(q, u, targets[:, [t]], "gcv") for t in range(3)]
    for t, (factors, _, _) in enumerate(alone):
        np.testing.assert_allclose(together.lambdas[:, [t]], factors.lambdas, rtol=1e-9)
    np.testing.assert_allclose(scores, np.sum([part[2] for part in alone], axis=0), rtol=1e-9)


def test_a_shared_lambda_does_not_change_when_a_target_is_repeated() -> None:
    q, u, _, targets = column_path(1)
    once, _, _ = grow(q, u, targets, "gcv")
    twice, _, _ = grow(q, u, np.repeat(targets, 2, axis=1), "gcv")
    np.testing.assert_allclose(twice.lambdas, once.lambdas, rtol=1e-12)


@pytest.mark.parametrize(("regularization", "lam"), [("none", 0.0), (0, 0.0), (0.25, 0.25), (np.float64(3.0), 3.0)])
def test_a_fixed_lambda_stays(regularization: str | float, lam: float) -> None:
    q, u, _, targets = column_path(2, n_targets=2)
    factors, residuals, scores = grow(q, u, targets, regularization)
    assert (factors.lambdas == lam).all()
    s = np.square(q).sum(axis=0)
    expected = targets - q @ ((q.T @ targets) / (lam + s)[:, None])
    np.testing.assert_allclose(residuals[-1], expected, atol=1e-12)
    np.testing.assert_allclose(scores[-1], dense_gcv(q, targets, lam), rtol=1e-9)


def test_condition_is_that_of_q() -> None:
    q, u, _, targets = column_path(4)
    factors, _, _ = grow(q, u, targets, "none")
    np.testing.assert_allclose(factors.condition(), np.linalg.cond(q), rtol=1e-10)


def test_fresh_factors_hold_the_constant_only() -> None:
    factors = Factors(12.0, np.ones(2), 5)
    np.testing.assert_array_equal(factors.u, [[1.0]])
    np.testing.assert_array_equal(factors.s, [12.0])
    np.testing.assert_array_equal(factors.z, np.zeros((1, 2)))
    np.testing.assert_array_equal(factors.lambda_, [0.0])
    assert factors.condition() == 1.0


@given(seeds, st.integers(1, 3), st.floats(-3, 3).map(lambda e: 10.0**e))
def test_kernel_weights_minimise_the_regularised_error(seed: int, n_targets: int, lam: float) -> None:
    """The weights a minimise |Y - [1 K] a|^2 + lambda |U a|^2, and without lambda |Y - [1 K] a|^2."""
    q, u, design, targets = column_path(seed, n_targets=n_targets)
    s, z = np.square(q).sum(axis=0), q.T @ targets
    zeros = np.zeros_like(z)
    for value in (lam, 0.0):
        stacked = np.vstack([design, np.sqrt(value) * u])
        expected = np.linalg.lstsq(stacked, np.vstack([targets, zeros]), rcond=None)[0]
        weights = kernel_weights(u, s, z, np.array([value]))
        scale = np.linalg.norm(expected, axis=0)
        np.testing.assert_allclose((weights - expected) / scale, 0.0, atol=1e-15 * np.linalg.cond(design) ** 2 + 1e-9)
        np.testing.assert_allclose(
            u @ weights, np.linalg.solve(np.diag(s + value), z), atol=1e-12 * np.abs(u).max() * np.abs(weights).max()
        )


def test_kernel_weights_with_a_lambda_for_each_target() -> None:
    q, u, _, targets = column_path(9, n_targets=2)
    s, z = np.square(q).sum(axis=0), q.T @ targets
    together = kernel_weights(u, s, z, np.array([0.5, 7.0]))
    np.testing.assert_allclose(together[:, [0]], kernel_weights(u, s, z[:, [0]], np.array([0.5])), rtol=1e-11)
    np.testing.assert_allclose(together[:, [1]], kernel_weights(u, s, z[:, [1]], np.array([7.0])), rtol=1e-11)

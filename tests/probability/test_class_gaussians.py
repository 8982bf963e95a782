"""Gaussians of the classes against scipy's densities and scikit-learn's discriminants, and the thesis's scale."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import norm

from distkern.probability.class_gaussians import ClassGaussians

Array = NDArray[Any]


def clusters(seed: int, n_classes: int, n_outputs: int, n: int = 200) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    codes = np.concatenate([np.tile(np.arange(n_classes), 8), rng.integers(0, n_classes, n - 8 * n_classes)])
    spread = rng.uniform(0.5, 2.0, n_classes)[codes, None]
    return rng.standard_normal((n_classes, n_outputs))[codes] + spread * rng.standard_normal((n, n_outputs)), codes


def projection_posteriors(values: Array, outputs: Array, codes: Array) -> Array:
    """4.7 and Bayes' rule, term by term."""
    joint = []
    for c in range(codes.max() + 1):
        own = outputs[codes == c]
        joint.append(len(own) / len(outputs) * norm.pdf(values, own.mean(), own.std()))
    return np.transpose(joint) / np.sum(joint, axis=0)[:, None]


@given(seed=st.integers(0, 500), n_classes=st.integers(2, 4))
def test_one_projection_is_the_thesis_equation(seed: int, n_classes: int) -> None:
    outputs, codes = clusters(seed, n_classes, 1)
    fitted = ClassGaussians.fit(outputs, codes, n_classes, shared=False, shrinkage=0.0)
    expected = projection_posteriors(outputs[:, 0], outputs[:, 0], codes)
    np.testing.assert_allclose(np.exp(fitted.log_posteriors(outputs)), expected, rtol=1e-8, atol=1e-12)


@given(
    seed=st.integers(0, 500),
    scale=st.floats(1e-3, 1e3).flatmap(lambda c: st.sampled_from([c, -c])),
    shift=st.floats(-5, 5),
    shared=st.booleans(),
)
def test_the_scale_of_the_direction_cancels(seed: int, scale: float, shift: float, shared: bool) -> None:
    """Whatever |w| is scaled to, and whatever b is: the posteriors of a projection are the same."""
    outputs, codes = clusters(seed, 3, 1)
    found = [
        ClassGaussians.fit(values, codes, 3, shared=shared).log_posteriors(values)
        for values in (outputs, scale * outputs + shift)
    ]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shared", [True, False])
def test_several_outputs_are_scikit_learns_discriminants(shared: bool) -> None:
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis

    outputs, codes = clusters(1, 4, 3, 400)
    fitted = ClassGaussians.fit(outputs, codes, 4, shared=shared, shrinkage=0.0)
    reference = LinearDiscriminantAnalysis() if shared else QuadraticDiscriminantAnalysis()
    expected = reference.fit(outputs, codes).predict_proba(outputs)
    # They divide by n - 1 or n - C.
    np.testing.assert_allclose(np.exp(fitted.log_posteriors(outputs)), expected, atol=0.02)


def test_outputs_that_sum_to_a_constant_and_weights() -> None:
    outputs, codes = clusters(2, 3, 2)
    dependent = np.column_stack([outputs, -1 - outputs.sum(axis=1)])
    for shared in (True, False):
        a = ClassGaussians.fit(outputs, codes, 3, shared=shared).log_posteriors(outputs)
        b = ClassGaussians.fit(dependent, codes, 3, shared=shared).log_posteriors(dependent)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    repeats = np.random.default_rng(0).integers(1, 3, len(codes))
    a = ClassGaussians.fit(outputs, codes, 3, shared=False, weights=repeats * 1.0).log_posteriors(outputs)
    several = ClassGaussians.fit(np.repeat(outputs, repeats, axis=0), np.repeat(codes, repeats), 3, shared=False)
    np.testing.assert_allclose(a, several.log_posteriors(outputs), rtol=1e-8)


def test_a_class_without_rows_has_no_probability() -> None:
    outputs, codes = clusters(2, 3, 2)
    logs = ClassGaussians.fit(outputs, codes, 4, shared=True).log_posteriors(outputs)
    assert (logs[:, 3] == -np.inf).all()
    np.testing.assert_allclose(np.exp(logs).sum(axis=1), 1.0)

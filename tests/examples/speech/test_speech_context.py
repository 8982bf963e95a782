"""Windows of frames against a loop, and their projection against the scatter that it should have."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.speech.context import DIMENSIONS, REACH, STRIDE, Context, windows_of


def looked_at(frames: np.ndarray) -> np.ndarray:
    """Every second frame from eight before to eight after, those beyond the ends as the end."""
    rows = []
    for t in range(len(frames)):
        around = [min(max(t + k, 0), len(frames) - 1) for k in range(-REACH, REACH + 1, STRIDE)]
        rows.append(np.concatenate([frames[i] for i in around]))
    return np.array(rows)


@given(n_frames=st.integers(1, 40), n_features=st.integers(1, 39))
def test_windows_are_the_frames_around_each(n_frames: int, n_features: int) -> None:
    frames = np.arange(n_frames * n_features, dtype=np.float32).reshape(n_frames, n_features)
    np.testing.assert_array_equal(windows_of(frames), looked_at(frames))


@dataclass(frozen=True)
class Fitted:
    """All 83 states a few times over in each utterance, features around a mean of the state, and their projection."""

    utterances: list[np.ndarray]
    paths: list[np.ndarray]
    context: Context

    @property
    def labels(self) -> np.ndarray:
        return np.concatenate(self.paths)


@pytest.fixture(scope="module")
def fitted() -> Fitted:
    rng = np.random.default_rng(0)
    means = rng.standard_normal((83, 39))
    paths = [np.repeat(rng.permutation(83), 3) for _ in range(6)]
    utterances = [(means[path] + rng.standard_normal((len(path), 39))).astype(np.float32) for path in paths]
    return Fitted(utterances, paths, Context.fit(utterances, paths, seed=0))


def residuals(rows: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Differences from the mean of the own state, and the means."""
    means = np.array([rows[labels == state].mean(axis=0) for state in range(83)])
    return rows - means[labels], means


def test_within_a_state_the_projection_has_unit_scatter(fitted: Fitted) -> None:
    projected = np.concatenate([fitted.context(frames) for frames in fitted.utterances]).astype(np.float64)
    within, _ = residuals(projected, fitted.labels)
    scatter = within.T @ within / len(within)
    assert 0.9 < scatter[0, 0] < 1.001  # versions of scikit-learn divide by the rows, or by the rows less the states
    np.testing.assert_allclose(scatter / scatter[0, 0], np.eye(DIMENSIONS), atol=1e-3)


def test_states_are_further_apart_after_the_projection_than_before(fitted: Fitted) -> None:
    def separation(rows: np.ndarray) -> float:
        within, means = residuals(rows, fitted.labels)
        return float(means.var(axis=0).sum() / within.var(axis=0).sum())

    before = separation(np.concatenate([windows_of(frames) for frames in fitted.utterances]))
    after = separation(np.concatenate([fitted.context(frames) for frames in fitted.utterances]))
    assert after > 2 * before


def test_the_projection_is_affine_and_of_each_utterance_alone(fitted: Fitted) -> None:
    one, other = fitted.utterances[0][:50], fitted.utterances[1][:50]
    projected = fitted.context(one)
    assert projected.shape == (50, DIMENSIONS)
    assert projected.dtype == np.float32
    np.testing.assert_allclose(fitted.context((one + other) / 2), (projected + fitted.context(other)) / 2, atol=1e-3)

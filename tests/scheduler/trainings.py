"""Trainings for the tests of the engine: jobs, data, and a serial training that leaves its blocks to look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from distkern.kernels import kernel_of_centers
from distkern.monitoring.events import Event, EventBus, RoundDone
from distkern.scheduler.blocks.block import Block
from distkern.scheduler.blocks.pool_tiles import borrow_columns
from distkern.scheduler.execution.executor import SerialExecutor
from distkern.scheduler.protocol.candidates import rows_and_widths
from distkern.scheduler.protocol.messages import Begin
from distkern.scheduler.protocol.path import Path
from distkern.scheduler.rows.label_encoding import LabelEncoding
from distkern.scheduler.runtime import threads
from distkern.scheduler.runtime.spillable_matrix import RowMatrix
from distkern.scheduler.selectors.lookahead_selector import LookaheadSelector
from distkern.scheduler.selectors.pool_selector import PoolSelector, Selector
from distkern.scheduler.training import selection
from distkern.scheduler.training.driver_loop import TrainingJob, TrainingResult, train
from distkern.selection.factors import kernel_weights
from distkern.storage import ArraySource
from tests.references import check_factors, dense_kernel_columns

Array = NDArray[Any]


def make_job(**changes: Any) -> TrainingJob:
    """Return a small regression job with some settings changed."""
    settings: dict[str, Any] = {
        "classification": False,
        "kernel": "gaussian",
        "sigma": 1.0,
        "standardize": False,
        "dtype": "float64",
        "epsilon": 0.0,
        "multiclass": "shared",
        "max_centers": 20,
        "criterion": "error-reduction",
        "sampler": "residual-weighted",
        "candidates": 24,
        "panel": 4,
        "regularization": "gcv",
        "stop": None,
        "tol": None,
        "patience": None,
        "seed": 0,
    }
    assert changes.keys() <= settings.keys() | {"intercept", "loss", "selection_rows", "sigma_factor", "solver"}
    return TrainingJob(**{**settings, **changes})


def make_data(n: int, d: int = 2, seed: int = 0, n_targets: int = 0, noise: float = 0.1) -> tuple[Array, Array]:
    """Return smooth regression data; y has one dimension if `n_targets` is 0."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, d))
    y = np.sin(2 * X @ rng.standard_normal((d, max(n_targets, 1)))) + noise * rng.standard_normal(
        (n, max(n_targets, 1))
    )
    return X, y if n_targets else y[:, 0]


def make_classes(n: int, n_classes: int = 3, d: int = 2, seed: int = 0) -> tuple[Array, Array]:
    """Return overlapping clusters with string labels."""
    rng = np.random.default_rng(seed)
    codes = np.concatenate([np.arange(n_classes), rng.integers(0, n_classes, n - n_classes)])
    middle = 3 * rng.standard_normal((n_classes, d))
    names = np.array([f"class {i}" for i in range(n_classes)])
    return middle[codes] + rng.standard_normal((n, d)), names[codes]


def cut(n: int, rows: int) -> tuple[int, ...]:
    """Block boundaries every `rows` rows."""
    return (*range(0, n, rows), n)


def make_source(X: Array, y: Array, weights: Array | None = None, rows: int = 50) -> ArraySource:
    """Return an inline source with blocks of `rows` rows."""
    return ArraySource(X, y, weights, boundaries=cut(len(X), rows))


def by_rows(block: Any, matrix: RowMatrix) -> Array:
    """A block's work matrix, pool or slab of Q, kept column after column within a tile, as (rows, width)."""
    parts = [borrow_columns(matrix, tile).T.copy() for tile in block.views[0].tiles]
    return np.concatenate([np.empty((0, matrix.shape[1])), *parts])


class Inside:
    """A serial training seen from inside: what the driver and the blocks hold, during it and after it."""

    def __init__(self, job: TrainingJob, source: ArraySource, blocks: list[Block]) -> None:
        self.job = job
        self.source = source
        self.blocks = blocks
        self.selectors: list[Selector] = []

    @property
    def begin(self) -> Begin:
        """Scaling, kernel, classes and means of the run."""
        assert self.blocks[0].begin is not None
        return self.blocks[0].begin

    @property
    def rows(self) -> Array:
        """Global numbers of the rows that train, as the blocks hold them."""
        return np.concatenate([b.data.rows[: b._n_fit] for b in self.blocks])

    @property
    def roots(self) -> Array:
        """Root weights of those rows."""
        weights = self.source.weights
        return np.ones(len(self.rows)) if weights is None else np.sqrt(weights[self.rows])

    def held(self, name: str, problem: int = 0, *, training: bool = True) -> Array:
        """Rows that train, or held-out rows, of a state array ("q" is Q), in float64 if they are numbers."""
        parts = []
        for block in self.blocks:
            state = block.problems[problem]
            if name == "q":
                whole = np.hstack([by_rows(block, slab) for slab in state.slabs])[:, : state.n_columns]
            elif name in ("pool", "work"):
                whole = by_rows(block, getattr(state, name))
            else:
                whole = state.taken.T if name == "taken" else getattr(state, name)
            if name == "residual":
                whole = whole[:, : len(self.begin.problems[problem].columns)]
            parts.append(whole[: block._n_fit] if training else whole[block._n_fit :])
        array = np.concatenate(parts)
        return array if array.dtype == bool else array.astype(np.float64)

    def targets(self, problem: int = 0) -> Array:
        """Encoded centred targets of a problem, times the root weights."""
        y, begin = self.source.y[self.rows], self.begin
        encoded = LabelEncoding.of(self.source, begin.classes).columns(y)
        chosen = begin.problems[problem]
        units = 1.0 if chosen.target_units is None else np.array(chosen.target_units)
        return (encoded[:, list(chosen.columns)] - chosen.target_means) / units * self.roots[:, None]

    def columns(self, candidates: Any) -> Array:
        """Dense kernel columns of some candidates over the rows that train, times the root weights."""
        rows, widths = rows_and_widths(np.asarray(candidates), self.source.n_rows)
        X = (self.source.X.astype(np.float64) - self.begin.scaling.shift) / self.begin.scaling.scale
        own = np.searchsorted(self.rows, rows)
        kernel = kernel_of_centers(self.begin.problems[0].kernel, widths)
        K = dense_kernel_columns(kernel, X[self.rows], X[rows], own, self.job.epsilon)
        return K * self.roots[:, None]

    def design(self, problem: int = 0) -> Array:
        """[1 K] of a path, times the root weights."""
        rows = np.array(self.selectors[problem].rows, dtype=np.int64)
        return np.column_stack([self.roots, self.columns(rows)])

    def check(self, **tolerances: float) -> None:
        """Hold every problem's factors to their equations."""
        for number, selector in enumerate(self.selectors):
            factors = selector.factors
            check_factors(
                self.held("q", number),
                self.held("residual", number),
                factors.u,
                factors.s,
                factors.z,
                factors.lambdas[: factors.n_columns],
                self.design(number),
                self.targets(number),
                **tolerances,
            )
            assert len(set(selector.rows)) == selector.n_centers
            rows, widths = rows_and_widths(np.array(selector.rows, dtype=np.int64), self.source.n_rows)
            # A path that ended within a panel has more centres than the rows have received.
            sent = slice(self.blocks[0].problems[number].n_columns - 1)
            assert self.held("taken", number)[np.searchsorted(self.rows, rows[sent]), widths[sent]].all()
            np.testing.assert_array_equal(
                np.reshape(selector.features, (-1, self.source.n_features)), self.source.X[rows]
            )

    def check_pool(self, accurate: float = 1e-9, pool_accurate: float = 1e-6) -> int:
        """Hold the pools of running paths, between rounds, to their definition; return how many candidates wait.

        Elimination multiplies rounding errors by |k|/|q|, so what it carries has its own tolerance.
        """
        waiting = 0
        for number, selector in enumerate(self.selectors):
            if selector.reason is not None or getattr(selector, "_finishing", True):
                # A path that ended within a panel has a pool that is ahead of its rows.
                continue
            pool, q = selector._pool, self.held("q", number)
            slots = np.flatnonzero(pool.active)
            waiting += len(slots)
            held, E = self.held("pool", number)[:, slots], self.held("residual", number)
            columns = self.columns(pool.rows[slots])
            sizes = np.linalg.norm(columns, axis=0)
            scale = np.outer(sizes, np.linalg.norm(self.targets(number), axis=0))
            coefficients = pool.coefficients[: q.shape[1], slots]
            errors = {
                "P + Q c = K": (q @ coefficients + held - columns) / sizes,
                "Q'P = 0": (q / np.linalg.norm(q, axis=0)).T @ held / sizes,
                "S = P'P": (held.T @ held - pool.gram[np.ix_(slots, slots)]) / np.outer(sizes, sizes),
                "R = P'E": (held.T @ E - pool.products[slots]) / scale,
            }
            for equation, error in errors.items():
                atol = accurate if equation.startswith("P +") else pool_accurate
                np.testing.assert_allclose(error, 0.0, rtol=0, atol=atol, err_msg=equation)
            np.testing.assert_allclose(pool.norms[slots], sizes**2, rtol=1e-4 if accurate > 1e-6 else 1e-12)
            outside = np.setdiff1d(np.arange(pool.capacity), slots)
            assert not pool.gram[outside].any()
            assert not pool.gram[:, outside].any()
        return waiting


class Trained(Inside):
    """A finished serial training."""

    def __init__(self, inside: Inside, result: TrainingResult) -> None:
        self.__dict__.update(inside.__dict__)
        self.result = result

    @property
    def path(self) -> Path:
        """The only path."""
        (path,) = self.result.paths
        return path


class RoundHook(EventBus):
    """Calls a function after every round; its exceptions end the training."""

    def __init__(self, function: Callable[[], object]) -> None:
        super().__init__()
        self._function = function

    def emit(self, event: Event) -> None:
        if isinstance(event, RoundDone):
            self._function()


def train_serial(
    job: TrainingJob,
    source: ArraySource,
    *,
    pool_selector: type[Selector] = PoolSelector,
    each_round: Callable[[Inside], object] = lambda _: None,
) -> Trained:
    """Train in this process and keep the blocks; `each_round` may look inside after every round."""
    executor = SerialExecutor(source)
    inside = Inside(job, source, executor._blocks)

    def keep(kind: type[Selector]) -> Any:
        def make(*arguments: Any) -> Selector:
            inside.selectors.append(kind(*arguments))
            return inside.selectors[-1]

        return make

    with (
        mock.patch.object(selection, "PoolSelector", keep(pool_selector)),
        mock.patch.object(selection, "LookaheadSelector", keep(LookaheadSelector)),
    ):
        result = train(job, source, executor, RoundHook(lambda: each_round(inside)))
    return Trained(inside, result)


def check_each_round(pool: float = 1e-6, **tolerances: float) -> Callable[[Inside], None]:
    """Return a look inside that checks factors and pool."""

    def look(inside: Inside) -> None:
        inside.check(**tolerances)
        inside.check_pool(tolerances.get("accurate", 1e-9), pool)

    return look


def weights_of(trained: Trained, problem: int = 0) -> Array:
    """Intercept on centred targets, and kernel weights, of the whole path."""
    path = trained.result.paths[problem]
    return kernel_weights(path.u, path.s, path.z, path.lambdas[-1])


def with_duplicates(X: Array, seed: int, share: float) -> Array:
    """Replace a share of the rows by copies of others."""
    rng = np.random.default_rng(seed)
    copies = rng.random(len(X)) < share
    X[copies] = X[rng.integers(0, len(X), np.count_nonzero(copies))]
    return X


def path_arrays(result: TrainingResult) -> dict[str, Array]:
    """Every array and number of every path, and of the history."""
    arrays: dict[str, Array] = {"history": result.history, "means": result.target_means}
    for number, path in enumerate(result.paths):
        for field in fields(path):
            arrays[f"{field.name} {number}"] = np.asarray(getattr(path, field.name))
    return arrays


def assert_same_bits(ours: TrainingResult, theirs: TrainingResult) -> None:
    """Compare two trainings bit for bit."""
    a, b = path_arrays(ours), path_arrays(theirs)
    assert a.keys() == b.keys()
    for name, array in a.items():
        assert array.dtype == b[name].dtype, name
        assert array.shape == b[name].shape, name
        assert array.tobytes() == b[name].tobytes(), name
    assert ours.reason == theirs.reason
    assert ours.outputs == theirs.outputs


def assert_same_solutions(a: TrainingResult, b: TrainingResult) -> None:
    """Compare two trainings whose weights come from passes over all rows, bit for bit."""
    for p, q in zip(a.paths, b.paths, strict=True):
        assert (p.n_centers, p.reason) == (q.n_centers, q.reason)
        assert p.solved is not None
        assert q.solved is not None
        for name in ("rows", "features", "solved", "lambdas", "gcv"):
            assert getattr(p, name).tobytes() == getattr(q, name).tobytes(), name
    assert a.history.tobytes() == b.history.tobytes()
    assert a.summary["passes"] == b.summary["passes"]


@contextmanager
def tile_threads(width: int) -> Iterator[None]:
    """Run with a tile pool of exactly `width` threads."""
    with mock.patch.multiple(threads, _pool=None, _pool_width=width):
        try:
            yield
        finally:
            if threads._pool is not None:
                threads._pool.shutdown()

"""Training and prediction on zarr arrays, dask arrays and datasets: the same numbers as on numpy arrays."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr

import distkern as dk
from distkern.storage import ArraySource, DatasetSource, ZarrSource
from tests.estimators.fits import (
    ALL,
    CLASSIFIERS,
    REGRESSORS,
    assert_equal_models,
    classes,
    data_for,
    fitted,
    regression,
)
from tests.markers import every_value, variants

N = 5000
PARAMETERS: dict[str, Any] = {"max_centers": 24, "sigma": 1.0, "candidates": 64, "panel": 8, "stop": None}


def stored(path: Path, values: Any, chunks: tuple[int, ...], zarr_format: int = 3) -> Any:
    """Write a zarr array."""
    values = np.asarray(values)
    array = zarr.create_array(
        str(path),
        shape=values.shape,
        chunks=chunks,
        dtype=values.dtype,
        zarr_format=zarr_format,  # type: ignore[arg-type]
    )
    array[...] = values
    return array


def zarr_rows(path: Path, X: Any, y: Any) -> tuple[Any, Any]:
    rows = ArraySource(X, y).boundaries[1]
    return stored(path / "X", X, (rows, X.shape[1])), stored(path / "y", y, (rows,))


def zarr_two_ways(path: Path, X: Any, y: Any) -> tuple[Any, Any]:
    """X chunked by columns too, y with odd chunks of its own, format 2."""
    rows = ArraySource(X, y).boundaries[1]
    return stored(path / "X", X, (rows, 1), zarr_format=2), stored(path / "y", y, (97,), zarr_format=2)


def zarr_and_numpy(path: Path, X: Any, y: Any) -> tuple[Any, Any]:
    return stored(path / "X", X, (ArraySource(X, y).boundaries[1], X.shape[1])), y


def dask_arrays(path: Path, X: Any, y: Any) -> tuple[Any, Any]:
    rows = ArraySource(X, y).boundaries[1]
    return da.from_array(X, chunks=(rows, 1)), da.from_array(y, chunks=101)


def dask_and_numpy(path: Path, X: Any, y: Any) -> tuple[Any, Any]:
    return dask_arrays(path, X, y)[0], y


def dataset(path: Path, X: Any, y: Any) -> tuple[Any, Any]:
    rows = ArraySource(X, y).boundaries[1]
    task = "classification" if np.asarray(y).dtype.kind in "iU" else "regression"
    dk.write_dataset(path / "set", X, y, chunk_rows=rows, task=task)
    return dk.open_dataset(path / "set"), None


CONTAINERS = [zarr_rows, zarr_two_ways, zarr_and_numpy, dask_arrays, dask_and_numpy, dataset]


@pytest.mark.parametrize(
    ("cls", "container"),
    variants(
        zip(itertools.cycle([dk.OROLSClassifier, dk.NPDRegressor]), CONTAINERS, strict=False),
        itertools.product([dk.OROLSClassifier, dk.NPDRegressor], CONTAINERS),
    ),
    ids=lambda value: value.__name__,
)
def test_fit_gives_the_model_of_numpy_arrays(
    cls: Any, container: Callable[[Path, Any, Any], tuple[Any, Any]], tmp_path: Path
) -> None:
    """Bit for bit, given the same block boundaries."""
    X, y = data_for(cls, N)
    expected = cls(**PARAMETERS).fit(X, y)
    model = cls(**PARAMETERS).fit(*container(tmp_path, X, y))
    assert_equal_models(model, expected)
    assert model.n_features_in_ == 2


def test_the_boundaries_are_really_equal(tmp_path: Path) -> None:
    X, y = regression(N)
    expected = ArraySource(X, y).boundaries
    assert len(expected) > 2
    for container in (zarr_rows, zarr_two_ways, zarr_and_numpy):
        assert ZarrSource(*container(tmp_path / container.__name__, X, y)).boundaries == expected
    assert DatasetSource(dataset(tmp_path, X, y)[0]).boundaries == expected


@pytest.mark.parametrize("rows", [100, 333, N])
def test_other_boundaries_change_rounding_only(rows: int, tmp_path: Path) -> None:
    X, y = regression(N)
    model = dk.OROLSRegressor(**PARAMETERS).fit(
        stored(tmp_path / "X", X, (rows, 2)), stored(tmp_path / "y", y, (rows,))
    )
    assert_equal_models(model, dk.OROLSRegressor(**PARAMETERS).fit(X, y), rtol=1e-6)


@pytest.mark.parametrize(
    ("labels", "container"),
    [
        pytest.param(["a", "b", "c"], zarr_and_numpy, id="text-zarr"),
        pytest.param([-3, 0, 5], dask_arrays, id="integers-dask"),
        pytest.param([0.0, 1.0, 9.0], dask_and_numpy, id="floats-dask-and-numpy"),
    ],
)
def test_labels_in_containers_come_back_as_given(labels: list[Any], container: Any, tmp_path: Path) -> None:
    X, codes = classes(N)
    y = np.array(labels)[codes]
    model = dk.OROLSClassifier(**PARAMETERS).fit(*container(tmp_path, X, y))
    assert_equal_models(model, dk.OROLSClassifier(**PARAMETERS).fit(X, y))
    assert model.classes_.dtype == y.dtype


def test_labels_of_a_dataset_come_back_as_given(tmp_path: Path) -> None:
    X, codes = classes(N)
    y = np.array(["ape", "bee", "cat"])[codes]
    model = dk.OROLSClassifier(**PARAMETERS).fit(dataset(tmp_path, X, y)[0])
    assert_equal_models(model, dk.OROLSClassifier(**PARAMETERS).fit(X, y))
    assert model.predict(X[:3]).dtype == y.dtype


def test_several_targets_in_a_store(tmp_path: Path) -> None:
    X, y = regression(N, n_targets=3)
    expected = dk.OROLSRegressor(**PARAMETERS).fit(X, y)
    rows = ArraySource(X, y).boundaries[1]
    arrays = stored(tmp_path / "X", X, (rows, 2)), stored(tmp_path / "y", y, (200, 2))
    assert_equal_models(dk.OROLSRegressor(**PARAMETERS).fit(*arrays), expected)
    dk.write_dataset(tmp_path / "set", X, y, chunk_rows=rows)
    model = dk.OROLSRegressor(**PARAMETERS).fit(dk.open_dataset(tmp_path / "set"))
    assert_equal_models(model, expected)
    assert model.predict(X[:5]).shape == (5, 3)


@pytest.mark.parametrize("dtype", [np.float32, np.int16, np.uint8])
def test_features_of_other_types_stay_what_they_are(dtype: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 50, (400, 3)).astype(dtype)
    y = np.sin(X.astype(float).sum(axis=1) / 30)
    model = dk.OROLSRegressor(**PARAMETERS).fit(stored(tmp_path / "X", X, (100, 3)), y)
    assert model.centers_.dtype == dtype
    np.testing.assert_array_equal(model.centers_, X[model.center_indices_])
    assert_equal_models(dk.OROLSRegressor(**PARAMETERS).fit(da.from_array(X, chunks=(100, 3)), y), model)


@pytest.mark.parametrize("container", CONTAINERS, ids=lambda f: f.__name__)
def test_sample_weight_beside_any_container(container: Any, tmp_path: Path) -> None:
    X, y = regression(N)
    weights = np.random.default_rng(1).integers(0, 3, N).astype(float)
    expected = dk.OROLSRegressor(**PARAMETERS).fit(X, y, weights)
    given = container(tmp_path, X, y)
    assert_equal_models(dk.OROLSRegressor(**PARAMETERS).fit(*given, sample_weight=weights), expected)


# --- prediction ------------------------------------------------------------------------------------------------------


def outputs(model: Any) -> list[str]:
    names = ["predict"]
    return [*names, "decision_function", "predict_proba"] if hasattr(model, "predict_proba") else names


@pytest.mark.parametrize(("cls", "zarr_format", "chunks"), every_value(ALL, [2, 3], [(128, 2), (37, 1), (1000, 2)]))
def test_zarr_in_zarr_out(cls: Any, zarr_format: int, chunks: tuple[int, int], tmp_path: Path) -> None:
    model = fitted(cls)
    X, _ = data_for(cls, 300, 1)
    array = stored(tmp_path / "X", X, chunks, zarr_format)
    for name in outputs(model):
        expected = getattr(model, name)(X)
        result = getattr(model, name)(array)
        assert isinstance(result, zarr.Array)
        assert result.dtype == expected.dtype
        assert result.shape == expected.shape
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(result[:], expected, rtol=1e-9, atol=1e-12)
        else:
            np.testing.assert_array_equal(result[:], expected)


@pytest.mark.parametrize(("cls", "chunks"), every_value(ALL, [(128, 2), (37, 1), (-1, -1), ((100, 150, 50), 2)]))
def test_dask_in_dask_out(cls: Any, chunks: Any) -> None:
    model = fitted(cls)
    X, _ = data_for(cls, 300, 1)
    array = da.from_array(X, chunks=chunks)
    for name in outputs(model):
        expected = getattr(model, name)(X)
        result = getattr(model, name)(array)
        assert isinstance(result, da.Array)
        assert result.dtype == expected.dtype
        assert result.shape == expected.shape
        assert result.chunks[0] == array.chunks[0]
        computed = result.compute(scheduler="synchronous")
        assert isinstance(computed, np.ndarray)
        assert computed.dtype == expected.dtype
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(computed, expected, rtol=1e-9, atol=1e-12)
        else:
            np.testing.assert_array_equal(computed, expected)


@pytest.mark.parametrize("labels", [["a", "bbb"], ["a", "bbb", "c"], [True, False]], ids=str)
def test_labels_in_containers_out(labels: list[Any], tmp_path: Path) -> None:
    X, codes = classes(200, len(labels))
    model = dk.OROLSClassifier(max_centers=10, sigma=1.0).fit(X, np.array(labels)[codes])
    expected = model.predict(X)
    result = model.predict(stored(tmp_path / "X", X, (64, 2)))
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result[:], expected)
    lazy = model.predict(da.from_array(X, chunks=(64, 2)))
    assert lazy.dtype == expected.dtype
    np.testing.assert_array_equal(lazy.compute(scheduler="synchronous"), expected)


def test_object_labels_from_a_zarr_array(tmp_path: Path) -> None:
    X, codes = classes(200)
    model = dk.OROLSClassifier(max_centers=10, sigma=1.0).fit(X, np.array(["a", "b", "c"], dtype=object)[codes])
    result = model.predict(stored(tmp_path / "X", X, (64, 2)))
    np.testing.assert_array_equal(result[:], model.predict(X))


def test_several_targets_out(tmp_path: Path) -> None:
    X, y = regression(200, n_targets=3)
    model = dk.OROLSRegressor(max_centers=10).fit(X, y)
    expected = model.predict(X)
    np.testing.assert_allclose(model.predict(stored(tmp_path / "X", X, (64, 2)))[:], expected, rtol=1e-9)
    lazy = model.predict(da.from_array(X, chunks=(64, 2)))
    np.testing.assert_allclose(lazy.compute(scheduler="synchronous"), expected, rtol=1e-9)


def test_a_dataset_is_predicted_as_its_rows(tmp_path: Path) -> None:
    X, y = classes(300)
    model = fitted(dk.OROLSClassifier)
    given, _ = dataset(tmp_path, X, y)
    result = model.predict(given)
    assert isinstance(result, zarr.Array)
    np.testing.assert_array_equal(result[:], model.predict(X))


def test_prediction_in_blocks(tmp_path: Path) -> None:
    X, _ = classes(300)
    model = fitted(dk.OROLSClassifier)
    for rows in (X, stored(tmp_path / "X", X, (64, 2)), dataset(tmp_path, X, np.arange(300) % 3)[0]):
        parts = list(model.iter_predictions(rows, proba=True))
        np.testing.assert_array_equal(
            [start for start, _, _ in parts], np.cumsum([0, *(len(p) for _, p, _ in parts[:-1])])
        )
        np.testing.assert_array_equal(np.concatenate([p for _, p, _ in parts]), model.predict(X))
        np.testing.assert_allclose(np.concatenate([q for _, _, q in parts]), model.predict_proba(X), rtol=1e-9)
    assert all(q is None for _, _, q in model.iter_predictions(X))
    with pytest.raises(dk.JobError, match="values, not probabilities"):
        list(fitted(dk.OROLSRegressor).iter_predictions(X, proba=True))


# --- what does not fit -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", REGRESSORS)
def test_a_regressor_refuses_class_labels(cls: Any, tmp_path: Path) -> None:
    given, _ = dataset(tmp_path, *classes(100))
    with pytest.raises(dk.DataError, match="use a classifier") as caught:
        cls().fit(given)
    assert caught.value.kind == "task"


@pytest.mark.parametrize("cls", CLASSIFIERS)
@pytest.mark.parametrize("container", [zarr_rows, dask_arrays, dataset], ids=lambda f: f.__name__)
def test_a_classifier_refuses_continuous_targets(cls: Any, container: Any, tmp_path: Path) -> None:
    given = container(tmp_path, *regression(60))
    with pytest.raises(dk.DataError):
        cls(max_centers=3).fit(*given)


@pytest.mark.parametrize("container", [zarr_rows, zarr_and_numpy, dask_and_numpy], ids=lambda f: f.__name__)
def test_labels_in_one_column(container: Any, tmp_path: Path) -> None:
    """A column of labels is refused or taken as flat."""
    X, y = classes(N)
    expected = dk.OROLSClassifier(**PARAMETERS).fit(X, y)
    given = container(tmp_path, X, y)[0], y[:, None]
    try:
        model = dk.OROLSClassifier(**PARAMETERS).fit(*given)
    except dk.DataError:
        return
    np.testing.assert_array_equal(model.coef_, expected.coef_)


def test_a_dataset_brings_its_own_targets(tmp_path: Path) -> None:
    X, y = regression(60)
    given, _ = dataset(tmp_path, X, y)
    with pytest.raises(dk.DataError, match="leave y out"):
        dk.OROLSRegressor().fit(given, y)
    with pytest.raises(dk.DataError, match="y is missing"):
        dk.OROLSRegressor().fit(zarr_rows(tmp_path, X, y)[0])
    with pytest.raises(dk.DataError, match="y is missing"):
        dk.OROLSRegressor().fit(da.from_array(X))


@pytest.mark.parametrize("container", [zarr_rows, dask_arrays], ids=lambda f: f.__name__)
def test_nan_is_named_by_row_and_column(container: Any, tmp_path: Path) -> None:
    X, y = regression(N)
    X[777, 1] = np.nan
    with pytest.raises(dk.DataError, match=r"X holds NaN in row 777 .*column 1"):
        dk.OROLSRegressor(**PARAMETERS).fit(*container(tmp_path / "a", X, y))
    X, y = regression(N)
    y[1234] = np.inf
    with pytest.raises(dk.DataError, match=r"y holds inf in row 1234"):
        dk.OROLSRegressor(**PARAMETERS).fit(*container(tmp_path / "b", X, y))


@pytest.mark.parametrize("container", [zarr_rows, dask_arrays], ids=lambda f: f.__name__)
def test_row_counts_that_differ(container: Any, tmp_path: Path) -> None:
    X, y = regression(N)
    given, _ = container(tmp_path, X, y)
    with pytest.raises(dk.DataError, match=f"X has {N} rows but y has {N - 1}"):
        dk.OROLSRegressor().fit(given, y[:-1])
    with pytest.raises(dk.DataError, match="X has 5000 rows but sample_weight has 7"):
        dk.OROLSRegressor().fit(given, y, np.ones(7))


def test_feature_count_at_predict(tmp_path: Path) -> None:
    model = fitted(dk.OROLSRegressor)
    wide = np.zeros((5, 3))
    for rows in (wide, stored(tmp_path / "X", wide, (5, 3)), da.from_array(wide)):
        with pytest.raises(dk.DataError, match="X has 3 features, but OROLSRegressor is expecting 2"):
            model.predict(rows)
    with pytest.raises(dk.DataError, match="X has 3 features"):
        list(model.iter_predictions(stored(tmp_path / "W", wide, (5, 3))))


def test_nan_at_predict_in_a_store(tmp_path: Path) -> None:
    model = fitted(dk.OROLSRegressor)
    X, _ = regression(100)
    X[70, 0] = np.nan
    with pytest.raises(dk.DataError, match=r"row 70 .*column 0"):
        model.predict(stored(tmp_path / "X", X, (32, 2)))


def test_unknown_chunk_sizes_are_refused() -> None:
    X, y = regression(100)
    array = da.from_array(X, chunks=(50, 2))
    with pytest.raises(dk.DataError, match="compute_chunk_sizes"):
        dk.OROLSRegressor().fit(array[array[:, 0] > 0], y)


def test_empty_dask_chunks() -> None:
    """A filter may leave chunks without rows."""
    X, y = regression(100)
    X[:50, 0] = -abs(X[:50, 0])
    keep = X[:, 0] > 0
    array = da.from_array(X, chunks=(25, 2))
    chosen = array[array[:, 0] > 0].compute_chunk_sizes()
    assert 0 in chosen.chunks[0]
    model = dk.OROLSRegressor(max_centers=5, sigma=1.0).fit(chosen, y[keep])
    assert_equal_models(model, dk.OROLSRegressor(max_centers=5, sigma=1.0).fit(X[keep], y[keep]), rtol=1e-8)
    assert len(model.predict(chosen).compute(scheduler="synchronous")) == keep.sum()


def test_a_block_without_any_training_row() -> None:
    """Weights of zero may empty a block."""
    X, y = regression(N)
    weights = np.ones(N)
    weights[: ArraySource(X, y).boundaries[1]] = 0
    model = dk.OROLSRegressor(**PARAMETERS).fit(X, y, weights)
    present = weights > 0
    expected = dk.OROLSRegressor(**PARAMETERS).fit(X[present], y[present])
    np.testing.assert_allclose(model.predict(X), expected.predict(X), atol=0.2)


def test_held_out_rows_may_bring_a_class_of_their_own(tmp_path: Path) -> None:
    """The only row of a class may be held out by the validation rule."""
    from distkern.numerics.row_draws import row_uniforms
    from distkern.scheduler.blocks.block import HOLDOUT_STREAM

    X, y = classes(200, 3)
    held = np.flatnonzero(row_uniforms(0, HOLDOUT_STREAM, 0, 200) < 0.1)
    y[held[0]] = 3
    parameters: dict[str, Any] = {"max_centers": 5, "sigma": 1.0, "stop": "validation"}
    model = dk.OROLSClassifier(**parameters).fit(X, y)
    np.testing.assert_array_equal(model.classes_, [0, 1, 2, 3])
    in_store = dk.OROLSClassifier(**parameters).fit(
        stored(tmp_path / "X", X, (200, 2)), stored(tmp_path / "y", y, (200,))
    )
    np.testing.assert_array_equal(in_store.classes_, [0, 1, 2, 3])


@pytest.mark.parametrize("container", [zarr_rows, dask_arrays, dataset], ids=lambda f: f.__name__)
def test_the_validation_rule_on_a_store(container: Any, tmp_path: Path) -> None:
    X, y = regression(N)
    parameters = PARAMETERS | {"stop": "validation", "max_centers": 60, "patience": 10}
    expected = dk.OROLSRegressor(**parameters).fit(X, y)
    model = dk.OROLSRegressor(**parameters).fit(*container(tmp_path, X, y))
    assert_equal_models(model, expected)
    assert model.score(X, y) > 0.9

"""Stores changed at random: they open as before or with a typed error, without a crash and in little memory."""

from __future__ import annotations

import functools
import json
import os
import resource
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import distkern
from distkern.errors import DistkernError
from distkern.storage import PredictionWriter, RunDirectory, describe, open_arrays, open_dataset, read_predictions
from distkern.storage.datasets.sources import ZarrSource
from tests.faulty import rows, write_array

MOST_KIB = 700 << 10
"""Most that the largest resident set of the process may grow by, in KiB: with what it has, 1 GiB."""

JUNK: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    float("nan"),
    10**12,
    10**30,
    "",
    "../../x",
    "<U999999999",
    "|O",
    "pickle",
    [],
    {},
    [[]],
    [10**12, 3],
    [0, 0],
    [-1],
    ["a", 1],
    {"name": "x"},
    {"name": "numcodecs.pickle", "configuration": {}},
]

HOWS = ["replace", "replace", "delete", "add", "swap", "flip", "flip", "cut", "grow", "remove", "zero"]

mutations = st.lists(st.tuples(st.sampled_from(HOWS), st.integers(0, 2**32 - 1)), min_size=1, max_size=3)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every part of a JSON value but itself."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def mutate_json(text: str, how: str, rng: np.random.Generator) -> str:
    try:
        value = json.loads(text)
        paths = list(places(value))
    except ValueError:
        return text
    if not paths:
        return text
    *way, last = paths[rng.integers(len(paths))]
    parent = value
    for key in way:
        parent = parent[key]
    junk = JUNK[rng.integers(len(JUNK))]
    if how == "delete":
        del parent[last]
    elif how == "add" and isinstance(parent, dict):
        parent[str(junk)] = junk
    elif how == "swap":
        other = paths[rng.integers(len(paths))]
        found = value
        for key in other:
            found = found[key]
        parent[last] = json.loads(json.dumps(found))
    else:
        parent[last] = junk
    return json.dumps(value)


def mutate(root: Path, how: str, seed: int) -> None:
    """Change one file of a store."""
    rng = np.random.default_rng(seed)
    files = sorted(file for file in root.rglob("*") if file.is_file())
    described = [file for file in files if file.name in (".zarray", ".zattrs") or file.suffix in (".json", ".jsonl")]
    if how in ("replace", "delete", "add", "swap"):
        if not described:
            return
        file = described[rng.integers(len(described))]
        file.write_text(mutate_json(file.read_text(errors="replace"), how, rng))
        return
    file = files[rng.integers(len(files))]
    data = bytearray(file.read_bytes())
    if how == "remove":
        file.unlink()
        return
    if how == "grow":
        data += rng.bytes(int(rng.integers(1, 200)))
    elif how == "zero":
        data = bytearray(len(data))
    elif data and how == "cut":
        del data[rng.integers(len(data)) :]
    elif data:
        for _ in range(rng.integers(1, 5)):
            data[rng.integers(min(len(data), 64) if rng.random() < 0.5 else len(data))] ^= 1 << int(rng.integers(8))
    file.write_bytes(data)


@contextmanager
def copied(original: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(shutil.copytree(original, Path(folder, "store")))


def survives(original: Path, changes: list[tuple[str, int]], use: Callable[[Path], object]) -> None:
    """Use a changed copy of a store; nothing but typed errors may come of it."""
    with copied(original) as store, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of zarr, and about feature names that are no longer there
        for how, seed in changes:
            mutate(store, how, seed)
        outside = sorted(os.listdir(store.parent))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        refused: DistkernError | None = None
        try:
            use(store)
        except DistkernError as error:
            refused = error
        assert refused is None or (refused.kind != "unspecified" and len(str(refused)) < 20_000)
        assert sorted(os.listdir(store.parent)) == outside
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_KIB


# ---- One of each kind of store, and all that is done with it


def write_originals(folder: Path) -> dict[str, Path]:
    """Write one of each kind of store, by its name."""
    X, y = rows(60)
    labels = np.array(["no", "yes"])[(y > 0).astype(int)]
    distkern.write_dataset(folder / "dataset", X, labels, chunk_rows=16, feature_names=["a", "b", "c"])
    distkern.OROLSClassifier(max_centers=5).fit(X, labels).save(folder / "model")
    write_array(folder / "arrays" / "X", X, (16, 2))
    write_array(folder / "arrays" / "y", y, (20,))
    for name, values in (("X", X), ("y", y)):
        array = zarr.create_array(
            folder / "arrays2" / name, shape=values.shape, chunks=(16,) * values.ndim, dtype="f8", zarr_format=2
        )
        array[...] = values
    with PredictionWriter(folder / "predictions", 60, class_labels=np.unique(labels), probability=True) as writer:
        writer.append(labels, np.full((60, 2), 0.5))
    run = RunDirectory.create(folder / "run", {"estimator": "x", "parameters": {"a": [1, 2.5, None, "b"]}})
    run.record({"event": "RunStarted", "n_rows": 60})
    run.write_summary({"n_centers": 5})
    train_in(folder / "training")
    return {path.name: path for path in folder.iterdir()}


@pytest.fixture(scope="module")
def originals(tmp_path_factory: Any) -> dict[str, Path]:
    return write_originals(tmp_path_factory.mktemp("stores"))


def use_dataset(path: Path) -> None:
    describe(path)
    dataset = open_dataset(path)
    dataset.targets()
    source = dataset.source()
    for block in range(len(source.boundaries) - 1):
        assert len(source.read_features(block)) == source.boundaries[block + 1] - source.boundaries[block]
        source.read_targets(block)


def use_model(path: Path) -> None:
    describe(path)
    shares = distkern.load_model(path).predict_proba(np.zeros((2, 3)))
    assert shares.shape == (2, len(shares[0]))


def use_arrays(path: Path) -> None:
    X, y = open_arrays(path / "X", path / "y")
    source = ZarrSource(X, y)
    if source.n_rows < 10**4:
        for block in range(len(source.boundaries) - 1):
            source.read_features(block)
            source.read_targets(block)


def use_predictions(path: Path) -> None:
    assert describe(path)["n_rows"] == len(read_predictions(path).prediction)


def use_run(path: Path) -> None:
    describe(path)
    run = RunDirectory.open(path)
    list(run.events())
    run.record({"event": "more"})


def train_in(run: Path) -> Any:
    """Train a small model, or resume its run."""
    X, y = rows(60)
    return distkern.OROLSClassifier(max_centers=6, panel=2, candidates=16, run_dir=run).fit(X, y > 0)


@functools.cache
def undisturbed() -> Any:
    """The model of a run that nothing changed."""
    with tempfile.TemporaryDirectory() as folder:
        return train_in(Path(folder, "run"))


def use_training(path: Path) -> None:
    model, expected = train_in(path), undisturbed()
    for name in ("centers_", "coef_", "intercept_", "history_"):
        assert getattr(model, name).tobytes() == getattr(expected, name).tobytes()


USES = {
    "dataset": use_dataset,
    "model": use_model,
    "arrays": use_arrays,
    "arrays2": use_arrays,
    "predictions": use_predictions,
    "run": use_run,
    "training": use_training,
}


@pytest.mark.parametrize("kind", USES)
def test_undisturbed(originals: dict[str, Path], kind: str) -> None:
    with copied(originals[kind]) as store:
        before = sorted(os.listdir(store.parent))
        USES[kind](store)
        assert sorted(os.listdir(store.parent)) == before


@pytest.mark.parametrize("kind", USES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=mutations)
def test_a_few_mutations(originals: dict[str, Path], kind: str, changes: list[tuple[str, int]]) -> None:
    survives(originals[kind], changes, USES[kind])


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [kind for kind in USES if kind != "training"])
@settings(max_examples=1500, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=mutations)
def test_many_mutations(originals: dict[str, Path], kind: str, changes: list[tuple[str, int]]) -> None:
    survives(originals[kind], changes, USES[kind])


@pytest.mark.nightly
@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=mutations)
def test_resuming_mutated_runs(originals: dict[str, Path], changes: list[tuple[str, int]]) -> None:
    """A run that can be resumed gives the undisturbed model."""
    survives(originals["training"], changes, use_training)


@pytest.mark.nightly
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=mutations)
def test_training_on_mutated_stores(originals: dict[str, Path], changes: list[tuple[str, int]]) -> None:
    """A store that opens can be trained on, or is refused with an error."""

    def train(path: Path) -> None:
        distkern.OROLSClassifier(max_centers=3, memory_limit="256MiB").fit(open_dataset(path))

    survives(originals["dataset"], changes, train)

"""Stores with false metadata: refused before anything is allocated, run or followed."""

from __future__ import annotations

import json
import os
import pickle
import resource
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.storage import LocalStore, MemoryStore

import distkern
from distkern.errors import DataError, DistkernError, RunError, StoreError
from distkern.storage import (
    PredictionWriter,
    RunDirectory,
    ZarrRows,
    ZarrSource,
    as_source,
    describe,
    open_arrays,
    open_dataset,
    read_model,
    read_predictions,
    write_dataset,
    write_model,
)
from distkern.storage.io.json_files import MAX_JSON_BYTES, read_json
from distkern.storage.io.trust import CODECS, trusted
from tests.faulty import rows, write_array


class Trap:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def refuses(call: Callable[[], object], *kinds: str) -> DistkernError:
    """Expect a typed error, soon and without much memory."""
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, perf_counter()
    with pytest.raises(DistkernError) as caught:
        call()
    assert perf_counter() - started < 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 512 << 10
    assert not kinds or caught.value.kind in kinds, caught.value
    return caught.value


def v2_array(path: Path, data: bytes, **changes: Any) -> Path:
    """Write a zarr 2 array by hand."""
    path.mkdir(parents=True)
    metadata = {
        "zarr_format": 2,
        "shape": [4, 1],
        "chunks": [4, 1],
        "dtype": "<f8",
        "filters": None,
        "compressor": None,
        "order": "C",
        "fill_value": 0,
    }
    (path / ".zarray").write_text(json.dumps(metadata | changes))
    (path / "0.0").write_bytes(data)
    return path


# ---- Nothing is run


@pytest.mark.parametrize(
    "changes",
    [
        {"filters": [{"id": "pickle"}]},
        {"compressor": {"id": "pickle"}},
        {"dtype": "|O", "filters": [{"id": "pickle"}], "fill_value": None},
        {"dtype": "|O", "filters": [{"id": "vlen-utf8"}, {"id": "pickle"}], "fill_value": ""},
        {"filters": [{"id": "pickle"}, {"id": "delta", "dtype": "<f8"}]},
        {"filters": [{"id": "json2"}]},
        {"compressor": {"id": "nonsense"}},
        {"dtype": "|O"},
    ],
)
def test_codecs_of_zarr_2_that_do_more_than_decode(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = v2_array(tmp_path / "a", pickle.dumps(Trap(tmp_path / "sprung")), **changes)
    refuses(lambda: open_arrays(path, path), "codec", "not-an-array")
    refuses(lambda: describe(path), "codec", "not-an-array")
    try:
        array = zarr.open_array(path, mode="r")
    except Exception:
        array = None
    if array is not None:
        refuses(lambda: ZarrRows(array), "codec", "not-numeric")
        refuses(lambda: as_source(np.ones((4, 1)), array), "codec", "unreadable")
        refuses(lambda: ZarrSource(zarr.open_array(good(tmp_path / "X")), array), "codec")
    assert not (tmp_path / "sprung").exists()


def good(path: Path) -> Path:
    return write_array(path, np.arange(4.0).reshape(4, 1), (4, 1))


def test_codecs_of_zarr_3_that_are_not_known(tmp_path: Path) -> None:
    path = good(tmp_path / "a")
    document = json.loads((path / "zarr.json").read_text())
    for codecs in (
        [{"name": "numcodecs.pickle", "configuration": {}}],
        [*document["codecs"], {"name": "os.system", "configuration": {"command": "true"}}],
        [{"name": "bytes"}, {"name": "bytes"}],
        [],
        "bytes",
        None,
    ):
        (path / "zarr.json").write_text(json.dumps(document | {"codecs": codecs}))
        refuses(lambda: open_arrays(path, path), "codec", "not-an-array")


def test_the_codecs_that_zarr_offers_are_known_or_refused() -> None:
    import numcodecs.registry

    refused = set(numcodecs.registry.codec_registry) - CODECS
    assert refused <= {"pickle", "json2", "msgpack2", "base64", "categorize", "msgpack", "json"}, refused
    for options in ({"compressors": None}, {"shards": (4, 2)}, {"zarr_format": 2}):
        array = zarr.create_array(MemoryStore(), shape=(4, 2), chunks=(2, 2), dtype="f8", **options)
        trusted(array, "X")


def test_models_hold_no_pickles(tmp_path: Path) -> None:
    write_model(tmp_path / "m", {}, {"a": np.zeros(3)})
    np.save(tmp_path / "m" / "a.npy", np.array([Trap(tmp_path / "sprung")]), allow_pickle=True)
    refuses(lambda: read_model(tmp_path / "m"), "corrupt")
    (tmp_path / "m" / "a.npy").write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    refuses(lambda: read_model(tmp_path / "m"), "corrupt")
    assert not (tmp_path / "sprung").exists()


# ---- Sizes


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def facts(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    edit(path / "zarr.json", lambda document: change(document["attributes"]["distkern"]))


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    X, y = rows(64)
    return Path(write_dataset(tmp_path / "d", X, np.array(["no", "yes"])[(y > 0).astype(int)], chunk_rows=16).path)


@pytest.mark.parametrize("chunk_rows", [1, 16, 10**6, 10**12])
def test_a_dataset_of_a_million_million_rows(dataset: Path, chunk_rows: int) -> None:
    for name, shape, chunk in (("X", [10**12, 3], [chunk_rows, 3]), ("y", [10**12], [chunk_rows])):
        edit(
            dataset / name / "zarr.json",
            lambda d, shape=shape, chunk=chunk: d.update(
                shape=shape, chunk_grid={"name": "regular", "configuration": {"chunk_shape": chunk}}
            ),
        )
    facts(dataset, lambda f: f.update(n_rows=10**12))
    refuses(lambda: open_dataset(dataset), "corrupt")
    count = -(-(10**12) // chunk_rows)
    if count < 10**7:
        facts(dataset, lambda f: f.update(checksums={"X": ["0" * 16] * count, "y": ["0" * 16] * count}))
        refuses(lambda: open_dataset(dataset).source().read_features(0), "corrupt", "unreadable", "not-a-dataset")


def test_chunks_that_are_too_short_for_their_rows(dataset: Path) -> None:
    """2 GB a chunk are declared and a few hundred bytes are there."""
    size = 80 * 10**6
    for name, tail in (("X", [3]), ("y", [])):
        edit(
            dataset / name / "zarr.json",
            lambda d, tail=tail: d.update(
                shape=[4 * size, *tail],
                chunk_grid={"name": "regular", "configuration": {"chunk_shape": [size, *tail]}},
            ),
        )
    facts(dataset, lambda f: f.update(n_rows=4 * size, class_counts=[2 * size, 2 * size]))
    source = open_dataset(dataset).source()
    error = refuses(lambda: source.read_features(0), "unreadable")
    assert "chunk 0 of X" in str(error)
    assert "too few" in str(error)


@pytest.mark.parametrize(
    "change",
    [
        lambda f: f.update(n_rows=10**12),
        lambda f: f.update(n_rows="64"),
        lambda f: f.update(task="anything"),
        lambda f: f.update(task="regression"),
        lambda f: f.update(class_labels=None),
        lambda f: f.update(class_labels=["no"]),
        lambda f: f.update(class_labels=[["no"], ["yes"]]),
        lambda f: f.update(class_labels="no"),
        lambda f: f.update(class_labels_dtype="<U1000000000"),
        lambda f: f.update(class_labels_dtype="|O"),
        lambda f: f.update(class_labels_dtype="f8,f8"),
        lambda f: f.update(class_labels_dtype="(1000000,)f8"),
        lambda f: f.update(class_labels_dtype="M8[D]"),
        lambda f: f.update(class_labels_dtype=["<U3"]),
        lambda f: f.update(class_counts=[64]),
        lambda f: f.update(class_counts=[-1, 65]),
        lambda f: f.update(class_counts={"no": 1}),
        lambda f: f.update(feature_names=["a"]),
        lambda f: f.update(feature_names=[1, 2, 3]),
        lambda f: f.update(feature_mean=[0.0]),
        lambda f: f.update(feature_std=[[0.0] * 3] * 3),
        lambda f: f.update(feature_std="a"),
        lambda f: f.update(checksums={"X": [], "y": []}),
        lambda f: f.update(checksums={"X": [1, 2, 3, 4], "y": [1, 2, 3, 4]}),
        lambda f: f.update(checksums=[]),
        lambda f: f.update(crc32={"X": [1] * 4}),
        lambda f: f.update(crc32={"X": [1] * 4, "y": ["1"] * 4}),
        lambda f: f.update(crc32={"X": [1] * 3, "y": [1] * 4}),
        lambda f: f.update(dtypes={"X": "<i8", "y": "<i4"}),
        lambda f: f.update(notes=3),
        lambda f: f.pop("checksums"),
    ],
)
def test_descriptions_that_do_not_fit(dataset: Path, change: Any) -> None:
    facts(dataset, change)
    assert str(dataset) in str(refuses(lambda: open_dataset(dataset), "corrupt"))


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(data_type="int64"),
        lambda d: d.update(data_type="float32"),
        lambda d: d.update(data_type={"name": "null_terminated_bytes", "configuration": {"length_bytes": 8}}),
        lambda d: d.update(shape=[64]),
        lambda d: d.update(shape=[64, 3, 1]),
        lambda d: d.update(shape=[-64, 3]),
        lambda d: d.update(shape=[63, 3]),
        lambda d: d["chunk_grid"]["configuration"].update(chunk_shape=[8, 3]),
        lambda d: d["chunk_grid"]["configuration"].update(chunk_shape=[16, 1]),
        lambda d: d["chunk_grid"]["configuration"].update(chunk_shape=[0, 3]),
        lambda d: d["chunk_key_encoding"]["configuration"].update(separator="/../../"),
        lambda d: d.update(node_type="group"),
        lambda d: d.update(zarr_format=9),
        lambda d: d.clear(),
    ],
)
def test_arrays_that_do_not_fit(dataset: Path, change: Any) -> None:
    edit(dataset / "X" / "zarr.json", change)
    refuses(lambda: open_dataset(dataset), "corrupt", "missing")


def test_codes_without_a_class(dataset: Path) -> None:
    facts(dataset, lambda f: f.update(class_labels=["maybe", "no", "yes"], class_counts=[0, 30, 34]))
    open_dataset(dataset)
    y = zarr.open_array(LocalStore(dataset), path="y", mode="r+")
    y[3] = 7
    refuses(lambda: open_dataset(dataset).targets(), "corrupt")
    refuses(lambda: open_dataset(dataset).source().read_targets(0), "corrupt")


def test_json_has_limits(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 10**5 + "]" * 10**5)
    (tmp_path / "digits.json").write_text("9" * 10**5)
    with (tmp_path / "long.json").open("wb") as stream:
        stream.truncate(MAX_JSON_BYTES + 1)
    os.mkfifo(tmp_path / "pipe.json")
    for name in ("deep.json", "digits.json", "long.json", "pipe.json", "none.json", "."):
        assert read_json(tmp_path / name) is None


def test_descriptions_too_long_to_read_are_not_written(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(4, 1))
    with pytest.raises(ValueError, match="meta takes"):
        write_model(tmp_path / "m", {"a": "x" * MAX_JSON_BYTES}, {})
    from distkern.storage import DatasetWriter

    with (
        pytest.raises(DataError, match="chunk_rows"),
        DatasetWriter(tmp_path / "d", notes={"a": "x" * MAX_JSON_BYTES}) as w,
    ):
        w.append(X, X[:, 0])
    assert list(tmp_path.iterdir()) == []


def test_long_descriptions_of_datasets(dataset: Path) -> None:
    with (dataset / "X" / "zarr.json").open("ab") as stream:
        stream.truncate(MAX_JSON_BYTES + 1)
    refuses(lambda: open_dataset(dataset), "corrupt")


# ---- Places


def test_links_that_lead_out_of_a_dataset(dataset: Path, tmp_path: Path) -> None:
    (dataset / "X").rename(tmp_path / "elsewhere")
    (dataset / "X").symlink_to(tmp_path / "elsewhere")
    assert "links" in str(refuses(lambda: open_dataset(dataset), "corrupt"))
    (dataset / "X").unlink()
    (tmp_path / "elsewhere").rename(dataset / "Z")
    (dataset / "X").symlink_to("Z")  # a link within
    open_dataset(dataset).verify()


def test_a_link_to_a_dataset_is_followed(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(dataset)
    linked = open_dataset(tmp_path / "link")
    linked.verify()
    assert linked.n_rows == open_dataset(dataset).n_rows


def test_consolidated_metadata_is_ignored(dataset: Path) -> None:
    with pytest.warns(UserWarning, match="Consolidated"):
        zarr.consolidate_metadata(LocalStore(dataset))
    edit(
        dataset / "zarr.json",
        lambda d: d["consolidated_metadata"]["metadata"]["X"].update(shape=[10**12, 3]),
    )
    open_dataset(dataset).verify()


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/../../b", "..", "a\\b", "a.npy", "nul\0l"])
def test_names_that_lead_out_of_a_model(tmp_path: Path, name: str) -> None:
    write_model(tmp_path / "m", {}, {"a": np.zeros(3)})
    edit(tmp_path / "m" / "model.json", lambda d: d["arrays"].update({name: d["arrays"]["a"]}))
    refuses(lambda: read_model(tmp_path / "m"), "corrupt")


def test_links_in_models_and_runs(tmp_path: Path) -> None:
    write_model(tmp_path / "m", {}, {"a": np.zeros(3)})
    (tmp_path / "m" / "model.json").rename(tmp_path / "model.json")
    (tmp_path / "m" / "model.json").symlink_to(tmp_path / "model.json")
    assert isinstance(refuses(lambda: read_model(tmp_path / "m"), "corrupt"), StoreError)
    victim = tmp_path / "victim"
    victim.write_text("precious\n")
    for name in ("events.jsonl", "summary.json", "job.json", "search.json"):
        run = RunDirectory.create(tmp_path / name / "r", {"a": 1})
        (run.path / name).unlink(missing_ok=True)
        (run.path / name).symlink_to(victim)
        assert isinstance(refuses(lambda run=run: RunDirectory.open(run.path), "corrupt", "not-a-run"), RunError)
    assert victim.read_text() == "precious\n"


def test_predictions_with_false_metadata(tmp_path: Path) -> None:
    def fresh(name: str) -> Path:
        with PredictionWriter(tmp_path / name, 4, class_labels=np.array(["a", "b"]), probability=True) as writer:
            writer.append(np.array(["a", "b", "a", "a"]), np.full((4, 2), 0.5))
        return tmp_path / name

    read_predictions(fresh("good"))
    changes: list[Callable[[Path], object]] = [
        lambda p: facts(p, lambda f: f.update(n_rows=10**12)),
        lambda p: facts(p, lambda f: f.update(class_labels=["a"])),
        lambda p: facts(p, lambda f: f.update(class_labels_dtype="<U1000000000")),
        lambda p: facts(p, lambda f: f.pop("class_labels_dtype")),
        lambda p: edit(p / "prediction" / "zarr.json", lambda d: d.update(shape=[10**12])),
        lambda p: edit(p / "prediction" / "zarr.json", lambda d: d.update(data_type="bool")),
        lambda p: (p / "prediction" / "c" / "0").unlink(),
        lambda p: (p / "prediction" / "zarr.json").unlink(),
        lambda p: (p / "prediction" / "zarr.json").write_text("[]"),
    ]
    for number, change in enumerate(changes):
        path = fresh(str(number))
        change(path)
        assert str(path) in str(refuses(lambda path=path: read_predictions(path), "unreadable", "not-predictions"))


# ---- Models whose parts do not fit


def test_models_whose_parts_do_not_fit(tmp_path: Path) -> None:
    X, y = rows(60)
    model = distkern.OROLSRegressor(max_centers=5).fit(X, y)
    model.save(tmp_path / "good")
    meta, arrays = read_model(tmp_path / "good")
    distkern.load_model(tmp_path / "good").predict(X)
    tampered: list[dict[str, Any]] = [
        {"arrays": {"centers": arrays["centers"][:3]}},
        {"arrays": {"centers": arrays["centers"].ravel()}},
        {"arrays": {"centers": np.zeros((10**9, 0)), "coef": np.zeros((10**9, 0))}},
        {"arrays": {"coef": arrays["coef"][:, :0], "intercept": arrays["intercept"][:0]}},
        {"arrays": {"coef": np.full_like(arrays["coef"], np.nan)}},
        {"arrays": {"coef": arrays["coef"].astype(str)}},
        {"arrays": {"lambda": np.zeros(0)}},
        {"arrays": {"history": np.zeros(5)}},
        {"arrays": {"classes": np.array(["a"])}},
        {"meta": {"n_features": 10**9}},
        {"meta": {"feature_names": ["a"]}},
        {"meta": {"kernel": []}},
        {"meta": {"kernel": {"name": "gaussian", "parameters": {"sigma": "1"}}}},
        {"meta": {"kernel": {"name": "os.system", "parameters": {}}}},
        {"meta": {"estimator": "Popen"}},
        {"meta": {"parameters": {"callbacks": ["print"]}}},
        {"meta": {"parameters": []}},
        {"meta": {"dtype": "object"}},
    ]
    for number, change in enumerate(tampered):
        path = tmp_path / str(number)
        write_model(path, meta | change.get("meta", {}), arrays | change.get("arrays", {}))
        assert str(path) in str(refuses(lambda path=path: distkern.load_model(path), "corrupt")), change
    write_model(tmp_path / "dir", meta | {"parameters": meta["parameters"] | {"run_dir": "/victim"}}, arrays)
    assert distkern.load_model(tmp_path / "dir").run_dir is None


@pytest.mark.parametrize("shape", [[60, 10**30], [10**25, 2]])
def test_arrays_larger_than_any_file(shape: list[int], tmp_path: Path) -> None:
    """Numbers beyond 64 bits, which numpy counts in Python's own."""
    zarr.create_array(tmp_path / "X", shape=(60, 2), chunks=(30, 2), dtype="f8")[:] = 1.0
    description = json.loads((tmp_path / "X" / "zarr.json").read_text())
    description["shape"] = shape
    (tmp_path / "X" / "zarr.json").write_text(json.dumps(description))
    with pytest.raises(DataError, match="more than the") as caught:
        ZarrSource(zarr.open_array(tmp_path / "X", mode="r"), np.ones(60))
    assert caught.value.kind == "too-large"

"""Stores that lie about shapes, types, codecs and files: a typed error before anything is run, followed or filled."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numcodecs
import pyarrow as pa
import pytest

from distkern.storage.io.json_files import MAX_JSON_BYTES
from tests.hostile.limits import end_of
from tests.hostile.test_table_files import Trap
from tests.storage.test_store_fuzzing import USES, write_originals

# zarr warns of codecs that its specification does not name.
pytestmark = [pytest.mark.timeout(60), pytest.mark.filterwarnings("ignore:Numcodecs codecs:UserWarning")]

Change = Callable[[Path], object]

BOMB_BYTES = 16 << 20
"""Expanded size of a chunk of a few kilobytes."""


def changed(name: str, change: Callable[[Any], object]) -> Change:
    """Change the values of a JSON file of a store."""

    def go(store: Path) -> None:
        values = json.loads((store / name).read_text())
        change(values)
        (store / name).write_text(json.dumps(values))

    return go


def metadata(name: str, **values: Any) -> Change:
    return changed(name, lambda found: found.update(values))


def chunk_shape(name: str, *shape: int) -> Change:
    return changed(name, lambda found: found["chunk_grid"]["configuration"].update(chunk_shape=list(shape)))


def both(*changes: Change) -> Change:
    return lambda store: [change(store) for change in changes]


def written(name: str, content: bytes) -> Change:
    return lambda store: (store / name).write_bytes(content)


def pipe(name: str) -> Change:
    def go(store: Path) -> None:
        (store / name).unlink()
        os.mkfifo(store / name)

    return go


def link(name: str, target: str) -> Change:
    def go(store: Path) -> None:
        (store / name).unlink(missing_ok=True)
        (store / name).symlink_to(target)

    return go


def moved_out(name: str) -> Change:
    """Put a part of the store beside it, and a link in its place."""

    def go(store: Path) -> None:
        shutil.move(store / name, store.parent / "elsewhere")
        (store / name).symlink_to(store.parent / "elsewhere")

    return go


def folder(name: str) -> Change:
    def go(store: Path) -> None:
        (store / name).unlink()
        (store / name).mkdir()

    return go


def longer(name: str, size: int = 100 << 20) -> Change:
    """Add spaces to a JSON file, which is a valid one of 100 MB then."""

    def go(store: Path) -> None:
        with (store / name).open("ab") as stream:
            for _ in range(size >> 20):
                stream.write(b" " * (1 << 20))

    return go


def bomb(codec: dict[str, Any], pack: Callable[[bytes], bytes]) -> Change:
    """Store a chunk of X of ``arrays`` that expands to far more than its values."""

    def go(store: Path) -> None:
        changed("X/zarr.json", lambda found: found.update(codecs=[found["codecs"][0], codec]))(store)
        written("X/c/0/0", pack(bytes(BOMB_BYTES)))(store)

    return go


def bomb2(codec: dict[str, Any], pack: Callable[[bytes], bytes]) -> Change:
    return both(metadata("X/.zarray", compressor=codec), lambda store: written("X/0.0", pack(bytes(BOMB_BYTES)))(store))


class Kept(io.BytesIO):
    """A stream that is still there after what writes to it has closed it."""

    def close(self) -> None:
        pass


def zstd_stream(content: bytes) -> bytes:
    """Compress without a header that states the size."""
    kept = Kept()
    with pa.CompressedOutputStream(pa.PythonFile(kept, "w"), "zstd") as stream:
        stream.write(content)
    return kept.getvalue()


DEEP = b"[" * 100_000 + b"]" * 100_000
LZMA = {"id": "lzma", "format": 1, "check": -1, "preset": None, "filters": None}
ZSTD = {"name": "zstd", "configuration": {"level": 1, "checksum": False}}

STORES: dict[str, tuple[str, Change, str]] = {
    "pipe-as-metadata-of-a-dataset": ("dataset", pipe("X/zarr.json"), "corrupt"),
    "pipe-as-chunk-of-a-dataset": ("dataset", pipe("y/c/0"), "unreadable"),
    "device-as-chunk-of-a-dataset": ("dataset", link("y/c/0", "/dev/zero"), "unreadable"),
    "chunks-outside-of-a-dataset": ("dataset", moved_out("X/c"), "unreadable"),
    "metadata-outside-of-a-dataset": ("dataset", link("X/zarr.json", "/etc/passwd"), "corrupt"),
    "link-to-itself": ("dataset", link("X/zarr.json", "zarr.json"), "corrupt"),
    "metadata-of-100-MB": ("dataset", longer("X/zarr.json"), "corrupt"),
    "metadata-100000-levels-deep": ("dataset", written("X/zarr.json", DEEP), "corrupt"),
    "description-100000-levels-deep": ("dataset", written("zarr.json", DEEP), "unknown-store"),
    "dataset-of-10-to-the-15-rows": ("dataset", metadata("X/zarr.json", shape=[10**15, 3]), "corrupt"),
    "dataset-with-a-chunk-of-2-to-the-60": ("dataset", chunk_shape("X/zarr.json", 2**60, 3), "too-large"),
    "dataset-of-objects": ("dataset", metadata("X/zarr.json", data_type="object"), "corrupt"),
    "version-true": ("dataset", changed("zarr.json", lambda d: version(d, True)), "corrupt"),
    "version-0": ("dataset", changed("zarr.json", lambda d: version(d, 0)), "corrupt"),
    "chunk-of-7-bytes": ("dataset", written("X/c/0/0", b"1234567"), "unreadable"),
    "pipe-as-metadata": ("arrays", pipe("X/zarr.json"), "not-an-array"),
    "pipe-as-chunk": ("arrays", pipe("X/c/0/0"), "unreadable"),
    "device-as-chunk": ("arrays", link("X/c/0/0", "/dev/zero"), "unreadable"),
    "array-of-10-to-the-15-rows": ("arrays", metadata("X/zarr.json", shape=[10**15, 3]), "too-many-blocks"),
    "chunk-of-2-to-the-60-rows": ("arrays", chunk_shape("X/zarr.json", 2**60, 2), "too-large"),
    "chunk-of-2-to-the-70-rows": ("arrays", chunk_shape("X/zarr.json", 2**70, 2), "too-large"),
    "array-of-1000-dimensions": (
        "arrays",
        both(metadata("X/zarr.json", shape=[1] * 1000), chunk_shape("X/zarr.json", *[1] * 1000)),
        "shape-mismatch",
    ),
    "codec-that-is-a-program": (
        "arrays",
        metadata("X/zarr.json", codecs=[{"name": "os.system", "configuration": {}}]),
        "not-an-array",
    ),
    "fill-value-of-a-mapping": ("arrays", metadata("X/zarr.json", fill_value={"a": 1}), "not-an-array"),
    "fill-value-of-400-digits": ("arrays", metadata("X/zarr.json", fill_value=10**400), "not-an-array"),
    "infinite-fill-value-of-missing-chunks": (
        "arrays",
        both(metadata("X/zarr.json", fill_value="Infinity"), lambda store: (store / "X/c/0/0").unlink()),
        "not-finite",
    ),
    "text-of-4-GB-a-value": (
        "arrays",
        metadata("X/zarr.json", data_type={"name": "fixed_length_utf32", "configuration": {"length_bytes": 4 * 10**9}}),
        "not-an-array",
    ),
    "gzip-bomb": ("arrays", bomb({"name": "gzip", "configuration": {"level": 1}}, gzip.compress), "unreadable"),
    "zstd-bomb": ("arrays", bomb(ZSTD, lambda content: bytes(numcodecs.Zstd(1).encode(content))), "unreadable"),
    "zstd-bomb-without-a-size": ("arrays", bomb(ZSTD, zstd_stream), "unreadable"),
    "zstd-bomb-in-two-frames": (
        "arrays",
        bomb(
            ZSTD, lambda content: bytes(numcodecs.Zstd(1).encode(b"small")) + bytes(numcodecs.Zstd(1).encode(content))
        ),
        "unreadable",
    ),
    "lz4-bomb": (
        "arrays",
        bomb({"name": "numcodecs.lz4", "configuration": {}}, lambda content: bytes(numcodecs.LZ4().encode(content))),
        "unreadable",
    ),
    "zlib-bomb": ("arrays2", bomb2({"id": "zlib", "level": 1}, zlib.compress), "unreadable"),
    "bz2-bomb": ("arrays2", bomb2({"id": "bz2", "level": 9}, bz2.compress), "unreadable"),
    "lzma-bomb": ("arrays2", bomb2(LZMA, lambda content: lzma.compress(content, preset=0)), "unreadable"),
    "pipe-as-attributes": ("arrays2", pipe("X/.zattrs"), "not-an-array"),
    "attributes-without-an-end": ("arrays2", link("X/.zattrs", "/dev/zero"), "not-an-array"),
    "attributes-of-100-MB": ("arrays2", longer("X/.zattrs"), "not-an-array"),
    "objects-that-are-pickled": (
        "arrays2",
        both(metadata("X/.zarray", dtype="|O", filters=[{"id": "pickle"}]), written("X/0.0", pickle.dumps(Trap()))),
        "not-an-array",
    ),
    "filter-that-unpickles": (
        "arrays2",
        both(metadata("X/.zarray", filters=[{"id": "pickle"}]), written("X/0.0", pickle.dumps(Trap()))),
        "not-an-array",
    ),
    "separator-that-leads-out": ("arrays2", metadata("X/.zarray", dimension_separator="/../"), "not-an-array"),
    "pipe-in-predictions": ("predictions", pipe("prediction/zarr.json"), "unreadable"),
    "device-in-predictions": ("predictions", link("prediction/zarr.json", "/dev/zero"), "unreadable"),
    "predictions-outside-of-their-store": ("predictions", moved_out("prediction/c"), "unreadable"),
    "metadata-of-predictions-of-100-MB": ("predictions", longer("prediction/zarr.json"), "unreadable"),
    "codes-of-10-to-the-15-rows": ("predictions", metadata("prediction/zarr.json", shape=[10**15]), "unreadable"),
    "pipe-as-array-of-a-model": ("model", pipe("centers.npy"), "incomplete"),
    "model-100000-levels-deep": ("model", written("model.json", DEEP), "corrupt"),
    "model-of-100-MB": ("model", longer("model.json"), "corrupt"),
    "array-of-a-model-elsewhere": ("model", moved_out("centers.npy"), "incomplete"),
    "pipe-as-events": ("run", pipe("events.jsonl"), "corrupt"),
    "device-as-events": ("run", link("events.jsonl", "/dev/zero"), "corrupt"),
    "folder-as-summary": ("run", folder("summary.json"), "corrupt"),
    "events-100000-levels-deep": ("run", written("events.jsonl", DEEP + b"\n"), "read"),
    "run-of-version-true": ("run", metadata("job.json", format_version=True), "corrupt"),
    "pipe-as-training": ("training", pipe("training.json"), "corrupt"),
    "pipe-as-journal": ("training", pipe("log-0001.bin"), "read"),
    "journal-that-links-to-itself": ("training", link("log-0001.bin", "log-0001.bin"), "read"),
    "folder-as-journal": ("training", folder("log-0001.bin"), "read"),
}


def version(description: Any, value: Any) -> None:
    description["attributes"]["distkern"]["format_version"] = value


@pytest.fixture(scope="module")
def originals(tmp_path_factory: Any) -> dict[str, Path]:
    return write_originals(tmp_path_factory.mktemp("stores"))


@pytest.mark.parametrize("name", STORES)
def test_hostile_stores(name: str, originals: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, change, expected = STORES[name]
    monkeypatch.chdir(tmp_path)
    store = Path(shutil.copytree(originals[kind], tmp_path / "store"))
    change(store)
    assert end_of(lambda: USES[kind](store)) == expected
    assert {path.name for path in tmp_path.iterdir()} <= {"store", "elsewhere"}


def test_metadata_just_below_its_limit_is_read(originals: dict[str, Path], tmp_path: Path) -> None:
    store = Path(shutil.copytree(originals["arrays"], tmp_path / "store"))
    size = (store / "X/zarr.json").stat().st_size
    with (store / "X/zarr.json").open("ab") as stream:
        stream.write(b" " * (MAX_JSON_BYTES - size))
    assert end_of(lambda: USES["arrays"](store)) == "read"

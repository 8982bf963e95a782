"""Files of rows that lie about their size or type: ingest refuses them and leaves nothing behind."""

from __future__ import annotations

import io
import pickle
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distkern.storage import ingest, open_dataset
from tests.hostile.limits import end_of
from tests.storage.test_fuzz_files import npy_bytes, npz_bytes

pytestmark = pytest.mark.timeout(60)

X = np.arange(24.0).reshape(8, 3)


class Trap:
    """An object whose unpickling makes a directory."""

    def __reduce__(self) -> tuple[Any, ...]:
        import os

        return os.mkdir, ("sprung",)


def header(text: str, version: bytes = b"\x01\x00") -> bytes:
    """A npy file with any header, and a few bytes of data."""
    size = (len(text) + 1).to_bytes(2 if version[0] == 1 else 4, "little")
    return b"\x93NUMPY" + version + size + text.encode() + b"\n" + bytes(64)


def described(descr: str, shape: str, order: str = "False") -> bytes:
    return header(f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}}}")


def archive(name: str, content: bytes, copies: int = 1) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as members:
        for copy in range(copies):
            members.writestr(name if copy == 0 else f"{copy}{name}", content)
    return stream.getvalue()


def bomb(declared: int) -> bytes:
    """An archive whose member X is a few bytes and states another size in its directory."""
    content = bytearray(archive("X.npy", described("'<f8'", f"({declared // 24}, 3)")))
    place = content.rindex(b"PK\x01\x02") + 24
    content[place : place + 4] = min(declared + 128, 2**32 - 2).to_bytes(4, "little")
    return bytes(content)


def patched(content: bytes, offset: int, value: bytes) -> bytes:
    """Change an entry of the directory of an archive with one member."""
    place = content.rindex(b"PK\x01\x02") + offset
    return content[:place] + value + content[place + len(value) :]


def zeros(shape: str, order: str = "False") -> bytes:
    """An archive of 4 MB whose member really expands to 4 GiB of zeros."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    start = packer.compress(described("'<f8'", shape, order)) + packer.flush(zlib.Z_FULL_FLUSH)
    # After a full flush the same bytes can be repeated.
    piece = packer.compress(bytes(1 << 24)) + packer.flush(zlib.Z_FULL_FLUSH)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as members:
        members.writestr("X.npy", start + 256 * piece + packer.flush())
    deflated = patched(stream.getvalue(), 10, zipfile.ZIP_DEFLATED.to_bytes(2, "little"))
    return patched(deflated, 24, (2**32 - 2).to_bytes(4, "little"))


def lzma_member() -> bytes:
    """A member whose decompression asks for 4 GiB of memory."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_LZMA) as members:
        members.writestr("X.npy", npy_bytes(X))
    content = stream.getvalue()
    place = content.index(b"X.npy") + 10
    return content[:place] + b"\xff\xff\xff\xff" + content[place + 4 :]


NUMPY: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "python-code-in-the-header": ("t.npy", lambda: header("__import__('os').mkdir('sprung')"), "unreadable"),
    "code-as-the-dtype": ("t.npy", lambda: described("__import__('os').mkdir('sprung')", "(8, 3)"), "unreadable"),
    "pickled-objects": ("t.npy", lambda: described("'|O'", "(8, 3)") + pickle.dumps(Trap()), "unreadable"),
    "record-with-objects": ("t.npy", lambda: described("[('a', '|O')]", "(8,)") + pickle.dumps(Trap()), "unreadable"),
    "shape-of-10-to-the-18-rows": ("t.npy", lambda: described("'<f8'", "(1000000000000000000, 3)"), "unreadable"),
    "shape-whose-bytes-overflow": ("t.npy", lambda: described("'<f8'", "(4611686018427387904, 4)"), "unreadable"),
    "shape-of-10-to-the-18-empty-rows": ("t.npy", lambda: described("'<f8'", "(1000000000000000000, 0)"), "empty-file"),
    "items-of-no-bytes": ("t.npy", lambda: described("'|S0'", "(1000000000000000000, 3)"), "not-numeric"),
    "fortran-order-of-10-to-the-15": (
        "t.npy",
        lambda: described("'<f8'", "(1000000000000000, 3)", "True"),
        "unreadable",
    ),
    "shape-of-100-dimensions": ("t.npy", lambda: described("'<f8'", str((1,) * 100)), "shape-mismatch"),
    "shape-of-texts": ("t.npy", lambda: described("'<f8'", "('8', '3')"), "unreadable"),
    "shape-of-truth-values": ("t.npy", lambda: described("'<f8'", "(True, True)"), "zero-features"),
    "a-tuple-in-5000-tuples": ("t.npy", lambda: described("'<f8'", "(" * 5000 + ")" * 5000), "unreadable"),
    "header-of-2-GiB": ("t.npy", lambda: b"\x93NUMPY\x02\x00\xff\xff\xff\x7f" + bytes(64), "unreadable"),
    "dtype-of-999999999-characters": (
        "t.npy",
        lambda: described("'<U999999999'", "(1, 2)"),
        "unreadable or not-numeric",
    ),
    "zip-member-that-states-3-GiB": ("t.npz", lambda: bomb(3 << 30), "too-large"),
    "archive-of-4-MB-with-4-GiB": ("t.npz", lambda: zeros("(178956000, 3)"), "too-large"),
    "8-rows-of-a-member-of-4-GiB": ("t.npz", lambda: zeros("(8, 3)"), "too-large"),
    "4-GiB-stored-by-columns": ("t.npz", lambda: zeros("(178956000, 3)", "True"), "too-large"),
    "member-behind-a-password": ("t.npz", lambda: patched(npz_bytes(X=X), 8, b"\x01\x00"), "unreadable"),
    "member-of-lzma": ("t.npz", lzma_member, "unreadable"),
    "method-that-is-not-known": ("t.npz", lambda: patched(npz_bytes(X=X), 10, b"\x63\x00"), "unreadable"),
    "directory-of-5-MB": ("t.npz", lambda: archive("Z" * 60_000 + ".npy", b"", copies=90), "unreadable"),
    "member-beyond-the-end-of-the-file": (
        "t.npz",
        lambda: patched(npz_bytes(X=X), 42, b"\xff\xff\xff\x7f"),
        "unreadable",
    ),
    "pickle-in-an-archive": ("t.npz", lambda: archive("X.npy", described("'|O'", "(8, 3)")), "unreadable"),
    "member-outside-of-the-archive": ("t.npz", lambda: archive("../X.npy", npy_bytes(X)), "unknown-key"),
    "three-thousand-members": ("t.npz", lambda: archive("Z.npy", b"", copies=3_000), "unknown-key"),
    "archive-in-an-archive": ("t.npz", lambda: archive("X.npy", npz_bytes(X=X)), "unreadable"),
    "rows-of-X-without-those-of-y": ("t.npz", lambda: npz_bytes(X=X, y=np.zeros(10**6)), "shape-mismatch"),
}

TEXT: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "100000-columns-of-one-name": ("t.csv", lambda: b",".join([b"a"] * 100_000) + b",y\n", "empty-file"),
    "quote-that-never-ends": ("t.csv", lambda: b'a,y\n1,"' + b"x,\n" * 10**6, "line-break"),
    "name-of-a-column-of-10-MB": ("t.csv", lambda: b"a" * 10**7 + b",b\n1,2\n3,4\n", "unreadable"),
    "nul-bytes": ("t.csv", lambda: b"a,y\n" + b"\0" * 10**6, "unreadable"),
    "value-of-10-to-the-400": ("t.csv", lambda: b"a,y\n1e400,1\n2,3\n", "not-finite"),
    "number-of-a-million-digits": ("t.csv", lambda: b"a,y\n" + b"9" * 10**6 + b",1\n2,3\n", "unreadable"),
    "utf-16": ("t.csv", lambda: "a,y\n1,2\n3,4\n".encode("utf-16"), "unreadable"),
    "feature-number-below-0": ("t.svm", lambda: b"1 -3:1\n0 1:2\n", "unreadable"),
    "feature-number-of-10-to-the-30": ("t.svm", lambda: b"1 1" + b"0" * 30 + b":1\n0 1:2\n", "unreadable"),
    "feature-number-just-below-2-to-the-31": ("t.svm", lambda: b"1 2147483646:1\n0 1:2\n", "too-many-features"),
    "feature-numbers-that-fall": ("t.svm", lambda: b"1 5:1 3:1\n0 1:2\n", "unreadable"),
    "the-same-feature-twice": ("t.svm", lambda: b"1 3:1 3:2\n0 1:2\n", "unreadable"),
    "a-million-labels": ("t.svm", lambda: b"1," * 10**6 + b"1 1:1\n", "unreadable"),
}


def parquet(**columns: Any) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table(columns), stream)
    return stream.getvalue()


def longer_footer(content: bytes) -> bytes:
    return content[:-8] + (2**31 - 1).to_bytes(4, "little") + content[-4:]


def with_notes(notes: bytes) -> bytes:
    stream = io.BytesIO()
    table = pa.table({"a": [1.0, 2.0], "y": [1.0, 2.0]}).replace_schema_metadata({b"pandas": notes})
    pq.write_table(table, stream)
    return stream.getvalue()


PARQUET: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "footer-of-2-GiB": ("t.parquet", lambda: longer_footer(parquet(a=[1.0, 2.0], y=[1.0, 2.0])), "unreadable"),
    "nested-lists": ("t.parquet", lambda: parquet(a=[[[1.0]], [[2.0]]], y=[1.0, 2.0]), "column-type"),
    "bytes-as-labels": ("t.parquet", lambda: parquet(a=[1.0, 2.0], y=[pickle.dumps(Trap()), b""]), "bad-target"),
    "notes-of-100000-levels": ("t.parquet", lambda: with_notes(b"[" * 10**5), "read"),
    "notes-that-name-no-columns": ("t.parquet", lambda: with_notes(b'{"index_columns": 3}'), "read"),
}

SLOW: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "one-line-of-100-MB": ("t.csv", lambda: b"a,y\n" + b"1" * 10**8 + b",1\n2,3\n", "unreadable"),
    "header-of-a-million-columns": (
        "t.csv",
        lambda: b",".join(b"c%d" % i for i in range(10**6)) + b",y\n",
        "empty-file",
    ),
}


def options(case: tuple[str, Callable[[], bytes], str]) -> dict[str, Any]:
    """Return how to ingest a table: with its target, or without one where its archive has none."""
    name, _, expected = case
    target = {"npy": 0, "csv": "y", "parquet": "y"}.get(name.rpartition(".")[2])
    return {"target": target, "no_target": name.endswith(".npz") and expected != "shape-mismatch"}


def check(folder: Path, case: tuple[str, Callable[[], bytes], str]) -> None:
    name, content, expected = case
    (folder / name).write_bytes(content())
    assert end_of(lambda: ingest(folder / name, folder / "out", **options(case))) in expected.split(" or ")
    if expected == "read":
        assert open_dataset(folder / "out").n_rows == 2
    assert {path.name for path in folder.iterdir()} == {name} | ({"out"} if expected == "read" else set())


@pytest.mark.parametrize("name", NUMPY)
def test_hostile_numpy_files(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check(tmp_path, NUMPY[name])


@pytest.mark.parametrize("name", TEXT)
def test_hostile_text_files(name: str, tmp_path: Path) -> None:
    check(tmp_path, TEXT[name])


@pytest.mark.parametrize("name", PARQUET)
def test_hostile_parquet_files(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check(tmp_path, PARQUET[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_large_hostile_files(name: str, tmp_path: Path) -> None:
    check(tmp_path, SLOW[name])

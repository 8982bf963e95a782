"""Damaged and made-up files: ingest writes a valid store, or raises an error of distkern and leaves nothing."""

from __future__ import annotations

import gzip
import io
import shutil
import zipfile
from pathlib import Path
from time import monotonic, process_time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distkern.storage import ingest, open_dataset
from tests.fuzzing import damaged, examples, refusal
from tests.hostile.limits import SECONDS
from tests.memory_limits import GIB, memory_for, ran_out_of_memory

CPU_SECONDS = 10.0

pytestmark = pytest.mark.timeout(1800)


def check(folder: Path, name: str, content: bytes, **options: Any) -> bool:
    """Ingest a file of these bytes; return whether it was taken."""
    out, source = folder / "out", folder / name
    source.write_bytes(content)
    shutil.rmtree(out, ignore_errors=True)
    started, begun = monotonic(), process_time()
    with memory_for(GIB):
        error = refusal(lambda: ingest(source, out, **options))
    if error is None:
        dataset = open_dataset(out)
        assert dataset.n_rows >= 2
        assert np.isfinite(dataset.X[:]).all()
        assert len(dataset.targets()) == dataset.n_rows
    else:
        assert not ran_out_of_memory(error)
        assert error.kind != "unspecified"
        assert error.message
    assert process_time() - begun < CPU_SECONDS
    assert monotonic() - started < SECONDS
    assert {path.name for path in folder.iterdir()} == {name} | ({"out"} if error is None else set())
    return error is None


MISSING = st.sampled_from(["error", "drop", "mean"])

CSV = [
    b"a,b,y\n1,2,p\n3,4,q\n5,6,p\n",
    b"a,b,y\r\n1.5,-2e3,1\r\n3,,0\r\n5,6,1\r\n",
    b'"a","b","y"\n"1","2","p"\n"3","4","q, r"\n\n5,6,"p"\n',
    b"\xef\xbb\xbfa,b,y\n1,2,0.5\nnan,4,1.5\n5,inf,2.5\n",
    b"y\ta\tb\n1\t2\t3\n2\t3\t4\n",
]


@pytest.mark.nightly
@examples(1200)
@given(content=damaged(CSV), missing=MISSING, delimiter=st.none() | st.characters())
def test_damaged_csv(tmp_path: Path, content: bytes, missing: str, delimiter: str | None) -> None:
    check(tmp_path, "t.csv", content, target="y", missing=missing, delimiter=delimiter)


cells = st.one_of(
    st.text(max_size=6),
    st.floats().map(repr),
    st.integers().map(str),
    st.sampled_from(
        ["", " ", "nan", "inf", "1e400", "0x10", "٣", "9" * 40, "\0", '"', '""', "a\nb", "1,5", " 7 ", "1d3"]
    ),
)


@pytest.mark.nightly
@examples(800)
@given(
    header=st.lists(st.one_of(st.sampled_from("abcy"), cells), min_size=1, max_size=4),
    rows=st.lists(st.lists(cells, max_size=5), max_size=6),
    ending=st.sampled_from(["\n", "\r\n", "\r"]),
    mark=st.booleans(),
    missing=MISSING,
)
def test_made_up_csv(
    tmp_path: Path, header: list[str], rows: list[list[str]], ending: str, mark: bool, missing: str
) -> None:
    text = ending.join(",".join(row) for row in [header, *rows])
    encoded = text.encode("utf-8-sig" if mark else "utf-8", "surrogatepass")
    check(tmp_path, "t.csv", encoded, target=header[-1] or "y", missing=missing)


@pytest.mark.nightly
@examples(200)
@given(content=damaged([gzip.compress(CSV[0], mtime=0), gzip.compress(CSV[1] * 50, mtime=0)]))
def test_damaged_gzip(tmp_path: Path, content: bytes) -> None:
    check(tmp_path, "t.csv.gz", content, target="y")


SVMLIGHT = [
    b"1 1:2 3:0.5\n-1 2:1\n1 1:1 # note\n",
    b"0.5 0:1 7:2\r\n1.5 1:1e-3\r\n",
    b"3 qid:1 1:2\n2 qid:1 2:3\n1 qid:2 1:1\n",
]


@pytest.mark.nightly
@examples(800)
@given(content=damaged(SVMLIGHT), missing=MISSING)
def test_damaged_svmlight(tmp_path: Path, content: bytes, missing: str) -> None:
    check(tmp_path, "t.svm", content, missing=missing)


def npy_bytes(array: Any, version: tuple[int, int] | None = None) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array), version=version)
    return stream.getvalue()


def npz_bytes(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


X = np.arange(24.0).reshape(8, 3)
Y = np.arange(8) % 2
NPY = [
    npy_bytes(X),
    npy_bytes(np.asfortranarray(X)),
    npy_bytes(X.astype(">f4")),
    npy_bytes(X.astype(np.int16), (2, 0)),
    npy_bytes(X > 3),
]


@pytest.mark.nightly
@examples(800)
@given(content=damaged(NPY))
def test_damaged_npy(tmp_path: Path, content: bytes) -> None:
    check(tmp_path, "t.npy", content, target=1)


dimensions = st.one_of(
    st.integers(-2, 9), st.sampled_from([10**6, 2**31, 2**40, 2**62, 2**63, 2**64, -(2**63), 10**30])
)


@pytest.mark.nightly
@examples(600)
@given(
    shape=st.lists(dimensions, max_size=4),
    descr=st.one_of(
        st.sampled_from(
            ["<f8", ">f4", "|b1", "<i8", "<U3", "|S5", "|O", "<c16", "<M8[s]", "|V8", "<f2", "<f16", "<U99999999"]
        ),
        st.text(max_size=6),
        st.lists(st.tuples(st.text(max_size=3), st.sampled_from(["<f8", "|O", "<i4"])), max_size=3),
    ),
    fortran=st.booleans(),
    data=st.binary(max_size=300),
)
def test_npy_headers(tmp_path: Path, shape: list[int], descr: Any, fortran: bool, data: bytes) -> None:
    header = repr({"descr": descr, "fortran_order": fortran, "shape": tuple(shape)}).encode("utf-8", "surrogatepass")
    version = b"\x01\x00" + len(header + b"\n").to_bytes(2, "little")
    check(tmp_path, "t.npy", b"\x93NUMPY" + version + header + b"\n" + data, target=0)


@pytest.mark.nightly
@examples(600)
@given(content=damaged([npz_bytes(X=X, y=Y), npz_bytes(X_train=X, y_train=Y * 0.5, X_test=X, y_test=Y)]))
def test_damaged_npz(tmp_path: Path, content: bytes) -> None:
    check(tmp_path, "t.npz", content)


@pytest.mark.nightly
@examples(400)
@given(
    members=st.dictionaries(
        st.sampled_from(["X.npy", "y.npy", "X_train.npy", "y_train.npy", "../X.npy", "/y.npy", "X", "z.txt"]),
        st.one_of(
            damaged(NPY), st.sampled_from([*NPY, npy_bytes(Y), npy_bytes(["a", "b"] * 4)]), st.binary(max_size=50)
        ),
        max_size=4,
    ),
    part=st.sampled_from([None, "train", "test"]),
)
def test_npz_members(tmp_path: Path, members: dict[str, bytes], part: str | None) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    check(tmp_path, "t.npz", stream.getvalue(), part=part)


def parquet_bytes(**columns: Any) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table(columns), stream)
    return stream.getvalue()


PARQUET = [
    parquet_bytes(a=[1.0, 2.0, 3.0], b=[1, 2, None], y=["p", "q", "p"]),
    parquet_bytes(a=[True, False], y=[0.5, 1.5]),
]


@pytest.mark.nightly
@examples(600)
@given(content=damaged(PARQUET), missing=MISSING)
def test_damaged_parquet(tmp_path: Path, content: bytes, missing: str) -> None:
    check(tmp_path, "t.parquet", content, target="y", missing=missing)


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.svm", "t.npy", "t.npz", "t.parquet"])
@pytest.mark.nightly
@examples(150)
@given(content=st.binary(max_size=400))
def test_noise(tmp_path: Path, name: str, content: bytes) -> None:
    target = {"npy": 0, "npz": None, "svm": None}.get(name.rpartition(".")[2], "y")
    check(tmp_path, name, content, target=target)


@pytest.mark.slow
def test_a_hundred_thousand_columns(tmp_path: Path) -> None:
    names = [*(f"c{i}" for i in range(100_000)), "y"]
    rows = [",".join([*[value] * 100_000, label]) for value, label in (("1.5", "p"), ("2.5", "q"))]
    assert check(tmp_path, "t.csv", "\n".join([",".join(names), *rows]).encode(), target="y")
    names[77_777] = "c3"
    assert not check(tmp_path, "t.csv", "\n".join([",".join(names), *rows]).encode(), target="y")


@pytest.mark.slow
def test_a_line_of_ten_million_characters(tmp_path: Path) -> None:
    assert not check(tmp_path, "t.csv", b"a,y\n" + b"1" * 10_000_000 + b",p\n2,q\n", target="y")


@pytest.mark.slow
def test_a_small_file_that_unpacks_to_much(tmp_path: Path) -> None:
    assert not check(tmp_path, "t.csv.gz", gzip.compress(b"a,y\n" + b"\n" * 300_000_000), target="y")


@pytest.mark.slow
def test_a_small_archive_of_very_wide_rows(tmp_path: Path) -> None:
    assert not check(tmp_path, "t.npz", npz_bytes(X=np.zeros((4, 30_000_000)), y=Y[:4]))

"""Stores behind URLs: read from a server that counts, waits and fails, and written with their marker last."""

from __future__ import annotations

import http.server
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from zarr.storage import LocalStore

from distkern.errors import DataError, DistkernError, JobError, StoreError
from distkern.storage import (
    CountingStore,
    DatasetWriter,
    PredictionWriter,
    RunDirectory,
    ZarrSource,
    as_source,
    collect_report,
    describe,
    ingest,
    is_run,
    open_arrays,
    open_dataset,
    read_model,
    read_predictions,
    write_dataset,
    write_model,
)
from distkern.storage.arrays.shared_chunks import SharedChunks
from distkern.storage.io.remote_folders import RemoteFolder
from distkern.storage.io.urls import is_remote, is_url, open_store, place_of, shown_line
from tests.faulty import SOON, rows, write_array
from tests.s3_server import BUCKET, S3Server

pytest.importorskip("moto")
pytest.importorskip("obstore")


@pytest.fixture
def s3(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The server, and clients that lose no time with waiting."""
    monkeypatch.setenv("DISTKERN_READ_WAIT", "0.001")
    return s3


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    X, y = rows(200, 3)
    path = tmp_path_factory.mktemp("stores") / "rows"
    write_dataset(path, X, y, chunk_rows=40, feature_names=["a", "b", "c"])
    return path


# ---- Reading


def test_a_dataset_reads_as_it_does_from_disk_and_each_chunk_once(s3: S3Server, local: Path) -> None:
    url = s3.upload(local, "read/rows")
    s3.reset()
    found, known = open_dataset(url), open_dataset(local)
    assert set(s3.counts()) == {f"read/rows/{name}" for name in _asked_on_opening()}
    assert (found.path, found.feature_names, found.fingerprint()) == (url, known.feature_names, known.fingerprint())
    source, reference = found.source(), known.source()
    assert source.boundaries == reference.boundaries
    for block in range(5):
        assert_array_equal(source.read_features(block), reference.read_features(block))
        assert_array_equal(source.read_targets(block), reference.read_targets(block))
    assert s3.chunk_reads("read/rows") == {
        **{f"read/rows/X/c/{i}/0": 1 for i in range(5)},
        **{f"read/rows/y/c/{i}": 1 for i in range(5)},
    }
    assert s3.counts("HEAD") == {}
    found.verify()


def _asked_on_opening() -> list[str]:
    # Both formats of zarr are looked for at the root, side by side.
    return ["zarr.json", ".zgroup", ".zattrs", ".zmetadata", "X/zarr.json", "y/zarr.json"]


def test_a_source_is_opened_again_on_a_worker_and_sends_no_credentials(s3: S3Server, local: Path) -> None:
    source = open_dataset(s3.upload(local, "sent/rows")).source()
    parcel = pickle.dumps(source)
    assert b"very-secret" not in parcel
    assert b"testing" not in parcel
    arrived = pickle.loads(parcel)
    assert arrived.place == f"s3://{BUCKET}/sent/rows"
    assert_array_equal(arrived.read_features(4), source.read_features(4))


def test_settings_that_are_not_in_the_environment(s3: S3Server, local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = s3.upload(local, "options/rows")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    source = open_dataset(url, storage_options={"endpoint": s3.endpoint}).source()
    assert pickle.loads(pickle.dumps(source)).read_features(0).shape == (40, 3)
    X, _ = open_arrays(f"{url}/X", f"{url}/y", storage_options={"endpoint": s3.endpoint})
    assert X.shape == (200, 3)


def test_credentials_of_a_profile(s3: S3Server, local: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("boto3")
    url = s3.upload(local, "profile/rows")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    file = tmp_path / "credentials"
    file.write_text("[lab]\naws_access_key_id = testing\naws_secret_access_key = very-secret\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_PROFILE", "lab")
    source = open_dataset(url).source()
    parcel = pickle.dumps(source)
    assert b"very-secret" not in parcel
    assert pickle.loads(parcel).read_targets(0).shape == (40,)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_arrays_of_a_user_that_are_cut_differently(s3: S3Server, tmp_path: Path, zarr_format: Any) -> None:
    X, y = rows(300, 4)
    names = f"plain{zarr_format}"
    write_array(tmp_path / "X", X, (25, 2), zarr_format=zarr_format)
    write_array(tmp_path / "y", y, (110,), zarr_format=zarr_format)
    urls = [s3.upload(tmp_path / name, f"{names}/{name}") for name in ("X", "y")]
    arrays = open_arrays(urls[0], urls[1])
    s3.reset()
    source = pickle.loads(pickle.dumps(as_source(*arrays)))
    assert not source.inline
    for block in range(12):
        assert_array_equal(source.read_features(block), X[25 * block : 25 * block + 25])
        assert_array_equal(source.read_targets(block), y[25 * block : 25 * block + 25])
    reads = s3.chunk_reads(names)
    assert len(reads) == 24 + 3
    assert set(reads.values()) == {1}


def test_transient_errors_are_retried_and_reported(s3: S3Server, local: Path) -> None:
    source = open_dataset(s3.upload(local, "trouble/rows")).source()
    s3.fail("trouble/rows/X/c/1/0", cut=0.5, times=2)
    s3.fail("trouble/rows/X/c/1/0", status=503, code="SlowDown")
    with collect_report() as report:
        assert source.read_features(1).shape == (40, 3)
    assert report.retries == {"X": 3}


Reading = Callable[[str], Any]


@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        ({"status": 403, "code": "AccessDenied"}, "denied", "403 Forbidden .AccessDenied.*rights"),
        ({"status": 400, "code": "ExpiredToken"}, "denied", "ExpiredToken"),
        ({"status": 503, "code": "SlowDown"}, "unreachable", "503 .*tried 5 times.*DISTKERN_READ_ATTEMPTS"),
        ({"cut": 0.5}, "unreachable", "tried 5 times"),
    ],
)
def test_a_failed_read_names_the_rows_and_the_reason(
    s3: S3Server, local: Path, fault: dict[str, Any], kind: str, said: str
) -> None:
    source = open_dataset(s3.upload(local, "fails/rows")).source()
    s3.fail("fails/rows/X/c/2/0", times=100, **fault)
    with pytest.raises(DataError, match=rf"X.*s3://{BUCKET}/fails/rows.*{said}") as caught:
        source.read_features(2)
    assert caught.value.kind == kind
    assert "Debug source" not in str(caught.value)
    assert source.read_features(1).shape == (40, 3)


@pytest.mark.parametrize("open_it", [open_dataset, lambda url: open_arrays(url, url), read_model])
@pytest.mark.parametrize(
    ("url", "kind", "said"),
    [
        ("s3://rows/nothing", "missing", "s3://rows/nothing.*check the name|no .*dataset at s3://rows/nothing"),
        ("s3://no-such-bucket/x", "missing", "no bucket no-such-bucket"),
        ("s3://key:pass@rows/x", "url", "holds credentials.*AWS_ACCESS_KEY_ID"),
        ("https://host.invalid/x?sig=abc", "url", "signed"),
        ("nosuch://rows/x", "url", "schemes are file"),
    ],
)
def test_a_place_that_cannot_be_opened(s3: S3Server, open_it: Reading, url: str, kind: str, said: str) -> None:
    with pytest.raises(DistkernError, match=said) as caught:
        open_it(url)
    assert caught.value.kind == kind
    assert isinstance(caught.value, StoreError if open_it is read_model else DataError)
    assert "pass" not in str(caught.value)


def test_a_bucket_that_is_not_there_to_write_into(s3: S3Server) -> None:
    X, y = rows(20, 2)
    for write in (lambda url: write_dataset(url, X, y), lambda url: write_model(url, {}, {})):
        with pytest.raises(DistkernError, match="no bucket no-such-bucket: check the name") as caught:
            write("s3://no-such-bucket/x")
        assert caught.value.kind == "missing"
        assert "refused" not in str(caught.value)


def test_a_setting_that_no_store_has(s3: S3Server) -> None:
    with pytest.raises(DataError, match="nonsense") as caught:
        open_dataset("s3://rows/x", storage_options={"nonsense": "1"})
    assert caught.value.kind == "storage-options"


def test_an_endpoint_that_is_down(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    for open_it in (open_dataset, read_model):
        with pytest.raises(
            DistkernError, match=r"^the (?:objects|dataset) of s3.*127\.0\.0\.1:9.*tried 3 times"
        ) as caught:
            open_it("s3://rows/x")
        assert caught.value.kind == "unreachable"


@pytest.mark.slow
def test_no_package_for_a_url() -> None:
    code = """
import sys
sys.modules["obstore"] = None
from distkern.errors import DataError
from distkern.storage import open_dataset
try:
    open_dataset("s3://rows/x")
except DataError as error:
    print(error.kind, error)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert found.stdout.startswith("missing-package")
    assert "pip install 'distkern[remote]'" in found.stdout


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    """A web server that shows a folder."""
    handler = partial(_Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()


def test_a_web_server_is_read_without_lists_and_not_written(web: str, tmp_path: Path) -> None:
    X, y = rows(100, 3)
    write_dataset(tmp_path / "rows", X, y, chunk_rows=20)
    write_model(tmp_path / "model", {"a": 1}, {"values": X})
    source = pickle.loads(pickle.dumps(open_dataset(f"{web}/rows").source()))
    assert_array_equal(source.read_features(2), X[40:60])
    assert_array_equal(read_model(f"{web}/model")[1]["values"], X)
    with pytest.raises(DataError, match=r"no .*dataset"):
        open_dataset(f"{web}/nothing")
    with pytest.raises(StoreError, match="read only") as caught:
        write_model(f"{web}/new", {}, {})
    assert caught.value.kind == "not-writable"


def test_file_urls_are_local_paths(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    url = f"file://{str(folder).replace(' ', '%20')}"
    X, y = rows(60, 2)
    write_dataset(f"{url}/rows", X, y)
    assert open_dataset(f"{url}/rows").path == str(folder / "rows")
    write_array(folder / "X", X, (20, 2))
    assert isinstance(open_arrays(f"{url}/X", f"{url}/X")[0].store, LocalStore)
    write_model(f"{url}/model", {"a": 1}, {})
    assert read_model(f"{url}/model")[0] == {"a": 1}
    run = RunDirectory.create(f"{url}/run", {"what": 1})
    assert run.path == folder / "run"
    assert is_run(f"{url}/run")
    assert describe(f"{url}/run")["kind"] == "run"
    assert (place_of("file:///a%20b"), is_url("file:///a")) == ("/a b", False)
    with pytest.raises(DataError, match="three slashes"):
        open_dataset("file://host/rows")
    (folder / "rows.csv").write_text("a,y\n1,2\n2,3\n")
    assert ingest(f"{url}/rows.csv", f"{url}/ingested", target="y").n_rows == 2


@pytest.mark.parametrize("url", ["s3://rows/rows.csv", "https://host.invalid/rows.csv"])
def test_files_behind_urls_are_not_ingested(url: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"^{url} is behind a URL.*copy it here") as caught:
        ingest(url, tmp_path / "rows", target="y")
    assert caught.value.kind == "url"


def test_an_error_of_several_lines_is_shown_in_one() -> None:
    assert shown_line(OSError("no library\nhere, nor\nthere"), "hdfs://host/rows") == "no library"
    assert shown_line(OSError(), "hdfs://host/rows") == ""


def test_remote_and_local_stores(tmp_path: Path, s3: S3Server) -> None:
    assert is_remote(open_store("s3://rows/x"))
    assert is_remote(CountingStore(open_store("s3://rows/x")))
    for url in ("gs://bucket/x", "gcs://bucket/x", "az://container/x", "https://host.invalid/x"):
        options = {"account_name": "someone"} if url.startswith("az") else None
        assert is_remote(pickle.loads(pickle.dumps(open_store(url, options))))
    assert not is_remote(LocalStore(tmp_path))
    assert not is_remote(CountingStore(LocalStore(tmp_path)))
    assert not is_remote(zarr.storage.MemoryStore())
    assert not is_remote(open_store("memory://x"))


def test_schemes_of_fsspec() -> None:
    url = "memory://only-fsspec"
    X, y = rows(60, 2)
    assert_array_equal(write_dataset(f"{url}/rows", X, y, chunk_rows=20).source().read_features(2), X[40:])
    write_model(f"{url}/model", {"a": 1}, {"values": X})
    assert_array_equal(read_model(f"{url}/model")[1]["values"], X)
    with pytest.raises(StoreError) as caught:
        write_model(f"{url}/model", {}, {})
    assert caught.value.kind == "exists"
    with pytest.raises(DataError, match="pip"):
        open_dataset("dropbox://host/rows")


# ---- Chunks that several blocks share


@given(
    n=st.integers(1, 60),
    size=st.integers(1, 70),
    cuts=st.sets(st.integers(1, 59)),
    columns=st.sampled_from([(), (2,)]),
)
def test_shared_chunks_are_read_once(
    tmp_path_factory: pytest.TempPathFactory, n: int, size: int, cuts: set[int], columns: tuple[int, ...]
) -> None:
    boundaries = (0, *sorted(cut for cut in cuts if cut < n), n)
    values = np.arange(n * int(np.prod(columns)), dtype=np.float64).reshape(n, *columns)
    path = write_array(tmp_path_factory.mktemp("shared") / "y", values, (size, *columns))
    store = CountingStore(LocalStore(path))
    shared = SharedChunks(zarr.open_array(store, mode="r"), boundaries, "y", SOON)
    for reading in (1, 2):
        parts = [shared.read(a, b) for a, b in pairwise(boundaries)]
        assert_array_equal(np.concatenate(parts), values)
        reads = {key: count for (_, key), count in store.keys.items() if key.startswith("c/")}
        assert set(reads.values()) == {reading}
    assert not shared._kept


def test_shared_chunks_on_many_threads(tmp_path: Path) -> None:
    values = np.arange(400.0)
    store = CountingStore(LocalStore(write_array(tmp_path / "y", values, (90,))))
    shared = SharedChunks(zarr.open_array(store, mode="r"), tuple(range(0, 401, 8)), "y", SOON)

    def read(block: int) -> NDArray[Any]:
        return shared.read(8 * block, 8 * block + 8)

    with ThreadPoolExecutor(8) as pool:
        assert_array_equal(np.concatenate(list(pool.map(read, range(50)))), values)
    assert max(count for (_, key), count in store.keys.items() if key.startswith("c/")) == 1


def test_a_shared_chunk_that_failed_is_read_again(s3: S3Server, tmp_path: Path) -> None:
    X, y = rows(100, 2)
    write_array(tmp_path / "X", X, (10, 2))
    write_array(tmp_path / "y", y, (100,))
    source = ZarrSource(*open_arrays(s3.upload(tmp_path / "X", "again/X"), s3.upload(tmp_path / "y", "again/y")))
    s3.fail("again/y/c/0", status=403)
    with pytest.raises(DataError):
        source.read_targets(0)
    assert_array_equal(source.read_targets(1), y[10:20])


# ---- Writing


def test_a_dataset_is_written_and_replaced(s3: S3Server) -> None:
    X, y = rows(100, 3)
    url = f"s3://{BUCKET}/written/rows"
    assert_array_equal(write_dataset(url, X, y > 0, chunk_rows=30).source().read_features(1), X[30:60])
    with pytest.raises(DataError) as caught:
        write_dataset(url, X, y)
    assert caught.value.kind == "exists"
    write_dataset(url, X[:50], y[:50], chunk_rows=25, overwrite=True)
    assert sorted(RemoteFolder(url).names()) == [
        *(f"X/c/{i}/0" for i in range(2)),
        "X/zarr.json",
        *(f"y/c/{i}" for i in range(2)),
        "y/zarr.json",
        "zarr.json",
    ]
    open_dataset(url).verify()
    assert describe(url)["kind"] == "dataset"


class Stopped(BaseException):
    pass


def test_a_write_that_ends_early_leaves_nothing(s3: S3Server) -> None:
    X, y = rows(100, 3)
    url = f"s3://{BUCKET}/early/rows"
    for error in (Stopped(), KeyboardInterrupt(), KeyError("x"), JobError("mine")):
        with pytest.raises(type(error)), DatasetWriter(url, n_rows=100, chunk_rows=10) as writer:  # noqa: PT012
            writer.append(X[:50], y[:50])
            raise error
        assert RemoteFolder(url).names() == []
    s3.fail("early/rows/X/c/3/0", method="PUT", status=403, code="AccessDenied")
    with pytest.raises(DataError, match=r"early/rows.*403") as caught:
        write_dataset(url, X, y, chunk_rows=10)
    assert caught.value.kind == "denied"
    assert RemoteFolder(url).names() == []


def test_objects_of_a_failed_write_are_incomplete_and_can_be_replaced(s3: S3Server) -> None:
    X, y = rows(100, 3)
    url = f"s3://{BUCKET}/left/rows"
    with pytest.raises(Stopped), DatasetWriter(url, n_rows=100, chunk_rows=10) as writer:  # noqa: PT012
        writer.append(X[:50], y[:50])
        s3.fail("", method="POST", status=403, times=100)  # S3 removes objects by lists posted to the bucket
        raise Stopped
    s3.reset()
    assert RemoteFolder(url).names()
    with pytest.raises(DataError) as caught:
        open_dataset(url)
    assert caught.value.kind == "incomplete"
    write_dataset(url, X, y, chunk_rows=10, overwrite=True)
    open_dataset(url).verify()


def test_a_place_without_the_right_to_write_is_refused_before_the_work(s3: S3Server) -> None:
    s3.fail("readonly/*", method="PUT", status=403, code="AccessDenied", times=10)
    with (
        pytest.raises(DataError, match=r"readonly.*AccessDenied") as caught,
        DatasetWriter(f"s3://{BUCKET}/readonly/x"),
    ):
        raise AssertionError("the body ran")
    assert caught.value.kind == "denied"


def test_models_come_back(s3: S3Server) -> None:
    url = f"s3://{BUCKET}/models/m"
    arrays = {"centers": np.arange(6.0).reshape(2, 3), "classes": np.array(["a", "bc"])}
    write_model(url, {"a": [1, None]}, arrays)
    meta, found = read_model(url)
    assert meta == {"a": [1, None]}
    for name, values in arrays.items():
        assert_array_equal(found[name], values)
    with pytest.raises(StoreError) as caught:
        write_model(url, {}, {})
    assert caught.value.kind == "exists"
    write_model(url, {"b": 2}, {}, overwrite=True)
    assert read_model(url) == ({"b": 2}, {})
    assert RemoteFolder(url).names() == ["model.json"]


def test_half_a_model(s3: S3Server) -> None:
    url = f"s3://{BUCKET}/models/half"
    s3.fail("models/half/model.json", method="PUT", status=403)
    with pytest.raises(StoreError) as caught:
        write_model(url, {}, {"values": np.ones(3)})
    assert caught.value.kind == "denied"
    assert RemoteFolder(url).names() == []
    write_model(url, {}, {"values": np.ones(3), "more": np.ones(2)})
    RemoteFolder(url, writable=True).delete(["model.json"])
    with pytest.raises(StoreError) as caught:
        read_model(url)
    assert caught.value.kind == "incomplete"
    write_model(url, {}, {"values": np.ones(3)}, overwrite=True)
    RemoteFolder(url, writable=True).write("values.npy", b"\0" * 10_000_000)
    with pytest.raises(StoreError, match=r"lacks the file values\.npy"):
        read_model(url)
    RemoteFolder(url, writable=True).write("values.npy", b"nonsense")
    with pytest.raises(StoreError) as caught:
        read_model(url)
    assert caught.value.kind == "corrupt"


def test_other_things_are_not_overwritten(s3: S3Server) -> None:
    url = f"s3://{BUCKET}/other"
    RemoteFolder(url, writable=True).write("letter.txt", b"dear")
    for write in (
        lambda: write_model(url, {}, {}, overwrite=True),
        lambda: write_dataset(url, *rows(), overwrite=True),
        lambda: PredictionWriter(url, 3, overwrite=True).__enter__(),
    ):
        with pytest.raises(DistkernError) as caught:
            write()
        assert caught.value.kind == "foreign"
    assert RemoteFolder(url).names() == ["letter.txt"]


def test_predictions_come_back(s3: S3Server) -> None:
    url = f"s3://{BUCKET}/predicted"
    labels = np.array(["no", "yes"])
    with PredictionWriter(url, 4, class_labels=labels, probability=True) as writer:
        writer.append(labels[[0, 1, 1]], np.full((3, 2), 0.5))
        writer.append(labels[[0]], np.full((1, 2), 0.5))
    found = read_predictions(url)
    assert found.prediction.tolist() == ["no", "yes", "yes", "no"]
    assert found.probability is not None
    assert describe(url)["complete"] is True
    with pytest.raises(DataError) as caught:
        read_predictions(f"{url}/nothing")
    assert caught.value.kind == "missing"

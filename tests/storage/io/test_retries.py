"""Failed reads that are retried, and the report of the retries."""

from __future__ import annotations

import errno
import gc
import gzip
import socket
import subprocess
import sys
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from zarr.storage import LocalStore

from distkern.errors import DataError
from distkern.storage import CountingStore, Fault, ReadReport, RetryPolicy, ZarrSource, collect_report, open_dataset
from distkern.storage import write_dataset as write
from distkern.storage.datasets.sources import DatasetSource
from distkern.storage.io.retries import ATTEMPTS, is_transient, note_absent, read_patiently
from tests.faulty import SOON, faulty, rows, write_array


def foreign(module: str, name: str, **attributes: Any) -> Exception:
    """An error as a network library would raise it."""
    return type(name, (Exception,), {"__module__": module, **attributes})()


@pytest.mark.parametrize(
    ("error", "transient"),
    [
        (ConnectionResetError(errno.ECONNRESET, "reset"), True),
        (TimeoutError(), True),
        (OSError(errno.EIO, "input/output error"), True),
        (OSError(errno.ESTALE, "stale file handle"), True),
        (OSError("slow down"), True),
        (foreign("aiohttp.client_exceptions", "ServerDisconnectedError"), True),
        (foreign("aiohttp.client_exceptions", "ClientPayloadError"), True),
        (foreign("aiohttp.client_exceptions", "ClientResponseError", status=503), True),
        (foreign("aiohttp.client_exceptions", "ClientResponseError", status=404), False),
        (foreign("botocore.exceptions", "EndpointConnectionError"), True),
        (foreign("botocore.exceptions", "ReadTimeoutError"), True),
        (foreign("botocore.exceptions", "ClientError", response={"ResponseMetadata": {"HTTPStatusCode": 503}}), True),
        (foreign("botocore.exceptions", "ClientError", response={"ResponseMetadata": {"HTTPStatusCode": 403}}), False),
        (foreign("gcsfs.retry", "HttpError", code=429), True),
        (foreign("botocore.exceptions", "NoCredentialsError"), False),
        (FileNotFoundError("gone"), False),
        (PermissionError("no"), False),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), False),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), True),
        (OSError(errno.ENOSPC, "full"), False),
        (gzip.BadGzipFile("not gzip"), False),
        (MemoryError(), False),
        (ValueError("bad"), False),
        (foreign("numcodecs.blosc", "ConnectionError"), False),
        (DataError("typed", kind="not-finite"), False),
    ],
)
def test_transient_errors(error: Exception, transient: bool) -> None:
    assert is_transient(error) is transient


def test_a_read_that_succeeds_in_the_end() -> None:
    failures = [OSError("a"), TimeoutError("b")]

    def read() -> str:
        if failures:
            raise failures.pop()
        return "rows"

    with collect_report() as report:
        assert read_patiently(read, "X, rows 0 to 9", "here", SOON) == "rows"
    assert report == ReadReport(retries={"X": 2})


def test_a_read_that_never_succeeds() -> None:
    calls = []

    def read() -> None:
        calls.append(1)
        raise ConnectionError("no route to https://user:pass@host/x")

    with collect_report() as report, pytest.raises(DataError) as caught:
        read_patiently(read, "y, rows 5 to 9", "s3://key:secret@bucket/y", SOON)
    assert len(calls) == ATTEMPTS == report.retries["y"] + 1
    assert caught.value.kind == "unreachable"
    for part in ("y, rows 5 to 9", "bucket/y", "5 times", "no route", "DISTKERN_READ_ATTEMPTS"):
        assert part in str(caught.value)
    for secret in ("secret", "pass@"):
        assert secret not in str(caught.value)
    assert caught.value.__cause__ is None  # its text holds a password


def test_other_errors_come_at_once() -> None:
    calls = []

    def read() -> None:
        calls.append(1)
        raise PermissionError("no")

    with pytest.raises(PermissionError):
        read_patiently(read, "X", "here", SOON)
    assert len(calls) == 1


def test_settings_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTKERN_READ_ATTEMPTS", "3")
    monkeypatch.setenv("DISTKERN_READ_WAIT", "0.25")
    monkeypatch.setenv("DISTKERN_READ_SECONDS", "90")
    assert RetryPolicy.default() == RetryPolicy(3, 0.25, 90.0)
    assert RetryPolicy.default().at_start() == RetryPolicy(3, 0.25, 90.0)
    assert RetryPolicy(9).at_start() == RetryPolicy(3)
    for nonsense in ("", "many", "-1", "0", "nan", "inf"):
        monkeypatch.setenv("DISTKERN_READ_ATTEMPTS", nonsense)
        assert RetryPolicy.default().attempts == ATTEMPTS


def test_reports_add_up() -> None:
    with collect_report() as outer:
        note_absent("X", [(5,), (1,)])
        with collect_report() as inner:
            note_absent("y", [(0,)])
        note_absent("X", [(i,) for i in range(10, 20)])
    assert inner.absent == {"y": (1, ((0,),))}
    assert outer.absent == {"X": (12, ((1,), (5,), (10,), (11,), (12,)))}
    assert outer.merge(inner) == inner.merge(outer)
    note_absent("X", [(0,)])  # nobody listens: nothing happens


def test_transient_faults_of_a_zarr_array(tmp_path: Path) -> None:
    X, y = rows()
    targets, _ = faulty(write_array(tmp_path / "y", y, (8,)))
    array, store = faulty(
        write_array(tmp_path / "X", X, (16, 3)), [Fault("transient", key="c/*", times=None, probability=0.3)], seed=3
    )
    source = ZarrSource(array, targets, policy=SOON)
    with collect_report() as report:
        read = np.concatenate([source.read_features(block) for block in range(4)])
    np.testing.assert_array_equal(read, X)
    assert report.retries == {"X": sum(store.struck.values())}
    assert report.retries["X"] > 0


def test_faults_that_stay(tmp_path: Path) -> None:
    X, y = rows()
    path = write_array(tmp_path / "X", X, (16, 3))
    array, store = faulty(path, [Fault("timeout", key="c/2/0", times=None)])
    source = ZarrSource(array, y, policy=SOON)
    source.read_features(0)
    with pytest.raises(DataError, match="X, rows 32 to 47") as caught:
        source.read_features(2)
    assert caught.value.kind == "unreachable"
    assert store.struck["timeout", "c/2/0"] == SOON.attempts
    array, store = faulty(path, [Fault("permanent", key="c/2/0", times=None)])
    with pytest.raises(DataError, match=r"rows 32 to 47 of X \(chunk 2 of .*permission denied") as caught:
        ZarrSource(array, y, policy=SOON).read_features(2)
    assert caught.value.kind == "unreadable"
    assert store.struck["permanent", "c/2/0"] == 2  # the read, and the search for the chunk to name


IMPATIENT = replace(SOON, longest=0.3)


def test_a_read_that_never_comes_back_is_tried_again(tmp_path: Path) -> None:
    X, y = rows()
    array, store = faulty(write_array(tmp_path / "X", X, (16, 3)), [Fault("hang", key="c/2/0")])
    source = ZarrSource(array, y, policy=IMPATIENT)
    with collect_report() as report:
        np.testing.assert_array_equal(source.read_features(2), X[32:48])
    assert report.retries == {"X": store.struck["hang", "c/2/0"]} == {"X": 1}


def test_reads_that_never_come_back(tmp_path: Path) -> None:
    """Other reads of the same loop go on beside them."""
    X, y = rows()
    array, _ = faulty(write_array(tmp_path / "X", X, (16, 3)), [Fault("hang", key="c/2/0", times=None)])
    source = ZarrSource(array, y, policy=replace(IMPATIENT, attempts=2))
    with pytest.raises(
        DataError, match=r"rows 32 to 47.*no answer within 0.3 s; tried 2.*DISTKERN_READ_SECONDS"
    ) as caught:
        source.read_features(2)
    assert caught.value.kind == "unreachable"
    np.testing.assert_array_equal(source.read_features(1), X[16:32])


def test_errors_and_reports_of_another_thread() -> None:
    """The caller gets the errors and notes of a read, also `BaseException`."""

    def read() -> None:
        note_absent("X", [(1,)])
        raise KeyboardInterrupt

    with collect_report() as report, pytest.raises(KeyboardInterrupt):
        read_patiently(read, "X", "here", SOON)
    assert report.absent == {"X": (1, ((1,),))}


class Held:
    """An object of the caller of a read, as a block holds its scratch file."""


@pytest.mark.parametrize("failing", [1, 99])
def test_failed_attempts_keep_nothing_of_the_caller(failing: int) -> None:
    """Without a collection of cycles: a worker that has nothing to do may not collect any for hours."""
    failures = [OSError("a")] * failing

    def call() -> weakref.ref[Held]:
        held = Held()

        def read() -> None:
            if failures:
                raise failures.pop()

        try:
            read_patiently(read, "X", "here", SOON)
        except DataError:
            assert failing == 99
        return weakref.ref(held)

    gc.collect()
    gc.disable()
    try:
        assert call()() is None
    finally:
        gc.enable()


def test_a_process_ends_in_spite_of_a_read_that_hangs() -> None:
    program = """
import threading
from distkern.errors import DataError
from distkern.storage import RetryPolicy, read_patiently
try:
    read_patiently(threading.Event().wait, "X", "here", RetryPolicy(1, 0.0, 0.1))
except DataError as error:
    print(error.kind)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "unreachable\n", "")


def test_the_chunk_that_cannot_be_decoded_is_named(tmp_path: Path) -> None:
    X, y = rows(640, 3)
    array, _ = faulty(write_array(tmp_path / "X", X, (4, 3)), [Fault("truncated", key="c/7/0", times=None)])
    source = ZarrSource(array, y, policy=SOON)
    assert source.boundaries[1] == 20  # several chunks a block
    with pytest.raises(DataError, match=r"rows 28 to 31 of X \(chunk 7 ") as caught:
        source.read_features(1)
    assert caught.value.kind == "unreadable"


def test_opening_is_retried_too(tmp_path: Path) -> None:
    import zarr

    from distkern.storage import FaultyStore

    X, y = rows()
    write(tmp_path / "d", X, y, chunk_rows=16)
    store = FaultyStore(LocalStore(tmp_path / "d", read_only=True), [Fault("transient", key="X/zarr.json")])
    group = zarr.open_group(store, mode="r")
    assert read_patiently(lambda: group.get("X"), "array X", "here", SOON).shape == X.shape


def test_a_dataset_is_read_with_a_request_a_chunk(tmp_path: Path) -> None:
    """Neither checksums nor the search for absent chunks cost requests where values vary."""
    import zarr

    X, y = rows(64)
    write(tmp_path / "d", X, y, chunk_rows=16)
    dataset = open_dataset(tmp_path / "d")
    store = CountingStore(LocalStore(tmp_path / "d", read_only=True))
    group = zarr.open_group(store, mode="r", use_consolidated=False)
    dataset.X, dataset._y = group["X"], group["y"]
    source = DatasetSource(dataset, policy=SOON)
    store.calls.clear()
    for block in range(4):
        source.read_features(block)
        source.read_targets(block)
    assert store.calls == {"get": 8}

"""The record of a run under a URL: parts that only one of two drivers writes, read back by any process."""

from __future__ import annotations

import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from distkern.errors import RunError
from distkern.storage import RunDirectory, describe, driver_of, is_run, read_model, recorded, write_model
from distkern.storage.io.remote_folders import RemoteFolder
from distkern.storage.io.urls import RemoteStore
from distkern.storage.runs.records import RunJournal
from tests.s3_server import BUCKET, S3Server

pytest.importorskip("moto")
pytest.importorskip("obstore")

FIRST = [b"one", b"two" * 100, b"", b"four" * 1000]
URL = f"s3://{BUCKET}"


@pytest.fixture
def s3(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The server, and clients that lose no time with waiting."""
    monkeypatch.setenv("DISTKERN_READ_WAIT", "0.001")
    return s3


@pytest.fixture
def run(s3: S3Server, request: pytest.FixtureRequest) -> RunDirectory:
    return RunDirectory.create(f"{URL}/{request.node.name}", {"a": 1})


def write(run: RunDirectory, payloads: list[bytes], continues: int = 0) -> RunJournal:
    journal = run.claim()
    journal.begin(continues, {"n": continues})
    for payload in payloads:
        journal.append((payload[:1], payload[1:]))
    return journal


def append_twice(journal: RunJournal, payload: bytes) -> None:
    """The next call raises the error of a write in the background."""
    journal.append((payload,))
    journal.append((payload,))


def read(run: RunDirectory) -> list[bytes | None]:
    return [place.read() for place in run.recorded()[0]]


def test_records_come_back_in_order(run: RunDirectory) -> None:
    journal = write(run, FIRST)
    journal.close()
    journal.close()
    assert read(run) == FIRST
    assert recorded(run.path)[1] == [{"n": 0}]
    driver = driver_of(run.path)
    assert driver is not None
    assert (driver.host, driver.pid, driver.alive) == (socket.gethostname(), os.getpid(), None)


def test_a_run_without_a_driver(run: RunDirectory) -> None:
    assert run.recorded() == ([], [])
    assert run.driver() is None


def test_a_later_driver_continues_after_the_records_it_names(run: RunDirectory) -> None:
    write(run, FIRST).close()
    newer = write(run, [b"three'"], continues=2)
    newer.close()
    assert newer.incarnation == 2
    assert read(run) == [*FIRST[:2], b"three'"]
    run.claim().close()
    assert read(run) == [*FIRST[:2], b"three'"], "a driver that recorded nothing hides nothing"
    write(run, [b"end"], continues=3).close()
    assert read(run) == [*FIRST[:2], b"three'", b"end"]
    assert [note["n"] for note in run.recorded()[1]] == [0, 2, 3]


def test_the_driver_that_loses_a_part_is_refused_once_and_learns_of_the_other(run: RunDirectory) -> None:
    older = write(run, FIRST[:2])
    newer = write(run, [b"new"], continues=2)
    with pytest.raises(RunError, match=rf"process {os.getpid()} on {socket.gethostname()}\) has resumed") as caught:
        append_twice(older, b"late")
    assert caught.value.kind == "superseded"
    older.close()
    newer.close()
    assert read(run) == [*FIRST[:2], b"new"]


def test_one_of_many_writes_a_part(run: RunDirectory) -> None:
    """Each claim is a part of its own, so of drivers that begin together all but the last are refused."""
    together = threading.Barrier(6)

    def drive(number: int) -> tuple[int, str]:
        together.wait()
        journal = RunDirectory.open(run.path).claim()
        together.wait()
        try:
            journal.begin(0, {})
            journal.append((bytes([number]),))
            journal.close()
        except RunError as error:
            return journal.incarnation, str(error.kind)
        return journal.incarnation, "done"

    with ThreadPoolExecutor(6) as threads:
        ended = sorted(threads.map(drive, range(6)))
    assert ended == [*((number, "superseded") for number in range(1, 6)), (6, "done")]
    assert len(read(run)) == 1


def test_two_that_make_one_run(s3: S3Server) -> None:
    together, kinds = threading.Barrier(4), []

    def create(number: int) -> None:
        together.wait()
        try:
            RunDirectory.create(f"{URL}/contended", {"number": number})
            kinds.append("made")
        except RunError as error:
            kinds.append(str(error.kind))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(create, range(4)))
    assert sorted(kinds) == ["exists", "exists", "exists", "made"]


def test_an_answer_that_is_lost_is_no_other_driver(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client writes the part, receives no answer, and is refused by what it has written."""
    journal = write(run, [b"one"])
    create = RemoteStore.create

    async def twice(self: RemoteStore, key: str, value: bytes) -> bool:
        await create(self, key, value)
        return await create(self, key, value)

    monkeypatch.setattr(RemoteStore, "create", twice)
    journal.append((b"two",))
    journal.close()
    assert read(run) == [b"one", b"two"]


def test_a_server_that_fails_for_a_moment(run: RunDirectory, s3: S3Server) -> None:
    journal = write(run, [b"one"])
    s3.fail("*.part", method="PUT", times=2, status=503)
    journal.append((b"two",))
    journal.append((b"three",))
    journal.close()
    assert read(run) == [b"one", b"two", b"three"]


def test_a_server_that_refuses(run: RunDirectory, s3: S3Server) -> None:
    journal = write(run, [b"one"])
    while len(read(run)) < 1:
        pass
    s3.fail("*.part", method="PUT", times=99, status=403)
    with pytest.raises(RunError, match="access is refused") as caught:
        append_twice(journal, b"three")
    assert caught.value.kind == "denied"
    journal.close()
    assert read(run) == [b"one"]


def test_a_server_that_ignores_the_condition(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    async def overwrite(self: RemoteStore, key: str, value: bytes) -> bool:
        from zarr.core.buffer.cpu import Buffer

        await self.set(key, Buffer.from_bytes(value))
        return True

    monkeypatch.setattr(RemoteStore, "create", overwrite)
    with pytest.raises(RunError, match="If-None-Match") as caught:
        RunDirectory.create(f"{URL}/ignoring", {})
    assert caught.value.kind == "no-conditional-writes"
    assert RemoteFolder(f"{URL}/ignoring").names() == []


@pytest.mark.parametrize("probe", [".distkern-probe", ".distkern-0123abcd"])
def test_a_probe_that_a_killed_process_left_does_not_occupy_a_place(s3: S3Server, probe: str) -> None:
    for place in (f"probed{probe}", f"kept{probe}"):
        s3.put(f"{BUCKET}/{place}/{probe}", b"left")
    RunDirectory.create(f"{URL}/probed{probe}", {})
    s3.put(f"{BUCKET}/kept{probe}/a.npy", b"part of a model")
    write_model(f"{URL}/kept{probe}", {"n": 1}, {}, overwrite=True)
    assert read_model(f"{URL}/kept{probe}")[0] == {"n": 1}
    assert ".distkern-probe" not in RemoteFolder(f"{URL}/probed{probe}").names()


def test_of_processes_that_create_a_run_at_once_one_does(s3: S3Server) -> None:
    start = threading.Barrier(6)

    def create(_: int) -> str:
        start.wait()
        try:
            RunDirectory.create(f"{URL}/at-once", {})
        except RunError as error:
            return error.kind
        return "created"

    with ThreadPoolExecutor(6) as threads:
        assert sorted(threads.map(create, range(6))) == ["created"] + ["exists"] * 5
    assert RemoteFolder(f"{URL}/at-once").names() == ["job.json"]


def test_storage_without_conditional_writes_and_web_servers(s3: S3Server) -> None:
    with pytest.raises(RunError) as caught:
        RunDirectory.create("memory://runs/one", {})
    assert caught.value.kind == "no-conditional-writes"
    with pytest.raises(RunError, match="read only"):
        RunDirectory.create(f"{s3.endpoint}/{BUCKET}/run", {})


def test_a_replaced_run_ends_its_driver_and_takes_nothing_from_it(run: RunDirectory) -> None:
    older = write(run, FIRST)
    with pytest.raises(RunError) as caught:
        RunDirectory.create(run.path, {})
    assert caught.value.kind == "exists"
    replaced = RunDirectory.create(run.path, {"a": 2}, overwrite=True)
    older.append((b"late",))
    with pytest.raises(RunError) as caught:
        older.close()
    assert caught.value.kind == "superseded"
    write(replaced, [b"new"]).close()
    assert read(replaced) == [b"new"]


def test_what_is_no_run_is_not_replaced(s3: S3Server) -> None:
    s3.put(f"{BUCKET}/other/file.txt", b"mine")
    with pytest.raises(RunError) as caught:
        RunDirectory.create(f"{URL}/other", {}, overwrite=True)
    assert caught.value.kind == "foreign"
    with pytest.raises(RunError) as caught:
        RunDirectory.open(f"{URL}/nothing")
    assert caught.value.kind == "missing"
    with pytest.raises(RunError) as caught:
        RunDirectory.open(f"{URL}/other")
    assert caught.value.kind == "not-a-run"


def test_what_a_killed_process_left_of_a_run_is_replaced(s3: S3Server) -> None:
    s3.put(f"{BUCKET}/left/log-12ab/0000000000.part", b"")
    assert RunDirectory.create(f"{URL}/left", {}, overwrite=True).recorded() == ([], [])


def test_values_and_events(run: RunDirectory) -> None:
    assert is_run(run.path)
    assert (run.name, run.training, run.summary, run.sums()) == (run.path.rpartition("/")[2], None, None, None)
    run.write_training({"run_id": "x"})
    other = RunDirectory.open(run.path)
    tail = other.tail()
    for number in range(5):
        run.record({"event": "Step", "number": number})
    assert [event["number"] for event in run.events()] == list(range(5))
    other.record({"event": "Step", "number": 5})
    run.record({"event": "Step", "number": 6})
    other.write_summary({"n_centers": 3})
    run.write_summary({"n_centers": 4})
    assert [event["number"] for event in tail.read()] == list(range(7))
    assert list(tail.read()) == []
    assert (other.training, other.summary) == ({"run_id": "x"}, {"n_centers": 4})
    other.job = {"a": 2}
    other.restart()
    again = RunDirectory.open(run.path)
    assert (again.job, again.summary) == ({"a": 2}, None)
    assert [event["number"] for event in again.events()] == list(range(7))
    found = describe(run.path)
    assert (found["kind"], found["n_events"], found["state"]) == ("run", 7, "running or cut short")


def test_events_are_written_within_a_second_or_so(run: RunDirectory, s3: S3Server) -> None:
    tail = RunDirectory.open(run.path).tail()
    for number in range(100):
        run.record({"number": number})
    found: list[int] = []
    for _ in range(200):
        found += [event["number"] for event in tail.read()]
        if len(found) == 100:
            break
        threading.Event().wait(0.05)
    assert found == list(range(100))
    assert sum("events-" in key for key in s3.counts("PUT")) <= 3


def test_a_tail_finds_a_replaced_run(run: RunDirectory) -> None:
    run.record({"n": 1})
    tail = RunDirectory.open(run.path).tail()
    list(run.events())
    assert [event["n"] for event in tail.read()] == [1]
    new = RunDirectory.create(run.path, {}, overwrite=True)
    new.record({"n": 2})
    list(new.events())
    found = [event["n"] for _ in range(30) for event in tail.read()]
    assert (found, tail.replaced) == ([2], 1)


def test_a_run_is_discarded_only_before_its_first_round(run: RunDirectory) -> None:
    run.record({"event": "RoundDone"})
    assert not run.discard()
    other = RunDirectory.create(f"{run.path}-2", {})
    other.record({"event": "RunStarted"})
    assert other.discard()
    assert RemoteFolder(other.path).names() == []


def test_a_run_goes_from_a_disk_to_a_bucket_and_back(s3: S3Server, tmp_path: Path) -> None:
    local = RunDirectory.create(tmp_path / "run", {"a": 1})
    local.record({"n": 1})
    write(local, FIRST[:2]).close()
    remote = RunDirectory.open(s3.upload(tmp_path / "run", "copied"))
    assert read(remote) == FIRST[:2]
    journal = write(remote, FIRST[2:], continues=2)
    assert journal.incarnation == 2
    journal.close()
    remote.record({"n": 2})
    assert [event["n"] for event in remote.events()] == [1, 2]
    back = tmp_path / "back"
    folder = RemoteFolder(remote.path)
    for name in folder.names():
        place = back / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(folder.read(name) or b"")
    again = RunDirectory.open(back)
    assert read(again) == FIRST
    assert sorted(event["n"] for event in again.events()) == [1, 2]
    last = write(again, [b"end"], continues=4)
    assert last.incarnation == 3
    last.close()
    assert read(again) == [*FIRST, b"end"]


@pytest.mark.parametrize("size", [0, 10, 30, 60])
def test_a_damaged_part_ends_the_record(run: RunDirectory, size: int) -> None:
    write(run, FIRST).close()
    folder = RemoteFolder(run.path, writable=True)
    (name,) = [name for name in folder.names() if name.endswith("0003.part")]
    folder.write(name, (folder.read(name) or b"")[:size])
    found = read(run)
    assert found[0] == FIRST[0]
    assert found[1:2] in ([], [None])
    # The newest driver is known from the last part, which is whole.
    assert run.driver() is not None

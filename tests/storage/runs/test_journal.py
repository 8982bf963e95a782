"""The record of a run's exchanges: complete records are read back, whatever damaged the others."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distkern.errors import RunError
from distkern.storage import Journal, driver_of, recorded
from distkern.storage.runs.records import scan
from distkern.storage.runs.run_files import LocalFiles
from tests.file_limits import largest_file

FIRST = [b"one", b"two" * 100, b"", b"four" * 1000]


def write(folder: Path, payloads: list[bytes], continues: int = 0) -> Journal:
    journal = Journal.claim(folder)
    journal.begin(continues, {})
    for payload in payloads:
        journal.append((payload[:1], payload[1:]))
    return journal


def read(folder: Path) -> list[bytes]:
    """Payloads up to the first that is not whole."""
    found: list[bytes] = []
    for place in recorded(folder)[0]:
        payload = place.read()
        if payload is None:
            break
        found.append(payload)
    return found


def test_records_come_back_in_order(tmp_path: Path) -> None:
    write(tmp_path, FIRST).close()
    assert read(tmp_path) == FIRST


def test_an_empty_directory_has_no_records(tmp_path: Path) -> None:
    assert recorded(tmp_path) == ([], [])


def test_a_file_cut_anywhere_keeps_its_whole_records(tmp_path: Path) -> None:
    """A process may be killed while it writes."""
    short = [b"one", b"two", b"three"]
    write(tmp_path, short).close()
    path = tmp_path / "log-0001.bin"
    content = path.read_bytes()
    ends = [place.offset + place.size for place in recorded(tmp_path)[0]]
    for size in range(len(content)):
        path.write_bytes(content[:size])
        assert read(tmp_path) == short[: sum(end <= size for end in ends)]


@given(st.data())
def test_a_changed_byte_ends_the_record(data: st.DataObject) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, FIRST).close()
        path = folder / "log-0001.bin"
        content = bytearray(path.read_bytes())
        position = data.draw(st.integers(0, len(content) - 1))
        content[position] ^= data.draw(st.integers(1, 255))
        path.write_bytes(content)
        try:
            found = read(folder)
        except RunError as error:
            assert error.kind == "newer-version"  # noqa: PT017
            return
        assert found == FIRST[: len(found)]
        ends = [-1, *(place.offset + place.size for place in recorded(folder)[0])]
        assert len(found) >= sum(end <= position for end in ends[1 : len(found) + 1])


def test_a_later_driver_continues_after_the_records_it_names(tmp_path: Path) -> None:
    older = write(tmp_path, FIRST)
    newer = write(tmp_path, [b"three'"], continues=2)
    assert newer.incarnation == older.incarnation + 1
    assert read(tmp_path) == [*FIRST[:2], b"three'"]
    newest = write(tmp_path, [b"end"], continues=3)
    assert read(tmp_path) == [*FIRST[:2], b"three'", b"end"]
    for journal in (older, newer, newest):
        journal.close()


def test_an_older_driver_is_refused(tmp_path: Path) -> None:
    older = write(tmp_path, FIRST)
    newer = Journal.claim(tmp_path)
    with pytest.raises(RunError, match="another driver has resumed") as caught:
        older.append((b"more",))
    assert caught.value.kind == "superseded"
    assert read(tmp_path) == FIRST, "a driver that recorded nothing hides nothing"
    newer.begin(len(FIRST), {})
    newer.append((b"more",))
    assert read(tmp_path) == [*FIRST, b"more"]
    older.close()
    newer.close()


def test_later_records_of_an_older_driver_are_invalid(tmp_path: Path) -> None:
    """It may have looked for newer ones just before there was one."""
    older = write(tmp_path, FIRST)
    later = (tmp_path / "log-0001.bin").read_bytes()
    older.append((b"late",))
    late = (tmp_path / "log-0001.bin").read_bytes()
    (tmp_path / "log-0001.bin").write_bytes(later)
    newer = write(tmp_path, [b"new"], continues=len(FIRST))
    (tmp_path / "log-0001.bin").write_bytes(late)
    assert read(tmp_path) == [*FIRST, b"new"]
    older.close()
    newer.close()


def test_notes_of_all_drivers(tmp_path: Path) -> None:
    for number in range(3):
        journal = Journal.claim(tmp_path)
        journal.begin(number, {"n": number})
        journal.append((b"x",))
        journal.close()
    assert recorded(tmp_path)[1] == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_a_gap_in_the_chain_ends_it(tmp_path: Path) -> None:
    write(tmp_path, FIRST).close()
    write(tmp_path, [b"lost"], continues=len(FIRST) + 1).close()
    assert read(tmp_path) == FIRST


def test_a_full_disk_keeps_complete_records(tmp_path: Path) -> None:
    journal = write(tmp_path, FIRST)
    size = (tmp_path / "log-0001.bin").stat().st_size
    with largest_file(size + 100), pytest.raises(RunError, match=r"\d+ bytes are needed and \d+ are free") as caught:
        journal.append((b"x" * 1000,))
    assert caught.value.kind == "disk-full"
    assert (tmp_path / "log-0001.bin").stat().st_size == size
    journal.append((b"x" * 1000,))
    assert read(tmp_path) == [*FIRST, b"x" * 1000]
    journal.close()


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    shutil.rmtree(tmp_path)
    with pytest.raises(RunError) as caught:
        Journal.claim(tmp_path)
    assert caught.value.kind == "not-writable"


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    journal = Journal.claim(tmp_path)
    journal.append((b'{"format_version": 2, "continues": 0}',))
    journal.close()
    with pytest.raises(RunError) as caught:
        recorded(tmp_path)
    assert caught.value.kind == "newer-version"


def test_closing_twice(tmp_path: Path) -> None:
    journal = write(tmp_path, FIRST)
    journal.close()
    kept = [place.size for place in recorded(tmp_path)[0]]
    journal.close()
    assert [place.size for place in recorded(tmp_path)[0]] == kept != []


# Who drives a run.


def test_a_driver_is_seen_to_live_and_to_have_ended(tmp_path: Path) -> None:
    assert driver_of(tmp_path) is None
    journal = write(tmp_path, FIRST)
    driver = driver_of(tmp_path)
    assert driver is not None
    assert (driver.host, driver.pid, driver.holds_lock) == (socket.gethostname(), os.getpid(), True)
    assert driver.alive
    journal.close()
    after = driver_of(tmp_path)
    assert after is not None
    assert after.alive is False


def test_the_newest_driver_counts(tmp_path: Path) -> None:
    write(tmp_path, FIRST).close()
    journal = Journal.claim(tmp_path)
    driver = driver_of(tmp_path)
    assert driver is not None
    assert (driver.host, driver.alive) == (None, True)  # it has recorded nothing yet
    journal.close()


def test_only_a_lock_shows_that_a_driver_on_another_machine_is_alive(tmp_path: Path) -> None:
    write(tmp_path, []).close()
    path = tmp_path / "log-0001.bin"
    here = socket.gethostname().encode()
    elsewhere = b"x" * len(here)
    content = path.read_bytes()
    (place,) = scan(LocalFiles(tmp_path), path.name)
    payload = content[place.offset :].replace(here, elsewhere)
    path.unlink()
    journal = Journal.claim(tmp_path)
    journal.append((payload,))
    driver = driver_of(tmp_path)
    assert driver is not None
    assert (driver.host, driver.alive) == (elsewhere.decode(), True)
    journal.close()
    left = driver_of(tmp_path)
    assert left is not None
    assert left.alive is None


@pytest.mark.slow
def test_a_driver_that_is_killed_holds_no_lock(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from distkern.storage import Journal; "
        "j = Journal.claim(Path(sys.argv[1])); j.begin(0, {}); print('ready', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    driver = driver_of(tmp_path)
    assert driver is not None
    assert (driver.pid, driver.alive) == (process.pid, True)
    process.kill()
    process.communicate()
    after = driver_of(tmp_path)
    assert after is not None
    assert after.alive is False

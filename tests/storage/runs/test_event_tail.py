"""Reading of events while they are recorded: each once, complete lines only, also where the file is replaced."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distkern.storage import EventTail, RunDirectory


@pytest.fixture
def tail(tmp_path: Path) -> Iterator[EventTail]:
    """Of a file that is not there yet."""
    with EventTail(tmp_path / "events.jsonl") as opened:
        yield opened


@pytest.fixture
def run_tail(run: RunDirectory) -> Iterator[EventTail]:
    with run.tail() as opened:
        yield opened


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "run", {"data": {}})


def numbers(tail: EventTail) -> list[int]:
    return [event["n"] for event in tail.read()]


def test_events_come_once_each(run: RunDirectory, run_tail: EventTail) -> None:
    assert numbers(run_tail) == []
    for n in range(3):
        run.record({"n": n})
    assert numbers(run_tail) == [0, 1, 2]
    assert numbers(run_tail) == []
    run.record({"n": 3})
    assert numbers(run_tail) == [3]


def test_nothing_is_read_twice(run: RunDirectory, run_tail: EventTail) -> None:
    """A long file is not read again for one more line."""
    for n in range(2000):
        run.record({"n": n, "filler": "x" * 500})
    assert len(numbers(run_tail)) == 2000
    before = bytes_read()
    run.record({"n": 2000})
    assert numbers(run_tail) == [2000]
    if before is not None:
        after = bytes_read()
        assert after is not None
        assert after - before < 100_000


def bytes_read() -> int | None:
    """Return the bytes that this process has read from files; None on systems without the count."""
    try:
        with open("/proc/self/io") as stream:
            return next(int(line.split()[1]) for line in stream if line.startswith("rchar"))
    except OSError:
        return None


@given(st.lists(st.text(max_size=8), min_size=1, max_size=8), st.data())
def test_lines_that_come_in_pieces_are_put_together(texts: list[str], data: st.DataObject) -> None:
    import tempfile

    content = b"".join(json.dumps({"n": text}, ensure_ascii=False).encode() + b"\n" for text in texts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=6)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "events.jsonl")
        tail = EventTail(path)
        found: list[Any] = []
        for start, stop in zip([0, *cuts], [*cuts, len(content)], strict=True):
            with path.open("ab") as stream:
                stream.write(content[start:stop])
            found += [event["n"] for event in tail.read()]
        tail.close()
    assert found == texts


def test_a_torn_line_is_skipped_once_it_is_ended(run: RunDirectory, run_tail: EventTail) -> None:
    run.record({"n": 0})
    with (run.path / "events.jsonl").open("ab") as stream:
        stream.write(b'{"n": 1, "half')
    assert numbers(run_tail) == [0]
    run.record({"n": 2})
    assert numbers(run_tail) == [2]
    assert run_tail.replaced == 0


def test_a_run_that_is_started_again_is_read_from_its_beginning(run: RunDirectory, run_tail: EventTail) -> None:
    run.record({"n": 0})
    assert numbers(run_tail) == [0]
    run.record({"n": 1})
    RunDirectory.create(run.path, {"data": {}}, overwrite=True).record({"n": 10})
    assert numbers(run_tail) == [1, 10]
    assert run_tail.replaced == 1


def test_a_file_that_was_cut_is_read_from_its_beginning(run: RunDirectory, run_tail: EventTail) -> None:
    for n in range(5):
        run.record({"n": n})
    assert len(numbers(run_tail)) == 5
    (run.path / "events.jsonl").write_text('{"n": 7}\n')
    assert numbers(run_tail) == [7]


def test_a_file_that_is_absent_for_a_moment(run: RunDirectory, run_tail: EventTail) -> None:
    run.record({"n": 0})
    assert numbers(run_tail) == [0]
    os.rename(run.path, run.path.with_name("away"))
    assert numbers(run_tail) == []
    os.rename(run.path.with_name("away"), run.path)
    run.record({"n": 1})
    assert numbers(run_tail) == [1]


def test_lines_that_are_no_events(tmp_path: Path, tail: EventTail) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'[1]\n\n\xff\xfe\n"text"\n' + b"[" * 100_000 + b'\n{"n": 1}\n')
    assert numbers(tail) == [1]


def test_a_line_without_end_takes_no_more_memory_than_a_long_one(tmp_path: Path, tail: EventTail) -> None:
    path = tmp_path / "events.jsonl"
    with path.open("wb") as stream:
        for _ in range(40):
            stream.write(b"x" * (1 << 20))
        stream.write(b'\n{"n": 1}\n')
    assert numbers(tail) == [1]


def test_a_file_that_is_not_there_yet(tmp_path: Path, tail: EventTail) -> None:
    assert numbers(tail) == []
    (tmp_path / "events.jsonl").write_text('{"n": 1}\n')
    assert numbers(tail) == [1]

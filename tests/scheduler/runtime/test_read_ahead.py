"""Reads that run ahead: in order, a bounded number of them, and over when the pass is."""

from __future__ import annotations

import threading
import time

import pytest

from distkern.errors import DataError
from distkern.scheduler.runtime.read_ahead import AHEAD_BYTES, MOST_AHEAD, ReadAhead, blocks_ahead
from tests.waiting import wait_until


def readers() -> int:
    return sum(thread.name.startswith("distkern-ahead") for thread in threading.enumerate())


@pytest.mark.parametrize("ahead", [1, 3])
def test_as_many_items_are_read_while_one_is_in_use(ahead: int) -> None:
    started = [threading.Event() for _ in range(8)]

    def read(number: int) -> int:
        started[number].set()
        return number

    with ReadAhead(read, range(8), ahead) as items:
        for number in range(8):
            assert items.take(number) == number
            for coming in started[number + 1 : number + 1 + ahead]:
                assert coming.wait(timeout=30)
            time.sleep(0.01)
            assert not any(event.is_set() for event in started[number + 1 + ahead :])


def test_reads_wait_side_by_side() -> None:
    together = threading.Barrier(4)

    def read(number: int) -> int:
        together.wait(timeout=30)
        return number

    with ReadAhead(read, range(4), 4) as items:
        assert list(items) == [0, 1, 2, 3]


@pytest.mark.parametrize("ahead", [0, 1, 4])
def test_an_error_comes_in_its_place(ahead: int) -> None:
    def read(number: int) -> int:
        if number == 2:
            raise DataError("broken", kind="unreadable")
        return number

    with ReadAhead(read, range(5), ahead) as items:
        assert [items.take(0), items.take(1)] == [0, 1]
        with pytest.raises(DataError, match="broken"):
            items.take(2)
        assert items.take(3) == 3


def test_threads_that_take_out_of_order_get_what_they_asked_for() -> None:
    with ReadAhead(lambda number: -number, [5, 7, 6, 9], 2) as items:
        assert [items.take(number) for number in (6, 5, 9, 7)] == [-6, -5, -9, -7]


def test_nothing_is_read_before_it_is_asked_for_where_reads_do_not_wait() -> None:
    seen: list[int] = []
    with ReadAhead(seen.append, range(3), 0) as items:
        assert seen == []
        items.take(0)
        assert seen == [0]
        assert readers() == 0


def test_the_readers_end_with_the_pass() -> None:
    go_on, begun = threading.Event(), threading.Event()

    def read(number: int) -> int:
        if number:
            begun.set()
            assert go_on.wait(timeout=30)
        return number

    with ReadAhead(read, range(100), 2) as items:
        items.take(0)
        assert begun.wait(timeout=30)
        assert 1 <= readers() <= 2
        go_on.set()
    wait_until(lambda: readers() == 0)


def test_how_many_blocks_are_worth_it() -> None:
    assert blocks_ahead(False, 1 << 20) == 0
    assert blocks_ahead(True, 1 << 10) == MOST_AHEAD
    assert blocks_ahead(True, 16 << 20) == AHEAD_BYTES // (16 << 20)
    assert blocks_ahead(True, 16 << 20, limit=512 << 20) == 2
    assert blocks_ahead(True, 16 << 20, limit=64 << 20) == 0
    assert blocks_ahead(True, 1 << 30) == 0

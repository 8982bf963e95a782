"""Pieces of a file that are read while the last one is used."""

from __future__ import annotations

import threading
from collections.abc import Generator

import pytest

from distkern.storage.ingest.read_ahead import read_ahead


def test_pieces_come_in_order_one_ahead() -> None:
    made: list[int] = []
    second = threading.Event()

    def pieces() -> Generator[int, None, None]:
        for number in range(5):
            made.append(number)
            if number == 1:
                second.set()
            yield number

    ahead = read_ahead(pieces())
    assert next(ahead) == 0
    assert second.wait(10)
    assert made == [0, 1]
    assert list(ahead) == [1, 2, 3, 4]


def test_an_error_is_raised_in_its_place_and_the_end_closes_the_file() -> None:
    closed: list[bool] = []

    def pieces() -> Generator[int, None, None]:
        try:
            yield 0
            yield 1
            raise ValueError("damaged")
        finally:
            closed.append(True)

    ahead = read_ahead(pieces())
    assert [next(ahead), next(ahead)] == [0, 1]
    with pytest.raises(ValueError, match="damaged"):
        next(ahead)
    left = read_ahead(pieces())
    next(left)
    left.close()
    assert closed == [True, True]

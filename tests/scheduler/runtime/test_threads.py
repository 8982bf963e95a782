"""BLAS on one thread while tiles run, whichever threads and libraries set its threads before and beside."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import scipy.linalg  # noqa: F401  its BLAS must be loaded before threadpoolctl looks
from threadpoolctl import OpenBLASController, threadpool_info, threadpool_limits

from distkern.scheduler.runtime.threads import single_threaded_blas


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def threads_within() -> set[int]:
    with single_threaded_blas():
        return blas_threads()


@pytest.fixture
def several() -> Iterator[int]:
    """BLAS of this process has two threads at least, as on any machine with two cores."""
    OpenBLASController.clear_controlling_thread(force=True)
    with threadpool_limits(2, user_api="blas"):
        if blas_threads() != {2}:
            pytest.skip("BLAS has one thread here, whatever its limit")
        OpenBLASController.clear_controlling_thread(force=True)
        yield 2
    OpenBLASController.clear_controlling_thread(force=True)


@pytest.fixture
def elsewhere() -> Iterator[Callable[[Callable[[], set[int]]], set[int]]]:
    """Runs a function on another thread, always the same."""
    with ThreadPoolExecutor(1) as pool:
        yield lambda function: pool.submit(function).result()


def test_a_second_thread_has_one_too(several: int, elsewhere: Callable[[Callable[[], set[int]]], set[int]]) -> None:
    assert threads_within() == {1}
    assert elsewhere(threads_within) == {1}
    assert threads_within() == {1}
    assert blas_threads() == {several}


def test_the_limit_ends_with_the_last_thread_within(several: int) -> None:
    entered, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with single_threaded_blas():
            entered.set()
            leave.wait()

    with ThreadPoolExecutor(1) as pool:
        with single_threaded_blas():
            other = pool.submit(stay)
            entered.wait()
        assert blas_threads() == {1}
        leave.set()
        other.result()
        assert blas_threads() == {several}


def test_a_limit_of_another_library_does_not_keep_ours_off(
    several: int, elsewhere: Callable[[Callable[[], set[int]]], set[int]]
) -> None:
    with threadpool_limits(2, user_api="blas"):
        assert elsewhere(threads_within) == {1}
        assert blas_threads() == {several}

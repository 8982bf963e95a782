"""Calls on threads of their own: results, errors, and threads that find no memory to begin."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest

from distkern.storage.io import threads
from distkern.storage.io.threads import ThreadCall


def test_a_result_comes_from_a_daemon_thread_of_the_name() -> None:
    thread = ThreadCall(threading.current_thread, "aside").result(timeout=30)
    assert (thread.name, thread.daemon) == ("aside", True)
    assert thread is not threading.current_thread()


class Held:
    """An object that a call holds when it fails."""


def test_an_error_does_not_keep_what_the_call_held() -> None:
    seen: list[weakref.ref[Held]] = []

    def fail() -> None:
        held = Held()
        seen.append(weakref.ref(held))
        raise OSError("broken")

    gc.disable()
    try:
        with pytest.raises(OSError, match="broken") as caught:
            ThreadCall(fail, "aside").result(timeout=30)
        assert seen[0]() is not None
        caught.value.__traceback__ = None
        del caught
        assert seen[0]() is None
    finally:
        gc.enable()


def test_a_thread_that_fails_before_its_first_step_is_short_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's own `start` would wait forever."""
    monkeypatch.setattr(threads, "START_SECONDS", 0.1)
    monkeypatch.setattr(threading.Thread, "_bootstrap", lambda _: None)
    with pytest.raises(MemoryError, match="did not begin"):
        ThreadCall(int, "aside")


def test_a_thread_that_the_system_refuses_is_short_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("can't start new thread")

    for name in ("_start_new_thread", "_start_joinable_thread"):
        monkeypatch.setattr(threading, name, refuse, raising=False)
    with pytest.raises(MemoryError, match="can't start"):
        ThreadCall(int, "aside")


def test_a_thread_that_dies_on_the_way_is_short_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has begun, and never comes to the function."""

    monkeypatch.setattr(threads, "ALIVE_SECONDS", 0.05)
    monkeypatch.setattr(threading.Thread, "run", lambda _: None)
    with pytest.raises(MemoryError, match="aside died without a result"):
        ThreadCall(int, "aside").result(timeout=30)


@pytest.mark.parametrize("timeout", [0.0, 0.2])
def test_a_call_that_takes_long_is_a_timeout(timeout: float) -> None:
    go_on = threading.Event()
    call = ThreadCall(go_on.wait, "aside")
    with pytest.raises(TimeoutError, match="no answer within"):
        call.result(timeout)
    go_on.set()
    assert call.result(timeout=30)


def test_a_timeout_of_the_function_is_its_own() -> None:
    def fail() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        ThreadCall(fail, "aside").result(timeout=30)

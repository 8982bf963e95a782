"""One pool of tile threads for each process, and BLAS on one thread while tiles run.

Bits must not depend on the number of BLAS threads. So the products of a tile run on one thread, and several tiles run
at once. All trainings of the process share the pool and the BLAS limit. Covers threads only; which tiles run is in
`..blocks.message_handler`, in what order they are added up in `tree_reducer`.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import OpenBLASController, ThreadpoolController

from .submission_window import in_order

T = TypeVar("T")
R = TypeVar("R")

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_pool_pid = 0
_pool_width = 0
_controller: ThreadpoolController | None = None
_limiter: Any = None
_limit_users = 0


def available_cores() -> int:
    """Return the number of cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_pool_width(width: int) -> None:
    """Make the tile pool at least `width` threads wide."""
    global _pool, _pool_width
    with _lock:
        if width > _pool_width:
            _pool, _pool_width = None, width


def follow_worker() -> str | None:
    """Set the pool width from the dask worker of this task and return its scratch folder; elsewhere return None."""
    distributed = sys.modules.get("distributed")
    if distributed is not None:
        with contextlib.suppress(ValueError):
            worker = distributed.get_worker()
            set_pool_width(worker.state.nthreads)
            return str(worker.local_directory)
    return None


def tile_pool() -> tuple[ThreadPoolExecutor, int]:
    """Return the pool of this process and its width."""
    global _pool, _pool_pid, _pool_width
    with _lock:
        if _pool is None or _pool_pid != os.getpid():
            _pool_width = _pool_width or available_cores()
            _pool = ThreadPoolExecutor(_pool_width, thread_name_prefix="distkern-tile")
            _pool_pid = os.getpid()
        return _pool, _pool_width


def _free_control() -> None:
    """Let any thread set the number of OpenBLAS threads next.

    threadpoolctl gives control to the first thread that sets it, and ignores all others without an error.
    """
    OpenBLASController.clear_controlling_thread(force=True)


@contextlib.contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit every BLAS of the process to one thread; nested and concurrent uses share one limit."""
    global _controller, _limiter, _limit_users
    with _lock:
        if _limit_users == 0:
            if _controller is None:
                import scipy.linalg  # noqa: F401  its BLAS must be loaded before the controller looks

                _controller = ThreadpoolController()
            _free_control()
            _limiter = _controller.limit(limits=1, user_api="blas")
        _limit_users += 1
    try:
        yield
    finally:
        with _lock:
            _limit_users -= 1
            if _limit_users == 0:
                _free_control()
                _limiter.restore_original_limits()
                _limiter = None
                _free_control()


def map_tiles(function: Callable[[T], R], tiles: Iterable[T]) -> Iterator[R]:
    """Apply `function` to every tile on the pool; yield results in the order of `tiles`.

    A bounded number of results waits unread. The first exception is raised after every started tile has ended, so that
    no thread still writes to a state that is dropped.
    """
    pool, width = tile_pool()
    if width == 1:
        yield from map(function, tiles)
        return
    yield from in_order(
        tiles, lambda tile: pool.submit(function, tile), Future.result, lambda: 2 * width + 1, _cancel_and_wait
    )


def _cancel_and_wait(futures: Iterable[Future[Any]]) -> None:
    wait([future for future in futures if not future.cancel()])


class Workspace(threading.local):
    """Scratch arrays of one thread, allocated once and reused by name."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, np.dtype[Any]], NDArray[Any]] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return an uninitialised C-ordered array; valid until the next call with the same name."""
        size = math.prod(shape)
        key = (name, dtype)
        buffer = self._buffers.get(key)
        if buffer is None or buffer.size < size:
            buffer = np.empty(max(size, 1), dtype=dtype)
            self._buffers[key] = buffer
        return buffer[:size].reshape(shape)


workspace = Workspace()

"""A limit on what this process may allocate, for code that must not be talked into allocating more."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

GIB = 1 << 30


@contextmanager
def memory_for(nbytes: int) -> Iterator[None]:
    """Let this process take so many bytes more, and give it a MemoryError beyond."""
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("what a process holds is read from /proc")
    held = next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith("VmData"))
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (held + nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def ran_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or what led to it, is a refusal of memory."""
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False

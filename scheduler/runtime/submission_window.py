"""Tasks in flight: a bounded number is submitted ahead, on threads or workers, and results are taken in order.

Covers no failures: who submits also resubmits or aborts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
H = TypeVar("H")
R = TypeVar("R")


def in_order(
    items: Iterable[T],
    submit: Callable[[T], H],
    take: Callable[[H], R],
    width: Callable[[], int],
    abandon: Callable[[Iterable[H]], Any] | None = None,
) -> Iterator[R]:
    """Yield what `take` returns for the handle that `submit` returns for each item, in the order of the items.

    `width` returns the most tasks in flight; it is called for each item, since workers come and go. Where an error or
    the caller ends the loop, `abandon` is called with the handles in flight, that of a failed task included.
    """
    flying: deque[H] = deque()

    def first() -> R:
        result = take(flying[0])  # no local name of the generator keeps it alive
        flying.popleft()
        return result

    try:
        for item in items:
            flying.append(submit(item))
            while len(flying) >= width():
                yield first()
        while flying:
            yield first()
    finally:
        if flying and abandon is not None:
            abandon(flying)

"""The end of every writer: what was written is finished and published, or removed. Places are in `publish`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import ExitStack
from types import TracebackType
from typing import Self


class StagedWriter(ABC):
    """Base of context managers that write to a place which appears when it is complete, or not at all."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    @abstractmethod
    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._stack.__exit__(kind, error, trace)
            return
        with self._stack:
            self._finish()

    @abstractmethod
    def _finish(self) -> None:
        """Write what is left; an error here publishes nothing."""

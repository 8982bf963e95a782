"""The log of a run: the messages of the driver in order, and the chain of hashes that names each prefix.

It is in the memory of the driver, for the replay of blocks; the record on disk is in `..training.run_record`.
"""

from __future__ import annotations

from collections.abc import Iterator

from .messages import GENESIS, Message, chain, digest

SLICE_BYTES = 8 << 20
"""Most bytes of log that one catch-up task carries."""


class RunLog:
    """Messages that were sent, oldest first."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.hashes: list[bytes] = [GENESIS]
        self._sizes: list[int] = []

    def __len__(self) -> int:
        return len(self.messages)

    def append(self, message: Message) -> None:
        """Add the next message."""
        self.messages.append(message)
        self.hashes.append(chain(self.hashes[-1], digest(message)))
        self._sizes.append(_nbytes(message))

    def slices(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Cut messages ``first:last`` into ranges of at most `SLICE_BYTES` (one message at least)."""
        start, size = first, 0
        for n in range(first, last):
            if n > start and size + self._sizes[n] > SLICE_BYTES:
                yield start, n
                start, size = n, 0
            size += self._sizes[n]
        if start < last:
            yield start, last


def _nbytes(value: object) -> int:
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    if isinstance(value, tuple):
        return sum(_nbytes(item) for item in value)
    if hasattr(value, "__dataclass_fields__"):
        return sum(_nbytes(getattr(value, name)) for name in value.__dataclass_fields__)
    return 8

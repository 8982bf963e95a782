"""Zarr stores around other stores: one counts its requests, one is slow, one fails on purpose.

They serve tests and benchmarks of trainings on unreliable storage, wherever an array can be opened from a store::

    store = FaultyStore(LocalStore(path), [Fault("transient", key="c/*", times=2)], seed=3)
    X = zarr.open_array(store, mode="r")

A wrapper can be pickled, so it works on the workers of a cluster too; each process then has its own counts.
"""

from __future__ import annotations

import asyncio
import copy
import errno
import threading
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Any, Literal, Self

from zarr.abc.store import Store
from zarr.storage import WrapperStore

__all__ = ["CountingStore", "Fault", "FaultyStore", "SlowStore"]

Operation = Literal["get", "set", "delete", "exists", "list"]


class _Tapped(WrapperStore[Store]):
    """A wrapper that calls `_before` before every operation, and `_after` on every value that is read."""

    def _with_store(self, store: Store) -> Self:
        # Copies for another access mode share counters with this one.
        other = copy.copy(self)
        other._store = store
        return other

    async def _before(self, operation: Operation, key: str, value: Any = None) -> None:
        """Act before an operation; raise to fail it."""

    async def _after(self, key: str, value: Any) -> Any:
        """Return the result of a read in place of `value`: a buffer or None."""
        return value

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        await self._before("get", key)
        return await self._after(key, await self._store.get(key, prototype, byte_range))

    async def get_partial_values(self, prototype: Any, key_ranges: Iterable[tuple[str, Any]]) -> list[Any]:
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def _get_many(self, requests: Iterable[tuple[str, Any, Any]]) -> AsyncGenerator[tuple[str, Any], None]:
        for key, prototype, byte_range in requests:
            yield key, await self.get(key, prototype, byte_range)

    async def getsize(self, key: str) -> int:
        await self._before("exists", key)
        return int(await self._store.getsize(key))

    async def exists(self, key: str) -> bool:
        await self._before("exists", key)
        return bool(await self._store.exists(key))

    async def set(self, key: str, value: Any) -> None:
        await self._before("set", key, value)
        await self._store.set(key, value)

    async def set_if_not_exists(self, key: str, value: Any) -> None:
        await self._before("set", key, value)
        await self._store.set_if_not_exists(key, value)

    async def _set_many(self, values: Iterable[tuple[str, Any]]) -> None:
        for key, value in values:
            await self.set(key, value)

    async def delete(self, key: str) -> None:
        await self._before("delete", key)
        await self._store.delete(key)

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        await self._before("list", prefix)
        async for key in self._store.list_prefix(prefix):
            yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        await self._before("list", prefix)
        async for key in self._store.list_dir(prefix):
            yield key

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())


class CountingStore(_Tapped):
    """Store that counts the requests to another one.

    Parameters
    ----------
    store : zarr.abc.store.Store
        Store with the data.

    Attributes
    ----------
    calls : collections.Counter
        Calls by operation: ``get``, ``set``, ``delete``, ``exists``, ``list``.
    keys : collections.Counter
        Calls by (operation, key).
    bytes_read, bytes_written : int
        Bytes of the values that were read and written.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.calls: Counter[str] = Counter()
        self.keys: Counter[tuple[str, str]] = Counter()
        self._bytes: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def bytes_read(self) -> int:
        """Bytes of the values that were read."""
        return self._bytes["read"]

    @property
    def bytes_written(self) -> int:
        """Bytes of the values that were written."""
        return self._bytes["written"]

    async def _before(self, operation: Operation, key: str, value: Any = None) -> None:
        with self._lock:
            self.calls[operation] += 1
            self.keys[operation, key] += 1
            if value is not None:
                self._bytes["written"] += len(value)

    async def _after(self, key: str, value: Any) -> Any:
        if value is not None:
            with self._lock:
                self._bytes["read"] += len(value)
        return value


class SlowStore(_Tapped):
    """Store that waits before every operation on another one.

    Parameters
    ----------
    store : zarr.abc.store.Store
        Store with the data.
    seconds : float
        Wait before each operation.
    jitter : float, default 0.0
        Most further seconds; their number depends on `seed` and the key alone.
    seed : int, default 0
        Key of the jitter.
    """

    remote = True

    def __init__(self, store: Store, seconds: float, *, jitter: float = 0.0, seed: int = 0) -> None:
        super().__init__(store)
        self.seconds = seconds
        self.jitter = jitter
        self.seed = seed

    async def _before(self, operation: Operation, key: str, value: Any = None) -> None:
        del value
        await asyncio.sleep(self.seconds + self.jitter * _uniform(self.seed, operation, key))


@dataclass(frozen=True)
class Fault:
    """One kind of failure, and the operations that fail.

    With `times` and `after` a fault is scripted, with `probability` random; both may be combined. Operations are
    counted for each key, so faults do not depend on the order in which threads read.
    """

    kind: Literal["transient", "timeout", "hang", "permanent", "full", "missing", "truncated", "corrupted"]
    """``transient``: a broken connection; ``timeout``: no connection in time; ``hang``: no answer, ever; ``permanent``:
    no right to access; ``full``: no space left; ``missing``: no such key; ``truncated``: half of the value;
    ``corrupted``: one bit of the value flipped. The last three are faults of reads only."""
    operation: Operation = "get"
    """Operation that fails, default "get"."""
    key: str = "*"
    """Pattern of the keys, as for file names, default "*"; a ``*`` matches slashes too."""
    after: int = 0
    """Operations on a key that pass before the first fails, default 0."""
    times: int | None = 1
    """Operations on a key that fail, default 1; None for all after the first."""
    probability: float = 1.0
    """Probability that such an operation fails, default 1.0."""
    together: bool = False
    """Whether operations of all matching keys are counted together, as for a disk that fills up; default False."""


class FaultyStore(_Tapped):
    """Store that fails on purpose, the same way for the same seed.

    Parameters
    ----------
    store : zarr.abc.store.Store
        Store with the data.
    faults : sequence of Fault, default ()
        Faults; the first that applies to an operation counts.
    seed : int, default 0
        Key of the random draws.

    Attributes
    ----------
    struck : collections.Counter
        Faults so far, by (kind, key).
    """

    def __init__(self, store: Store, faults: Sequence[Fault] = (), *, seed: int = 0) -> None:
        super().__init__(store)
        self.faults = tuple(faults)
        self.seed = seed
        self.struck: Counter[tuple[str, str]] = Counter()
        self._seen: Counter[tuple[int, str, bool]] = Counter()
        self._lock = threading.Lock()

    async def _before(self, operation: Operation, key: str, value: Any = None) -> None:
        del value
        kind = self._strikes(operation, key, ("transient", "timeout", "hang", "permanent", "full"))
        if kind == "transient":
            raise ConnectionResetError(errno.ECONNRESET, "injected fault: connection reset", key)
        if kind == "timeout":
            raise TimeoutError(errno.ETIMEDOUT, "injected fault: timed out", key)
        if kind == "hang":
            await asyncio.Event().wait()
        if kind == "permanent":
            raise PermissionError(errno.EACCES, "injected fault: permission denied", key)
        if kind == "full":
            raise OSError(errno.ENOSPC, "injected fault: no space left on device", key)

    async def _after(self, key: str, value: Any) -> Any:
        if value is None:
            return None
        kind = self._strikes("get", key, ("missing", "truncated", "corrupted"))
        if kind is None:
            return value
        if kind == "missing":
            return None
        data = bytearray(value.to_bytes())
        if kind == "truncated":
            del data[len(data) // 2 :]
        elif data:
            data[int(len(data) * _uniform(self.seed, "byte", key))] ^= 1 << int(8 * _uniform(self.seed, "bit", key))
        return type(value).from_bytes(bytes(data))

    def _strikes(self, operation: Operation, key: str, kinds: tuple[str, ...]) -> str | None:
        with self._lock:
            for index, fault in enumerate(self.faults):
                if fault.kind not in kinds or fault.operation != operation or not fnmatchcase(key, fault.key):
                    continue
                counted = (index, "" if fault.together else key, fault.together)
                number = self._seen[counted]
                self._seen[counted] += 1
                due = number >= fault.after and (fault.times is None or number < fault.after + fault.times)
                if due and _uniform(self.seed, str(index), f"{key} {number}") < fault.probability:
                    self.struck[fault.kind, key] += 1
                    return fault.kind
        return None


def _uniform(seed: int, *names: str) -> float:
    """Draw from [0, 1), a function of seed and names."""
    digest = blake2b(repr((seed, names)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") / 2**64

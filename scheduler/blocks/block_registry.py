"""Registry of the blocks of a worker, by run: each block with its version, behind a fence.

State is keyed by (worker address, run), since one process may host several workers, and within it by block. A block at
version v has applied v messages, and its hash names them. A task carries a token (incarnation, placement epoch). The
worker refuses a lower token than before; with a higher one it drops the blocks that it no longer owns. A message task
neither loads nor replays: it refuses blocks at another version, and the driver sends catch-up tasks.

Covers no placement, see `..execution.dask_executor`, and no effects of messages, see `message_handler` and `block`.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from distkern.storage.arrays.source import BlockSource

from ..protocol.answers import Answer
from ..protocol.messages import GENESIS, Message, Query, canonical, chain, digest
from ..runtime.spillable_matrix import MemoryBudget
from ..runtime.threads import follow_worker
from ..runtime.timings import Costs, MemoryProbe
from ..runtime.tree_reducer import Node
from . import message_handler as handler
from .block import Block

Token = tuple[int, int]
"""(incarnation of the run, placement epoch)."""


@dataclass(frozen=True)
class Fence:
    """The run, worker and token of a task."""

    run_id: str
    worker: str
    """Address of the worker of the task."""
    token: Token
    keep: tuple[int, ...]
    """All blocks that this worker owns."""
    n_blocks: int
    """Blocks of the run."""


@dataclass(frozen=True)
class Refusal:
    """The reason for which a task changed nothing."""

    versions: dict[int, int] = field(default_factory=dict)
    """Version of each block at another version than the task needs; -1 if it is absent or on another chain."""
    stale: bool = False
    """Whether the token was lower than an earlier one."""


@dataclass
class _Held:
    block: Block
    version: int = 0
    hash: bytes = GENESIS


class _RunMemory:
    """Blocks of one run on one worker."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.token: Token = (-1, -1)
        self.held: dict[int, _Held] = {}
        self.budget: MemoryBudget | None = None
        self.unreported = Costs()
        """Costs of replays, to send with the next answer."""
        self._probe = MemoryProbe()

    def admit(self, fence: Fence) -> bool:
        """Check the token; on a higher one drop the blocks that the worker no longer owns."""
        if fence.token < self.token:
            return False
        if fence.token > self.token:
            self.token = fence.token
            self.held = {b: h for b, h in self.held.items() if b in fence.keep}
        return True

    def report(self, worker: str) -> Costs:
        """Return the costs that were not sent yet, with the memory now."""
        costs, self.unreported = self.unreported, Costs()
        budget = self.budget or MemoryBudget()
        return costs.merge(Costs(memory=self._probe.look(worker, budget.used, budget.spilled)))

    def not_at(self, numbers: Sequence[int], state: bytes, version: int) -> dict[int, int]:
        """Return the versions of the blocks that are not in the state named `state` at `version`.

        -1 stands for an absent block, and for a block after as many, but other messages.
        """
        held = {number: self.held.get(number) for number in numbers}
        return {
            n: -1 if h is None or h.version == version else h.version
            for n, h in held.items()
            if h is None or h.hash != state
        }


_memory: dict[tuple[str, str], _RunMemory] = {}
# Reentrant: a lease may be collected, and drop its run, while this thread holds the lock.
_memory_lock = threading.RLock()


def _run_memory(fence: Fence, *, new: bool = False) -> _RunMemory:
    """Return the memory of a run; a late task of a run that was dropped gets an empty one, which nothing keeps."""
    with _memory_lock:
        if new:
            return _memory.setdefault((fence.worker, fence.run_id), _RunMemory())
        return _memory.get((fence.worker, fence.run_id)) or _RunMemory()


def place_blocks(
    fence: Fence,
    source: BlockSource,
    numbers: Sequence[int],
    with_factors: bool = True,
    room: int | None = None,
    read_ahead: int | None = None,
    checksums: Mapping[int, int] | None = None,
) -> Refusal | None:
    """Create blocks at version 0; blocks that the worker already holds are replaced.

    All blocks of a run share the `room` in memory of those that were placed first, and the worker's folder for what is
    beyond it. What a block reads must have its checksum, where one is given.
    """
    known, directory = checksums or {}, follow_worker()
    memory = _run_memory(fence, new=True)
    with memory.lock:
        if not memory.admit(fence):
            return Refusal(stale=True)
        memory.budget = memory.budget or MemoryBudget(room, directory, read_ahead)
        for number in numbers:
            memory.held.pop(number, None)
            block = Block(source, number, with_factors=with_factors, budget=memory.budget, checksum=known.get(number))
            memory.held[number] = _Held(block)
    return None


def run_message(
    fence: Fence, numbers: Sequence[int], version: int, previous: bytes, message: Message
) -> dict[Node, Answer] | Refusal:
    """Apply message number `version` of the log, after the state named `previous`, and answer for `numbers`.

    A block that has already applied the message answers again and does not change. After an exception in an effect,
    blocks that may be half changed are dropped.
    """
    message = canonical(message)
    after = chain(previous, digest(message))
    memory = _run_memory(fence)
    with memory.lock:
        if not memory.admit(fence):
            return Refusal(stale=True)
        wrong: dict[int, int] = {}
        fresh: list[int] = []
        for number in numbers:
            held = memory.held.get(number)
            if held is not None and held.version == version and held.hash == previous:
                fresh.append(number)
            elif held is None or not (held.version == version + 1 and held.hash == after):
                wrong[number] = -1 if held is None or held.version == version else held.version
        if wrong:
            return Refusal(versions=wrong)
        try:
            nodes = handler.apply_message(
                [memory.held[n].block for n in numbers], message, frozenset(fresh), fence.n_blocks
            )
        except BaseException:
            for number in fresh:
                del memory.held[number]
            raise
        for number in fresh:
            memory.held[number].version = version + 1
            memory.held[number].hash = after
        if nodes:
            first = next(iter(nodes.values()))
            first.costs = first.costs.merge(memory.report(fence.worker))
        return nodes


def replay_messages(
    fence: Fence, numbers: Sequence[int], version: int, previous: bytes, messages: Sequence[Message]
) -> Refusal | None:
    """Apply the effects of log messages ``version:version + len(messages)`` to blocks at `version`."""
    messages = [canonical(message) for message in messages]
    after = previous
    for message in messages:
        after = chain(after, digest(message))
    memory = _run_memory(fence)
    with memory.lock:
        if not memory.admit(fence):
            return Refusal(stale=True)
        wrong = memory.not_at(numbers, previous, version)
        if wrong:
            return Refusal(versions=wrong)
        try:
            costs = handler.replay([memory.held[n].block for n in numbers], messages)
            memory.unreported = memory.unreported.merge(costs)
        except BaseException:
            for number in numbers:
                del memory.held[number]
            raise
        for number in numbers:
            memory.held[number].version = version + len(messages)
            memory.held[number].hash = after
    return None


def answer_query(fence: Fence, numbers: Sequence[int], version: int, at: bytes, query: Query) -> Answer | Refusal:
    """Answer a query in the state named `at`, after `version` messages."""
    query = canonical(query)
    memory = _run_memory(fence)
    with memory.lock:
        if not memory.admit(fence):
            return Refusal(stale=True)
        wrong = memory.not_at(numbers, at, version)
        if wrong:
            return Refusal(versions=wrong)
        answer = handler.ask([memory.held[n].block for n in numbers], query)
        answer.costs = answer.costs.merge(memory.report(fence.worker))
        return answer


def drop_run(worker: str, run_id: str, incarnation: int | None = None) -> None:
    """Drop a run on a worker, unless a driver newer than `incarnation` uses it."""
    with _memory_lock:
        memory = _memory.get((worker, run_id))
        if memory is not None and incarnation is not None and memory.token[0] > incarnation:
            return
        _memory.pop((worker, run_id), None)


def held_runs() -> list[tuple[str, str]]:
    """Return the (worker, run) pairs of this process."""
    with _memory_lock:
        return list(_memory)


class Lease:
    """The result of a task that dask keeps; when dask releases it, the worker drops the run."""

    def __init__(self, worker: str, run_id: str, incarnation: int) -> None:
        weakref.finalize(self, drop_run, worker, run_id, incarnation)

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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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

State = tuple[int, bytes]
"""(messages seen, hash that names them)."""


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
    state: State = (0, GENESIS)


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

    def refusal(self, fence: Fence, numbers: Sequence[int], *states: State) -> Refusal | None:
        """Refuse a task whose token is too low, or whose blocks are not all in one of some states."""
        if not self.admit(fence):
            return Refusal(stale=True)
        wrong = {}
        for number in numbers:
            held = self.held.get(number)
            if held is None or held.state not in states:
                wrong[number] = -1 if held is None or held.state[0] == states[0][0] else held.state[0]
        return Refusal(versions=wrong) if wrong else None

    def blocks(self, numbers: Sequence[int]) -> list[Block]:
        """Return blocks that are held."""
        return [self.held[number].block for number in numbers]

    @contextmanager
    def changing(self, numbers: Sequence[int], state: State) -> Iterator[None]:
        """Set blocks to a state; after an exception drop them, since they may be half changed."""
        try:
            yield
        except BaseException:
            for number in numbers:
                del self.held[number]
            raise
        for number in numbers:
            self.held[number].state = state


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
    before, after = (version, previous), (version + 1, chain(previous, digest(message)))
    memory = _run_memory(fence)
    with memory.lock:
        refusal = memory.refusal(fence, numbers, before, after)
        if refusal is not None:
            return refusal
        fresh = [number for number in numbers if memory.held[number].state == before]
        with memory.changing(fresh, after):
            nodes = handler.apply_message(memory.blocks(numbers), message, frozenset(fresh), fence.n_blocks)
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
        refusal = memory.refusal(fence, numbers, (version, previous))
        if refusal is None:
            with memory.changing(numbers, (version + len(messages), after)):
                memory.unreported = memory.unreported.merge(handler.replay(memory.blocks(numbers), messages))
        return refusal


def answer_query(fence: Fence, numbers: Sequence[int], version: int, at: bytes, query: Query) -> Answer | Refusal:
    """Answer a query in the state named `at`, after `version` messages."""
    query = canonical(query)
    memory = _run_memory(fence)
    with memory.lock:
        refusal = memory.refusal(fence, numbers, (version, at))
        if refusal is not None:
            return refusal
        answer = handler.ask(memory.blocks(numbers), query)
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

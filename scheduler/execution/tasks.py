"""The functions that dask workers run; the dashboard shows their keys' names.

A dask task only waits: the work is done by the process's tile pool, as wide as the worker has threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distributed import get_worker

from distkern.storage.arrays.source import BlockSource

from ..blocks import block_registry as memo
from ..blocks.block_registry import Fence, Lease, Refusal
from ..protocol.answers import Answer, merge_answers
from ..protocol.messages import Message, Query
from ..runtime import threads
from ..runtime.spillable_matrix import MemoryBudget
from ..runtime.tree_reducer import Node, TreeReducer


def place_blocks(
    fence: Fence,
    source: BlockSource,
    numbers: Sequence[int],
    with_factors: bool,
    room: int | None,
    checksums: Mapping[int, int],
) -> Refusal | None:
    """Create blocks on this worker, with scratch in its local directory."""
    threads.follow_worker()
    budget = MemoryBudget(room, get_worker().local_directory)
    return memo.place_blocks(fence, source, numbers, with_factors, budget, checksums)


def run_message(
    fence: Fence, numbers: Sequence[int], version: int, previous: bytes, message: Message
) -> dict[Node, Answer] | Refusal:
    """Apply a message and answer."""
    return memo.run_message(fence, numbers, version, previous, message)


def sum_answers(
    n_blocks: int, parts: Sequence[dict[Node, Answer] | Refusal]
) -> tuple[dict[Node, Answer], dict[int, Refusal]]:
    """Sum the answers of several workers as far as the tree allows; refusals come back by position.

    The parts are results that dask keeps, so they are copied before anything is added to them.
    """
    reducer: TreeReducer[Answer] = TreeReducer(n_blocks, merge_answers)
    refusals = {}
    for number, part in enumerate(parts):
        if isinstance(part, Refusal):
            refusals[number] = part
        else:
            reducer.add_nodes({node: answer.copy() for node, answer in part.items()})
    return reducer.nodes(), refusals


def replay_messages(
    fence: Fence, numbers: Sequence[int], version: int, previous: bytes, messages: Sequence[Message]
) -> Refusal | None:
    """Apply the effects of a slice of the log."""
    return memo.replay_messages(fence, numbers, version, previous, messages)


def answer_query(fence: Fence, numbers: Sequence[int], version: int, at: bytes, query: Query) -> Answer | Refusal:
    """Answer a question."""
    return memo.answer_query(fence, numbers, version, at, query)


def hold_lease(run_id: str, incarnation: int, worker: str) -> Lease:
    """Tie the run's memory on this worker to a dask result."""
    return Lease(worker, run_id, incarnation)


def drop_run(run_id: str, incarnation: int) -> None:
    """Forget the run on this worker."""
    memo.drop_run(get_worker().address, run_id, incarnation)

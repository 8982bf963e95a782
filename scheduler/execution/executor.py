"""The protocol of executors, and the serial one, which holds all blocks in this process.

Blocks on workers are in `dask_executor`; `layers` adds events, and factors in the driver.
"""

from __future__ import annotations

from collections.abc import Mapping

from distkern.errors import DistkernError
from distkern.storage.arrays.source import BlockSource

from ..blocks import message_handler as handler
from ..blocks.block import Block
from ..blocks.message_handler import HandedIn
from ..protocol.answers import Answer
from ..protocol.messages import Message, Query, canonical
from ..runtime.spillable_matrix import MemoryBudget
from ..runtime.threads import tile_pool
from ..runtime.timings import Costs, MemoryProbe
from ..runtime.tree_reducer import TreeReducer


class Executor:
    """Runs messages over all blocks of a run, in order, and answers with their sum.

    Parameters
    ----------
    below : Executor
        Gets all calls that a subclass does not override.
    """

    def __init__(self, below: Executor) -> None:
        self._below = below

    @property
    def n_workers(self) -> int:
        """Number of workers that own blocks now."""
        return self._below.n_workers

    @property
    def n_threads(self) -> int:
        """Number of threads that may compute for a message now."""
        return self._below.n_threads

    @property
    def in_process(self) -> bool:
        """Whether all workers are threads of this process."""
        return self._below.in_process

    @property
    def exchanges(self) -> int:
        """Number of exchanges so far: one message to all blocks and their summed answer."""
        return self._below.exchanges

    def exchange(self, message: Message) -> Answer:
        """Send the next message of the log and return the sum of the answers."""
        return self._below.exchange(message)

    def skip(self, message: Message, answer: Answer | None) -> None:
        """Add a message to the log; blocks apply it later, and compare their rows with the checksums of the answer."""
        self._below.skip(message, answer)

    def query(self, query: Query) -> Answer:
        """Return the answers to a query, which changes no state."""
        return self._below.query(query)

    def finish(self) -> None:
        """Close the log: no message follows."""
        self._below.finish()

    def peak_rss(self) -> int:
        """Return the largest resident set of the worker processes so far, in bytes; 0 if blocks are in this process."""
        return self._below.peak_rss()

    def close(self) -> None:
        """Free the run's memory."""
        self._below.close()


THIS_PROCESS = "this process"
"""Name of this process in place of a worker's address."""


class SerialExecutor(Executor):
    """Executor with all blocks in this process.

    Parameters
    ----------
    source : BlockSource
        Training rows.
    with_features : bool
        False where kernel columns are handed in; True by default.
    budget : MemoryBudget, optional
        Memory for row matrices; unlimited by default.
    """

    n_workers = 1
    in_process = True
    exchanges = 0

    def __init__(self, source: BlockSource, *, with_features: bool = True, budget: MemoryBudget | None = None) -> None:
        self._budget = budget = MemoryBudget() if budget is None else budget
        self._unreported, self._probe = Costs(), MemoryProbe()
        self._blocks = [
            Block(source, number, with_features=with_features, budget=budget)
            for number in range(len(source.boundaries) - 1)
        ]
        self._skipped: list[Message] = []

    @property
    def n_threads(self) -> int:
        """Threads of the tile pool."""
        return tile_pool()[1]

    def exchange(self, message: Message, handed_in: HandedIn | None = None) -> Answer:
        """Apply the next message to all blocks and return the sum of the answers."""
        self.exchanges += 1
        self._catch_up()
        numbers = range(len(self._blocks))
        nodes = handler.apply_message(self._blocks, canonical(message), numbers, len(numbers), handed_in)
        answer = total(nodes, len(numbers))
        answer.costs = answer.costs.merge(self._report())
        return answer

    def _report(self) -> Costs:
        costs, self._unreported = self._unreported, Costs()
        return costs.merge(Costs(memory=self._probe.look(THIS_PROCESS, self._budget.used, self._budget.spilled)))

    def skip(self, message: Message, answer: Answer | None) -> None:
        """Keep a message, which takes effect before the next exchange."""
        self._skipped.append(canonical(message))
        if answer is not None and answer.load is not None:
            self.expect(answer.load.checksums)

    def query(self, query: Query) -> Answer:
        """Return the answers to a query, which changes no state."""
        self.exchanges += 1
        self._catch_up()
        return handler.ask(self._blocks, canonical(query))

    def _catch_up(self) -> None:
        if self._skipped:
            skipped, self._skipped = self._skipped, []
            self._unreported = self._unreported.merge(handler.replay(self._blocks, skipped))

    def expect(self, checksums: Mapping[int, int]) -> None:
        """Set the checksums that blocks must read."""
        for block in self._blocks:
            block.checksum = checksums.get(block.number, block.checksum)

    def finish(self) -> None:
        """Do nothing."""

    def peak_rss(self) -> int:
        """Return 0: the blocks are in the process of the driver."""
        return 0

    def close(self) -> None:
        """Free the blocks."""
        self._blocks = []


def total(nodes: dict[tuple[int, int], Answer], n_blocks: int) -> Answer:
    """Return the root of the reduction tree of a run."""
    reducer: TreeReducer[Answer] = TreeReducer(n_blocks, Answer.merge)
    reducer.add_nodes(nodes)
    try:
        return reducer.root()
    except LookupError as error:
        raise DistkernError(f"blocks are missing from an answer: {error}", kind="internal") from None

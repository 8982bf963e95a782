"""Exchanges with many workers: a message goes out once, and answers are summed by tasks, a group at a time.

With a few workers the driver sends each its message and fetches every answer itself. With hundreds that would be
hundreds of megabytes an exchange through one process. So a message is put on the cluster once and handed on there, and
answers stay with the workers until those of a group are complete; one task of the group sums them in the fixed tree,
and the driver fetches the sums. Losing a worker loses the answers it held; they are asked for again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..blocks.block_registry import Refusal
from ..protocol.answers import Answer
from ..runtime.tree_reducer import Node, TreeReducer

CARRY_SECONDS = 2.0
"""How long a worker may take to get a message that it is to hand on."""


class Carried:
    """A message that is on the cluster once, for tasks to take it from there.

    Parameters
    ----------
    client : distributed.Client
        The cluster.
    message : Message
        What to carry.
    workers : callable
        Returns the workers that it may be put on.
    """

    def __init__(self, client: Any, message: Any, workers: Callable[[], list[str]]) -> None:
        self._client = client
        self._message = message
        self._workers = workers
        self._future: Any = None
        self._alone = False

    @property
    def argument(self) -> Any:
        """The message as a dask future, put there again if the worker that had it is gone."""
        if self._alone:
            return self._message
        if self._future is None or self._future.status != "finished":
            transfer = asyncio.run_coroutine_threadsafe(self._put(), self._client.loop.asyncio_loop)
            try:
                self._future = transfer.result(CARRY_SECONDS)
            except OSError:  # the worker that was to have it is leaving, or does not answer: the task brings it along
                transfer.cancel()
                self._alone = True
                return self._message
        return self._future

    def forget(self) -> None:
        """Put the message there anew when it is asked for."""
        self._future, self._alone = None, False

    async def _put(self) -> Any:
        return await self._client.scatter(self._message, workers=self._workers()[:1], hash=False, asynchronous=True)


@dataclass
class TaskChain:
    """Blocks of one worker that go through tasks (place, replay, message) one after another."""

    worker: str
    blocks: tuple[int, ...]
    steps: Iterator[tuple[str, tuple[Any, ...]]] = field(default_factory=lambda: iter(()))
    """Name and call of each task that is still to come."""
    replayed: int = 0
    """Messages of the log that were replayed on the way."""
    began: float = 0.0
    """When the first task of catching up was submitted."""
    caught_up: float = 0.0
    """When the last of those was done."""
    last: bool = True
    """Whether the task under way is the last, whose result is the answer."""

    @property
    def workers(self) -> set[str]:
        """Workers that the tasks cannot do without."""
        return {self.worker}


@dataclass
class SumTask:
    """A task that sums answers which other tasks left on the workers."""

    worker: str
    parts: list[tuple[Any, TaskChain]]
    """Future and task of each answer."""
    last: bool = False

    @property
    def blocks(self) -> tuple[int, ...]:
        """Blocks whose answers are summed."""
        return tuple(block for _, task in self.parts for block in task.blocks)

    @property
    def workers(self) -> set[str]:
        """Workers that the sum cannot do without."""
        return {self.worker, *(task.worker for _, task in self.parts)}


@dataclass
class Gatherer:
    """Answers of one round that wait with their workers until those of a group are complete.

    Parameters
    ----------
    homes : mapping
        Block to worker.
    fan_in : int
        Most workers of a group.
    """

    homes: Mapping[int, str]
    fan_in: int
    waiting: list[tuple[Any, TaskChain]] = field(default_factory=list)

    @property
    def active(self) -> bool:
        """Whether there are more workers than the driver fetches from."""
        return len(set(self.homes.values())) > self.fan_in

    @property
    def blocks(self) -> set[int]:
        """Blocks whose answers wait."""
        return {block for _, task in self.waiting for block in task.blocks}

    def hold(self, future: Any, task: TaskChain) -> None:
        """Leave a finished answer where it is."""
        self.waiting.append((future, task))

    def forget(self, worker: str) -> None:
        """Drop the answers of a worker that is gone."""
        self.waiting = [(future, task) for future, task in self.waiting if task.worker != worker]

    def complete(self, pending: Iterable[TaskChain]) -> list[SumTask]:
        """Take out the groups of which nothing is pending any more."""
        group = self._groups()
        open_groups = {group.get(task.worker) for task in pending}
        ready: dict[int | None, list[tuple[Any, TaskChain]]] = {}
        kept = []
        for future, task in sorted(self.waiting, key=lambda part: part[1].blocks):
            number = group.get(task.worker)
            if number in open_groups:
                kept.append((future, task))
            else:
                ready.setdefault(number, []).append((future, task))
        self.waiting = kept
        return [SumTask(parts[0][1].worker, parts) for parts in ready.values()]

    def _groups(self) -> dict[str, int]:
        """Number of each worker's group: neighbours in the order of their blocks, whose sums merge best."""
        order: dict[str, None] = {}
        for _, worker in sorted(self.homes.items()):
            order.setdefault(worker)
        return {worker: number // self.fan_in for number, worker in enumerate(order)}


def sum_answers(
    n_blocks: int, parts: Sequence[dict[Node, Answer] | Refusal]
) -> tuple[dict[Node, Answer], dict[int, Refusal]]:
    """Sum the answers of several workers as far as the tree allows; refusals come back by position.

    The parts are results that dask keeps, so they are copied before anything is added to them.
    """
    reducer: TreeReducer[Answer] = TreeReducer(n_blocks, Answer.merge)
    refusals = {}
    for number, part in enumerate(parts):
        if isinstance(part, Refusal):
            refusals[number] = part
        else:
            reducer.add_nodes({node: answer.copy() for node, answer in part.items()})
    return reducer.nodes(), refusals

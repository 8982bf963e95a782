"""Exchanges with many workers: a message is sent once, and tasks sum the answers, group by group.

With a few workers the driver sends the message to each and fetches every answer. With hundreds this would send hundreds
of megabytes in each exchange through one process. So the driver puts a message on the cluster once, and workers pass it
on. Answers stay with the workers until those of a group are complete. Then one task of the group sums them in the fixed
tree, and the driver fetches the sums. The answers of a failed worker are lost, and their tasks run again. Covers the
data of a round; `dask_executor` runs the tasks.
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
"""Most time to put a message on a worker."""


class Carried:
    """A message that is on the cluster once, from where tasks fetch it.

    Parameters
    ----------
    client : distributed.Client
        The cluster.
    message : Message
        The message.
    workers : callable
        Returns the workers that may hold it.
    """

    def __init__(self, client: Any, message: Any, workers: Callable[[], list[str]]) -> None:
        self._client = client
        self._message = message
        self._workers = workers
        self._future: Any = None
        self._alone = False

    @property
    def argument(self) -> Any:
        """The message as a dask future, put on the cluster again if its worker failed."""
        if self._alone:
            return self._message
        if self._future is None or self._future.status != "finished":
            transfer = asyncio.run_coroutine_threadsafe(self._put(), self._client.loop.asyncio_loop)
            try:
                self._future = transfer.result(CARRY_SECONDS)
            except OSError:  # the worker is leaving or does not answer: the message is sent with each task
                transfer.cancel()
                self._alone = True
                return self._message
        return self._future

    def forget(self) -> None:
        """Put the message on the cluster again at the next use."""
        self._future, self._alone = None, False

    async def _put(self) -> Any:
        return await self._client.scatter(self._message, workers=self._workers()[:1], hash=False, asynchronous=True)


@dataclass
class TaskChain:
    """Blocks of one worker, and their tasks (place, replay, message) one after another."""

    worker: str
    blocks: tuple[int, ...]
    steps: Iterator[tuple[str, tuple[Any, ...]]] = field(default_factory=lambda: iter(()))
    """Name and call of each further task."""
    replayed: int = 0
    """Number of messages of the log that were replayed."""
    began: float = 0.0
    """Time at which the first task of the catch-up was submitted."""
    caught_up: float = 0.0
    """Time at which the last of them finished."""
    last: bool = True
    """Whether the current task is the last one, whose result is the answer."""

    @property
    def workers(self) -> set[str]:
        """Workers that the tasks need."""
        return {self.worker}


@dataclass
class SumTask:
    """A task that sums the answers of other tasks, which are results on the workers."""

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
        """Workers that the task needs."""
        return {self.worker, *(task.worker for _, task in self.parts)}


@dataclass
class Gatherer:
    """Answers of one round that stay on their workers until those of a group are complete.

    Parameters
    ----------
    owners : mapping
        Block to worker.
    fan_in : int
        Most workers of a group.
    """

    owners: Mapping[int, str]
    fan_in: int
    waiting: list[tuple[Any, TaskChain]] = field(default_factory=list)

    @property
    def active(self) -> bool:
        """Whether there are more workers than the driver itself fetches from."""
        return len(set(self.owners.values())) > self.fan_in

    @property
    def blocks(self) -> set[int]:
        """Blocks whose answers wait."""
        return {block for _, task in self.waiting for block in task.blocks}

    def hold(self, future: Any, task: TaskChain) -> None:
        """Keep a finished answer on its worker."""
        self.waiting.append((future, task))

    def forget(self, worker: str) -> None:
        """Drop the answers of a failed worker."""
        self.waiting = [(future, task) for future, task in self.waiting if task.worker != worker]

    def complete(self, pending: Iterable[TaskChain]) -> list[SumTask]:
        """Remove and return the groups without pending tasks."""
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
        """Return the number of each worker's group: neighbours in the order of their blocks, whose sums merge most."""
        order: dict[str, None] = {}
        for _, worker in sorted(self.owners.items()):
            order.setdefault(worker)
        return {worker: number // self.fan_in for number, worker in enumerate(order)}


def sum_answers(
    n_blocks: int, parts: Sequence[dict[Node, Answer] | Refusal]
) -> tuple[dict[Node, Answer], dict[int, Refusal]]:
    """Sum the answers of several workers as far as the tree allows; return refusals by position.

    The parts are results that dask keeps, so they are copied before they are added up.
    """
    reducer: TreeReducer[Answer] = TreeReducer(n_blocks, Answer.merge)
    refusals = {}
    for number, part in enumerate(parts):
        if isinstance(part, Refusal):
            refusals[number] = part
        else:
            reducer.add_nodes({node: answer.copy() for node, answer in part.items()})
    return reducer.nodes(), refusals

"""Exchanges as one graph of tasks, and with many workers as trees of them.

With a few workers the driver sends the message to each and fetches every answer. With hundreds this would send hundreds
of megabytes in each exchange through one process, and take a future for each worker. So there the message goes down a
tree of workers and the sums of the answers come up the same tree: each node has up to `FAN_IN` children, and is on the
first of its workers. The driver has a future for each of the up to `FAN_IN` trees. A tree uses no other workers than
those that it asks, so the failure of a worker concerns one tree. Covers the data of a round; `dask_executor` runs the
tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distkern.errors import ClusterError

from ..blocks.block_registry import Refusal
from ..clusters.futures import TaskGraph
from ..planning.limits import subtree_size
from ..protocol.answers import Answer
from ..runtime.tree_reducer import Node, TreeReducer


@dataclass
class CatchUp:
    """Blocks of one worker, and the tasks (place, replay) that bring them up to date, one after another."""

    worker: str
    blocks: tuple[int, ...]
    steps: Iterator[tuple[str, tuple[Any, ...]]] = field(default_factory=lambda: iter(()))
    """Name and call of each further task."""
    replayed: int = 0
    """Number of messages of the log that are replayed."""
    began: float = 0.0
    """Time at which the first task was submitted."""

    @property
    def workers(self) -> set[str]:
        """Workers that the tasks need."""
        return {self.worker}


@dataclass(frozen=True)
class Asked:
    """Workers whose answers come by one future: a single one, or those of a tree."""

    members: tuple[tuple[str, tuple[int, ...]], ...]
    """Address and blocks of each."""

    @property
    def summed(self) -> bool:
        """Whether the result is `Summed`."""
        return len(self.members) > 1

    @property
    def blocks(self) -> tuple[int, ...]:
        """Blocks that answer."""
        return tuple(block for _, blocks in self.members for block in blocks)

    @property
    def workers(self) -> set[str]:
        """Workers that the tasks need."""
        return {worker for worker, _ in self.members}


@dataclass(frozen=True)
class Summed:
    """Answers of several workers, summed as far as the fixed tree of the blocks allows."""

    nodes: dict[Node, Answer]
    refusals: dict[int, Refusal]
    """Position of a worker in `Asked` to its refusal."""
    without: dict[Node, tuple[int, ...]] = field(default_factory=dict)
    """Node to the parts (`Answer.parts`) that its answer lacked and others had, before these were added."""


def trees(workers: Sequence[str], fan_in: int) -> list[Sequence[str]]:
    """Split workers, in the order of their blocks, into those of each tree: `fan_in` trees at most.

    Neighbours are in one tree, since their sums merge most.
    """
    # With a fan-in of 1 there is one tree, of pairs.
    size = subtree_size(len(workers), fan_in) if fan_in > 1 else max(len(workers), 1)
    return [workers[start : start + size] for start in range(0, len(workers), size)]


class MessageGraph:
    """The tasks of one message for some workers, and their futures.

    Parameters
    ----------
    name : str
        Name of the message's tasks.
    message : Message or Query
        What is sent.
    n_blocks : int
        Blocks of the run.
    fan_in : int
        Most children of a node of a tree.
    call : callable
        Returns function and arguments of a worker's task without the message, which is the last argument.
    """

    def __init__(
        self, name: str, message: Any, n_blocks: int, fan_in: int, call: Callable[[str, tuple[int, ...]], Any]
    ) -> None:
        self._name = name
        self._message = message
        self._n_blocks = n_blocks
        self._fan_in = max(fan_in, 2)
        self._call = call
        self._graph = TaskGraph()
        self._asked: dict[str, Asked] = {}

    def ask(self, members: Sequence[tuple[str, tuple[int, ...]]]) -> None:
        """Add a tree of workers, or a single one."""
        asked = Asked(tuple(members))
        self._asked[self._node(asked.members, 0, self._message)] = asked

    def submit(self, client: Any) -> dict[Any, Asked]:
        """Submit the tasks; return the futures of all trees."""
        keys = list(self._asked)
        return dict(zip(self._graph.submit(client, keys), self._asked.values(), strict=True)) if keys else {}

    def _node(self, members: tuple[tuple[str, tuple[int, ...]], ...], first: int, message: Any) -> str:
        """Add the tasks of a subtree, whose first worker has position `first`; return the key of its answer."""
        worker, blocks = members[0]
        if len(members) == 1:
            function, *arguments = self._call(worker, blocks)
            return self._graph.add(self._name, worker, function, *arguments, message)
        size = subtree_size(len(members), self._fan_in)
        passed = TaskGraph.result(self._graph.add("pass-message-on", worker, pass_on, message))
        starts = range(0, len(members), size)
        parts = [self._node(members[s : s + size], first + s, passed) for s in starts]
        positions = tuple(first + s for s in starts)
        workers = tuple(members[s][0] for s in starts)
        return self._graph.add(
            "sum-answers", worker, sum_answers, self._n_blocks, positions, workers, *map(TaskGraph.result, parts)
        )


def pass_on(message: Any) -> Any:
    """Return a message, from where workers of a tree fetch it."""
    return message


def sum_answers(
    n_blocks: int,
    positions: Sequence[int],
    workers: Sequence[str],
    *parts: Mapping[Node, Answer] | Refusal | Summed,
) -> Summed:
    """Sum answers of workers, or sums of them, as far as the tree allows.

    The parts are results that dask keeps, so they are copied before they are added up.

    Parameters
    ----------
    n_blocks : int
        Blocks of the run.
    positions : sequence of int
        Position of the first worker of each part.
    workers : sequence of str
        Its address.
    *parts
        The answers.
    """
    try:
        return _summed(n_blocks, positions, parts)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        # Of two answers that do not fit each other either may be the wrong one.
        raise bad_answer(f"one of the workers {', '.join(workers)}", "sum-answers", error) from error


def bad_answer(whose: str, task: str, why: Exception) -> ClusterError:
    """Return the error for an answer that does not fit its message."""
    return ClusterError(
        f"the answer of {whose} to {task} cannot be used: {why}. Its process runs other code than this driver, or "
        "another program answers in its place: restart the workers with the version of the driver; a run that is "
        "recorded can be resumed",
        kind="bad-answer",
    )


def _summed(
    n_blocks: int, positions: Sequence[int], parts: Sequence[Mapping[Node, Answer] | Refusal | Summed]
) -> Summed:
    reducer: TreeReducer[Answer] = TreeReducer(n_blocks, Answer.merge)
    refusals: dict[int, Refusal] = {}
    without: dict[Node, tuple[int, ...]] = {}
    found: list[tuple[Node, Answer]] = []
    for position, part in zip(positions, parts, strict=True):
        if isinstance(part, Refusal):
            refusals[position] = part
            continue
        if isinstance(part, Summed):
            refusals.update(part.refusals)
            without.update(part.without)
        found += (part.nodes if isinstance(part, Summed) else part).items()
    without.update(_lacking(found))
    reducer.add_nodes((node, answer.copy()) for node, answer in found)
    return Summed(reducer.nodes(), refusals, without)


def _lacking(found: Sequence[tuple[Node, Answer]]) -> dict[Node, tuple[int, ...]]:
    """Return the nodes that lack parts of an answer which another node has, with the numbers of these."""
    given = [answer.parts() for _, answer in found]
    every = set().union(*given)
    return {node: tuple(sorted(every - own)) for (node, _), own in zip(found, given, strict=True) if every - own}

"""Answers of workers, compared with their message before they are used: one that does not fit ends the run."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ..blocks.block_registry import Refusal
from ..protocol.answer_checks import AnswerChecks
from ..protocol.answer_types import require_typed
from ..protocol.answers import Answer
from ..protocol.messages import FetchRows, KernelColumns, Message, Query, message_name
from ..runtime.tree_reducer import Node, leaves
from .answer_gathering import Asked, Summed, bad_answer
from .executor import total


def require_fit(
    outcome: Any, task: Asked, message: Message | Query, checks: AnswerChecks, n_blocks: int
) -> dict[int, Refusal]:
    """Return the refusals in the result of a task, by the position of the worker.

    Parameters
    ----------
    outcome : object
        What came.
    task : Asked
        The workers that were asked, and their blocks.
    message : Message or Query
        What they were asked.
    checks : AnswerChecks
        Checks of the run, which have noted the message.
    n_blocks : int
        Blocks of the run.

    Raises
    ------
    ClusterError
        ``bad-answer``: it does not fit the message.
    """
    suspects: Collection[int] = task.blocks
    try:
        refusals = {0: outcome} if isinstance(outcome, Refusal) else {}
        if isinstance(outcome, Summed):
            refusals = outcome.refusals
        require_typed(refusals)
        if isinstance(outcome, Refusal):
            return refusals
        answering = [b for place, (_, part) in enumerate(task.members) if place not in refusals for b in part]
        if isinstance(message, KernelColumns | FetchRows):
            checks.require(message, outcome, answering)
            return refusals
        if isinstance(outcome, Summed):
            for numbers, blocks in leaves(outcome.without, n_blocks):
                suspects = blocks
                checks.require_parts(message, numbers, blocks)
        suspects, found = task.blocks, list[int]()
        for answer, blocks in leaves(outcome.nodes if isinstance(outcome, Summed) else outcome, n_blocks):
            found += blocks
            suspects = blocks
            checks.require(message, answer, blocks)
        if sorted(found) != sorted(answering):
            suspects = set(answering) - set(found) or task.blocks
            raise ValueError(f"it is of the blocks {sorted(found)[:5]}, and {sorted(answering)[:5]} were asked")
    except (AttributeError, TypeError, ValueError) as error:  # a tree of other code sends other fields
        raise bad_answer(_owners(task, suspects), message_name(message), error) from error
    return refusals


def _owners(task: Asked, suspects: Collection[int]) -> str:
    """Return the addresses of the workers that answered for some blocks, the first three of many."""
    found = [worker for worker, blocks in task.members if not set(suspects).isdisjoint(blocks)]
    found = found or sorted(task.workers)
    few = ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
    return f"worker {few}" if len(found) == 1 else f"one of the workers {few}"


def whole_answer(nodes: dict[Node, Answer], message: Message, checks: AnswerChecks, n_blocks: int) -> Answer:
    """Return the sum of the answers of all blocks, which must have all that the message asks for.

    Parameters
    ----------
    nodes : dict
        Answers by the node of the reduction.
    message, checks, n_blocks
        As for `require_fit`, and so are the errors.
    """
    try:
        answer = total(nodes, n_blocks)
        checks.require(message, answer, range(n_blocks), whole=True)
    except ValueError as error:
        raise bad_answer("the workers", message_name(message), error) from error
    checks.take(answer)
    return answer

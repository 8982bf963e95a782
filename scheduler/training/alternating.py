"""Interleaving of problems in one process: while blocks compute for one half, the driver computes for the other.

During an exchange of many problems the tile pool is busy and the driver idle; between two exchanges it is the opposite.
In two halves, each with its own messages, the problems take the same steps, with the same bits. The loop for workers,
where an exchange has a latency, is in `driver_loop`.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from ..execution.executor import Executor
from ..protocol.answers import Answer
from ..protocol.messages import LookaheadStep, ProblemStep, Step
from ..selectors.pool_selector import Selector
from .selection import end_in_time, next_step, receive
from .time_limit import TimeLimit


def run_interleaved(selectors: Sequence[Selector], executor: Executor, limit: TimeLimit) -> None:
    """Step all problems until each has ended, or the time limit ends them.

    Parameters
    ----------
    selectors : sequence of Selector
        One for each problem, after `begin`.
    executor : Executor
        An executor of this process; it gets one message at a time.
    limit : TimeLimit
        End of the paths.

    Raises
    ------
    Cancelled
        A subscriber cancels the training.
    """
    halves: list[Half] = [range(first, len(selectors), 2) for first in (0, 1)]
    under_way: list[tuple[Half, Future[Answer]]] = []
    messenger = ThreadPoolExecutor(1, thread_name_prefix="distkern-interleaved")

    def send(half: Half) -> None:
        steps: list[ProblemStep | LookaheadStep | None] = [None] * len(selectors)
        for problem in half:
            steps[problem] = next_step(selectors[problem])
        going = [problem for problem in half if steps[problem] is not None]
        if going:
            under_way.append((going, messenger.submit(executor.exchange, Step(tuple(steps)))))

    try:
        for half in halves:
            send(half)
        while under_way:
            half, answered = under_way.pop(0)
            parts = answered.result().problems
            for problem in half:
                receive((selectors[problem], parts[problem]))
            end_in_time(selectors, limit)
            send(half)
    finally:
        # A message in progress must end before the state of its blocks is dropped.
        messenger.shutdown(cancel_futures=True)


Half = Sequence[int]
"""Numbers of the problems that have steps in a message."""

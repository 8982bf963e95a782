"""Problems of one process in turns: while the rows of one half are worked on, the driver does the other's algebra.

An exchange of many problems keeps the tile pool busy and the driver idle, and their algebra between two exchanges does
the opposite. In two halves, each by messages of its own, the problems take the same steps to the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from ..execution.executor import Executor
from ..protocol.answers import Answer
from ..protocol.messages import LookaheadStep, ProblemStep, Step
from ..selectors.pool_selector import Selector
from .driver_loop import end_in_time, next_step, receive
from .time_limit import TimeLimit


def run_in_turns(selectors: Sequence[Selector], executor: Executor, limit: TimeLimit) -> None:
    """Step all problems until each has ended, or the time is up.

    Parameters
    ----------
    selectors : sequence of Selector
        One a problem; they have begun.
    executor : Executor
        Whose exchanges cost no latency; it gets a message at a time.
    limit : TimeLimit
        When the paths must end.

    Raises
    ------
    Cancelled
        A subscriber asks for the end.
    """
    halves: list[Half] = [range(first, len(selectors), 2) for first in (0, 1)]
    under_way: list[tuple[Half, Future[Answer]]] = []
    messenger = ThreadPoolExecutor(1, thread_name_prefix="distkern-turns")

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
        # The state that a message under way works on must not be dropped before its end.
        messenger.shutdown(cancel_futures=True)


Half = Sequence[int]
"""Numbers of the problems that have steps in a message."""

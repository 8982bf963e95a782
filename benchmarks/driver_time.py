"""The driver's own time for a panel with the answers of many workers, simulated in one process.

Every worker has one block. Its answers are pickled, as a cluster sends them. Sums of groups are computed as tasks
compute them and do not count as the driver's time. The driver's time is unpickling the sums, adding them, the algebra
of selection, and hashing and pickling the next message.
"""

from __future__ import annotations

import pickle
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import distkern
from distkern.monitoring.events import EventBus
from distkern.scheduler.blocks import block_registry as memo
from distkern.scheduler.blocks.block_registry import Fence
from distkern.scheduler.execution.answer_gathering import sum_answers
from distkern.scheduler.execution.dask_executor import canonical_answers
from distkern.scheduler.execution.executor import total
from distkern.scheduler.planning.limits import FAN_IN
from distkern.scheduler.protocol.messages import Message, canonical
from distkern.scheduler.protocol.run_log import RunLog
from distkern.scheduler.training.driver_loop import train
from distkern.storage import ArraySource


class SimulatedCluster:
    """Workers of one block each, all in this process; a backend that records the driver's time for each exchange."""

    def __init__(self, source: ArraySource) -> None:
        self.exchanges = 0
        self.driver_seconds: list[float] = []
        self.answer_bytes = 0
        self._n = len(source.boundaries) - 1
        self._log = RunLog()
        self._fences = [Fence("simulated", f"worker-{b}", (1, 0), (b,), self._n) for b in range(self._n)]
        for block, fence in enumerate(self._fences):
            memo.place_blocks(fence, source, (block,))
        self._resumed = perf_counter()

    def exchange(self, message: Message) -> Any:
        """Send a message to all workers and sum their answers."""
        self.exchanges += 1
        message = canonical(message)
        version, previous = len(self._log), self._log.hashes[-1]
        self._log.append(message)
        pickle.dumps(message, protocol=5)
        spent = perf_counter() - self._resumed
        replies = [
            pickle.dumps(memo.run_message(fence, (block,), version, previous, message), protocol=5)
            for block, fence in enumerate(self._fences)
        ]
        sums = []
        for start in range(0, self._n, FAN_IN):
            nodes, _ = sum_answers(self._n, [pickle.loads(r) for r in replies[start : start + FAN_IN]])
            sums.append(pickle.dumps(nodes, protocol=5))
        self.answer_bytes = max(self.answer_bytes, sum(map(len, sums)))
        self._resumed = perf_counter()
        nodes = {}
        for part in sums:
            nodes.update(canonical_answers(pickle.loads(part)))
        answer = total(nodes, self._n)
        self.driver_seconds.append(spent)
        return answer

    def finish(self) -> None:
        """Do nothing: no message follows."""

    def close(self) -> None:
        """Drop the state of the run."""
        for fence in self._fences:
            memo.drop_run(fence.worker, fence.run_id)


def run(workers: int, centers: int, rows_a_worker: int = 64) -> list[dict[str, Any]]:
    """Select `centers` centres and report the driver's time over the last quarter of the path."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((workers * rows_a_worker, 10))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(len(X))
    source = ArraySource(X, y, boundaries=tuple(range(0, len(X) + 1, rows_a_worker)))
    job = distkern.OROLSRegressor(sigma=2.0, max_centers=centers, stop=None).training_job()
    cluster = SimulatedCluster(source)
    try:
        result = train(job, source, cluster, EventBus())
    finally:
        cluster.close()
    # The time of an exchange ends when the next message is sent; a panel has two exchanges.
    late = cluster.driver_seconds[-(len(cluster.driver_seconds) // 4) :]
    return [
        {
            "workers": workers,
            "centers": len(result.history),
            "exchanges": cluster.exchanges,
            "largest sums MB": cluster.answer_bytes / 1e6,
            "driver ms a panel, median": 2e3 * median(late),
            "driver ms a panel, largest": 2e3 * max(late),
        }
    ]

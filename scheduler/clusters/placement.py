"""Assignment of blocks to workers: contiguous ranges, moved as little as possible.

`..execution.worker_pool` decides when to assign and reassign.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace


def place(n_blocks: int, workers: Sequence[str], before: Mapping[int, str] | None = None) -> dict[int, str]:
    """Assign every block to an owner.

    Parameters
    ----------
    n_blocks : int
        Number of blocks of the run.
    workers : sequence of str
        Addresses of live workers, at least one.
    before : mapping, optional
        Owners so far, which keep their place in the order of the ranges; none by default.

    Returns
    -------
    dict
        Block number to address; ranges are contiguous, and their sizes differ by one at most.
    """
    first: dict[str, int] = {}
    for block, worker in sorted((before or {}).items()):
        first.setdefault(worker, block)
    order = sorted(workers, key=lambda worker: (first.get(worker, n_blocks), worker))[: max(n_blocks, 1)]
    return {block: order[block * len(order) // n_blocks] for block in range(n_blocks)}


def reassign(owners: Mapping[int, str], lost: str, workers: Sequence[str]) -> dict[int, str]:
    """Assign the blocks of a lost worker to `workers`; all other blocks keep their owners.

    The blocks move in contiguous parts, most of them to the workers with the fewest blocks.
    """
    orphans = sorted(block for block, worker in owners.items() if worker == lost)
    kept = {block: worker for block, worker in owners.items() if worker != lost}
    load = Counter(kept.values())
    shares = dict.fromkeys(workers, 0)
    fewest = [(load[worker], worker) for worker in workers]
    heapify(fewest)
    for _ in orphans:
        blocks, worker = fewest[0]
        shares[worker] += 1
        heapreplace(fewest, (blocks + 1, worker))
    start = 0
    for worker in sorted(workers):
        for block in orphans[start : start + shares[worker]]:
            kept[block] = worker
        start += shares[worker]
    return kept


def owned(owners: Mapping[int, str]) -> dict[str, tuple[int, ...]]:
    """Return the blocks of each worker, ascending; workers in the order of their first blocks."""
    blocks: dict[str, list[int]] = {}
    for block, worker in sorted(owners.items()):
        blocks.setdefault(worker, []).append(block)
    return {worker: tuple(numbers) for worker, numbers in blocks.items()}

"""Which worker looks after which blocks: contiguous ranges, moved as little as possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def place(n_blocks: int, workers: Sequence[str], before: Mapping[int, str] | None = None) -> dict[int, str]:
    """Give every block a home.

    Parameters
    ----------
    n_blocks : int
        Blocks of the run.
    workers : sequence of str
        Addresses of live workers, at least one.
    before : mapping, optional
        Homes so far; a worker keeps its place in the order of the ranges.

    Returns
    -------
    dict
        Block number to address; ranges are contiguous and their sizes differ by one at most.
    """
    first: dict[str, int] = {}
    for block, worker in sorted((before or {}).items()):
        first.setdefault(worker, block)
    order = sorted(workers, key=lambda worker: (first.get(worker, n_blocks), worker))[: max(n_blocks, 1)]
    return {block: order[block * len(order) // n_blocks] for block in range(n_blocks)}


def rehome(homes: Mapping[int, str], lost: str, workers: Sequence[str]) -> dict[int, str]:
    """Share the blocks of a lost worker among `workers`, leaving all others where they are.

    The orphans go in contiguous parts, most to the workers that have least.
    """
    orphans = sorted(block for block, worker in homes.items() if worker == lost)
    kept = {block: worker for block, worker in homes.items() if worker != lost}
    load = {worker: sum(home == worker for home in kept.values()) for worker in workers}
    shares = dict.fromkeys(workers, 0)
    for _ in orphans:
        least = min(workers, key=lambda worker: (load[worker] + shares[worker], worker))
        shares[least] += 1
    start = 0
    for worker in sorted(workers):
        for block in orphans[start : start + shares[worker]]:
            kept[block] = worker
        start += shares[worker]
    return kept


def blocks_of(homes: Mapping[int, str], worker: str) -> tuple[int, ...]:
    """Blocks whose home is `worker`, ascending."""
    return tuple(sorted(block for block, home in homes.items() if home == worker))

"""Floating-point operations of a training's matrix products, from its widths and its rounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from distkern.scheduler.settings import SelectionSettings


def selection_flops(
    accepted: Iterable[int],
    settings: SelectionSettings,
    n_rows: int,
    n_features: int,
    n_targets: int,
    *,
    refreshed: Iterable[int] = (),
) -> dict[str, float]:
    """Count the operations of one problem of a pool selection, two for each multiplication and addition.

    A round is two exchanges. The first forms a panel from the pool (not while it is filled), computes the kernel
    columns of a batch of candidates and takes the products of both with Q; the second appends the panel to Q, with
    its second pass, projects the batch against Q, and takes its products with the pool. The pool is filled before
    the first round in ``pool / batch`` such pairs. The last round ends with its first exchange: nobody asks for
    the rows of Q after the last centre.

    Parameters
    ----------
    accepted : iterable of int
        Centres accepted in each round that accepted any, in order.
    settings : SelectionSettings
        Widths of pool, panel and batch.
    n_rows, n_features, n_targets : int
        M, d and T.
    refreshed : iterable of int
        Rounds, counted from 1, after which S was computed anew from the rows.

    Returns
    -------
    dict
        Operations by kind: ``kernel``, ``cross``, ``projection``, ``append``, ``form``, ``pool``, ``refresh``,
        ``residual``.
    """
    pool, panel, batch, d = settings.pool, settings.panel, settings.batch, n_features
    targets = max(n_targets, 2)
    count: Counter[str] = Counter()
    rounds = list(accepted)
    again = set(refreshed)
    draws = not settings.all_rows

    def first(columns: int, new: bool, formed: int) -> None:
        if formed:
            count["form"] += formed * panel + panel * pool
        if new:
            count["kernel"] += d * batch
        count["cross"] += columns * (panel + batch) + panel * (panel + batch)
        count["residual"] += panel * targets

    def second(columns: int, new: bool, appended: int) -> None:
        if appended:
            count["append"] += panel * appended + columns * appended
            count["residual"] += n_targets * appended
        if new:
            count["projection"] += (columns + appended) * batch
            count["pool"] += pool * batch
            count["residual"] += targets * batch

    for _ in range(-(-pool // batch)):
        first(1, True, 0)
        second(1, True, 0)
    columns = 1
    for number, p in enumerate(rounds, start=1):
        first(columns, draws, p)
        if number < len(rounds):
            second(columns, draws, p)
            if number in again:
                count["refresh"] += pool * pool + pool * targets
        columns += p
    return {kind: 2.0 * n_rows * operations for kind, operations in count.items()}

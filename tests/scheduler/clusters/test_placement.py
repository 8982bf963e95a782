from __future__ import annotations

from collections import Counter
from itertools import groupby

from hypothesis import assume, example, given
from hypothesis import strategies as st

from distkern.scheduler.clusters.placement import owned, place, reassign

names = st.integers(0, 11).map("tcp://{}".format)
workers = st.lists(names, min_size=1, max_size=8, unique=True)
blocks = st.integers(0, 40)


def loads(owners: dict[int, str], live: list[str]) -> list[int]:
    count = Counter(owners.values())
    return [count[worker] for worker in live]


@given(blocks, workers, st.one_of(st.none(), st.dictionaries(st.integers(0, 39), names)))
def test_place(n: int, live: list[str], before: dict[int, str] | None) -> None:
    owners = place(n, live, before)
    assert sorted(owners) == list(range(n))
    assert set(owners.values()) <= set(live)
    assert len(list(groupby(owners[block] for block in range(n)))) == len(set(owners.values()))
    held = loads(owners, live)
    assert max(held) - min(held) <= 1
    assert place(n, live[::-1], before) == owners


@given(blocks, workers)
@example(2, ["tcp://0", "tcp://1", "tcp://2", "tcp://3"])
def test_placing_again_moves_nothing(n: int, live: list[str]) -> None:
    owners = place(n, live)
    assert place(n, live, owners) == owners


@given(blocks, workers, names)
def test_a_worker_that_joins_keeps_the_others_in_order(n: int, live: list[str], joined: str) -> None:
    assume(joined not in live)
    before = place(n, live)
    after = place(n, [joined, *live], before)
    order = list(dict.fromkeys(before[b] for b in range(n)))
    assert [w for w in dict.fromkeys(after[b] for b in range(n)) if w in order] == order
    if n > len(live):
        assert joined in after.values()


@given(blocks, st.lists(names, min_size=2, max_size=8, unique=True), st.data())
def test_reassignment_moves_the_orphans_only(n: int, everyone: list[str], data: st.DataObject) -> None:
    owners = {block: data.draw(st.sampled_from(everyone)) for block in range(n)}
    lost, *live = everyone
    after = reassign(owners, lost, live)
    assert sorted(after) == list(range(n))
    assert set(after.values()) <= set(live)
    for block, worker in owners.items():
        assert worker == lost or after[block] == worker
    orphans = [block for block in range(n) if owners[block] == lost]
    parts = [after[block] for block in orphans]
    assert len(list(groupby(parts))) == len(set(parts))


@given(blocks, st.lists(names, min_size=2, max_size=8, unique=True), st.data())
def test_reassignment_balances_the_load(n: int, everyone: list[str], data: st.DataObject) -> None:
    owners = {block: data.draw(st.sampled_from(everyone)) for block in range(n)}
    lost, *live = everyone
    after = reassign(owners, lost, live)
    before, held = loads(owners, live), loads(after, live)
    # Whoever got something has no more than one block above whoever has least.
    for had, has in zip(before, held, strict=True):
        assert has == had or has <= min(held) + 1


@given(blocks, st.lists(names, min_size=3, max_size=8, unique=True))
def test_losing_all_but_one_worker(n: int, everyone: list[str]) -> None:
    owners = place(n, everyone)
    live = sorted(everyone)
    while len(live) > 1:
        lost = live.pop()
        owners = reassign(owners, lost, live)
        held = loads(owners, live)
        assert max(held) - min(held) <= 1
    assert owners == dict.fromkeys(range(n), live[0])


@given(blocks, workers)
def test_blocks_by_owner(n: int, live: list[str]) -> None:
    owners = place(n, live)
    blocks = owned(owners)
    assert {block: worker for worker, part in blocks.items() for block in part} == owners
    assert all(list(part) == sorted(part) for part in blocks.values())
    assert [part[0] for part in blocks.values()] == sorted(part[0] for part in blocks.values())

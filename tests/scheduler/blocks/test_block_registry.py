from __future__ import annotations

import gc
import itertools
import pickle
import threading
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distkern.monitoring.events import EventBus
from distkern.scheduler.blocks import block_registry as memo
from distkern.scheduler.blocks.block_registry import Fence, Lease, Refusal
from distkern.scheduler.execution.executor import Executor, SerialExecutor, total
from distkern.scheduler.protocol.answers import Answer
from distkern.scheduler.protocol.messages import FetchRows, Message, Step
from distkern.scheduler.protocol.run_log import RunLog
from distkern.scheduler.runtime.spillable_matrix import RowMatrix
from distkern.scheduler.training.driver_loop import train
from distkern.storage import ArraySource
from tests.scheduler.trainings import make_classes, make_job, make_source

N_BLOCKS = 5
ALL = tuple(range(N_BLOCKS))


def data() -> tuple[Any, Any, Any]:
    X, y = make_classes(200, seed=2)
    weights = np.random.default_rng(0).integers(0, 3, 200).astype(float)
    return X, y, weights


def source() -> ArraySource:
    return make_source(*data(), rows=40)


class Recorder(Executor):
    """Keeps the messages of a training, and what came back."""

    def __init__(self, executor: SerialExecutor) -> None:
        super().__init__(executor)
        self.log = RunLog()
        self.answers: list[bytes] = []

    def exchange(self, message: Message) -> Answer:
        self.log.append(message)
        answer = super().exchange(message)
        self.answers.append(answer_bits(answer))
        return answer


@cache
def recorded() -> tuple[RunLog, tuple[bytes, ...], bytes]:
    """The log, the answers and the final state of a training of two problems with held-out rows."""
    job = make_job(
        classification=True, multiclass="one-vs-rest", stop="validation", patience=8, max_centers=20, sampler="mixture"
    )
    executor = SerialExecutor(source())
    recorder = Recorder(executor)
    train(job, source(), recorder, EventBus())
    return recorder.log, tuple(recorder.answers), state_bits(executor._blocks)


def bits(value: Any) -> Any:
    """The value as something that compares bit for bit, whatever the memory layout."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tolist() if value.dtype.hasobject else value.tobytes()
    if isinstance(value, dict):
        return {key: bits(item) for key, item in value.items()}
    if isinstance(value, RowMatrix):
        return bits(value.whole())
    if isinstance(value, (list, tuple)):
        return [bits(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: bits(getattr(value, name)) for name, field in value.__dataclass_fields__.items() if field.compare}
    return value


def answer_bits(answer: Any) -> bytes:
    return repr(bits(answer)).encode()


def state_bits(blocks: list[Any]) -> bytes:
    """Everything a block's answers can depend on."""
    state = [
        [
            {name: bits(getattr(problem, name)) for name in ("work", "pool", "residual", "taken", "slabs", "n_columns")}
            | {"validation": sorted(bits(problem.validation).items())}
            for problem in block.problems
        ]
        for block in blocks
    ]
    return repr(state).encode()


class Worker:
    """Calls the memo as one worker's tasks do."""

    def __init__(self, address: str = "tcp://w", run_id: str = "run", blocks: tuple[int, ...] = ALL) -> None:
        self.address, self.run_id, self.blocks = address, run_id, blocks
        self.token = (1, 0)
        self.log = recorded()[0]

    def fence(self, token: tuple[int, int] | None = None, keep: tuple[int, ...] | None = None) -> Fence:
        return Fence(self.run_id, self.address, token or self.token, self.blocks if keep is None else keep, N_BLOCKS)

    def place(self, blocks: Any = None, source_: Any = None, **fence: Any) -> Refusal | None:
        return memo.place_blocks(self.fence(**fence), source_ or source(), blocks or self.blocks)

    def run(self, version: int, blocks: Any = None, **fence: Any) -> Any:
        return memo.run_message(
            self.fence(**fence),
            blocks or self.blocks,
            version,
            self.log.hashes[version],
            self.log.messages[version],
        )

    def replay(self, first: int, last: int, blocks: Any = None, **fence: Any) -> Refusal | None:
        return memo.replay_messages(
            self.fence(**fence),
            blocks or self.blocks,
            first,
            self.log.hashes[first],
            self.log.messages[first:last],
        )

    def ask(self, version: int, rows: Any, blocks: Any = None) -> Any:
        return memo.answer_query(
            self.fence(), blocks or self.blocks, version, self.log.hashes[version], FetchRows(np.array(rows))
        )

    def at(self, version: int) -> Worker:
        assert self.place() is None
        assert self.replay(0, version) is None
        return self

    @property
    def held(self) -> dict[int, Any]:
        return memo._memory[self.address, self.run_id].held

    def state(self) -> bytes:
        return state_bits([held.block for _, held in sorted(self.held.items())])


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    assert memo.held_runs() == []
    yield
    for worker, run in memo.held_runs():
        memo.drop_run(worker, run)
    assert memo.held_runs() == []


def test_messages_in_order_give_the_serial_training() -> None:
    log, answers, final = recorded()
    assert len(log) > 10
    worker = Worker()
    assert worker.place() is None
    for version in range(len(log)):
        nodes = worker.run(version)
        assert len(nodes) == 1
        assert answer_bits(total(nodes, N_BLOCKS)) == answers[version]
    assert worker.state() == final


def test_a_repeat_is_answered_again_without_a_change() -> None:
    log, answers, final = recorded()
    worker = Worker()
    worker.place()
    for version in range(len(log)):
        worker.run(version)
        before = worker.state()
        for _ in range(2):
            assert answer_bits(total(worker.run(version), N_BLOCKS)) == answers[version]
        assert worker.state() == before
        assert {held.state[0] for held in worker.held.values()} == {version + 1}
    assert worker.state() == final


def test_some_blocks_may_have_the_message_already() -> None:
    log, answers, final = recorded()
    worker = Worker()
    worker.place()
    for version in range(len(log)):
        worker.run(version, blocks=(1, 2, 4))
        assert answer_bits(total(worker.run(version), N_BLOCKS)) == answers[version]
    assert worker.state() == final


@given(st.data())
def test_any_history_of_calls_ends_in_the_same_state(data: st.DataObject) -> None:
    """Messages late, early, twice, to some blocks only; replays of wrong slices; blocks placed anew."""
    log, answers, _ = recorded()
    n = min(len(log), 9)
    worker = Worker()
    worker.place()
    model = dict.fromkeys(ALL, 0)  # block -> version
    try:
        for _ in range(data.draw(st.integers(1, 12))):
            blocks = tuple(sorted(data.draw(st.sets(st.sampled_from(ALL), min_size=1))))
            version = data.draw(st.integers(0, n - 1))
            kind = data.draw(st.sampled_from(["run", "replay", "place"]))
            if kind == "place":
                worker.place(blocks=blocks)
                model |= dict.fromkeys(blocks, 0)
                continue
            last = version + 1 if kind == "run" else data.draw(st.integers(version, n))
            accepted = {version} if kind == "replay" else {version, version + 1}
            wrong = {block: model[block] for block in blocks if model[block] not in accepted}
            got = worker.run(version, blocks) if kind == "run" else worker.replay(version, last, blocks)
            if wrong:
                assert got == Refusal(versions=wrong)
            else:
                assert not isinstance(got, Refusal)
                model |= dict.fromkeys(blocks, last)
            assert {block: held.state[0] for block, held in worker.held.items()} == model
        for block in ALL:
            assert worker.replay(model[block], n - 1, (block,)) is None if model[block] < n else True
        if all(version < n for version in model.values()):
            assert answer_bits(total(worker.run(n - 1), N_BLOCKS)) == answers[n - 1]
    finally:
        memo.drop_run("tcp://w", "run")


def test_replay_gives_the_same_bits() -> None:
    log, answers, final = recorded()
    for cuts in ([0, len(log)], [0, 1, 2, 3, len(log)], [0, 5, 6, 9, len(log)], list(range(len(log) + 1))):
        worker = Worker()
        worker.place()
        for first, last in itertools.pairwise(cuts):
            assert worker.replay(first, last) is None
        assert worker.state() == final
        assert answer_bits(total(worker.run(len(log) - 1), N_BLOCKS)) == answers[-1]


def test_replay_on_another_worker_in_the_middle() -> None:
    log, answers, final = recorded()
    one, other = Worker(blocks=(0, 1, 2)), Worker("tcp://other", blocks=(3, 4))
    one.place()
    other.place()
    half = len(log) // 2
    for version in range(half):
        nodes = one.run(version) | other.run(version)
        assert answer_bits(total(nodes, N_BLOCKS)) == answers[version]
    memo.drop_run(other.address, other.run_id)
    one.blocks, one.token = ALL, (1, 1)
    assert one.run(half) == Refusal(versions={3: -1, 4: -1})
    one.place((3, 4))
    assert one.replay(0, half, (3, 4)) is None
    for version in range(half, len(log)):
        assert answer_bits(total(one.run(version), N_BLOCKS)) == answers[version]
    assert one.state() == final


def test_blocks_that_are_absent_behind_or_ahead_are_refused_with_their_version() -> None:
    worker = Worker().at(4)
    del worker.held[2]
    before = worker.state()
    assert worker.run(6) == Refusal(versions={0: 4, 1: 4, 2: -1, 3: 4, 4: 4})
    assert worker.run(2, blocks=(0, 2)) == Refusal(versions={0: 4, 2: -1})
    assert worker.replay(3, 6, blocks=(0, 2)) == Refusal(versions={0: 4, 2: -1})
    assert worker.replay(5, 6, blocks=(1,)) == Refusal(versions={1: 4})
    assert worker.ask(3, [0], blocks=(0, 2)) == Refusal(versions={0: 4, 2: -1})
    # One block that is wrong refuses the task for all: none has changed.
    assert worker.run(4) == Refusal(versions={2: -1})
    assert worker.state() == before
    assert not isinstance(worker.run(4, blocks=(0, 1, 3, 4)), Refusal)


@pytest.mark.parametrize("call", ["run", "replay"])
def test_a_block_on_another_chain_is_refused_as_absent(call: str) -> None:
    """Its version says nothing about what it has seen: only starting over helps, as for an absent block."""
    worker = Worker().at(4)
    worker.held[1].state = worker.held[1].state[0], b"another history!"
    got = worker.run(4) if call == "run" else worker.replay(4, 6)
    assert got == Refusal(versions={1: -1})


def test_a_block_that_saw_another_message_is_refused() -> None:
    worker = Worker().at(4)
    worker.run(4)
    assert isinstance(recorded()[0].messages[3], Step)
    got = memo.run_message(worker.fence(), ALL, 4, worker.log.hashes[4], worker.log.messages[3])
    assert isinstance(got, Refusal)
    assert sorted(got.versions) == list(ALL)
    assert not isinstance(worker.run(4), Refusal)


def test_queries_change_nothing() -> None:
    worker = Worker().at(3)
    before = worker.state()
    X = data()[0]
    rows = [int(held.block.data.rows[1]) for held in worker.held.values()]
    fetched = worker.ask(3, rows).rows
    np.testing.assert_array_equal([fetched[row] for row in rows], X[rows])
    assert worker.state() == before


def test_a_stale_token_is_refused() -> None:
    worker = Worker().at(3)
    before = worker.state()
    worker.token = (1, 1)
    worker.run(3)
    after = worker.state()
    assert after != before
    for token in ((1, 0), (0, 99)):
        for got in (
            worker.run(4, token=token),
            worker.replay(4, 5, token=token),
            worker.place(token=token),
            memo.answer_query(worker.fence(token), ALL, 4, worker.log.hashes[4], FetchRows(np.array([1]))),
        ):
            assert got == Refusal(stale=True)
    assert worker.state() == after
    assert not isinstance(worker.run(4), Refusal)


def test_a_higher_token_drops_the_blocks_that_are_not_kept() -> None:
    worker = Worker().at(4)
    assert not isinstance(worker.run(4, blocks=(1, 3), keep=(1, 3), token=(1, 1)), Refusal)
    assert sorted(worker.held) == [1, 3]
    # The same token again drops nothing, whatever it says about keeping.
    worker.run(5, blocks=(1,), keep=(1,), token=(1, 1))
    assert sorted(worker.held) == [1, 3]
    # A new incarnation is higher than any epoch of the old one.
    worker.run(5, blocks=(3,), keep=(3,), token=(2, 0))
    assert sorted(worker.held) == [3]


class Failing(ArraySource):
    """Raises on demand when a block is read."""

    fail: set[int]

    def read_features(self, block: int) -> Any:
        if block in self.fail:
            raise MemoryError(f"no room for block {block}")
        return super().read_features(block)


def failing(*blocks: int) -> Failing:
    X, y, weights = data()
    made = Failing(X, y, weights, boundaries=(*range(0, 200, 40), 200))
    made.fail = set(blocks)
    return made


@pytest.mark.parametrize("call", ["run", "replay"])
def test_an_exception_inside_an_effect_drops_the_blocks(call: str) -> None:
    worker, faulty = Worker(), failing(3)
    worker.place(source_=faulty)
    worker.run(0, blocks=(0,))
    torn = ALL if call == "replay" else (1, 2, 3, 4)
    if call == "replay":
        worker.place((0,), faulty)
    with pytest.raises(MemoryError, match="block 3"):
        worker.run(0) if call == "run" else worker.replay(0, 2)
    assert sorted(worker.held) == sorted(set(ALL) - set(torn))
    assert worker.run(1, blocks=torn) == Refusal(versions=dict.fromkeys(torn, -1))
    faulty.fail.clear()
    worker.place(torn, faulty)
    worker.replay(0, 1, torn)
    _log, answers, _ = recorded()
    assert answer_bits(total(worker.run(1), N_BLOCKS)) == answers[1]


def test_an_exception_between_q_and_e_drops_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    from distkern.scheduler.blocks import pool_tiles as tiles

    log, answers, final = recorded()
    version = next(n for n, m in enumerate(log.messages) if isinstance(m, Step) and m.problems[0].append is not None)
    worker = Worker().at(version)
    whole, calls = tiles.finish, []

    def torn(state: Any, tile: Any, *rest: Any) -> None:
        whole(state, tile, *rest)
        calls.append(tile)
        if len(calls) == 4:
            raise MemoryError("between Q and E")

    monkeypatch.setattr(tiles, "finish", torn)
    with pytest.raises(MemoryError, match="between"):
        worker.run(version)
    monkeypatch.undo()
    assert worker.held == {}
    worker.place()
    worker.replay(0, version)
    for later in range(version, len(log)):
        assert answer_bits(total(worker.run(later), N_BLOCKS)) == answers[later]
    assert worker.state() == final


def test_runs_and_workers_are_apart() -> None:
    one, other, third = Worker(), Worker("tcp://other"), Worker(run_id="another")
    one.at(5)
    other.at(2)
    third.at(3)
    assert sorted(memo.held_runs()) == [("tcp://other", "run"), ("tcp://w", "another"), ("tcp://w", "run")]
    assert third.run(5) == Refusal(versions=dict.fromkeys(ALL, 3))
    memo.drop_run("tcp://w", "run")
    memo.drop_run("tcp://w", "never seen")
    assert sorted(memo.held_runs()) == [("tcp://other", "run"), ("tcp://w", "another")]
    assert one.run(5) == Refusal(versions=dict.fromkeys(ALL, -1))


def test_memory_is_freed_with_its_lease() -> None:
    worker = Worker().at(3)
    lease = Lease(worker.address, worker.run_id, 1)
    gc.collect()
    assert memo.held_runs() == [("tcp://w", "run")]
    del lease
    gc.collect()
    assert memo.held_runs() == []


def test_an_older_driver_frees_nothing_of_a_newer_one() -> None:
    worker = Worker()
    older = Lease(worker.address, worker.run_id, 0)
    worker.at(3)
    del older
    gc.collect()
    memo.drop_run(worker.address, worker.run_id, 0)
    assert memo.held_runs() == [("tcp://w", "run")]
    memo.drop_run(worker.address, worker.run_id, 1)
    assert memo.held_runs() == []


def test_a_lease_that_dies_inside_the_memo_does_not_hang() -> None:
    """The finalizer runs wherever the collector runs, also while the memo's own lock is held."""
    Worker().at(1)
    cycle: list[Any] = [Lease("tcp://w", "run", 1)]
    cycle.append(cycle)

    def collect_under_lock() -> None:
        with memo._memory_lock:
            cycle.clear()
            gc.collect()

    thread = threading.Thread(target=collect_under_lock, daemon=True)
    thread.start()
    thread.join(5)
    assert not thread.is_alive()
    assert memo.held_runs() == []


def test_a_refusal_travels() -> None:
    refusal = Refusal(versions={3: -1}, stale=True)
    assert pickle.loads(pickle.dumps(refusal)) == refusal


def test_concurrent_repeats_have_one_effect() -> None:
    _log, answers, _ = recorded()
    worker = Worker().at(4)
    answers_seen: list[Any] = []
    threads = [threading.Thread(target=lambda: answers_seen.append(worker.run(4))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer_bits(total(nodes, N_BLOCKS)) for nodes in answers_seen] == [answers[4]] * 4
    worker.run(5)
    assert {held.state[0] for held in worker.held.values()} == {6}

"""Questions about steps decide who is stuck; a fake clock and fake answers drive them."""

from __future__ import annotations

from concurrent.futures import Future

from distkern.scheduler.clusters.step_watch import ASK_SECONDS, StepWatch
from distkern.scheduler.runtime.timings import OTHER, READ, Activity, Stopwatch, activity, busy

WORKER, OTHER_WORKER = "tcp://a:1", "tcp://b:1"
STUCK = 100.0


class Watched:
    """A watch with a clock that is set by hand, and workers that answer at once."""

    def __init__(self) -> None:
        self.now = 50.0
        self.asked: list[str] = []
        self.activity: dict[str, Activity | Exception] = {
            WORKER: Activity(1, 0),
            OTHER_WORKER: Activity(1, 0),
        }
        self.watch = StepWatch(self._ask, STUCK, lambda: self.now)

    def _ask(self, worker: str) -> Future[Activity | Exception]:
        self.asked.append(worker)
        future: Future[Activity | Exception] = Future()
        future.set_result(self.activity[worker])
        return future

    def pass_by(self, seconds: float, *stepping: str) -> None:
        """Look every second while the named workers make steps."""
        for _ in range(round(seconds)):
            self.now += 1.0
            for worker in stepping:
                found = self.activity[worker]
                assert isinstance(found, Activity)
                self.activity[worker] = Activity(found.working, found.steps + 1)
            self.watch.look([WORKER, OTHER_WORKER])


def test_a_worker_without_steps_is_stuck_and_others_are_not() -> None:
    watched = Watched()
    watched.pass_by(STUCK - 1, OTHER_WORKER)
    assert watched.watch.stuck == set()
    watched.pass_by(ASK_SECONDS, OTHER_WORKER)
    assert watched.watch.stuck == {WORKER}
    # Its blocks belong to others now; it is asked all the same, and used again when it has gone on.
    watched.activity[WORKER] = Activity(0, 7)
    for _ in range(round(ASK_SECONDS) + 1):
        watched.now += 1.0
        watched.watch.look([OTHER_WORKER])
    assert WORKER not in watched.watch.stuck


def test_a_worker_without_work_waits_for_others_and_is_not_stuck() -> None:
    watched = Watched()
    watched.activity[OTHER_WORKER] = Activity(0, 5)
    watched.pass_by(3 * STUCK)
    assert watched.watch.stuck == {WORKER}


def test_each_worker_is_asked_now_and_then() -> None:
    watched = Watched()
    watched.pass_by(4 * ASK_SECONDS, WORKER, OTHER_WORKER)
    assert 4 <= watched.asked.count(WORKER) <= 5


def test_time_without_looks_does_not_count() -> None:
    watched = Watched()
    for _ in range(5):
        watched.pass_by(STUCK - ASK_SECONDS)
        watched.now += 10 * STUCK
    assert watched.watch.stuck == set()


def test_a_worker_that_left_or_cannot_answer() -> None:
    watched = Watched()
    watched.pass_by(STUCK + ASK_SECONDS, OTHER_WORKER)
    watched.watch.forget(WORKER)
    assert watched.watch.stuck == set()
    watched.activity[WORKER] = ImportError("no such module")
    watched.pass_by(STUCK + ASK_SECONDS, OTHER_WORKER)
    assert watched.watch.stuck == {WORKER}
    watched.watch.close()


def test_changes_of_phases_are_steps_also_in_a_replay() -> None:
    before = activity()
    with Stopwatch().running(OTHER):
        within = activity()
        assert within.working == before.working + 1
        with busy(READ):
            assert activity().steps > within.steps
    after = activity()
    assert (after.working, after.steps > within.steps) == (before.working, True)

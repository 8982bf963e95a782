"""Heartbeats and pings decide who is frozen; a fake clock and fake pings drive them."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from distkern.scheduler.clusters.liveness import (
    FROZEN_AFTER_SECONDS,
    LONGEST_LOOK_SECONDS,
    PING_AFTER_SECONDS,
    Liveness,
)

WORKER, OTHER = "tcp://a:1", "tcp://b:1"


class Watched:
    """A liveness with a clock that is set by hand and pings that wait to be answered."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pings: list[tuple[str, Future[bool]]] = []
        self.beats = {WORKER: 1.0, OTHER: 1.0}
        self.liveness = Liveness(self._ping, lambda: self.now)
        self.liveness.look(self.beats)

    def _ping(self, worker: str) -> Future[bool]:
        future: Future[bool] = Future()
        self.pings.append((worker, future))
        return future

    def pass_by(self, seconds: float, *beating: str, step: float = 0.5) -> None:
        """Look twice a second while the named workers' hearts beat."""
        for _ in range(round(seconds / step)):
            self.now += step
            for worker in beating:
                self.beats[worker] += step
            self.liveness.look(self.beats)

    @property
    def pinged(self) -> list[str]:
        return [worker for worker, _ in self.pings]


def test_workers_with_heartbeats_are_not_pinged() -> None:
    watched = Watched()
    watched.pass_by(60, WORKER, OTHER)
    assert watched.pings == []
    assert watched.liveness.frozen == set()


def test_a_silent_worker_is_pinged_once_and_then_frozen() -> None:
    watched = Watched()
    watched.pass_by(PING_AFTER_SECONDS, OTHER)
    assert watched.pinged == [WORKER]
    watched.pass_by(FROZEN_AFTER_SECONDS - 0.5, OTHER)
    assert watched.liveness.frozen == set()
    watched.pass_by(0.5, OTHER)
    assert watched.liveness.frozen == {WORKER}
    watched.pass_by(60, OTHER)
    assert watched.liveness.frozen == {WORKER}
    assert watched.pinged == [WORKER]


@pytest.mark.parametrize("sign", ["heartbeat", "answer"])
def test_a_frozen_worker_that_gives_a_sign_of_life_is_not_frozen(sign: str) -> None:
    watched = Watched()
    watched.pass_by(20, OTHER)
    assert watched.liveness.frozen == {WORKER}
    if sign == "answer":
        watched.pings[0][1].set_result(True)
    watched.pass_by(0.5, OTHER, *([WORKER] if sign == "heartbeat" else []))
    assert watched.liveness.frozen == set()


def test_answers_keep_a_worker_whose_heart_does_not_beat() -> None:
    watched = Watched()
    for _ in range(60):
        watched.pass_by(0.5, OTHER)
        for _, ping in watched.pings:
            if not ping.done():
                ping.set_result(True)
        assert watched.liveness.frozen == set()
    assert len(watched.pings) > 5


@pytest.mark.parametrize("failure", [OSError("unreachable"), None])
def test_pings_that_fail_are_no_sign_of_life_and_are_repeated(failure: OSError | None) -> None:
    watched = Watched()
    for _ in range(40):
        watched.pass_by(0.5, OTHER)
        for _, ping in watched.pings:
            if not ping.done():
                ping.set_exception(failure) if failure else ping.set_result(False)
    assert watched.liveness.frozen == {WORKER}
    assert len(watched.pings) > 10


def test_a_driver_that_was_away_does_not_blame_the_workers() -> None:
    watched = Watched()
    watched.now += 3600
    watched.liveness.look(watched.beats)
    assert watched.liveness.frozen == set()
    watched.now += 3600
    watched.liveness.look(watched.beats)
    assert watched.liveness.frozen == set()
    assert LONGEST_LOOK_SECONDS < FROZEN_AFTER_SECONDS


def test_pings_of_workers_that_are_gone_are_cancelled() -> None:
    watched = Watched()
    watched.pass_by(PING_AFTER_SECONDS, OTHER)
    del watched.beats[WORKER]
    watched.pass_by(10, OTHER)
    assert watched.pings[0][1].cancelled()
    assert watched.liveness.frozen == set()


def test_close_cancels_what_is_under_way() -> None:
    watched = Watched()
    watched.pass_by(PING_AFTER_SECONDS)
    watched.liveness.close()
    assert [ping.cancelled() for _, ping in watched.pings] == [True, True]

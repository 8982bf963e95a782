"""Answers that do not fit their message: each lie is refused, and what trainings of every kind answer is not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from distkern.monitoring.events import EventBus
from distkern.scheduler.blocks import message_handler
from distkern.scheduler.execution.executor import SerialExecutor, total
from distkern.scheduler.protocol.answer_checks import AnswerChecks
from distkern.scheduler.protocol.answers import Answer, ProblemAnswer
from distkern.scheduler.protocol.messages import Begin, Load, Message, ProblemStep, Step, canonical
from distkern.scheduler.runtime.tree_reducer import leaves
from distkern.scheduler.training.driver_loop import train
from distkern.storage import ArraySource
from tests.scheduler.trainings import make_classes, make_data, make_job, make_source

Lie = Callable[[Answer], Any]


class Watched(SerialExecutor):
    """Serial executor that checks the answer of each block, and of all together."""

    def __init__(self, source: ArraySource) -> None:
        super().__init__(source)
        self.checks = AnswerChecks(source)
        self.seen: list[tuple[Message, Answer]] = []
        """Messages with the answer of block 1."""

    def exchange(self, message: Message, handed_in: Any = None) -> Answer:
        """Send a message and check its answers."""
        message, n = canonical(message), len(self._blocks)
        self.checks.note(message)
        nodes: Any = {}
        for block in self._blocks:
            own = message_handler.apply_message([block], message, frozenset([block.number]), n, handed_in)
            ((answer, blocks),) = leaves(own, n)
            self.checks.require(message, answer, blocks)
            if block.number == 1:
                self.seen.append((message, copy.deepcopy(answer)))
            nodes |= own
        answer = total(nodes, n)
        self.checks.require(message, answer, range(n), whole=True)
        self.checks.take(answer)
        return answer


def trained(source: ArraySource, **settings: Any) -> Watched:
    watched = Watched(source)
    train(make_job(**settings), source, watched, EventBus())
    return watched


X, Y = make_data(240)
WEIGHTS = np.arange(240) % 4.0

KINDS: dict[str, dict[str, Any]] = {
    "pool": {},
    "residual": {"criterion": "residual"},
    "single-precision": {"dtype": "float32"},
    "validation": {"stop": "validation"},
    "residual-validation": {"criterion": "residual", "stop": "validation"},
    "sample": {"selection_rows": 120},
    "residual-on-a-sample": {"criterion": "residual", "selection_rows": 120},
    "all-candidates": {"sampler": "all"},
    "several-widths": {"sigma": (0.5, 1.0)},
    "no-intercept": {"intercept": False},
    "conjugate-gradients": {"solver": "conjugate-gradients"},
    "median": {"sigma": "median"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_answers_of_trainings_fit(kind: str) -> None:
    assert trained(make_source(X, Y), **KINDS[kind]).seen


def test_answers_with_weights_and_classes_fit() -> None:
    assert trained(make_source(X, Y, WEIGHTS)).seen
    X3, labels = make_classes(240)
    for settings in ({}, {"multiclass": "one-vs-one"}, {"multiclass": "one-vs-rest"}):
        assert trained(make_source(X3, labels), classification=True, **settings).seen


@pytest.fixture(scope="module")
def plain() -> Watched:
    return trained(make_source(X, Y))


def first(watched: Watched, wanted: Callable[[Message], bool]) -> tuple[Message, Answer]:
    """The first message of a kind, and a copy of the answer of block 1."""
    message, answer = next(pair for pair in watched.seen if wanted(pair[0]))
    return message, copy.deepcopy(answer)


def forming(message: Message) -> bool:
    return isinstance(message, Step) and isinstance(message.problems[0], ProblemStep) and bool(message.problems[0].form)


def sums(change: Callable[[dict[str, Any]], Any]) -> Lie:
    return lambda answer: change(answer.problems[0].sums)


def load(**values: Any) -> Lie:
    return lambda answer: setattr(answer, "load", replace(answer.load, **values))  # type: ignore[type-var]


STEPS: dict[str, Lie] = {
    "sum-of-another-shape": sums(lambda s: s.update(gram=s["gram"][:1])),
    "sum-of-one-number": sums(lambda s: s.update(norms=np.zeros(1))),
    "transposed-sum": sums(lambda s: s.update(cross=s["cross"].T.copy())),
    "sum-with-another-dimension": sums(lambda s: s.update(products=s["products"][None])),
    "text-as-sum": sums(lambda s: s.update(gram=s["gram"].astype(str))),
    "objects-as-sum": sums(lambda s: s.update(gram=s["gram"].astype(object))),
    "complex-sum": sums(lambda s: s.update(gram=s["gram"] + 1j)),
    "list-as-sum": sums(lambda s: s.update(gram=s["gram"].tolist())),
    "missing-sum": sums(lambda s: s.pop("gram")),
    "no-sums": sums(lambda s: s.clear()),
    "sum-that-was-not-asked-for": sums(lambda s: s.update(refit_gram=np.zeros(3))),
    "no-problems": lambda answer: answer.problems.clear(),
    "a-problem-more": lambda answer: answer.problems.append(ProblemAnswer()),
    "problems-of-another-type": lambda answer: answer.problems.append("problem"),  # type: ignore[arg-type]
    "bytes-read-as-text": lambda answer: setattr(answer, "bytes_read", "many"),
}

DRAWS: dict[str, Lie] = {
    "rows-of-another-block": lambda answer: draw_of(answer, rows=lambda r: r + 50),
    "rows-below-0": lambda answer: draw_of(answer, rows=lambda r: r - 1000),
    "rows-beyond-the-data": lambda answer: draw_of(answer, rows=lambda r: r + 10**9 * 240),
    "rows-without-features": lambda answer: setattr(answer.problems[0].drawn, "features", np.zeros((1, 2))),
    "features-of-another-width": lambda answer: setattr(
        answer.problems[0].drawn,
        "features",
        np.zeros((len(answer.problems[0].drawn.rows), 7)),  # type: ignore[union-attr]
    ),
    "more-rows-than-asked": lambda answer: setattr(answer.problems[0].drawn, "sizes", (10**6, 10**6)),
    "largest-residual-of-nan": lambda answer: setattr(answer.problems[0].drawn, "largest", float("nan")),
    "largest-residual-below-0": lambda answer: setattr(answer.problems[0].drawn, "largest", -1.0),
    "keys-of-nan": lambda answer: draw_of(answer, keys=lambda k: k * np.nan),
    "fewer-keys-than-rows": lambda answer: draw_of(answer, keys=lambda k: k[1:]),
}

LOADS: dict[str, Lie] = {
    "no-statistics": lambda answer: setattr(answer, "load", None),
    "more-rows-than-there-are": load(n_fit=10**9),
    "negative-number-of-rows": load(n_fit=-1),
    "checksum-of-another-block": load(checksums={0: 1}),
    "statistics-of-folds": lambda answer: setattr(
        answer,
        "load",
        replace(answer.load, folds=[answer.load]),  # type: ignore[type-var]
    ),
    "no-targets": load(targets=None),
    "moments-of-another-width": lambda answer: moments(answer, mean=np.zeros(9), m2=np.zeros(9)),
    "mean-of-nan": lambda answer: moments(answer, mean=np.full(2, np.nan)),
    "negative-squares": lambda answer: moments(answer, m2=np.full(2, -1.0)),
    "negative-weight": lambda answer: moments(answer, count=-1.0),
}


def draw_of(answer: Answer, **changes: Callable[[Any], Any]) -> None:
    """Change rows or keys of a draw; its rows stay those of its lists."""
    drawn = answer.problems[0].drawn
    assert drawn is not None
    for name, change in changes.items():
        for part in (drawn.top, drawn.race):
            object.__setattr__(part, name, change(getattr(part, name)))
    drawn.rows = np.union1d(drawn.top.rows, drawn.race.rows)


def moments(answer: Answer, **values: Any) -> None:
    assert answer.load is not None
    answer.load = replace(answer.load, features=replace(answer.load.features, **values))


def refuses(watched: Watched, wanted: Callable[[Message], bool], lie: Lie) -> None:
    checks = AnswerChecks(make_source(X, Y))
    message, answer = first(watched, wanted)
    for sent, _ in watched.seen:
        checks.note(sent)
        if isinstance(sent, Load):
            checks._rows_everywhere = True
        if sent is message:
            break
    checks.require(message, answer, [1])
    lie(answer)
    with pytest.raises(ValueError, match=r"^it|the field"):
        checks.require(message, answer, [1])


@pytest.mark.parametrize("lie", STEPS)
def test_lies_about_a_step(plain: Watched, lie: str) -> None:
    refuses(plain, forming, STEPS[lie])


@pytest.mark.parametrize("lie", DRAWS)
def test_lies_about_a_draw(plain: Watched, lie: str) -> None:
    refuses(plain, lambda message: isinstance(message, Begin), DRAWS[lie])


@pytest.mark.parametrize("lie", LOADS)
def test_lies_about_the_rows(plain: Watched, lie: str) -> None:
    refuses(plain, lambda message: isinstance(message, Load), LOADS[lie])


@pytest.mark.parametrize(
    "nodes", [None, [1], {"a": 1}, {(0, 9): 1}, {(0, -1): 1}, {(99, 0): 1}, {(0, 0, 0): 1}, {(0.0, 1): 1}]
)
def test_nodes_that_are_no_blocks(nodes: Any) -> None:
    with pytest.raises(ValueError, match="it"):
        list(leaves(nodes, 5))


def test_sums_of_different_shapes_are_not_added() -> None:
    with pytest.raises(ValueError, match="shapes"):
        ProblemAnswer({"a": np.zeros((3, 1))}).merge(ProblemAnswer({"a": np.zeros((1, 1))}))

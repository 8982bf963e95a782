"""Application of one message to many blocks of this process, the same for every executor.

The unit of work is a strip of tiles, whose answers are added in order. Strips are summed by a fixed tree within their
block, and blocks by a fixed tree over the run, so neither threads nor placement change a bit. Covers no versions, see
`block_registry`; effects and answers are those of `block`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from numpy.typing import NDArray

from ..protocol.answers import Answer, ProblemAnswer
from ..protocol.large_models import DrawCenters, Multiply
from ..protocol.losses import SampleRows, SumLoss
from ..protocol.messages import PASSIVE, Accumulate, Begin, Compare, KernelColumns, Load, Message, Query, Score, Step
from ..rows.block_reading import BlockRows, read_block
from ..rows.numeric_ranges import overflow_ignored
from ..rows.problem_rows import Strip
from ..runtime.read_ahead import ReadAhead
from ..runtime.threads import map_tiles, single_threaded_blas
from ..runtime.timings import DRAW, FIT, KERNEL_COLUMNS, OTHER, READ, REPLAY, SCORE, Costs, Stopwatch
from ..runtime.tree_reducer import Node, TreeReducer
from .all_rows_pass import accumulate
from .block import Block, PreparedStep, prepare_step
from .center_products import draw_centers, multiply
from .fit_comparison import compare, prefix_models
from .fold_scoring import score
from .loss_sums import sample_rows, sum_loss

T = TypeVar("T")
R = TypeVar("R")

HandedIn = dict[int, list[NDArray[Any] | None]]
Work = tuple[Block, int, Strip]
RowReader = ReadAhead[BlockRows]
OverAllRows = Accumulate | DrawCenters | Multiply | SampleRows | SumLoss


def apply_message(
    blocks: Sequence[Block],
    message: Message,
    fresh: Collection[int],
    n_blocks: int,
    handed_in: HandedIn | None = None,
) -> dict[Node, Answer]:
    """Apply `message` to the blocks that have not applied it, and answer for all of them.

    Parameters
    ----------
    blocks : sequence of Block
        In ascending order of their numbers.
    fresh : collection of int
        Numbers of the blocks that have not applied the message.
    n_blocks : int
        Blocks of the whole run.
    handed_in : dict, optional
        Kernel columns computed in another process, by block and problem; none by default.

    Returns
    -------
    dict
        Complete subtrees of the reduction over `blocks`.
    """
    watch = Stopwatch()
    reducer: TreeReducer[Answer] = TreeReducer(n_blocks, Answer.merge)
    with single_threaded_blas():
        for block, answer in zip(blocks, _answers(blocks, message, fresh, handed_in, watch), strict=True):
            for problem in answer.problems:
                problem.blocks = int(problem.has_sums)
            reducer.add(answer, block.number)
    nodes = reducer.nodes()
    if nodes:
        first = next(iter(nodes.values()))
        first.costs = first.costs.merge(Costs(watch.seconds))
    return nodes


def _map(watch: Stopwatch, phase: str, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Apply a function on the tile pool, in a phase."""
    return map_tiles(watch.timed(overflow_ignored(function), phase), items)


def _answers(
    blocks: Sequence[Block], message: Message, fresh: Collection[int], handed_in: HandedIn | None, watch: Stopwatch
) -> Iterator[Answer]:
    """Yield the answer of each block."""
    if isinstance(message, Load):

        def load(block: Block) -> Answer:
            if block.number in fresh:
                block.load(message, reader.take)
            return block.load_answer(message)

        with _reader([block for block in blocks if block.number in fresh], message.classification) as reader:
            yield from _map(watch, READ, load, blocks)
    elif isinstance(message, OverAllRows):
        with _reader(blocks, any(b.begin is not None and b.begin.classes is not None for b in blocks)) as reader:
            yield from _map(watch, FIT, lambda block: _over_all_rows(block, message, reader), blocks)
    elif isinstance(message, Score):
        yield from _map(watch, SCORE, lambda block: score(block, message), blocks)
    elif isinstance(message, Compare):
        models = [] if not blocks else prefix_models(blocks[0], message)
        yield from _map(watch, SCORE, lambda block: compare(block, message, models), blocks)
    else:
        yield from _strip_answers(blocks, message, fresh, handed_in, watch)


def _over_all_rows(block: Block, message: OverAllRows, reader: RowReader) -> Answer:
    if isinstance(message, Accumulate):
        return accumulate(block, message, reader.take)
    if isinstance(message, DrawCenters):
        return draw_centers(block, message, reader.take)
    if isinstance(message, SampleRows):
        return sample_rows(block, message, reader.take)
    if isinstance(message, SumLoss):
        return sum_loss(block, message, reader.take)
    return multiply(block, message, reader.take)


def _strip_answers(
    blocks: Sequence[Block], message: Begin | Step, fresh: Collection[int], handed_in: HandedIn | None, watch: Stopwatch
) -> Iterator[Answer]:
    step = _prepare(blocks, message, fresh, with_candidates=handed_in is None)

    def run_strip(item: Work) -> ProblemAnswer:
        block, problem, strip = item
        if step is None:
            return block.start_answer(problem, strip)
        columns = None if handed_in is None else handed_in[block.number]
        return block.run_strip(step, problem, strip, columns, fresh=block.number in fresh)

    answers = _map(watch, DRAW if step is None else OTHER, run_strip, _read_ahead(_strips(blocks, step)))
    for block in blocks:
        parts = []
        for problem, view in enumerate(block.views):
            # A problem without rows here, or without a part in the step, has an empty answer.
            count = len(view.strips) if _has_part(step, problem) else 0
            within: TreeReducer[ProblemAnswer] = TreeReducer(max(count, 1), ProblemAnswer.merge)
            for index in range(count):
                within.add(next(answers), index)
            parts.append(within.root() if count else ProblemAnswer())
        yield Answer(parts)
    for _ in answers:
        raise AssertionError("more answers than strips")


@overflow_ignored
def _prepare(
    blocks: Sequence[Block], message: Begin | Step, fresh: Collection[int], *, with_candidates: bool = True
) -> PreparedStep | None:
    """Start the blocks that have not seen `Begin`, or make room for a step there; return the step, cast once."""
    step: PreparedStep | None = None
    for block in blocks:
        if isinstance(message, Step):
            assert block.begin is not None
            step = step or prepare_step(message, block.begin, block.source.n_rows, with_candidates=with_candidates)
            if block.number in fresh:
                block.prepare(step)
        elif block.number in fresh:
            block.start(message)
    return step


def _has_part(step: PreparedStep | None, problem: int) -> bool:
    return step is None or step.problems[problem] is not None


def _strips(blocks: Sequence[Block], step: PreparedStep | None) -> list[Work]:
    """Return the strips of all problems that have a part in a step, in the order of blocks and problems."""
    return [
        (block, problem, strip)
        for block in blocks
        for problem, view in enumerate(block.views)
        if _has_part(step, problem)
        for strip in view.strips
    ]


def _read_ahead(work: Sequence[Work]) -> Iterator[Work]:
    """Yield strips, while the system reads the rows of the next one."""
    for item, (block, problem, strip) in zip(work, [*work[1:], *work[-1:]], strict=True):
        block.prefetch(problem, strip)
        yield item


def _reader(blocks: Sequence[Block], classification: bool) -> RowReader:
    """Return the reader of some blocks for one pass in their order."""
    known = {block.number: block for block in blocks}

    def read(number: int) -> BlockRows:
        block = known[number]
        return read_block(block.source, number, classification, with_features=block.with_features)

    return ReadAhead(read, list(known), blocks[0].read_ahead if blocks else 0)


@single_threaded_blas()
def replay(blocks: Sequence[Block], messages: Sequence[Message]) -> Costs:
    """Apply the effects of consecutive log messages to blocks in one state; return the costs."""
    watch, fresh = Stopwatch(), {block.number for block in blocks}
    steps: list[PreparedStep] = []
    # What began again has no effect any more.
    begins = [i for i, message in enumerate(messages) if isinstance(message, Begin)]
    for i, message in enumerate(messages):
        if begins and i < begins[-1] and not isinstance(message, Load):
            continue
        if isinstance(message, Load):
            with _reader(blocks, message.classification) as reader:
                load = partial(Block.load, message=message, take=reader.take)
                for _ in _map(watch, REPLAY, load, blocks):
                    pass
        elif not isinstance(message, PASSIVE):
            step = _prepare(blocks, message, fresh)
            steps += [] if step is None else [step]

    def replay_strip(item: Work) -> None:
        block, problem, strip = item
        for tile in strip:
            for step in steps:
                block.step(step, problem, tile, None)

    for _ in _map(watch, REPLAY, replay_strip, _read_ahead(_strips(blocks, None)) if steps else ()):
        pass
    return Costs(watch.seconds)


@single_threaded_blas()
def ask(blocks: Sequence[Block], query: Query) -> Answer:
    """Answer a query."""
    answer, watch = Answer(), Stopwatch()
    if isinstance(query, KernelColumns):
        columns = _map(watch, KERNEL_COLUMNS, lambda block: block.columns(query.problems), blocks)
        for block, value in zip(blocks, columns, strict=True):
            answer.columns[block.number] = value
    else:
        with watch.running(READ):
            for block in blocks:
                answer.rows.update(block.fetch(query))
    answer.costs = Costs(watch.seconds)
    return answer

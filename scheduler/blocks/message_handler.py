"""Application of one message to many blocks of this process, the same for every executor.

The unit of work is a strip of tiles, whose answers are added in order. Strips are summed by a fixed tree within their
block, and blocks by a fixed tree over the run, so neither threads nor placement change a bit. Covers no versions, see
`block_registry`; effects and answers are those of `block`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..protocol.answers import Answer, ProblemAnswer, merge_answers, merge_problems
from ..protocol.messages import PASSIVE, Accumulate, Begin, KernelColumns, Load, Message, Query, Score, Step
from ..rows.block_reading import BlockRows, read_block
from ..rows.problem_rows import Strip
from ..runtime.read_ahead import ReadAhead
from ..runtime.threads import map_tiles, single_threaded_blas
from ..runtime.timings import DRAW, FIT, KERNEL_COLUMNS, OTHER, READ, REPLAY, SCORE, Costs, Stopwatch
from ..runtime.tree_reducer import Node, TreeReducer
from .all_rows_pass import accumulate
from .block import Block, PreparedStep, prepare_step
from .fold_scoring import score

HandedIn = dict[int, list[NDArray[Any] | None]]


def _overflow_ignored() -> np.errstate:
    """Ignore overflow in tiles: the driver finds it in the sums and raises one error."""
    return np.errstate(over="ignore", invalid="ignore")


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
    nodes = _apply(blocks, message, fresh, n_blocks, handed_in, watch)
    if nodes:
        first = next(iter(nodes.values()))
        first.costs = first.costs.merge(Costs(watch.seconds))
    return nodes


def _apply(
    blocks: Sequence[Block],
    message: Message,
    fresh: Collection[int],
    n_blocks: int,
    handed_in: HandedIn | None,
    watch: Stopwatch,
) -> dict[Node, Answer]:
    reducer: TreeReducer[Answer] = TreeReducer(n_blocks, merge_answers)
    with single_threaded_blas():
        if isinstance(message, Load):
            with _reader([block for block in blocks if block.number in fresh], message.classification) as reader:
                answers = map_tiles(watch.timed(_loader(message, fresh, reader), READ), blocks)
                for block, answer in zip(blocks, answers, strict=True):
                    reducer.add(answer, block.number)
            return reducer.nodes()
        if isinstance(message, Accumulate):
            with _reader(blocks, any(b.begin is not None and b.begin.classes is not None for b in blocks)) as reader:
                answers = map_tiles(watch.timed(_accumulator(message, reader), FIT), blocks)
                for block, answer in zip(blocks, answers, strict=True):
                    reducer.add(answer, block.number)
            return reducer.nodes()
        if isinstance(message, Score):
            answers = map_tiles(watch.timed(_scorer(message), SCORE), blocks)
            for block, answer in zip(blocks, answers, strict=True):
                reducer.add(answer, block.number)
            return reducer.nodes()
        step: PreparedStep | None = None
        for block in blocks:
            if isinstance(message, Step):
                assert block.begin is not None
                with _overflow_ignored():
                    step = step or prepare_step(
                        message, block.begin, block.source.n_rows, with_candidates=handed_in is None
                    )
                if block.number in fresh:
                    block.prepare(step)
            elif block.number in fresh:
                with _overflow_ignored():
                    block.start(message)
        work = _strips(blocks, step)
        run_strip = watch.timed(_stepper(message, step, fresh, handed_in), DRAW if step is None else OTHER)
        answers = map_tiles(run_strip, _read_ahead(work))
        for block in blocks:
            parts = []
            for problem, view in enumerate(block.views):
                # A problem without rows here, or without a part in the step, has an empty answer.
                count = len(view.strips) if _has_part(step, problem) else 0
                within: TreeReducer[ProblemAnswer] = TreeReducer(max(count, 1), merge_problems)
                for index in range(count):
                    within.add(next(answers), index)
                parts.append(within.root() if count else ProblemAnswer())
            reducer.add(Answer(parts), block.number)
        for _ in answers:
            raise AssertionError("more answers than strips")
    return reducer.nodes()


Work = tuple[Block, int, Strip]


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


RowReader = ReadAhead[BlockRows]


def _reader(blocks: Sequence[Block], classification: bool) -> RowReader:
    """Return the reader of some blocks for one pass in their order."""
    known = {block.number: block for block in blocks}

    def read(number: int) -> BlockRows:
        block = known[number]
        return read_block(block.source, number, classification, with_features=block.with_features)

    return ReadAhead(read, list(known), blocks[0].read_ahead if blocks else 0)


def _loader(message: Load, fresh: Collection[int], reader: RowReader) -> Any:
    def load_block(block: Block) -> Answer:
        with _overflow_ignored():
            if block.number in fresh:
                block.load(message, reader.take)
            return block.load_answer(message)

    return load_block


def _accumulator(message: Accumulate, reader: RowReader) -> Any:
    def pass_over(block: Block) -> Answer:
        with _overflow_ignored():
            return accumulate(block, message, reader.take)

    return pass_over


def _scorer(message: Score) -> Any:
    def pass_over(block: Block) -> Answer:
        with _overflow_ignored():
            return score(block, message)

    return pass_over


def _stepper(message: Message, step: PreparedStep | None, fresh: Collection[int], handed_in: HandedIn | None) -> Any:
    def run_strip(item: Work) -> ProblemAnswer:
        block, problem, strip = item
        with _overflow_ignored():
            if step is None:
                assert isinstance(message, Begin)
                return block.start_answer(problem, strip)
            columns = None if handed_in is None else handed_in[block.number]
            return block.run_strip(step, problem, strip, columns, fresh=block.number in fresh)

    return run_strip


def _columns_of(query: KernelColumns) -> Any:
    def columns(block: Block) -> Any:
        with _overflow_ignored():
            return block.columns(query.problems)

    return columns


def replay(blocks: Sequence[Block], messages: Sequence[Message]) -> Costs:
    """Apply the effects of consecutive log messages to blocks in one state; return the costs."""
    watch = Stopwatch()
    _replay(blocks, messages, watch)
    return Costs(watch.seconds)


def _replay(blocks: Sequence[Block], messages: Sequence[Message], watch: Stopwatch) -> None:
    messages = [message for message in messages if not isinstance(message, PASSIVE)]
    with single_threaded_blas():
        while messages and not isinstance(messages[0], Step):
            message = messages.pop(0)
            if isinstance(message, Load):
                with _reader(blocks, message.classification) as reader:
                    load = watch.timed(_loader(message, {b.number for b in blocks}, reader), REPLAY)
                    for _ in map_tiles(load, blocks):
                        pass
            else:
                assert isinstance(message, Begin)
                with _overflow_ignored():
                    for block in blocks:
                        block.start(message)
        if not messages or not blocks:
            return
        begin = blocks[0].begin
        assert begin is not None
        with _overflow_ignored():
            n_rows = blocks[0].source.n_rows
            steps = [prepare_step(message, begin, n_rows) for message in messages if isinstance(message, Step)]
        for block in blocks:
            for step in steps:
                block.prepare(step)

        def replay_strip(item: Work) -> None:
            block, problem, strip = item
            with _overflow_ignored():
                for tile in strip:
                    for step in steps:
                        block.step(step, problem, tile, None)

        for _ in map_tiles(watch.timed(replay_strip, REPLAY), _read_ahead(_strips(blocks, None))):
            pass


def ask(blocks: Sequence[Block], query: Query) -> Answer:
    """Answer a query."""
    answer, watch = Answer(), Stopwatch()
    with single_threaded_blas():
        if isinstance(query, KernelColumns):
            columns = map_tiles(watch.timed(_columns_of(query), KERNEL_COLUMNS), blocks)
            for block, value in zip(blocks, columns, strict=True):
                answer.columns[block.number] = value
        else:
            with watch.running(READ):
                for block in blocks:
                    answer.rows.update(block.fetch(query))
    answer.costs = Costs(watch.seconds)
    return answer

"""Running one message over many blocks in this process, the same way in every executor.

The unit of work is a strip of tiles, whose answers are added in order; strips are summed by a fixed tree within their
block, and blocks by a fixed tree over the run, so neither threads nor placement change a bit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.scheduler.accumulation import accumulate
from distkern.scheduler.answers import Answer, merge_answers
from distkern.scheduler.block import Block, PreparedStep, joined, prepare_step
from distkern.scheduler.messages import Accumulate, Begin, KernelColumns, Load, Message, Query, Step
from distkern.scheduler.reduction import Node, TreeReducer
from distkern.scheduler.threads import map_tiles, single_threaded_blas
from distkern.scheduler.tiles import Tile

Strip = tuple[Tile, ...]
HandedIn = dict[int, list[NDArray[Any] | None]]


def _overflow_ignored() -> np.errstate:
    """Overflow is found in the sums, and named there; a warning per tile would only repeat it."""
    return np.errstate(over="ignore", invalid="ignore")


def apply_message(
    blocks: Sequence[Block],
    message: Message,
    fresh: Collection[int],
    n_blocks: int,
    handed_in: HandedIn | None = None,
) -> dict[Node, Answer]:
    """Apply `message` to the blocks that have not seen it and answer for all of them.

    Parameters
    ----------
    blocks : sequence of Block
        In ascending order of their numbers.
    fresh : collection of int
        Numbers of the blocks whose state the message still has to change.
    n_blocks : int
        Blocks of the whole run.
    handed_in : dict, optional
        Kernel columns computed elsewhere, by block and problem.

    Returns
    -------
    dict
        Complete subtrees of the reduction over `blocks`.
    """
    reducer: TreeReducer[Answer] = TreeReducer(n_blocks, merge_answers)
    with single_threaded_blas():
        if isinstance(message, Load):
            for block, answer in zip(blocks, map_tiles(_loader(message, fresh), blocks), strict=True):
                reducer.add(answer, block.number)
            return reducer.nodes()
        if isinstance(message, Accumulate):
            for block, answer in zip(blocks, map_tiles(_accumulator(message), blocks), strict=True):
                reducer.add(answer, block.number)
            return reducer.nodes()
        step: PreparedStep | None = None
        for block in blocks:
            if isinstance(message, Step):
                assert block.begin is not None
                with _overflow_ignored():
                    step = step or prepare_step(message, block.begin, with_centers=handed_in is None)
                if block.number in fresh:
                    block.prepare(step)
            elif block.number in fresh:
                with _overflow_ignored():
                    block.start(message)
        work = [(block, strip) for block in blocks for strip in block.strips]
        answers = map_tiles(_stepper(message, step, fresh, handed_in), _read_ahead(work))
        within: TreeReducer[Answer] | None = None
        for block in blocks:
            within = TreeReducer(max(len(block.strips), 1), merge_answers)
            if not block.strips:
                within.add(Answer(), 0)
            for index in range(len(block.strips)):
                within.add(next(answers), index)
            reducer.add(within.root(), block.number)
        for _ in answers:
            raise AssertionError("more answers than strips")
    return reducer.nodes()


def _read_ahead(work: Sequence[tuple[Block, Strip]]) -> Iterator[tuple[Block, Strip]]:
    """Yield strips, having the next one's rows read meanwhile."""
    for item, (block, strip) in zip(work, [*work[1:], *work[-1:]], strict=True):
        block.prefetch(joined(strip))
        yield item


def _loader(message: Load, fresh: Collection[int]) -> Any:
    def load_block(block: Block) -> Answer:
        with _overflow_ignored():
            if block.number in fresh:
                block.load(message)
            return block.load_answer(message)

    return load_block


def _accumulator(message: Accumulate) -> Any:
    def accumulate_block(block: Block) -> Answer:
        with _overflow_ignored():
            return accumulate(block, message)

    return accumulate_block


def _stepper(message: Message, step: PreparedStep | None, fresh: Collection[int], handed_in: HandedIn | None) -> Any:
    def run_strip(item: tuple[Block, Strip]) -> Answer:
        block, strip = item
        with _overflow_ignored():
            if step is None:
                assert isinstance(message, Begin)
                return block.start_answer(message, strip)
            columns = None if handed_in is None else handed_in[block.number]
            return block.run_strip(step, strip, columns, fresh=block.number in fresh)

    return run_strip


def _columns_of(query: KernelColumns) -> Any:
    def columns(block: Block) -> Any:
        with _overflow_ignored():
            return block.columns(query.problems)

    return columns


def replay(blocks: Sequence[Block], messages: Sequence[Message]) -> None:
    """Apply the effects of consecutive log messages to blocks that are all in the same state."""
    messages = [message for message in messages if not isinstance(message, Accumulate)]
    with single_threaded_blas():
        while messages and not isinstance(messages[0], Step):
            message = messages.pop(0)
            if isinstance(message, Load):
                for _ in map_tiles(_loader(message, {b.number for b in blocks}), blocks):
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
            steps = [prepare_step(message, begin) for message in messages if isinstance(message, Step)]
        for block in blocks:
            for step in steps:
                block.prepare(step)

        def replay_strip(item: tuple[Block, Strip]) -> None:
            block, strip = item
            with _overflow_ignored():
                for tile in strip:
                    for step in steps:
                        block.step(step, tile, None)

        for _ in map_tiles(replay_strip, _read_ahead([(block, strip) for block in blocks for strip in block.strips])):
            pass


def ask(blocks: Sequence[Block], query: Query) -> Answer:
    """Answer a question that changes nothing."""
    answer = Answer()
    with single_threaded_blas():
        if isinstance(query, KernelColumns):
            columns = map_tiles(_columns_of(query), blocks)
            for block, value in zip(blocks, columns, strict=True):
                answer.columns[block.number] = value
        else:
            for block in blocks:
                answer.rows.update(block.fetch(query))
    return answer

"""Checks that an answer fits its message: types of fields, names and shapes of sums, and rows of the blocks.

An answer comes from another process, or from a record that another program may have written. Sums of another shape may
be added without an error, and would make a wrong model. Covers no numbers: those of a sum can be anything that is
finite, and overflow is a fault of the data, see `..rows.numeric_ranges`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from distkern.kernels import width_count
from distkern.storage.arrays.source import BlockSource

from .answer_types import require_typed
from .answers import OPTIONAL, STATISTICS, Answer, CandidateRows, Drawn, LoadAnswer, ProblemAnswer, Sample
from .large_models import CenterDraw, CenterProducts, DrawCenters, Multiply
from .losses import LossModel, RowSample, SampleRows, SumLoss
from .messages import (
    Accumulate,
    Begin,
    Centers,
    Compare,
    FetchRows,
    KernelColumns,
    Load,
    LookaheadStep,
    Message,
    Prefixes,
    ProblemStep,
    Query,
    Score,
    Step,
    padded_width,
)
from .problems import Draw
from .selected_rows import SelectedRows

Shapes = dict[str, tuple[int, ...]]


class AnswerChecks:
    """Checks of the answers to the messages of one run, which are noted in their order.

    Parameters
    ----------
    source : BlockSource
        The rows.
    with_factors : bool
        Whether the processes that answer hold Q and E; True by default.
    recorded : bool
        Whether the answers come from a record, which has no numbers of blocks; False by default.
    """

    def __init__(self, source: BlockSource, *, with_factors: bool = True, recorded: bool = False) -> None:
        self._source = source
        self._bounds = np.array(source.boundaries)
        self._with_factors = with_factors
        self._recorded = recorded
        self._begin: Begin | None = None
        self._columns: list[int] = []
        self._selected: tuple[Any, Any] | None = None
        """Rows of a selection sample, ascending, and the block that has each of them."""
        self._rows_everywhere = False
        self._message: Message | None = None
        self._counts: list[int | None] = []
        """Number of blocks with training rows of each problem, once it is known."""

    @property
    def blocks(self) -> range:
        """Numbers of all blocks."""
        return range(len(self._bounds) - 1)

    def note(self, message: Message) -> None:
        """Take the next message of the log."""
        self._message = message
        if isinstance(message, Begin):
            self._begin, self._columns, self._selected = message, [1] * len(message.problems), None
            n_blocks = len(self._bounds) - 1
            if message.selected is not None:
                self._selected = _owners(message.selected, n_blocks)
                n_blocks = len(np.unique(self._selected[1]))
            known = [self._rows_everywhere and not problem.within for problem in message.problems]
            self._counts = [n_blocks if every else None for every in known]
        elif isinstance(message, Step):
            for number, step in enumerate(message.problems):
                if isinstance(step, LookaheadStep):
                    if step.commit is not None:
                        self._columns[number] = step.commit.start + len(step.commit.keep)
                elif step is not None and step.append is not None:
                    self._columns[number] = step.append.start + step.append.combine.shape[1]

    def take(self, answer: Answer) -> None:
        """Take the whole answer to the message that was noted last, which says where there are training rows.

        The first answer with sums of a problem is the measure for all later ones: the blocks with rows stay the same.
        """
        if answer.load is not None:
            self._rows_everywhere = answer.load.n_fit == self._source.n_rows
        if isinstance(self._message, Begin | Step):
            for number, found in enumerate(answer.problems):
                self._counts[number] = self._counts[number] or found.blocks or None

    def require(self, message: Message | Query, answer: Any, blocks: Collection[int], *, whole: bool = False) -> None:
        """Refuse an answer of some blocks that does not fit the message, which was noted last.

        Parameters
        ----------
        message : Message or Query
            The message.
        answer : object
            What came.
        blocks : collection of int
            Numbers of the blocks that it answers for.
        whole : bool, default False
            Whether these are all blocks, so that no sum can be absent.

        Raises
        ------
        ValueError
            Names what does not fit.
        """
        if not isinstance(answer, Answer):
            raise ValueError(f"it is a {type(answer).__name__}, no answer")
        require_typed(answer)
        if isinstance(message, KernelColumns):
            self._kernel_columns(message, answer, blocks)
        elif isinstance(message, FetchRows):
            _fetched(message, answer, self._source.n_features)
        elif isinstance(message, Load):
            self._loaded(message, answer.load, blocks)
        if isinstance(message, Load | KernelColumns | FetchRows):
            return
        parts = _parts(message)
        # With factors elsewhere, nothing has begun here but the rows.
        if isinstance(message, Begin) and not self._with_factors and not answer.problems:
            return
        if len(answer.problems) != len(parts):
            raise ValueError(f"it has {len(answer.problems)} problems, not {len(parts)}")
        for number, (part, found) in enumerate(zip(parts, answer.problems, strict=True)):
            self._problem(number, part, found, blocks, whole=whole)

    def _problem(self, number: int, part: Any, found: ProblemAnswer, blocks: Collection[int], *, whole: bool) -> None:
        shapes = self._wanted(number, part)
        wanted, given = shapes.keys() - OPTIONAL, found.sums.keys()
        unknown = given - shapes.keys()
        if unknown:
            raise ValueError(f"it has sums {sorted(unknown)} that were not asked for")
        absent = wanted - given
        if absent and (whole or found.has_sums or self._must_have_rows(number, part, blocks)):
            raise ValueError(f"it lacks the sums {sorted(absent)}")
        if not self._recorded:
            self._require_count(number, part, found, blocks, whole=whole)
        for name in given:
            if found.sums[name].shape != shapes[name]:
                raise ValueError(f"its sum {name} has shape {found.sums[name].shape}, not {shapes[name]}")
        if found.drawn is not None:
            self._drawn(found.drawn, number, part, blocks)
        if found.leaders is not None:
            leaders, trial = found.leaders, part.trial if isinstance(part, LookaheadStep) else None
            steps = 0 if trial is None else len(trial.steps)
            self._require_rows(leaders.rows, blocks, "leaders", selecting=True)
            if leaders.largest.shape != (steps,) or leaders.norms.shape != (len(leaders.rows), steps):
                raise ValueError(f"its leaders have shape {leaders.norms.shape}, for {steps} steps")
            if trial is not None and len(leaders.rows) > trial.most + steps:
                raise ValueError(f"it has {len(leaders.rows)} leaders, more than the {trial.most} asked for")
            self._require_features(leaders.features, len(leaders.rows), "leaders")
        if found.candidates is not None:
            self._candidates(found.candidates, number, part, blocks)

    def require_parts(self, message: Message, numbers: Collection[int], blocks: Collection[int]) -> None:
        """Refuse an answer of some blocks without some of its parts, if one of the blocks must have rows of one.

        Parameters
        ----------
        message : Message
            The message, which was noted last.
        numbers : collection of int
            Numbers of the parts (`Answer.parts`) that are absent.
        blocks : collection of int
            Numbers of the blocks.

        Raises
        ------
        ValueError
            Names what is absent.
        """
        if STATISTICS in numbers or isinstance(message, Load):
            raise ValueError("it has no statistics of the rows")
        parts = _parts(message)
        for number in numbers:
            if not 0 <= number < len(parts):
                raise ValueError(f"it is of problem {number}, and there are {len(parts)}")
            wanted = self._wanted(number, parts[number]).keys() - OPTIONAL
            if wanted and self._must_have_rows(number, parts[number], blocks):
                raise ValueError(f"it lacks the sums {sorted(wanted)}")

    def _require_count(
        self, number: int, part: Any, found: ProblemAnswer, blocks: Collection[int], *, whole: bool
    ) -> None:
        """Refuse sums of fewer blocks than have rows: an answer without sums leaves no trace where others are added."""
        if found.has_sums != (found.blocks > 0) or found.blocks > len(blocks):
            raise ValueError(f"its sums of problem {number} are of {found.blocks} blocks, of {len(blocks)} that answer")
        if whole and found.has_sums:
            expected = len(blocks) if isinstance(part, _OVER_ALL_BLOCKS) else self._counts[number]
            if expected is not None and found.blocks != expected:
                raise ValueError(
                    f"the sums of problem {number} are of {found.blocks} blocks, and {expected} have rows as far as is "
                    "known: a worker answered without its sums, to this message or before"
                )

    def _must_have_rows(self, number: int, part: Any, blocks: Collection[int]) -> bool:
        """Return whether some of the blocks have training rows of a problem for certain."""
        if isinstance(part, _OVER_ALL_BLOCKS):
            return True
        if self._selected is None:
            return self._counts[number] == len(self._bounds) - 1
        # While the rows of a sample are in the blocks, those without a part of it have none.
        owners = np.unique(self._selected[1])
        return self._counts[number] == len(owners) and bool(np.isin(owners, list(blocks)).any())

    def _wanted(self, number: int, part: Any) -> Shapes:
        """Return the shapes of the sums of a problem in the answer to a message."""
        if part is None or (isinstance(part, _Started) and not self._with_factors):
            return {}
        return self._sums(number, part)

    def _sums(self, number: int, part: Any) -> Shapes:
        """Return the shapes of the sums that a problem's part of a message asks for."""
        if isinstance(part, _Scored):
            return {"error": (1,), "weight": (1,)}
        begin = self._begin
        assert begin is not None
        n_targets, columns = len(begin.problems[number].columns), self._columns[number]
        if isinstance(part, _Started):
            return {"target_norms": (n_targets,)}
        if isinstance(part, ProblemStep):
            return _step_sums(part, begin, n_targets, columns)
        if isinstance(part, LookaheadStep):
            return _lookahead_sums(part, begin, n_targets, columns)
        if isinstance(part, Centers):
            m = len(part.rows) + 1
            gram = (m * (m + 1) // 2,)
            return {"refit_gram": gram, "refit_products": (m, n_targets), "target_norms": (n_targets,)}
        if isinstance(part, CenterProducts):
            m, k = part.vectors.shape
            if part.right_sides is None:
                return {"products": (m, k)}
            probes = part.right_sides.probes
            products = (m, n_targets + 1 + probes)
            sums = {"target_norms": (n_targets,), "target_sums": (n_targets,), "probe_sums": (probes,)}
            return {"products": products, **sums}
        return {"loss": (1,), "slope": part.weights.shape} if isinstance(part, LossModel) else {}

    def _widths(self, number: int) -> int:
        """Return the number of widths that a candidate of a problem may have."""
        assert self._begin is not None
        return width_count(self._begin.problems[number].kernel)

    def _drawn(self, drawn: Drawn, number: int, part: Any, blocks: Collection[int]) -> None:
        most = _draw_of(part)
        if most is None or drawn.sizes != most:
            raise ValueError(f"it draws {drawn.sizes} rows, and {most} were asked for")
        for best, size in ((drawn.top, most[0]), (drawn.race, most[1])):
            if len(best.rows) > size or not len(best.rows) == len(best.keys) == len(best.residuals):
                raise ValueError(f"it draws {len(best.rows)} rows, more than {size}, or without their keys")
            if np.isnan(best.keys).any() or np.isnan(best.residuals).any():
                raise ValueError("it draws rows by keys that are no numbers")
        if not np.array_equal(np.union1d(drawn.top.rows, drawn.race.rows), drawn.rows):
            raise ValueError("its candidates are not the rows that it draws")
        if np.isnan(drawn.largest) or drawn.largest < 0:
            raise ValueError(f"its largest residual is {drawn.largest}")
        numbers = self._source.n_rows * self._widths(number)
        if len(drawn.rows) and drawn.rows.max() >= numbers:
            raise ValueError(f"its candidate {drawn.rows.max()} is not among the {numbers}")
        rows = drawn.rows % self._source.n_rows
        self._require_rows(rows, blocks, "candidates", selecting=not isinstance(part, CenterDraw))
        self._require_features(drawn.features, len(drawn.rows), "candidates")

    def _candidates(self, found: CandidateRows, number: int, part: Any, blocks: Collection[int]) -> None:
        self._require_rows(found.rows, blocks, "candidates", selecting=not isinstance(part, RowSample))
        width, begin = found.values.shape[1] if found.values.ndim == 2 else -1, self._begin
        assert begin is not None
        n_targets = len(begin.problems[number].columns)
        if isinstance(part, LookaheadStep):
            asked = np.empty(0) if part.enter is None else part.enter.rows
            if not np.isin(found.rows, asked).all():
                raise ValueError("it has values at rows that were not asked for")
            expected = {n_targets + begin.pool + self._columns[number]}
        elif isinstance(part, Prefixes):
            c = part.weights.shape[1]
            expected = {2 * c + n_targets + 1, c + n_targets + 1, c}
        elif isinstance(part, RowSample):
            expected = {1 + n_targets + self._source.n_features}
        else:
            raise ValueError("it has values at rows that were not asked for")
        if len(found.values) != len(found.rows) or width not in expected:
            raise ValueError(f"its values at rows have shape {found.values.shape}")

    def _loaded(self, message: Load, load: LoadAnswer | None, blocks: Collection[int]) -> None:
        if load is None:
            raise ValueError("it has no statistics of the rows")
        self._require_blocks(load.checksums, blocks)
        if len(load.folds) != (0 if message.folds is None else message.folds.count):
            raise ValueError(f"it has statistics of {len(load.folds)} folds")
        if (load.all_rows is None) != (message.selection_rows == 0):
            raise ValueError("it has statistics of all rows exactly where they were not asked for")
        n_rows = sum(int(self._bounds[b + 1] - self._bounds[b]) for b in blocks)
        width = self._source.n_features
        for one, features in [(load, width), *[(fold, 0) for fold in load.folds]]:
            _require_statistics(message, one, n_rows, features, self._source.target_shape)
        if load.all_rows is not None:
            _require_statistics(message, load.all_rows, n_rows, width, self._source.target_shape)
        sample = load.sample
        if sample is not None:
            self._require_rows(sample.shortlist.rows, blocks, "sample")
            self._sample(sample, message.sample_rows)
        if load.selected is not None:
            rows = load.selected
            self._require_rows(rows.rows, blocks, "selected rows")
            self._require_features(rows.features, len(rows.rows), "selected rows")
            if not len(rows.rows) == len(rows.targets) == len(rows.held) or (
                rows.weights is not None and rows.weights.shape != rows.rows.shape
            ):
                raise ValueError("its selected rows have other numbers of targets, weights or marks")

    def _sample(self, sample: Sample, most: int) -> None:
        n = len(sample.shortlist.rows)
        if n > most or sample.size != most or sample.weights.shape != (n,):
            raise ValueError(f"its sample has {n} rows, {most} were asked for")
        self._require_features(sample.features, n, "sample")

    def _kernel_columns(self, message: KernelColumns, answer: Answer, blocks: Collection[int]) -> None:
        if answer.columns.keys() != set(blocks):
            raise ValueError(f"it has kernel columns of the blocks {sorted(answer.columns)}, not {sorted(blocks)}")
        for block, columns in answer.columns.items():
            rows = int(self._bounds[block + 1] - self._bounds[block])
            if self._selected is not None:
                rows = int(np.count_nonzero(self._selected[1] == block))
            if len(columns) != len(message.problems):
                raise ValueError(f"it has kernel columns of {len(columns)} problems, not {len(message.problems)}")
            for asked, found in zip(message.problems, columns, strict=True):
                if (asked is None) != (found is None):
                    raise ValueError("it has kernel columns of another problem")
                if asked is not None and found is not None:
                    if found.ndim != 2 or len(found) > rows or found.shape[1] < len(asked.rows):
                        raise ValueError(f"its kernel columns have shape {found.shape}, for {rows} rows")
                    if found.dtype.kind != "f":
                        raise ValueError(f"its kernel columns are {found.dtype}")

    def _require_blocks(self, numbers: Collection[int], blocks: Collection[int]) -> None:
        """Refuse checksums of other blocks than those that answer."""
        if not set(numbers) <= set(blocks):
            raise ValueError("it has checksums of other blocks")

    def _require_rows(self, rows: Any, blocks: Collection[int], what: str, *, selecting: bool = False) -> None:
        """Refuse numbers of rows that are not in the blocks, or not in their parts of the sample while `selecting`."""
        if rows.ndim != 1 or (len(rows) and not (rows.min() >= 0 and rows.max() < self._source.n_rows)):
            raise ValueError(f"its {what} are not rows of the data")
        if selecting and self._selected is not None:
            sampled, owners = self._selected
            if not np.isin(rows, sampled).all():
                raise ValueError(f"its {what} are not rows of the sample")
            found = np.unique(owners[np.searchsorted(sampled, rows)])
        else:
            found = np.unique(np.searchsorted(self._bounds, rows, side="right") - 1)
        strange = set(found.tolist()) - set(blocks)
        if strange:
            raise ValueError(f"its {what} are rows of the blocks {sorted(strange)[:5]}, which did not answer")

    def _require_features(self, features: Any, n: int, what: str) -> None:
        wanted = n, self._source.n_features
        # With factors in the driver the features of no rows have no columns either.
        if features is not None and features.shape != wanted and (n or features.shape != (0, 0)):
            raise ValueError(f"its {what} have features of shape {features.shape}, not {wanted}")


def _owners(selected: SelectedRows, n_blocks: int) -> tuple[Any, Any]:
    """Return the rows of a sample, ascending, and the block that has each of them while centres are selected."""
    parts = [(selected.part(b, n_blocks).rows, b) for b in range(n_blocks) if selected.has_part(b, n_blocks)]
    rows = np.concatenate([part for part, _ in parts])
    owners = np.repeat([block for _, block in parts], [len(part) for part, _ in parts])
    order = np.argsort(rows)
    return rows[order], owners[order]


class _Started:
    """The part of a problem in `Begin`."""

    def __init__(self, draw: Draw | None) -> None:
        self.draw = draw


class _Scored:
    """A model of `Score`."""


_OVER_ALL_BLOCKS = (Centers, CenterProducts, LossModel, _Scored)
"""Parts of messages to which blocks without rows answer with sums, too."""


def _parts(message: Message | Query) -> Sequence[Any]:
    if isinstance(message, Begin):
        return [_Started(problem.draw) for problem in message.problems]
    if isinstance(message, Score):
        return [_Scored()] * len(message.models)
    assert isinstance(message, Step | Accumulate | Compare | DrawCenters | Multiply | SampleRows | SumLoss)
    return message.problems


def _draw_of(part: Any) -> tuple[int, int] | None:
    if isinstance(part, CenterDraw):
        return 0, part.count
    draw = part.draw if isinstance(part, ProblemStep | _Started) else None
    return None if draw is None else (draw.n_top, draw.n_race)


def _step_sums(step: ProblemStep, begin: Begin, n_targets: int, columns: int) -> Shapes:
    """Return the shapes of the sums of `pool_tiles.answer`."""
    shapes: Shapes = {}
    panel, batch, pool = begin.panel, begin.batch, begin.pool
    if step.append is not None:
        shapes["validation"] = (step.append.combine.shape[1],)
    if step.form is not None or step.columns is not None:
        width = panel + (0 if step.columns is None else batch)
        shapes |= {"cross": (width, columns), "gram": (panel, width), "products": (panel, n_targets)}
        shapes["norms"] = (width - panel,)
    elif step.project is not None:
        shapes |= {"pool_gram": (pool, batch), "pool_products": (batch, n_targets)}
    if step.judge is not None:
        shapes["misclassified"] = step.judge.slots.shape
    if step.refresh:
        shapes |= {"all_gram": (pool, pool), "all_products": (pool, n_targets)}
    return shapes


def _lookahead_sums(step: LookaheadStep, begin: Begin, n_targets: int, columns: int) -> Shapes:
    """Return the shapes of the sums of `lookahead_tiles.answer`."""
    shapes: Shapes = {}
    if step.commit is not None:
        shapes["validation"] = (len(step.commit.steps),)
    if step.form is not None:
        width = step.form.combine.shape[1]
        shapes |= {"cross": (width, columns)} if step.form.check else {}
        shapes |= {"gram": (width, width), "products": (width, n_targets)}
    if step.enter is not None:
        kept = 0 if step.commit is None else len(step.commit.keep)
        width = padded_width(kept + len(step.enter.slots))
        shapes |= {"cross": (width, columns), "gram": (begin.pool, width + padded_width(n_targets))}
    return shapes


def _require_statistics(
    message: Load, load: LoadAnswer, n_rows: int, n_features: int, target_shape: tuple[int, ...]
) -> None:
    if load.n_fit < 0 or load.n_held < 0 or load.n_fit + load.n_held > n_rows or load.bytes_read < 0:
        raise ValueError(f"it counts {load.n_fit} and {load.n_held} of {n_rows} rows")
    widths: dict[str, tuple[Any, int]] = {"features": (load.features, n_features)}
    if not message.classification:
        widths["targets"] = (load.targets, target_shape[0] if target_shape else 1)
    for name, (moments, width) in widths.items():
        if moments is None or not moments.mean.shape == moments.m2.shape == (width,):
            raise ValueError(f"its moments of the {name} are not those of {width} columns")
        if np.isnan(moments.mean).any() or not (moments.count >= 0 and (moments.m2 >= 0).all()):
            raise ValueError(f"its moments of the {name} are no numbers, or negative")
    if message.classification:
        labels = load.labels
        if labels is None or not labels.values.shape == labels.weights.shape or not (labels.weights >= 0).all():
            raise ValueError("its counts of labels are missing or negative, or not one for each label")


def _fetched(message: FetchRows, answer: Answer, n_features: int) -> None:
    if not answer.rows.keys() <= set(message.rows.tolist()):
        raise ValueError("it has features of rows that were not asked for")
    for row, features in answer.rows.items():
        if features.shape != (n_features,):
            raise ValueError(f"its features of row {row} have shape {features.shape}, not {(n_features,)}")

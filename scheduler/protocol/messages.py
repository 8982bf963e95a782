"""Messages of the driver to all blocks, and the digests that name them.

A message is a frozen tree of dataclasses, numbers and arrays. Its effect changes the state of a block once. Its answer
is a function of the state after the effect, so a block can answer a repeated message. `digest` names a message by its
content; chained digests name a state. Covers no effects, see `..blocks`, and no sending, see `..execution`.

Digests contain the names of classes and fields, and runs of version 0.1 must resume, so these names must not change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array, Rows
from distkern.kernels import Kernel
from distkern.numerics.scaling import FeatureScaling

from .large_models import DrawCenters, Multiply
from .losses import SampleRows, SumLoss
from .problems import Draw, Folds, OtherFolds, Problem
from .selected_rows import SelectedRows


@dataclass(frozen=True)
class Load:
    """Read the block and answer with its statistics."""

    classification: bool
    """Whether targets are labels; the answer then holds their counts."""
    sample_rows: int
    """Rows to draw, for the median distance; 0 for none."""
    seed: int
    """Key of the row draws."""
    holdout: float
    """Fraction of rows held out for the validation stop rule; they enter no sum of the selection."""
    selection_rows: int = 0
    """Rows of the selection sample to draw; 0 to select on all rows."""
    folds: Folds | None = None
    """For cross-validation: the answer holds statistics of every fold, and blocks keep the targets."""


@dataclass(frozen=True)
class Begin:
    """Set everything that steps need and start with E = Y and Q = 1."""

    scaling: FeatureScaling
    """Raw features to kernel space."""
    dtype: str
    """"float64" or "float32": dtype of the kernel values of the model and of passes over all rows."""
    epsilon: float
    """Added to a kernel column at its own row (thesis, K + epsilon I)."""
    classes: NDArray[Any] | None
    """Sorted labels for classification."""
    problems: tuple[Problem, ...]
    """Each problem has its own factors."""
    columns: int
    """Most columns of Q."""
    pool: int
    """Pool slots B of a problem."""
    panel: int
    """Width of the formed panel."""
    batch: int
    """Width of a batch of new candidates; a longer one is padded to a multiple of it."""
    intercept: bool = True
    """Whether column 0 of Q is ones; zeros otherwise."""
    judged: bool = False
    """Whether rows keep the shares for counting leave-one-out errors."""
    weight_scale: float = field(default=1.0, metadata={"hashed_unless": 1.0})
    """Factor on the row weights, see `distkern.scheduler.rows.data_checks.weight_scale`."""
    selected: SelectedRows | None = field(default=None, metadata={"hashed_unless": None})
    """Rows that select the centres, of which a block keeps its part; None for the rows that the blocks loaded."""
    selection_dtype: str | None = field(default=None, metadata={"hashed_unless": None})
    """Dtype of K, Q and E where it is not `dtype`, see `selecting_dtype`."""

    @property
    def selecting_dtype(self) -> np.dtype[Any]:
        """Dtype of K, Q and E while centres are selected."""
        return np.dtype(self.selection_dtype or self.dtype)


@dataclass(frozen=True)
class Append:
    """Finish the formed panel, add it to Q and update E (thesis 3.82)."""

    start: int
    """Columns of Q so far."""
    combine: Array
    """(panel, k)."""
    correct: Array | None
    """(start, k): second orthogonalisation pass; None where the columns were orthogonal after the first."""
    steps: Array
    """(k, T): z / (lambda + s) of each step."""
    inverse: Array | None = None
    """(k,): 1 / (lambda + s) of each step, where leave-one-out errors are counted."""


@dataclass(frozen=True)
class Eliminate:
    """Orthogonalise the remaining candidates of the pool against the formed panel."""

    multipliers: Array
    """(panel, B): multiple of each formed column to subtract from each pool column."""


@dataclass(frozen=True)
class Project:
    """Orthogonalise the batch of kernel columns against Q and put it into pool slots."""

    coefficients: Array
    """(m + 1, batch)."""
    slots: Rows
    """(n,): pool slot of each column of the batch."""


@dataclass(frozen=True)
class Form:
    """Form the columns of a panel from the pool."""

    slots: Rows
    """(n,)."""
    combine: Array
    """(n, panel)."""


@dataclass(frozen=True)
class Columns:
    """Compute the kernel columns of new candidates."""

    rows: Rows
    """(n,): numbers of the candidates (see `distkern.scheduler.protocol.candidates`)."""
    features: NDArray[Any]
    """(n, d): raw features of their rows."""
    released: Rows
    """Candidates that left the pool unaccepted and may be drawn again."""


@dataclass(frozen=True)
class Judge:
    """Answer with the leave-one-out misclassifications of the model extended by each of some candidates."""

    slots: Rows
    """(n,): pool slots of the candidates."""
    steps: Array
    """(n, T): weights of each candidate in the extended model."""
    inverse: Array
    """(n,): 1 / (lambda + s) of each."""


@dataclass(frozen=True)
class ProblemStep:
    """The part of one problem in a step; its fields take effect in their order."""

    append: Append | None = None
    eliminate: Eliminate | None = None
    project: Project | None = None
    form: Form | None = None
    columns: Columns | None = None
    draw: Draw | None = None
    judge: Judge | None = None
    refresh: bool = False
    """Answer with S and R of the whole pool."""


WIDTH_UNIT = 4
"""Batches of columns are padded with zero columns to a multiple of this."""


def padded_width(n: int) -> int:
    """Return the width of a batch of `n` columns."""
    return max(1, -(-n // WIDTH_UNIT)) * WIDTH_UNIT


@dataclass(frozen=True)
class FormAhead:
    """Form the predicted columns, F = K T - Q C, from the candidates' kernel columns K."""

    slots: Rows
    """(n,): slots of the candidates."""
    combine: Array
    """(n, w): T."""
    coefficients: Array
    """(m + 1, w): C."""
    check: bool
    """Whether to answer with Q'F."""


@dataclass(frozen=True)
class Trial:
    """Finish the formed columns, Q_new = F W - Q C, and compute E after each step without keeping it."""

    combine: Array
    """(w, w): W; the column of a candidate that depends on the others is zero."""
    correct: Array | None
    """(m + 1, w): C, second orthogonalisation pass; None where the columns were orthogonal after the first."""
    steps: Array
    """(n, T): z / (lambda + s) of each step."""
    rows: Rows
    """(n,): row of each step."""
    floor: float
    """The answer holds rows whose residual is at least this after any step."""
    most: int
    """Most such rows in the answer."""


@dataclass(frozen=True)
class Commit:
    """Add tried columns to Q and update E (thesis 3.82)."""

    start: int
    """Columns of Q so far."""
    keep: Rows
    """(k,): positions among the tried columns."""
    steps: Array
    """(k, T): z / (lambda + s) of each step."""
    rows: Rows
    """Rows that were chosen, including those whose columns depend on the others."""


@dataclass(frozen=True)
class Enter:
    """Put the new kernel columns into slots, and answer with the products that a simulation needs."""

    slots: Rows
    """(n,): slot of each new candidate."""
    rows: Rows
    """(R,): rows whose values of E, K and Q the answer holds."""


@dataclass(frozen=True)
class LookaheadStep:
    """The part of one problem in a step with `criterion="residual"`; its fields take effect in their order."""

    form: FormAhead | None = None
    trial: Trial | None = None
    commit: Commit | None = None
    columns: Columns | None = None
    """Kernel columns of new candidates, together with `enter`."""
    enter: Enter | None = None


@dataclass(frozen=True)
class Step:
    """One exchange: a step of every problem that has not ended."""

    problems: tuple[ProblemStep | LookaheadStep | None, ...]

    @property
    def name(self) -> str:
        """Return the name of the tasks of this step on the dashboard."""
        for part, name in (
            ("columns", "kernel-columns"),
            ("form", "form-panel"),
            ("append", "append-panel"),
            ("commit", "append-panel"),
            ("project", "project-candidates"),
            ("judge", "judge-candidates"),
        ):
            if any(getattr(p, part, None) is not None for p in self.problems):
                return name
        return "residual-argmax"


@dataclass(frozen=True)
class Centers:
    """Centres to fit over all rows."""

    rows: Rows
    """(m,): numbers of the selected candidates, in the order of selection."""
    features: NDArray[Any]
    """(m, d): raw features of those rows."""
    preconditioner: Array | None
    """(m + 1, m + 1): U, for sums of [1 K] inv(U); None for sums of [1 K]."""
    target_means: Array
    """(len(columns),): subtracted from the encoded targets."""


@dataclass(frozen=True)
class Accumulate:
    """Read all rows again and answer with the sums that determine the weights of given centres; changes no state."""

    problems: tuple[Centers | None, ...]
    """Centres of each problem; None for no sums."""


@dataclass(frozen=True)
class FoldModel:
    """A model that was trained outside one fold."""

    fold: OtherFolds
    kernel: Kernel
    features: NDArray[Any]
    """(m, d): raw features of the centres."""
    coef: Array
    """(m, n_outputs)."""
    intercept: Array
    """(n_outputs,)."""
    multiclass: str
    """Decision rule of the outputs, see `distkern.probability.decisions.decide`."""


@dataclass(frozen=True)
class Score:
    """Predict each model's own fold and answer with the errors; changes no state."""

    models: tuple[FoldModel, ...]


@dataclass(frozen=True)
class Prefixes:
    """Prefixes of a path, with a column of weights for each prefix and target."""

    rows: Rows
    """(m,): numbers of the centres."""
    features: NDArray[Any]
    """(m, d): raw features of those rows."""
    weights: Array
    """(m + 1, c): in the kernel basis, the intercept on centred targets first."""
    fitted: Array
    """(columns of Q, c): the same fits on the columns of Q."""
    formed: Array | None
    """(width, c): and on formed columns that were not appended to Q; None without such columns."""
    steps: Array
    """(columns of Q, T): what each column subtracted from the residual, to return to the targets."""
    share: float
    """Share of the rows to evaluate; 1 or more for all."""


@dataclass(frozen=True)
class Compare:
    """Answer with what prefixes of paths predict for some training rows, and with their fit by Q; changes no state."""

    problems: tuple[Prefixes | None, ...]


Message = Load | Begin | Step | Accumulate | Score | Compare | DrawCenters | Multiply | SampleRows | SumLoss

PASSIVE = (Accumulate, Score, Compare, DrawCenters, Multiply, SampleRows, SumLoss)
"""Messages that change no state."""


@dataclass(frozen=True)
class KernelColumns:
    """Query of the kernel columns themselves, block by block (`factors="driver"`)."""

    problems: tuple[Columns | None, ...]


@dataclass(frozen=True)
class FetchRows:
    """Query of the raw features of some rows."""

    rows: Rows
    """Ascending global rows."""


Query = KernelColumns | FetchRows


def message_name(message: Message | Query) -> str:
    """Return the name of the tasks of `message` on the dashboard."""
    if isinstance(message, Step):
        return message.name
    return _NAMES[type(message)]


_NAMES: dict[type, str] = {
    Load: "load-blocks",
    Begin: "begin-run",
    Accumulate: "fit-all-rows",
    Score: "score-folds",
    Compare: "compare-fit",
    DrawCenters: "draw-centers",
    Multiply: "solve-weights",
    SampleRows: "sample-rows",
    SumLoss: "sum-loss",
    KernelColumns: "kernel-columns",
    FetchRows: "fetch-rows",
}


def digest(message: Message) -> bytes:
    """Hash a message by content, independent of process and memory layout."""
    state = hashlib.blake2b(digest_size=16)
    for piece in _pieces(message):
        state.update(piece)
    return state.digest()


def chain(previous: bytes, message_digest: bytes) -> bytes:
    """Return the hash of the log extended by one message."""
    return hashlib.blake2b(previous + message_digest, digest_size=16).digest()


GENESIS = bytes(16)
"""Hash of the empty log."""


def _pieces(value: Any) -> Iterator[bytes]:
    if isinstance(value, Kernel):
        yield f"kernel {value.name} {sorted(value.parameters().items())!r}".encode()
    elif is_dataclass(value) and not isinstance(value, type):
        yield type(value).__qualname__.encode()
        for part in fields(value):
            content = getattr(value, part.name)
            # Digests of messages without a later field stay those of version 0.1.
            if "hashed_unless" not in part.metadata or content != part.metadata["hashed_unless"]:
                yield part.name.encode()
                yield from _pieces(content)
    elif isinstance(value, np.ndarray):
        array = np.ascontiguousarray(value)
        yield f"array {array.dtype.str} {array.shape}".encode()
        yield repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
    elif isinstance(value, tuple):
        yield f"tuple {len(value)}".encode()
        for item in value:
            yield from _pieces(item)
    elif value is None or isinstance(value, (bool, int, float, str, bytes)):
        yield f"{type(value).__name__} {value!r};".encode()
    else:
        raise TypeError(f"messages hold no {type(value).__name__}")


def canonical(message: Any) -> Any:
    """Return `message` with every array C-contiguous and aligned.

    dask delivers unaligned arrays, and memory order changes the rounding of small products, so both executors call this
    on what they receive.
    """
    if isinstance(message, Kernel):
        return message
    if is_dataclass(message) and not isinstance(message, type):
        changed = {f.name: canonical(getattr(message, f.name)) for f in fields(message) if f.init}
        return type(message)(**changed)
    if isinstance(message, np.ndarray):
        return np.require(message, requirements=["C", "A"])
    if isinstance(message, tuple):
        return tuple(canonical(item) for item in message)
    return message

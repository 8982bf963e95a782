"""Answers as bytes and back: a JSON tree followed by the arrays, without any code.

Only the dataclasses named here are made, and only from their own fields. Decoded arrays are new and aligned, with the
same bits. Covers one record; the file of records is `distkern.storage.runs.journal`, its use in
`..training.run_record`. Runs of version 0.1 hold these names of classes and fields, so they must not change.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.numerics.moments import Moments
from distkern.numerics.row_draws import Shortlist
from distkern.storage import ReadReport

from .answer_types import typed
from .answers import Answer, CandidateRows, Drawn, Labels, Leaders, LoadAnswer, ProblemAnswer, Sample
from .selected_rows import SelectedRows

_CLASSES: dict[str, type[Any]] = {
    cls.__name__: cls
    for cls in (
        Answer,
        CandidateRows,
        Drawn,
        Labels,
        Leaders,
        LoadAnswer,
        Moments,
        ProblemAnswer,
        ReadReport,
        Sample,
        SelectedRows,
        Shortlist,
    )
}
_PLAIN_KINDS = "biufUS"
_LENGTH_BYTES = 8


@dataclass(frozen=True)
class Record:
    """One exchange as it is recorded."""

    message: bytes
    """Digest of the message."""
    answer: Answer
    exchanges: int
    """Driver-workers-driver exchanges up to this one."""
    seconds: float
    """Seconds of training up to this one, in all processes that drove the run."""


def encode(record: Record) -> list[bytes | memoryview]:
    """Return the pieces of a record; they share memory with its arrays."""
    arrays: list[NDArray[Any]] = []
    tree = {
        "message": record.message.hex(),
        "exchanges": record.exchanges,
        "seconds": record.seconds,
        "answer": _to_tree(record.answer, arrays),
    }
    text = json.dumps(tree, separators=(",", ":")).encode()
    return [len(text).to_bytes(_LENGTH_BYTES, "little"), text, *(a.reshape(-1).view(np.uint8).data for a in arrays)]


def decode(payload: bytes) -> Record:
    """Return the record that `encode` made.

    Raises
    ------
    ValueError
        The bytes are no such record.
    """
    try:
        end = _LENGTH_BYTES + int.from_bytes(payload[:_LENGTH_BYTES], "little")
        tree = json.loads(payload[_LENGTH_BYTES:end])
        reader = _Reader(memoryview(payload)[end:])
        record = Record(
            bytes.fromhex(tree["message"]), reader.value(tree["answer"]), tree["exchanges"], tree["seconds"]
        )
        return typed(record)
    except (AttributeError, KeyError, TypeError, IndexError, OverflowError, RecursionError) as error:
        raise ValueError(f"not a record of an exchange: {error}") from error


def _to_tree(value: Any, arrays: list[NDArray[Any]]) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        parts = {
            field.name: _to_tree(getattr(value, field.name), arrays)
            for field in fields(value)
            if field.metadata.get("recorded", True)
        }
        return {"class": _CLASSES[type(value).__name__].__name__, "fields": parts}
    if isinstance(value, np.ndarray):
        return _array_tree(value, arrays)
    if isinstance(value, dict):
        return {"pairs": [[_to_tree(k, arrays), _to_tree(v, arrays)] for k, v in value.items()]}
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_to_tree(item, arrays) for item in value]}
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"answers hold no {type(value).__name__}")


def _array_tree(array: NDArray[Any], arrays: list[NDArray[Any]]) -> dict[str, Any]:
    if array.dtype.kind not in _PLAIN_KINDS:
        # Labels in Python strings, or in numpy's strings of any length.
        dtype = "object" if array.dtype.kind == "O" else "strings"
        return {"items": [_to_tree(item, arrays) for item in array.tolist()], "dtype": dtype}
    arrays.append(np.ascontiguousarray(array))
    return {"array": array.dtype.str, "shape": list(array.shape)}


class _Reader:
    """Reads the arrays behind the tree, in the order in which they were written."""

    def __init__(self, rest: memoryview) -> None:
        self._rest = rest

    def value(self, tree: Any) -> Any:
        if not isinstance(tree, dict):
            return tree
        if "class" in tree:
            cls = _CLASSES[tree["class"]]
            return typed(cls(**{name: self.value(part) for name, part in tree["fields"].items()}))
        if "array" in tree:
            return self._array(np.dtype(tree["array"]), tuple(tree["shape"]))
        if "items" in tree:
            dtype: Any = object if tree["dtype"] == "object" else np.dtypes.StringDType()
            out: NDArray[Any] = np.empty(len(tree["items"]), dtype=dtype)
            out[:] = [self.value(item) for item in tree["items"]]
            return out
        if "pairs" in tree:
            return {self.value(k): self.value(v) for k, v in tree["pairs"]}
        return [self.value(v) for v in tree["list"]] if "list" in tree else tuple(self.value(v) for v in tree["tuple"])

    def _array(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        if dtype.kind not in _PLAIN_KINDS:
            raise ValueError(f"a record holds no arrays of {dtype}")
        count = 1
        for length in shape:
            count *= length
        size = count * dtype.itemsize
        if min(shape, default=0) < 0 or size > len(self._rest):
            raise ValueError(f"a record ends inside an array of shape {shape}")
        piece, self._rest = self._rest[:size], self._rest[size:]
        out: NDArray[Any] = np.empty(count, dtype=dtype)
        out.view(np.uint8)[:] = piece
        return out.reshape(shape)

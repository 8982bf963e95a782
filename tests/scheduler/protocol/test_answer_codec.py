"""Answers as bytes and back."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from distkern.numerics.moments import Moments
from distkern.numerics.row_draws import Shortlist
from distkern.scheduler.execution.executor import SerialExecutor
from distkern.scheduler.protocol.answer_codec import Record, decode, encode
from distkern.scheduler.protocol.answers import (
    Answer,
    CandidateRows,
    Drawn,
    Labels,
    Leaders,
    LoadAnswer,
    ProblemAnswer,
    Sample,
)
from distkern.scheduler.protocol.messages import Load
from tests.scheduler.trainings import make_classes, make_data, make_source

floats = npst.arrays(np.float64, npst.array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=4))
rows = npst.arrays(np.int64, st.integers(0, 4))
labels = st.one_of(
    rows,
    npst.arrays(np.float64, st.integers(0, 4)),
    npst.arrays("U5", st.integers(0, 4)),
    npst.arrays("S3", st.integers(0, 4)),
    st.lists(st.text(max_size=5), max_size=4).map(lambda names: np.array(names, dtype=object)),
    st.lists(st.text("abc", max_size=5), max_size=4).map(lambda names: np.array(names, dtype=np.dtypes.StringDType())),
)
shortlists = st.builds(Shortlist, floats, rows, floats)
drawn = st.builds(
    Drawn, shortlists, shortlists, rows, floats | st.none(), st.tuples(st.integers(), st.integers()), st.floats()
)
problems = st.builds(
    ProblemAnswer,
    st.dictionaries(st.text(max_size=5), floats, max_size=3),
    drawn | st.none(),
    st.builds(Leaders, floats, rows, floats, floats | st.none(), st.floats(), st.integers()) | st.none(),
    st.builds(CandidateRows, rows, floats) | st.none(),
)
moments = st.builds(Moments, st.floats(), floats, floats)
loads = st.builds(
    LoadAnswer,
    moments,
    moments | st.none(),
    st.builds(Labels, labels, floats) | st.none(),
    st.builds(Sample, shortlists, floats, floats, st.integers()) | st.none(),
    st.integers(),
    st.integers(),
    st.integers(),
)
answers = st.builds(Answer, st.lists(problems, max_size=3), loads | st.none())
records = st.builds(Record, st.binary(min_size=16, max_size=16), answers, st.integers(0), st.floats(0, 1e9))


def assert_same(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    if is_dataclass(a):
        for field in (f for f in fields(a) if f.compare):
            assert_same(getattr(a, field.name), getattr(b, field.name))
    elif isinstance(a, np.ndarray):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        assert a.tolist() == b.tolist() if a.dtype.kind in "OT" else a.tobytes() == b.tobytes()
        assert b.flags.c_contiguous
        assert b.flags.aligned
        assert b.flags.writeable
    elif isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    else:
        assert a == b or (a != a and b != b)


def stored(record: Record) -> bytes:
    return b"".join(bytes(piece) for piece in encode(record))


@given(records)
def test_records_come_back_bit_for_bit(record: Record) -> None:
    assert_same(record, decode(stored(record)))


@pytest.mark.parametrize("classification", [False, True])
def test_what_blocks_answer(classification: bool) -> None:
    X, y = make_classes(60) if classification else make_data(60)
    answer = SerialExecutor(make_source(X, y, rows=20)).exchange(Load(classification, 7, 0, 0.1, 30))
    assert answer.load is not None
    record = Record(bytes(16), answer, 1, 0.5)
    assert_same(record, decode(stored(record)))


@given(records, st.data())
def test_a_record_with_a_changed_byte_is_read_or_refused(record: Record, data: st.DataObject) -> None:
    """The journal's checksum finds such a record; the reader still makes nothing but answers of it."""
    payload = bytearray(stored(record))
    payload[data.draw(st.integers(0, len(payload) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        found = decode(bytes(payload))
    except ValueError:
        return
    assert isinstance(found.answer, Answer)


@given(st.binary(max_size=200))
def test_anything_else_is_refused(payload: bytes) -> None:
    with pytest.raises(ValueError):
        decode(payload)


@pytest.mark.parametrize(
    "tree",
    [
        b'{"class":"Popen","fields":{}}',
        b'{"class":"Moments","fields":{"count":1}}',
        b'{"array":"<f8","shape":[1000000000000]}',
        b'{"array":"<f8","shape":[-1]}',
        b'{"array":"|O","shape":[1]}',
        b'{"array":"<f8","shape":[4611686018427387904,4]}',
    ],
)
def test_what_no_answer_holds(tree: bytes) -> None:
    text = b'{"message":"","exchanges":1,"seconds":1.0,"answer":{"class":"Answer","fields":{"rows":' + tree + b"}}}"
    with pytest.raises(ValueError):
        decode(len(text).to_bytes(8, "little") + text)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("exchanges", "1e999"),
        ("exchanges", '"1"'),
        ("exchanges", "null"),
        ("seconds", '"soon"'),
        ("seconds", "[]"),
        ("message", "7"),
        ("answer", "3"),
        ("answer", '{"class":"Moments","fields":{}}'),
        ("answer", '{"class":"Answer","fields":{"problems":4}}'),
        ("answer", '{"class":"Answer","fields":{"problems":{"list":[1,2]}}}'),
        ("answer", '{"class":"Answer","fields":{"rows":{"list":[]}}}'),
        ("answer", '{"class":"Answer","fields":{"bytes_read":0.5}}'),
        ("answer", '{"class":"Answer","fields":{"bytes_read":true}}'),
        ("answer", '{"class":"Answer","fields":{"load":{"class":"ReadReport","fields":{}}}}'),
        ("answer", '{"class":"Answer","fields":{"columns":{"pairs":[["x",{"list":[]}]]}}}'),
        ("answer", '{"class":"ProblemAnswer","fields":{}}'),
        ("answer", '{"class":"Answer","fields":{"problems":{"list":[{"class":"ProblemAnswer","fields":{"sums":3}}]}}}'),
        (
            "answer",
            (
                '{"class":"Answer","fields":{"problems":{"list":[{"class":"ProblemAnswer","fields":{"sums":'
                '{"pairs":[["cross",{"items":["x"],"dtype":"object"}]]}}}]}}}'
            ),
        ),
    ],
)
def test_values_of_another_type_are_refused(name: str, value: str) -> None:
    """The checksum of a record says nothing about what is in it."""
    tree = {"message": '""', "exchanges": "1", "seconds": "1.0", "answer": '{"class":"Answer","fields":{}}'}
    for part, refused in ((tree, False), (tree | {name: value}, True)):
        text = ("{" + ",".join(f'"{key}":{shown}' for key, shown in part.items()) + "}").encode()
        payload = len(text).to_bytes(8, "little") + text
        if refused:
            with pytest.raises(ValueError):
                decode(payload)
        else:
            assert isinstance(decode(payload).answer, Answer)

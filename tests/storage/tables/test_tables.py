"""The column rule: schema, target statistics, encoding of new rows, against plain references."""

from __future__ import annotations

import datetime
import json
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distkern.errors import DataError, StoreError, TableWarning
from distkern.storage.tables.encode import TableEncoding
from distkern.storage.tables.level_counts import row_folds
from distkern.storage.tables.level_numbers import LevelNumbers
from distkern.storage.tables.profile import ProfiledTable
from distkern.storage.tables.raw_rows import ArrowRows, profile_rows
from distkern.storage.tables.schema import TableSchema

DAY = datetime.datetime(2024, 3, 1)


def profiled(columns: dict[str, Any], y: Any = None, weights: Any = None, **options: Any) -> ProfiledTable:
    return profile_rows(ArrowRows(pa.table(columns), None if y is None else np.asarray(y), weights), **options)


def encoded(found: ProfiledTable, columns: dict[str, Any], *, training: bool = False) -> Any:
    made = TableEncoding(found.schema, found.out_of_fold if training else None)
    return made.encode(pa.table(columns).combine_chunks().to_batches()[0])


def test_columns_become_numbers() -> None:
    columns = {
        "size": [1.5, None, 2.5, float("nan")],
        "price": pa.array([Decimal("1.10"), Decimal("2.20"), Decimal("3.30"), Decimal("4.40")]),
        "flag": [True, False, True, True],
        "kind": ["b", "a", None, "b"],
        "code": pa.array(["7", "8", "7", "7"]).dictionary_encode(),
        "text": ["1", " 2", "3.5", ""],
        "word": ["true", "False", "TRUE", "true"],
        "when": [DAY + datetime.timedelta(days=300 * step, hours=6) for step in range(4)],
    }
    found = profiled(columns)
    schema = found.schema
    assert [column.kind for column in schema.columns] == [
        *("number", "number", "boolean", "category", "category", "number", "boolean", "date")
    ]
    assert schema.encoded_names == [
        *("size", "size missing", "price", "flag", "kind=a", "kind=b", "kind missing", "code=7", "code=8"),
        *("text", "text missing", "word", "when", "when day sin", "when day cos", "when week sin", "when week cos"),
        *("when year sin", "when year cos"),
    ]
    X = encoded(found, columns)
    np.testing.assert_allclose(X[:, :2], [[1.5, 0], [2, 1], [2.5, 0], [2, 1]])
    np.testing.assert_allclose(X[:, 2], [1.1, 2.2, 3.3, 4.4])
    np.testing.assert_array_equal(X[:, 4:7], [[0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0]])
    np.testing.assert_array_equal(X[:, 7], [1, 0, 1, 1])
    np.testing.assert_allclose(X[:, 9:11], [[1, 0], [2, 0], [3.5, 0], [6.5 / 3, 1]])
    np.testing.assert_array_equal(X[:, 11], [1, 0, 1, 1])
    days = [(moment - datetime.datetime(1970, 1, 1)) / datetime.timedelta(days=1) for moment in columns["when"]]
    np.testing.assert_allclose(X[:, 12], days)
    for moment, row in zip(columns["when"], X, strict=True):
        day = 0.25
        week = (moment.weekday() + day) / 7
        year = (moment.timetuple().tm_yday - 1 + day) / 365.25
        for place, phase in enumerate((day, week, year)):
            angle = 2 * math.pi * phase
            np.testing.assert_allclose(row[13 + 2 * place : 15 + 2 * place], [math.sin(angle), math.cos(angle)])


def test_a_category_has_one_scale_and_one_importance() -> None:
    found = profiled({"kind": ["a"] * 5 + ["b"] * 3 + ["c"] * 2, "rare": ["x"] * 9 + ["y"], "n": range(10)})
    variance = 1 - 0.5**2 - 0.3**2 - 0.2**2
    scales = found.schema.scales
    np.testing.assert_allclose(scales[:3], math.sqrt(variance))
    np.testing.assert_allclose(scales[3:5], math.sqrt(0.5))  # not that of 0.18
    assert np.isnan(scales[5])
    assert found.schema.summed(np.array([0.1, 0.2, 0.1, 0.2, 0.1, 0.3])) == pytest.approx(
        {"kind": 0.4, "rare": 0.3, "n": 0.3}
    )


def slow_statistics(levels: list[Any], y: np.ndarray, row: int | None, level: Any, m: float) -> float:
    """The smoothed mean target of a level, for a training row without the rows of its fold."""
    folds = row_folds(0, len(y))
    kept = [i for i in range(len(y)) if row is None or folds[i] != folds[row]]
    prior = sum(y[i] for i in kept) / len(kept) if kept else 0.0
    same = [y[i] for i in kept if levels[i] == level]
    return (sum(same) + m * prior) / (len(same) + m)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=12, max_size=60), st.floats(0.5, 20), st.integers(0, 2**31))
def test_target_statistics_are_those_of_the_other_folds(codes: list[int], m: float, seed: int) -> None:
    levels = [None if code == 9 else f"l{code}" for code in codes]
    if not any(levels):
        return
    y = np.random.default_rng(seed).normal(size=len(levels))
    found = profiled({"c": pa.array(levels, pa.string())}, y, max_one_hot=0, smoothing=m)
    training = encoded(found, {"c": pa.array(levels, pa.string())}, training=True)[:, 0]
    new = encoded(found, {"c": pa.array([*levels, "new"], pa.string())})[:, 0]
    np.testing.assert_allclose(training, [slow_statistics(levels, y, i, c, m) for i, c in enumerate(levels)])
    np.testing.assert_allclose(new[:-1], [slow_statistics(levels, y, None, c, m) for c in levels], atol=1e-12)
    np.testing.assert_allclose(new[-1], y.mean(), atol=1e-12)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), min_size=8, max_size=40), st.booleans())
def test_weights_are_repeated_rows_in_one_fold(rows: list[tuple[int, int]], labelled: bool) -> None:
    codes, counts = (np.array(values) for values in zip(*rows, strict=True))
    if not counts[codes > 0].any():
        return
    rng = np.random.default_rng(len(rows))
    levels = [None if code == 0 else f"l{code}" for code in codes]
    y = rng.integers(0, 2, len(rows)).astype(str) if labelled else rng.normal(size=len(rows))
    numbers = [None if code == 1 else float(code) for code in codes]
    columns = {"c": pa.array(levels, pa.string()), "n": pa.array(numbers, pa.float64())}
    columns["few"] = columns["c"]
    if labelled and len(set(y[counts > 0])) < 2:
        return
    if not any(count for number, count in zip(numbers, counts, strict=True) if number is not None):
        return
    options: dict[str, Any] = {"max_one_hot": 0, "smoothing": 3.0, "task": "classification" if labelled else None}
    made = profiled(columns, y, counts.astype(float), **options)
    repeated = np.repeat(np.arange(len(rows)), counts)
    other = profiled(
        {name: column.take(pa.array(repeated)) for name, column in columns.items()}, y[repeated], **options
    )
    assert made.schema.encoded_names == other.schema.encoded_names
    np.testing.assert_allclose(encoded(made, columns), encoded(other, columns), rtol=1e-12, atol=1e-12)
    wanted = (y == "1").astype(float) if labelled else y
    training = encoded(made, columns, training=True)[:, 0]
    for row in np.flatnonzero(counts):
        # Without the rows of its own fold, each as often as its weight says.
        kept = [i for i in repeated if row_folds(0, len(rows))[i] != row_folds(0, len(rows))[row]]
        prior = wanted[kept].mean() if kept else 0.0
        same = [wanted[i] for i in kept if levels[i] == levels[row]]
        np.testing.assert_allclose(training[row], (sum(same) + 3.0 * prior) / (len(same) + 3.0), atol=1e-12)


def test_small_weights_are_shares_and_batches_of_weighted_rows_change_no_bit() -> None:
    rng = np.random.default_rng(0)
    columns = {"c": [f"l{code}" for code in rng.integers(0, 40, 300)], "n": rng.normal(size=300)}
    y, weights = rng.normal(size=300), rng.exponential(size=300)
    weights[::7] = 0.0
    weights /= weights.sum()
    whole = profiled(columns, y, weights)
    table = pa.table(columns)
    parts = profile_rows(ArrowRows(pa.concat_tables([table.slice(0, 90), table.slice(90)]), y, weights))
    assert parts.schema.as_record() == whole.schema.as_record()
    by = np.square(np.sqrt(weights).sum() / weights.sum())
    for factor in (1e-9, by):
        scaled = profiled(columns, y, weights * factor)
        np.testing.assert_allclose(encoded(scaled, columns, training=True), encoded(whole, columns, training=True))
    with pytest.raises(DataError, match="row 3 "):
        profiled(columns, y, np.where(np.arange(300) == 3, -1.0, weights))


@pytest.mark.parametrize(
    ("y", "names"),
    [
        (np.array(["no", "yes"] * 20), ("target=yes",)),
        (np.arange(40) % 3, ("target=0", "target=1", "target=2")),
        (np.arange(40.0), ("target",)),
        (np.arange(80.0).reshape(40, 2), ("target 0", "target 1")),
        (np.array([f"id{i}" for i in range(40)]), ()),
    ],
)
def test_statistics_of_labels_and_of_several_targets(y: Any, names: tuple[str, ...]) -> None:
    levels = [f"l{i % 5}" for i in range(40)]
    found = profiled({"c": levels}, y, max_one_hot=3, smoothing=1.0)
    assert found.schema.targets == names
    (column,) = found.schema.columns
    if not names:
        assert column.encoding == "frequent"
        assert found.schema.encoded_names == ["c=l0", "c=l1", "c=l2", "c other"]
        np.testing.assert_array_equal(encoded(found, {"c": ["l4", "new", "l1"]})[:, 3], [1, 1, 0])
        return
    wide = y.reshape(40, -1) if y.dtype.kind == "f" else (y[:, None] == np.unique(y)[-len(names) :])
    expected = [[slow_statistics(levels, part.astype(float), None, f"l{i}", 1.0) for part in wide.T] for i in range(5)]
    np.testing.assert_allclose(encoded(found, {"c": [f"l{i}" for i in range(5)]}), expected)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 200), st.integers(1, 50), st.integers(0, 2**31))
def test_batches_change_no_bit(n: int, step: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    columns = {
        "a": pa.array(rng.normal(size=n) * 1e3),
        "c": pa.array([f"l{code}" for code in rng.integers(0, 40, n)]),
        "t": pa.array([None, *map(str, rng.integers(0, 9, n - 1))] if n > 1 else ["4"]),
    }
    y = rng.normal(size=n)
    whole = pa.table(columns)
    parts = pa.concat_tables([whole.slice(start, step) for start in range(0, n, step)])
    one, many = (profile_rows(ArrowRows(table, y), max_one_hot=2) for table in (whole, parts))
    assert one.schema.as_record() == many.schema.as_record()
    X = TableEncoding(one.schema, one.out_of_fold).encode(whole.combine_chunks().to_batches()[0])
    made = TableEncoding(many.schema, many.out_of_fold)
    pieces = [made.encode(part.combine_chunks().to_batches()[0], first) for first in range(0, n, step)
              for part in [whole.slice(first, step)]]  # fmt: skip
    np.testing.assert_array_equal(X, np.concatenate(pieces))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.text(max_size=3), unique=True), max_size=8))
def test_numbers_of_levels_are_those_of_a_dictionary(batches: list[list[str]]) -> None:
    numbers, expected = LevelNumbers(["a", "b"]), {"a": 0, "b": 1}
    for batch in batches:
        levels = pa.array(batch, pa.string())
        assert numbers.known(levels).tolist() == [expected.get(level, -1) for level in batch]
        assert numbers.added(levels).tolist() == [expected.setdefault(level, len(expected)) for level in batch]
    assert numbers.levels == list(expected)


def test_text_is_what_all_rows_allow() -> None:
    later = {"n": ["1", "2", "x"], "d": ["2024-01-01", "2024-01-02", "-"], "b": ["true", "no", "false"]}
    whole = pa.table({name: values[:1] for name, values in later.items()})
    parts = pa.concat_tables([whole, pa.table({name: values[1:] for name, values in later.items()})])
    found = profile_rows(ArrowRows(parts))
    assert [column.kind for column in found.schema.columns] == ["category"] * 3
    assert found.schema.columns[0].levels == ("1", "2", "x")
    (zoned,) = profiled({"d": ["2024-01-01T00:00:00Z", "2024-01-01T05:00:00+05:00"]}).schema.columns
    assert (zoned.kind, zoned.zone) == ("date", "UTC")
    (code,) = profiled({"n": pa.array([7, 8, 7])}, categorical=["n"]).schema.columns
    assert (code.kind, code.levels) == ("category", ("7", "8"))


@pytest.mark.parametrize(
    ("days", "cycles"), [(5, ()), (13.9, ()), (14, ("week",)), (729, ("week",)), (730, ("week", "year"))]
)
def test_a_date_has_the_cycles_that_training_rows_saw_twice(days: float, cycles: tuple[str, ...]) -> None:
    whole = [DAY + datetime.timedelta(days=part) for part in (0, int(days))]
    assert profiled({"d": [*whole, DAY + datetime.timedelta(days=int(days))]}).schema.columns[0].cycles == (
        cycles if days == int(days) else ()
    )
    with_time = profiled({"d": [DAY, DAY + datetime.timedelta(days=days, hours=1)]}).schema.columns[0]
    assert with_time.cycles[0] == "day"


def test_the_dates_of_the_training_have_the_length_one() -> None:
    dates = [DAY + datetime.timedelta(days=step) for step in range(11)]
    found = profiled({"d": dates, "one": [DAY] * 11})
    assert found.schema.encoded_names == ["d", "one"]
    np.testing.assert_array_equal(found.schema.scales, [10.0, 1.0])


def test_later_dates_are_the_last_one_of_the_training() -> None:
    found = profiled({"d": [DAY, DAY + datetime.timedelta(days=3)]})
    X = encoded(found, {"d": [DAY - datetime.timedelta(days=1), DAY + datetime.timedelta(days=9)]})
    np.testing.assert_array_equal(X, encoded(found, {"d": [DAY, DAY + datetime.timedelta(days=3)]}))


def test_one_instant_has_one_number_in_all_zones() -> None:
    instants = pa.array([DAY, DAY + datetime.timedelta(hours=5)], pa.timestamp("us", "UTC"))
    found = profiled({"d": instants})
    other = encoded(found, {"d": instants.cast(pa.timestamp("ms", "Asia/Tokyo"))})
    np.testing.assert_array_equal(encoded(found, {"d": instants}), other)


TRAINED: dict[str, Any] = {
    "n": [1.0, 2.0],
    "b": [True, False],
    "c": ["u", "v"],
    "d": [DAY, DAY + datetime.timedelta(days=1)],
}


@pytest.mark.parametrize(
    ("changed", "kind", "words"),
    [
        ({"n": ["1", "x"]}, "type-changed", ("'n'", "'x'", "row 1")),
        ({"n": [DAY, DAY]}, "type-changed", ("'n'", "timestamp")),
        ({"n": [1.0, math.inf]}, "not-finite", ("'n'", "row 1")),
        ({"b": [0, 2]}, "type-changed", ("'b'", "2", "row 1")),
        ({"d": [1, 2]}, "type-changed", ("'d'", "int64")),
        ({"d": ["2024-01-01", "soon"]}, "type-changed", ("'d'", "'soon'", "row 1")),
        ({"d": pa.array([DAY, DAY], pa.timestamp("us", "UTC"))}, "type-changed", ("'d'", "UTC")),
        ({"c": [["a"], ["b"]]}, "column-type", ("'c'", "list")),
        ({"c": None}, "unknown-column", ("'c'",)),
    ],
)
def test_changed_types_and_missing_columns_are_named(
    changed: dict[str, Any], kind: str, words: tuple[str, ...]
) -> None:
    found = profiled(TRAINED)
    columns = {name: values for name, values in (TRAINED | changed).items() if values is not None}
    with pytest.raises(DataError) as caught:
        encoded(found, columns)
    assert caught.value.kind == kind
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_values_of_another_type_that_mean_the_same_are_taken() -> None:
    found = profiled(TRAINED)
    same = {
        "d": ["2024-03-01", "2024-03-02"],
        "c": pa.array(["u", "v"]).dictionary_encode(),
        "b": [1, 0],
        "n": ["1", "2"],
    }
    np.testing.assert_array_equal(encoded(found, same), encoded(found, TRAINED))


def test_unknown_levels_are_no_known_level_and_are_named() -> None:
    found = profiled(TRAINED)
    made = TableEncoding(found.schema)
    X = made.encode(pa.table(TRAINED | {"c": ["w", None], "n": [None, 1.0]}).to_batches()[0])
    np.testing.assert_array_equal(X[:, 2:4], 0.0)
    assert X[0, 0] == 1.5
    with pytest.warns(TableWarning, match="'c' has levels that the training did not have: 'w'.*'n' has 1 gap"):
        made.warn()
    made.warn()  # forgotten


@pytest.mark.parametrize(
    ("columns", "kind"),
    [
        ({"a": pa.array([None, None], pa.string())}, "empty-column"),
        ({"a": [math.nan, math.nan]}, "empty-column"),
        ({"a": [[1], [2]]}, "column-type"),
        ({"a": [b"x", b"y"]}, "column-type"),
        ({"a": ["x", "y"], "a=x": [1, 2]}, "duplicate-column"),
    ],
)
def test_tables_that_cannot_be_trained_on(columns: dict[str, Any], kind: str) -> None:
    with pytest.raises(DataError) as caught:
        profiled(columns)
    assert caught.value.kind == kind


def test_a_schema_is_the_same_after_a_store_and_damage_is_refused() -> None:
    columns = TRAINED | {"h": ["p", "q"]}
    found = profiled(columns, [0.1, 0.7], max_one_hot=1)
    stored = found.schema.to_bytes()
    again = TableSchema.from_bytes(stored, "m")
    assert again.as_record() == found.schema.as_record()
    np.testing.assert_array_equal(again.scales, found.schema.scales)
    for path, value in (
        (("format_version",), 2),
        (("columns", 0, "kind"), "text"),
        (("columns", 2, "levels"), ["u", "u"]),
        (("columns", 4, "statistics"), [[1.0]]),
        (("columns", 3, "cycles"), ["month"]),
        (("columns", 3, "extent"), [2.0, 1.0]),
        (("columns", 0, "unknown"), 1),
        (("targets",), "x"),
        (("columns",), []),
    ):
        record = json.loads(stored.tobytes())
        *parents, last = path
        part = record
        for step in parents:
            part = part[step]
        part[last] = value
        damaged = np.frombuffer(json.dumps(record).encode(), dtype=np.uint8)
        with pytest.raises(StoreError, match=r"newer one|damaged"):
            TableSchema.from_bytes(damaged, "m")

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

import distkern as dk
from distkern.storage import DatasetSource, DatasetWriter, names_of, require_names

ABC = ["a", "b", "c"]
ROWS = np.arange(3000.0).reshape(1000, 3)
FRAME = pd.DataFrame(ROWS, columns=ABC)


def test_containers_with_names(tmp_path: Path) -> None:
    xr = pytest.importorskip("xarray")
    dd = pytest.importorskip("dask.dataframe")
    labelled = xr.DataArray(ROWS, dims=("row", "feature"), coords={"feature": ABC})
    stored = dk.write_dataset(tmp_path / "d", ROWS, ROWS[:, 0], feature_names=ABC)
    for rows in (FRAME, dd.from_pandas(FRAME, npartitions=2), labelled, stored):
        assert names_of(rows) == ABC


@pytest.mark.parametrize(
    "rows", [ROWS, ROWS.tolist(), pd.DataFrame(ROWS), FRAME["a"], None], ids=lambda v: type(v).__name__
)
def test_containers_without_names(rows: Any) -> None:
    assert names_of(rows) is None


def test_names_of_several_types_are_refused() -> None:
    with pytest.raises(dk.errors.DataTypeError, match="one named 1 of the type int") as caught:
        names_of(pd.DataFrame(ROWS, columns=["a", 1, "c"]))
    assert caught.value.kind == "feature-names"


def test_two_columns_of_one_name_are_refused() -> None:
    xr = pytest.importorskip("xarray")
    dd = pytest.importorskip("dask.dataframe")
    names = ["a", "b", "a"]
    frame = pd.DataFrame(ROWS, columns=names)
    for rows in (frame, dd.from_pandas(frame, npartitions=2), xr.DataArray(ROWS, coords={"f": names}, dims=("r", "f"))):
        with pytest.raises(dk.DataError, match="2 columns with the name 'a'") as caught:
            names_of(rows)
        assert caught.value.kind == "feature-names"
    assert names_of(pd.DataFrame(ROWS, columns=[0, 1, 0])) is None


@pytest.mark.parametrize(
    ("names", "known", "any_order", "said"),
    [
        (ABC, ABC, False, None),
        (None, ABC, False, None),
        (ABC, None, False, None),
        (["c", "b", "a"], ABC, True, None),
        (["c", "b", "a"], ABC, False, "column 0 (counted from 0) is 'c' and must be 'a'"),
        (["a", "c", "b"], ABC, False, "column 1 (counted from 0) is 'c' and must be 'b'"),
        (["a", "b"], ABC, True, "rows lacks the column 'c' of the training"),
        ([*ABC, "d"], ABC, True, "rows has the column 'd', which the training does not have"),
        (["q", "b", "r"], ABC, True, "lacks the columns 'a', 'c' of the training and has the columns 'q', 'r'"),
        (["a", "a", "b"], ABC, True, "lacks the column 'c' of the training and has the column 'a', which"),
        (["b", "a", "a"], ["a", "a", "b"], True, "column 0 (counted from 0) is 'b' and must be 'a'"),
        (ABC, list("abcdefghijk"), True, "the columns 'd', 'e', 'f', 'g', 'h' and 3 more of"),
    ],
)  # fmt: skip
def test_names_are_compared(names: Any, known: Any, any_order: bool, said: str | None) -> None:
    if said is None:
        require_names(names, known, "rows", "the training", any_order=any_order)
        return
    with pytest.raises(dk.DataError) as caught:
        require_names(names, known, "rows", "the training", any_order=any_order)
    assert said in str(caught.value)
    assert caught.value.kind == "feature-names"


def test_a_dataset_is_read_in_the_order_of_given_names(tmp_path: Path) -> None:
    data = dk.write_dataset(tmp_path / "d", ROWS, ROWS[:, 0], chunk_rows=600, feature_names=ABC)
    source = pickle.loads(pickle.dumps(data.source(["c", "a", "b"])))
    assert source.feature_names == ("c", "a", "b")
    block = source.read_features(0)
    assert block.flags.c_contiguous
    assert_array_equal(block, ROWS[: source.boundaries[1], [2, 0, 1]])
    assert_array_equal(source.read_rows(np.array([999, 3])), ROWS[[999, 3]][:, [2, 0, 1]])
    assert data.source(ABC).fingerprint() == data.source().fingerprint() != source.fingerprint()
    with pytest.raises(dk.DataError, match=r"lacks|does not have") as caught:
        DatasetSource(data, columns=["a", "b", "q"])
    assert caught.value.kind == "feature-names"


def test_a_store_keeps_the_names_of_a_frame(tmp_path: Path) -> None:
    assert dk.write_dataset(tmp_path / "d", FRAME, ROWS[:, 0]).feature_names == tuple(ABC)
    assert dk.write_dataset(tmp_path / "n", ROWS, ROWS[:, 0]).feature_names is None
    with DatasetWriter(tmp_path / "w") as writer:
        writer.append(FRAME, ROWS[:, 0])
        writer.append(ROWS, ROWS[:, 0])
    assert dk.open_dataset(tmp_path / "w").feature_names == tuple(ABC)


def test_a_store_refuses_frames_of_other_columns(tmp_path: Path) -> None:
    turned = FRAME[["b", "a", "c"]]
    with pytest.raises(dk.DataError, match="is 'b' and must be 'a'"):
        dk.write_dataset(tmp_path / "d", turned, ROWS[:, 0], feature_names=ABC)
    writer = DatasetWriter(tmp_path / "d")
    with writer:
        writer.append(FRAME, ROWS[:, 0])
        with pytest.raises(dk.DataError, match="X has the columns of the store in another order"):
            writer.append(turned, ROWS[:, 0])
        writer.append(FRAME, ROWS[:, 0])
    assert dk.open_dataset(tmp_path / "d").n_rows == 2 * len(ROWS)

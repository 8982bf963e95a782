from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file

from distkern.errors import DataError, JobError
from distkern.storage import RowFiles, ingest

RNG = np.random.default_rng(11)


@pytest.mark.parametrize("zero_based", [True, False])
@pytest.mark.parametrize("name", ["t.svm", "t.svmlight", "t.libsvm"])
def test_round_trip(tmp_path: Path, zero_based: bool, name: str) -> None:
    X = np.round(RNG.normal(size=(300, 6)), 3) * (RNG.random((300, 6)) < 0.4)
    X[0] = 1.0
    y = RNG.choice([-1, 1], 300)
    dump_svmlight_file(X, y, str(tmp_path / name), zero_based=zero_based)
    dataset = ingest(tmp_path / name, tmp_path / "d")
    np.testing.assert_array_equal(dataset.X[:], X)
    assert dataset.class_labels is not None
    assert dataset.class_labels.tolist() == [-1, 1]
    np.testing.assert_array_equal(dataset.targets(), y)


def test_streams_several_ranges_and_files(tmp_path: Path) -> None:
    X = RNG.normal(size=(30_000, 8))
    y = X[:, 0] * 1.5
    dump_svmlight_file(X, y, str(tmp_path / "a.svm"), zero_based=False)
    (tmp_path / "b.svm").write_text("0.5 9:2.5 # a feature more\n")
    assert (tmp_path / "a.svm").stat().st_size > 4 * 1024 * 1024
    dataset = ingest([tmp_path / "a.svm", tmp_path / "b.svm"], tmp_path / "d")
    assert dataset.X.shape == (30_001, 9)
    assert dataset.task == "regression"
    np.testing.assert_allclose(dataset.X[:-1, :8], X, rtol=1e-12)
    np.testing.assert_allclose(dataset.targets()[:-1], y, rtol=1e-12)
    assert dataset.X[-1].tolist() == [0] * 8 + [2.5]


@pytest.mark.parametrize(
    ("text", "kind", "parts"),
    [
        ("", "empty-file", ["no rows"]),
        ("# only a comment\n", "empty-file", ["no rows"]),
        ("1\n-1\n", "zero-features", ["no features"]),
        ("1 1:2\nspam\n", "unreadable", ["line 2"]),
        ("1 1:2\n-1 1:x\n", "unreadable", ["line 2"]),
        ("1 1:2\n-1 3:1 2:1\n", "unreadable", ["line 2"]),
        ("1 1:nan\n-1 1:2\n", "missing-value", ["row 1 "]),
        ("1 1:2\n1 1:3\n", "single-class", ["1"]),
    ],
)
def test_refused(tmp_path: Path, text: str, kind: str, parts: list[str]) -> None:
    (tmp_path / "t.svm").write_text(text)
    with pytest.raises(DataError) as caught:
        ingest(tmp_path / "t.svm", tmp_path / "d")
    assert caught.value.kind == kind
    for part in parts:
        assert part in str(caught.value)
    assert not (tmp_path / "d").exists()


def test_random_bytes(tmp_path: Path) -> None:
    (tmp_path / "t.svm").write_bytes(RNG.bytes(2000))
    with pytest.raises(DataError, match=r"t\.svm") as caught:
        ingest(tmp_path / "t.svm", tmp_path / "d")
    assert caught.value.kind == "unreadable"


def test_options_of_other_formats(tmp_path: Path) -> None:
    (tmp_path / "t.svm").write_text("1 1:2\n0 1:3\n")
    with pytest.raises(JobError, match="--target") as caught:
        ingest(tmp_path / "t.svm", tmp_path / "d", target="y")
    assert caught.value.kind == "unused-option"


def test_features_are_named_by_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "t.svm").write_text("1 0:2 1:3\n-1 0:1 2:5\n")
    dataset = ingest(tmp_path / "t.svm", tmp_path / "d")
    assert dataset.feature_names == ("0", "1", "2")


@pytest.mark.parametrize(
    ("text", "options", "names", "first"),
    [
        ("1 1:2 2:3\n-1 1:1\n", {"features": 3}, ("1", "2", "3"), [2, 3, 0]),
        ("1 1:2 2:3\n-1 1:1\n", {"index_base": 0}, ("0", "1", "2"), [0, 2, 3]),
        ("1 1:2 2:3\n-1 1:1\n", {"features": 4, "index_base": 0}, ("0", "1", "2", "3"), [0, 2, 3, 0]),
        ("1 0:2 1:3\n-1 0:1\n", {"features": 3, "index_base": "auto"}, ("0", "1", "2"), [2, 3, 0]),
        ("\ufeff1 1:2 2:3\n-1 1:1\n", {}, ("1", "2"), [2, 3]),
    ],
)
def test_width_and_first_feature(
    tmp_path: Path, text: str, options: dict[str, Any], names: tuple[str, ...], first: list[float]
) -> None:
    (tmp_path / "t.svm").write_text(text, encoding="utf-8")
    dataset = ingest(tmp_path / "t.svm", tmp_path / "d", **options)
    assert dataset.feature_names == names
    assert dataset.X[0].tolist() == first


@pytest.mark.parametrize(
    ("text", "options", "parts"),
    [
        ("1 1:2 2:3\n-1 1:1 4:2\n", {"features": 3}, ["row 2 ", "feature 4", "from 1 to 3"]),
        ("1 1:2 2:3\n-1 0:1 2:2\n", {"index_base": 1}, ["row 2 ", "feature 0", "from 1"]),
        ("1 0:2 2:3\n-1 1:1 2:2\n", {"features": 2}, ["feature 2", "2 features"]),
    ],
)
def test_features_outside(tmp_path: Path, text: str, options: dict[str, Any], parts: list[str]) -> None:
    (tmp_path / "t.svm").write_text(text)
    with pytest.raises(DataError) as caught:
        ingest(tmp_path / "t.svm", tmp_path / "d", **options)
    assert caught.value.kind == "feature-count"
    for part in parts:
        assert part in str(caught.value)


def test_rows_for_a_model_take_its_numbers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "t.svm").write_text("1:2 2:3\n\n2:1\n")

    def rows(count: int, names: list[str] | None) -> list[list[float]]:
        return [row for piece, _ in RowFiles([tmp_path / "t.svm"], count, names).pieces() for row in piece.tolist()]

    assert rows(3, ["0", "1", "2"]) == [[0, 2, 3], [0, 0, 1]]
    assert rows(3, ["1", "2", "3"]) == [[2, 3, 0], [0, 1, 0]]
    assert "--index-base" not in caplog.text
    assert rows(3, None) == [[2, 3, 0], [0, 1, 0]]
    assert "--index-base" in caplog.text

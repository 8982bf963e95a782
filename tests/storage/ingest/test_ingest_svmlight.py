from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file

from distkern.errors import DataError, JobError
from distkern.storage import ingest

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

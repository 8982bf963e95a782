import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from distkern.errors import DataError
from distkern.storage import PredictionWriter, read_predictions, write_dataset

SHARES = np.random.default_rng(0).dirichlet(np.ones(3), size=50)


def write(path: Path, values: Any, sizes: list[int], shares: Any = None, **options: Any) -> None:
    with PredictionWriter(path, sum(sizes), probability=shares is not None, **options) as writer:
        start = 0
        for size in sizes:
            stop = start + size
            writer.append(values[start:stop], None if shares is None else shares[start:stop])
            start = stop


@pytest.mark.parametrize("targets", [None, 1, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers(tmp_path: Path, targets: int | None, dtype: str) -> None:
    values = np.arange(50 * (targets or 1)).reshape(50, *(() if targets is None else (targets,))) / 7
    write(tmp_path / "p", values.astype(dtype), [20, 30], n_targets=targets, dtype=dtype)
    result = read_predictions(tmp_path / "p")
    assert result.prediction.dtype == dtype
    np.testing.assert_array_equal(result.prediction, values.astype(dtype))
    assert result.probability is None
    assert result.class_labels is None


@pytest.mark.parametrize("labels", [np.array(["ant", "bee", "cat"]), np.array([-1, 0, 7]), np.array([0.5, 1.5, 2.0])])
def test_labels_and_probabilities(tmp_path: Path, labels: Any) -> None:
    values = labels[np.arange(50) * 2 % 3]
    write(tmp_path / "p", values, [1, 48, 1], SHARES, class_labels=labels)
    result = read_predictions(tmp_path / "p")
    np.testing.assert_array_equal(result.prediction, values)
    assert result.prediction.dtype == labels.dtype
    np.testing.assert_array_equal(result.class_labels, labels)
    np.testing.assert_array_equal(result.probability, SHARES)


LABELS = np.array(["a", "b", "c"])


@pytest.mark.parametrize(
    ("values", "shares", "options", "kind"),
    [
        (LABELS[np.zeros(49, int)], None, {"class_labels": LABELS}, "shape-mismatch"),
        (np.zeros((50, 2)), None, {}, "shape-mismatch"),
        (np.zeros((50, 2)), None, {"n_targets": 3}, "shape-mismatch"),
        (np.array(["z"] * 50), None, {"class_labels": LABELS}, "unknown-label"),
        (LABELS[np.zeros(50, int)], SHARES[:, :2], {"class_labels": LABELS}, "shape-mismatch"),
    ],
)
def test_refused_rows(tmp_path: Path, values: Any, shares: Any, options: dict[str, Any], kind: str) -> None:
    with pytest.raises(DataError) as caught:
        write(tmp_path / "p", values, [50], shares, **options)
    assert caught.value.kind == kind
    assert list(tmp_path.iterdir()) == []


def test_misuse(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="class_labels"):
        PredictionWriter(tmp_path / "p", 5, probability=True)
    with (
        pytest.raises(ValueError, match="exactly where"),
        PredictionWriter(tmp_path / "p", 5, class_labels=LABELS, probability=True) as writer,
    ):
        writer.append(LABELS)


def test_overwrite(tmp_path: Path) -> None:
    write(tmp_path / "p", np.zeros(5), [5])
    with pytest.raises(DataError, match="--overwrite"):
        write(tmp_path / "p", np.ones(5), [5])
    write(tmp_path / "p", np.ones(5), [5], overwrite=True)
    assert read_predictions(tmp_path / "p").prediction.tolist() == [1.0] * 5
    write_dataset(tmp_path / "d", np.arange(6.0).reshape(3, 2), np.arange(3.0))
    with pytest.raises(DataError) as caught:
        write(tmp_path / "d", np.ones(5), [5], overwrite=True)
    assert caught.value.kind == "foreign"


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        ({"complete": False}, "incomplete"),
        ({"format_version": 9}, "newer-version"),
        ({"kind": "x"}, "not-predictions"),
    ],
)
def test_tampered(tmp_path: Path, facts: dict[str, Any], kind: str) -> None:
    write(tmp_path / "p", np.zeros(5), [5])
    document = json.loads((tmp_path / "p" / "zarr.json").read_text())
    document["attributes"]["distkern"].update(facts)
    (tmp_path / "p" / "zarr.json").write_text(json.dumps(document))
    with pytest.raises(DataError) as caught:
        read_predictions(tmp_path / "p")
    assert caught.value.kind == kind


@pytest.mark.parametrize(("name", "shape"), [("probability", (50, 2)), ("interval", (50, 3))])
def test_arrays_of_another_shape(tmp_path: Path, name: str, shape: tuple[int, int]) -> None:
    if name == "interval":
        with PredictionWriter(tmp_path / "p", 50, interval=0.9) as writer:
            writer.append(np.zeros(50), interval=np.zeros((50, 2)))
    else:
        write(tmp_path / "p", LABELS[np.zeros(50, int)], [50], SHARES, class_labels=LABELS)
    assert getattr(read_predictions(tmp_path / "p"), name) is not None
    array = zarr.create_array(tmp_path / "p", name=name, shape=shape, chunks=shape, dtype="f8", overwrite=True)
    array[:] = 0.5
    with pytest.raises(DataError) as caught:
        read_predictions(tmp_path / "p")
    assert caught.value.kind == "unreadable"


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read_predictions(tmp_path / "p")
    assert caught.value.kind == "missing"

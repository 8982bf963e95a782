import os
from pathlib import Path

import numpy as np
import pytest

from distkern.storage import ingest

DATA = Path(os.environ.get("DISTKERN_DATA", Path(__file__).parents[3] / "shared" / "data"))


@pytest.mark.parametrize(
    ("name", "part", "task", "dtype"),
    [
        ("letter", "train", "classification", "float64"),
        ("a9a", "test", "classification", "uint8"),
        ("kin40k", None, "regression", "float64"),
        ("raetsch_banana", None, "classification", "float64"),
    ],
)
def test_benchmark_sets_ingest_directly(tmp_path: Path, name: str, part: str | None, task: str, dtype: str) -> None:
    path = DATA / f"{name}.npz"
    if not path.is_file():
        pytest.skip(f"{name}.npz is not in {DATA}; set DISTKERN_DATA to the folder with the data sets")
    suffix = "" if part is None else f"_{part}"
    with np.load(path) as arrays:
        X, y = arrays[f"X{suffix}"], arrays[f"y{suffix}"]
    dataset = ingest(path, tmp_path / "d", part=part)
    assert dataset.task == task
    assert dataset.X.dtype == dtype
    assert len(dataset.source().boundaries) > 2 or X.nbytes < 2**18
    np.testing.assert_array_equal(dataset.X[:], X)
    np.testing.assert_array_equal(dataset.targets(), y)
    np.testing.assert_allclose(dataset.feature_mean, X.mean(axis=0), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(dataset.feature_std, X.std(axis=0), rtol=1e-9)
    dataset.verify()

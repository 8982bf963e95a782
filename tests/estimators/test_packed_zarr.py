"""Estimators take zarr arrays that xarray packed: the model is that of the decoded rows."""

import numpy as np
import pytest
import zarr
from sklearn.base import clone

from distkern import OROLSRegressor
from distkern.cli.job.data_section import PlainArrays

xr = pytest.importorskip("xarray")


def test_packed_rows_targets_and_weights_train_and_predict_as_decoded_ones(tmp_path):
    rng = np.random.default_rng(0)
    rows = np.round(rng.uniform(250, 310, size=(60, 2)), 2)
    packed = {"dtype": "int16", "scale_factor": 0.01, "add_offset": 283.73, "_FillValue": -32768}
    data = xr.Dataset(
        {"X": (("row", "f"), rows), "y": (("row",), np.sin(rows[:, 0] / 7)), "w": (("row",), rng.integers(1, 3, 60))}
    )
    encoding = {"X": packed, "y": packed | {"scale_factor": 1e-4, "add_offset": 0.0}}
    data.to_zarr(tmp_path / "s.zarr", encoding=encoding, consolidated=False)
    X, y, w = (zarr.open_array(tmp_path / "s.zarr" / name, mode="r") for name in "Xyw")
    decoded = xr.open_zarr(tmp_path / "s.zarr", consolidated=False)
    plain = OROLSRegressor(sigma=2.0, max_centers=10).fit(*(decoded[name].values for name in "Xyw"))
    wanted = plain.predict(decoded.X.values)
    for rows_given, given in ((X, (y, w)), (decoded.X.values, (y, w)), (decoded.X, (y, w))):
        model = clone(plain).fit(rows_given, *given)
        np.testing.assert_allclose(np.asarray(model.predict(X)[:]), wanted, atol=1e-7)
        np.testing.assert_allclose(np.asarray(model.predict(decoded.X)), wanted, atol=1e-7)
    job = PlainArrays(str(tmp_path / "s.zarr" / "X"), str(tmp_path / "s.zarr" / "y"))
    np.testing.assert_array_equal(job.targets(3, 9), decoded.y.values[3:9])

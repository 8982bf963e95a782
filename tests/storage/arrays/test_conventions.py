"""Arrays that xarray packed are read as xarray reads them, or refused by attribute."""

import logging
import warnings

import numpy as np
import pytest
import zarr

from distkern.errors import DataError
from distkern.storage import ZarrRows, ZarrSource, as_source, in_memory, plain_array, write_dataset
from distkern.storage.arrays.chunks import read_slab
from distkern.storage.arrays.conventions import decoded, packing_of, value_dtype

xr = pytest.importorskip("xarray")

ROWS = np.arange(12.0).reshape(6, 2) * 0.5 + 3
HOLE = np.where(ROWS == 5.0, np.nan, ROWS)
PACKED = {"dtype": "int16", "scale_factor": 0.01, "add_offset": 4.75}
FORMS = {
    "plain": (ROWS, {}, {}),
    "packed": (ROWS, PACKED | {"_FillValue": -32768}, {}),
    "packed, a hole": (HOLE, PACKED | {"_FillValue": -32768}, {}),
    "a factor alone": (ROWS, {"dtype": "int32", "scale_factor": 0.25}, {}),
    "a summand alone": (ROWS, {"dtype": "uint8", "add_offset": 1.5}, {}),
    "packed float32": (ROWS, {"dtype": "float32", "scale_factor": 2.0, "_FillValue": 1e20}, {}),
    "a number for NaN": (HOLE, {"_FillValue": -9999.0}, {}),
    "float32, a number for NaN": (HOLE.astype("f4"), {"_FillValue": np.float32(1e20)}, {}),
    "integers, a number for NaN": (np.round(HOLE), {"dtype": "int32", "_FillValue": -7}, {}),
    "missing_value": (np.where(np.isnan(HOLE), -999.0, HOLE), {}, {"missing_value": -999.0}),
    "missing_value of two": (np.arange(12).reshape(6, 2), {}, {"missing_value": [3, 5]}),
    "unsigned": (np.arange(12.0).reshape(6, 2) * 20, {"dtype": "int8", "_Unsigned": "true", "_FillValue": -1}, {}),
    "unsigned, packed": (
        np.arange(12.0).reshape(6, 2) * 10,
        {"dtype": "int8", "_Unsigned": "true", "scale_factor": 0.5, "_FillValue": -1},
        {},
    ),
    "signed": (np.arange(12).reshape(6, 2).astype("u1"), {}, {"_Unsigned": "false"}),
    "bool": (ROWS > 5, {}, {}),
    "lengths in days": (ROWS, {}, {"units": "days"}),
}


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("form", FORMS)
def test_rows_are_those_of_xarray(tmp_path, form, zarr_format):
    values, encoding, attrs = FORMS[form]
    path = str(tmp_path / "s.zarr")
    data = xr.Dataset({"X": (("row", "feature"), values, attrs)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data.to_zarr(path, encoding={"X": encoding | {"chunks": (4, 2)}}, consolidated=False, zarr_format=zarr_format)
        wanted = xr.open_zarr(path, consolidated=False, decode_timedelta=False).X.values
    array = zarr.open_array(path + "/X", mode="r")
    found = read_slab(array, 0, 6, "X")
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(in_memory(array, "X")[2:], wanted[2:])
    assert value_dtype(array, "X") in (wanted.dtype, np.dtype(bool), found.dtype)
    # A source has the type of its blocks before it reads any; NaN is refused with its row.
    source = ZarrRows(array)
    assert source.feature_dtype == source.read_rows(np.array([0])).dtype
    np.testing.assert_array_equal(source.read_rows(np.array([4, 0])), wanted[[4, 0]])
    if np.isfinite(found).all():
        np.testing.assert_array_equal(source.read_features(0), wanted[: source.boundaries[1]])
    else:
        with pytest.raises(DataError, match=r"NaN in row \d .*is a missing value") as caught:
            [source.read_features(block) for block in range(len(source.boundaries) - 1)]
        assert caught.value.kind == "not-finite"


def test_targets_weights_and_datasets_are_decoded(tmp_path):
    path = str(tmp_path / "s.zarr")
    data = xr.Dataset({"X": (("row", "f"), ROWS), "y": (("row",), ROWS[:, 0]), "w": (("row",), np.arange(6.0))})
    data.to_zarr(path, encoding=dict.fromkeys("Xyw", PACKED | {"_FillValue": -1}), consolidated=False)
    X, y, w = (zarr.open_array(f"{path}/{name}", mode="r") for name in "Xyw")
    source = as_source(X, y, w)
    assert isinstance(source, ZarrSource)
    np.testing.assert_allclose(source.read_targets(0), ROWS[: source.boundaries[1], 0], atol=1e-9)
    np.testing.assert_allclose(source.read_weights(0), np.arange(6.0)[: source.boundaries[1]], atol=1e-9)
    np.testing.assert_allclose(as_source(ROWS, y, w).y, ROWS[:, 0], atol=1e-9)
    written = write_dataset(tmp_path / "d.zarr", X, y)
    np.testing.assert_allclose(written.X[:], ROWS, atol=1e-9)
    np.testing.assert_allclose(written.y[:], ROWS[:, 0], atol=1e-9)


def _array(attributes=None, zarr_format=3, dtype="i2", fill_value=0, shape=(6, 2)):
    array = zarr.create_array(
        zarr.storage.MemoryStore(), shape=shape, chunks=(3, *shape[1:]), dtype=dtype, zarr_format=zarr_format,
        fill_value=fill_value, attributes=attributes,
    )  # fmt: skip
    array[:3] = 1
    return array


@pytest.mark.parametrize(
    ("attributes", "named", "kind"),
    [
        ({"units": "days since 2020-01-01"}, "units", "not-numeric"),
        ({"units": "seconds since 1970-01-01 00:00", "calendar": "proleptic_gregorian"}, "units", "not-numeric"),
        ({"dtype": "timedelta64[ns]", "units": "days"}, "timedelta64", "not-numeric"),
        ({"scale_factor": "0.01 K"}, "scale_factor", "attribute"),
        ({"scale_factor": [0.1, 0.2]}, "scale_factor", "attribute"),
        ({"add_offset": float("nan")}, "add_offset", "attribute"),
        ({"_FillValue": "none"}, "_FillValue", "attribute"),
        ({"missing_value": {"a": 1}}, "missing_value", "attribute"),
        ({"_Unsigned": "perhaps"}, "_Unsigned", "attribute"),
    ],
)
def test_what_is_not_plain_is_refused_by_attribute(attributes, named, kind):
    array, column = _array(attributes), _array(attributes, shape=(6,))
    for make in (
        lambda: ZarrRows(array),
        lambda: as_source(_array(), array),
        lambda: as_source(ROWS, array),
        lambda: as_source(_array(), np.arange(6.0), column),
    ):
        with pytest.raises(DataError, match=named) as caught:
            make()
        assert caught.value.kind == kind


def test_ordinary_arrays_are_left_alone():
    for array in (
        _array(zarr_format=2, fill_value=1),  # nothing says that 1 is missing
        _array({"_FillValue": "AAAAAAAA+H8="}, dtype="f8"),  # NaN, which xarray writes for every array of floats
        _array({"missing_value": float("nan")}, dtype="f8"),
        _array({"missing_value": 40_000}),  # no int16
        _array({"units": "K", "long_name": "temperature"}),
        _array({"_Unsigned": "true"}, dtype="f8"),
    ):
        assert packing_of(array, "X") is None


def test_the_fill_value_of_format_2_is_missing_where_xarray_wrote_it():
    array = _array({"_ARRAY_DIMENSIONS": ["row", "feature"]}, zarr_format=2, fill_value=-5)
    with pytest.raises(DataError, match=r"NaN in row 3 .*-5 is a missing value"):
        ZarrRows(array).read_features(1)


def test_an_absent_chunk_of_a_packed_array_is_reported(caplog):
    array = _array({"scale_factor": 0.5}, fill_value=7)
    with caplog.at_level(logging.WARNING):
        from distkern.storage import collect_report

        with collect_report() as report:
            source = ZarrRows(array)
            rows = np.concatenate([source.read_features(block) for block in range(len(source.boundaries) - 1)])
    np.testing.assert_array_equal(rows, np.repeat([0.5, 3.5], [3, 3])[:, None].repeat(2, 1))
    assert report.absent


def test_grids_of_chunks_of_several_sizes_are_refused():
    if not hasattr(zarr.Array, "read_chunk_sizes"):
        pytest.skip("this zarr has regular chunks only")
    with zarr.config.set({"array.rectilinear_chunks": True}):
        array = zarr.create_array(zarr.storage.MemoryStore(), shape=(10, 2), chunks=[[3, 3, 4], [2]], dtype="f8")
        array[:] = 1.0
    for read in (lambda: ZarrRows(array), lambda: as_source(np.ones((10, 1)), array)):
        with pytest.raises(DataError, match="rectilinear") as caught:
            read()
        assert caught.value.kind == "chunk-grid"


def test_the_codecs_of_newer_zarr_are_read():
    import zarr.codecs

    if not hasattr(zarr.codecs, "ScaleOffset"):
        pytest.skip("this zarr has no scale_offset")
    array = zarr.create_array(
        zarr.storage.MemoryStore(), shape=(6, 2), dtype="f8", filters=[zarr.codecs.ScaleOffset(offset=5, scale=0.1)]
    )
    array[:] = ROWS
    np.testing.assert_allclose(read_slab(ZarrRows(array).X, 0, 6, "X"), ROWS)


def test_numbers_that_newer_zarr_casts_are_read():
    import zarr.codecs

    if not hasattr(zarr.codecs, "CastValue"):
        pytest.skip("this zarr has no cast_value")
    pytest.importorskip("cast_value_rs", reason="zarr casts with it")
    array = zarr.create_array(
        zarr.storage.MemoryStore(), shape=(6, 2), dtype="f8", filters=[zarr.codecs.CastValue(data_type="float32")]
    )
    array[:] = ROWS
    np.testing.assert_array_equal(read_slab(ZarrRows(array).X, 0, 6, "X"), ROWS)


READ = {
    "as it is": lambda rows: rows,
    "in other chunks": lambda rows: rows.rechunk((4, 1)),
    "some rows": lambda rows: rows[1:5],
    "joined": lambda rows: np.concatenate([rows, rows[:, :1]], axis=1),
    "columns": lambda rows: np.stack([rows[:, 1], rows[:, 0]], axis=1),
}


@pytest.mark.parametrize("how", READ)
@pytest.mark.parametrize(
    "form", ["packed", "packed, a hole", "integers, a number for NaN", "unsigned, packed", "plain"]
)
def test_dask_arrays_that_read_zarr_are_decoded(tmp_path, how, form):
    da = pytest.importorskip("dask.array")
    values, encoding, attrs = FORMS[form]
    data = xr.Dataset({"X": (("row", "feature"), values, attrs)})
    data.to_zarr(tmp_path / "s.zarr", encoding={"X": encoding | {"chunks": (4, 2)}}, consolidated=False)
    wanted = READ[how](xr.open_zarr(tmp_path / "s.zarr", consolidated=False).X.data).compute()
    array = zarr.open_array(tmp_path / "s.zarr/X", mode="r")
    for rows in (da.from_zarr(array), da.from_array(array, chunks=(3, 2))):
        found = decoded(READ[how](rows), "X")
        assert found.dtype == value_dtype(array, "X")
        np.testing.assert_array_equal(found.compute(), wanted)
        np.testing.assert_array_equal(plain_array(READ[how](rows), "X"), wanted)


def test_dask_arrays_that_are_computed_from_zarr_are_left_alone():
    da = pytest.importorskip("dask.array")
    array = _array({"scale_factor": 0.5})
    rows = da.from_zarr(array)
    for made in (rows * 0.5, rows.astype(float), rows.map_blocks(lambda block: block), da.ones((6, 2)), rows.persist()):
        assert decoded(made, "X") is made
    other = da.from_zarr(_array({"scale_factor": 0.1}))
    for joined in (da.concatenate([rows, other]), da.concatenate([rows, da.from_array(ROWS.astype("i2"))])):
        with pytest.raises(DataError, match="different attributes") as caught:
            decoded(joined, "X")
        assert caught.value.kind == "attribute"
    with pytest.raises(DataError, match="units"):
        decoded(da.from_zarr(_array({"units": "days since 2020-01-01"})), "X")

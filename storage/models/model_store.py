"""Model stores: ``NAME.npy`` files and ``model.json``, which describes each of them; no pickles.

The description is written last, and the directory appears in one step. A reader compares names, sizes and headers with
the description before it allocates anything of that size.
"""

from __future__ import annotations

import os
import re
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from distkern.errors import StoreError

from ..io.destinations import check_place, publish_place
from ..io.formats import appearance, require_version
from ..io.json_files import MAX_JSON_BYTES, dump_json, read_json, write_json
from ..io.npy_header import read_npy_header
from ..io.remote_folders import RemoteFolder, publish_remote
from ..io.trust import inside
from ..io.urls import is_url, local_place

__all__ = ["check_model_destination", "read_model", "write_model"]

MODEL_VERSION = 3
"""Newest format; a model is written in the oldest one that can describe it. Format 2 has learnt directions of the
features, and kernels that version 0.1 does not know; format 3 has columns that are mapped by arcsinh."""
_DESCRIPTION = "model.json"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KINDS = "biufU"
_MAX_NPY_HEADER = 1 << 16
_TYPE = re.compile(r"[<>=|]?[biufU][0-9]{1,9}")


def check_model_destination(path: str | os.PathLike[str], overwrite: bool = False) -> None:
    """Refuse a place where `write_model` would fail, before the training: `StoreError` ``exists`` or ``foreign``.

    `overwrite`, default False, allows a model there to be replaced.
    """
    check_place(path, overwrite, StoreError, "model")


def write_model(
    path: str | os.PathLike[str],
    meta: dict[str, Any],
    arrays: dict[str, NDArray[Any]],
    overwrite: bool = False,
    *,
    version: int = 1,
) -> None:
    """Write a model store; the same input gives the same bytes.

    Parameters
    ----------
    path : path-like
        Directory or URL of the model, which appears only when it is complete.
    meta : dict
        JSON values.
    arrays : dict of str to numpy.ndarray
        Arrays of bool, real numbers, text, or records of these, by name (letters, digits, underscores).
    overwrite : bool, default False
        Whether to replace a model at `path`.
    version : int, default 1
        Format version, at most `MODEL_VERSION`.

    Raises
    ------
    StoreError
        ``exists``, ``foreign``, ``not-writable`` or ``disk-full``.
    TypeError, ValueError
        A name, dtype or meta value cannot be stored.
    """
    if len(dump_json(meta)) > MAX_JSON_BYTES // 2:
        raise ValueError(f"meta takes more than {MAX_JSON_BYTES // 2} bytes")
    for name, array in arrays.items():
        if not _NAME.fullmatch(name) or not _storable(array.dtype):
            raise ValueError(f"array {name!r} of dtype {array.dtype} cannot be part of a model store")
    nbytes = sum(array.nbytes for array in arrays.values()) + 256 * len(arrays) + len(dump_json(meta))
    if is_url(path):
        _write_remote(os.fspath(path), meta, arrays, overwrite, version)
        return
    with publish_place(path, overwrite, StoreError, "model", lambda: nbytes) as folder:
        assert isinstance(folder, Path)
        entries = {}
        for name, array in arrays.items():
            dtype = _described_type(_type_description(array.dtype))
            little_endian = np.asarray(array, dtype=dtype, order="C")
            file = folder / f"{name}.npy"
            with file.open("wb") as stream:
                # To a real file numpy writes in a way that loses the reason of a failure.
                npy.write_array(_Sink(stream), little_endian, allow_pickle=False)
            entries[name] = {
                "shape": list(array.shape),
                "dtype": _type_description(dtype),
                "sha256": _digest(file),
            }
        description = {"format_version": version, "kind": "model", "meta": meta, "arrays": entries}
        write_json(folder / _DESCRIPTION, description)


def _write_remote(
    url: str, meta: dict[str, Any], arrays: dict[str, NDArray[Any]], overwrite: bool, version: int
) -> None:
    with (
        publish_remote(url, overwrite, StoreError, "model") as there,
        tempfile.TemporaryDirectory(prefix="distkern-") as here,
    ):
        local = Path(here, "model")
        write_model(local, meta, arrays, version=version)
        for name in arrays:
            there.write(f"{name}.npy", (local / f"{name}.npy").read_bytes())
        there.write(_DESCRIPTION, (local / _DESCRIPTION).read_bytes())


class _Sink:
    """The part of a file that numpy needs for writing."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.write = stream.write


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read a model store and check it against its description.

    Parameters
    ----------
    path : path-like
        The directory, or a URL.

    Returns
    -------
    meta : dict
        The JSON values.
    arrays : dict of str to numpy.ndarray
        The arrays.

    Raises
    ------
    StoreError
        ``missing``, ``not-a-model``, ``incomplete``, ``newer-version`` or ``corrupt``.
    """
    if is_url(path):
        with tempfile.TemporaryDirectory(prefix="distkern-") as here:
            return _read_folder(path, _fetched(os.fspath(path), Path(here)))
    return _read_folder(path, Path(local_place(path)))


def _fetched(url: str, here: Path) -> Path:
    """Copy the objects that a model's description names, none longer than described, and return their folder."""
    there = RemoteFolder(url, error=StoreError)
    text = there.read(_DESCRIPTION)
    folder = here / "model"
    if text is None:
        kind = there.identify()
        if kind != "missing":
            folder.mkdir()
        if kind == "part-of-a-model":
            (folder / "part.npy").touch()
        elif kind != "missing":
            raise StoreError(f"{url} is {appearance(url)}, not a model", kind="not-a-model")
        return folder
    folder.mkdir()
    (folder / _DESCRIPTION).write_bytes(text)
    description = read_json(folder / _DESCRIPTION)
    entries = description.get("arrays") if isinstance(description, dict) else None
    most: dict[str, int] = {}
    for name, entry in (entries if isinstance(entries, dict) else {}).items():
        if _NAME.fullmatch(name):
            shape, dtype = _declared(url, name, entry)
            most[f"{name}.npy"] = int(np.prod(shape, dtype=object)) * dtype.itemsize + _MAX_NPY_HEADER
    for file, values in there.read_all(most).items():
        if values is not None:
            (folder / file).write_bytes(values)
    return folder


def _read_folder(path: str | os.PathLike[str], folder: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    if not folder.exists():
        raise StoreError(f"there is no model at {path}: check the name", kind="missing")
    if not (folder / _DESCRIPTION).is_file():
        if folder.is_dir() and any(folder.glob("*.npy")):
            raise StoreError(
                f"{path} holds arrays but no {_DESCRIPTION}, so it is only a part of a model: copy the whole "
                f"directory, or train again",
                kind="incomplete",
            )
        raise StoreError(f"{path} is {appearance(folder)}, not a model", kind="not-a-model")
    if not inside(folder, _DESCRIPTION):
        _corrupt(path, f"{_DESCRIPTION} is a link to a file outside of it")
    description = read_json(folder / _DESCRIPTION)
    if not isinstance(description, dict):
        _corrupt(path, f"{_DESCRIPTION} is not readable as JSON")
    if description.get("kind") != "model":
        raise StoreError(f"{path} holds a {_DESCRIPTION} of another program, not a model", kind="not-a-model")
    require_version(path, description, MODEL_VERSION, StoreError)
    meta, entries = description.get("meta"), description.get("arrays")
    if not isinstance(meta, dict) or not isinstance(entries, dict):
        _corrupt(path, f"{_DESCRIPTION} lacks its meta or arrays part")
    extra = {file.stem for file in folder.glob("*.npy")} - set(entries)
    if extra:
        _corrupt(path, f"{sorted(extra)[0]}.npy is not described in {_DESCRIPTION}")
    return meta, {name: _read_array(path, folder, name, entry) for name, entry in entries.items()}


def _read_array(path: str | os.PathLike[str], folder: Path, name: str, entry: Any) -> NDArray[Any]:
    if not _NAME.fullmatch(name):
        _corrupt(path, f"array name {name!r} is not allowed")
    shape, dtype = _declared(path, name, entry)
    file = folder / f"{name}.npy"
    if file.is_symlink() or not file.is_file():
        raise StoreError(
            f"{path} lacks the file {name}.npy: copy the whole directory, or train again", kind="incomplete"
        )
    with file.open("rb") as stream:
        try:
            header = read_npy_header(stream)
        except Exception as cause:  # the header is evaluated as a Python literal
            _corrupt(path, f"{name}.npy has no npy header ({cause})")
        if (header.shape, header.dtype, header.fortran_order) != (shape, dtype, False):
            _corrupt(path, f"{name}.npy holds {header.dtype} {header.shape}, described is {dtype} {shape}")
        expected = stream.tell() + int(np.prod(shape, dtype=object)) * dtype.itemsize
        if file.stat().st_size != expected:
            _corrupt(path, f"{name}.npy has {file.stat().st_size} bytes, not {expected}")
        if _digest(file) != entry["sha256"]:
            _corrupt(path, f"{name}.npy differs from what was written")
        values = np.fromfile(stream, dtype=dtype, count=int(np.prod(shape, dtype=object)))
    try:
        return values.reshape(shape).astype(dtype.newbyteorder("="), copy=False)
    except ValueError as cause:
        _corrupt(path, f"{name}.npy cannot have shape {shape} ({cause})")


def _declared(path: str | os.PathLike[str], name: str, entry: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    try:
        shape, dtype = tuple(entry["shape"]), _described_type(entry["dtype"])
        valid = all(type(size) is int and size >= 0 for size in shape) and _storable(dtype)
        valid = valid and isinstance(entry["sha256"], str)
    except (KeyError, TypeError, ValueError, OverflowError):
        valid = False
    if not valid:
        _corrupt(path, f"the description of {name} cannot be used")
    return shape, dtype


def _storable(dtype: np.dtype[Any]) -> bool:
    if dtype.names is not None:
        return all(dtype[name].kind in _KINDS for name in dtype.names)
    return dtype.kind in _KINDS


def _type_description(dtype: np.dtype[Any]) -> str | list[list[str]]:
    """Return a dtype as JSON values: little-endian, records as pairs of field name and dtype, unpadded."""
    if dtype.names is not None:
        return [[name, dtype[name].newbyteorder("<").str] for name in dtype.names]
    return dtype.newbyteorder("<").str


def _described_type(description: Any) -> np.dtype[Any]:
    # Text that numpy would read as a record, a nested array or a Python type is refused.
    for kind in [description] if isinstance(description, str) else [kind for _, kind in description]:
        if not isinstance(kind, str) or not _TYPE.fullmatch(kind):
            raise TypeError(f"dtype {kind!r}")
    if isinstance(description, str):
        return np.dtype(description)
    return np.dtype([(str(name), kind) for name, kind in description])


def _digest(file: Path) -> str:
    digest = sha256()
    with file.open("rb") as stream:
        while piece := stream.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _corrupt(path: str | os.PathLike[str], why: str) -> NoReturn:
    raise StoreError(f"{path} is a damaged model: {why}; train again or fetch a fresh copy", kind="corrupt")

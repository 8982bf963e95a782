"""Which files are read, in which format: names, folders and patterns, extensions, options that fit the format."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from distkern.errors import DataError, JobError
from distkern.text import did_you_mean

from ..io.formats import appearance, identify
from ..io.urls import is_url, local_place
from .numpy_files import open_npy, open_npz
from .streams import COMPRESSIONS
from .table import InputTable, Reading
from .weights_file import WeightedTable

if TYPE_CHECKING:
    from .raw_tables import RawFiles

__all__ = ["FORMATS", "format_of", "found_files", "open_raw", "open_table"]

FORMATS = ("csv", "parquet", "npy", "npz", "svmlight")
"""Names of the formats."""

_EXTENSIONS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".npy": "npy",
    ".npz": "npz",
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
}
_COMPRESSED = ("csv", "svmlight")

_USED = {
    "part": ("npz",),
    "drop": ("csv", "parquet"),
    "delimiter": ("csv",),
    "header": ("csv",),
    "features": ("svmlight",),
    "index_base": ("svmlight",),
    "target": ("csv", "parquet", "npy", "npz"),
}
"""Formats that an option has a meaning for; other options have one for all."""


def found_files(paths: Sequence[str | os.PathLike[str]]) -> list[Path]:
    """Return the files that paths name, in order.

    A folder stands for the files in it, and a pattern with ``*``, ``?`` or ``[`` for the files that match, part.2
    before part.10. Names that begin with ``_`` or ``.`` are passed over in a folder.

    Raises
    ------
    DataError
        ``missing``, ``url`` or ``not-a-file``.
    JobError
        ``no-source``: there are no paths.
    """
    if not paths:
        raise JobError("no file is named: name at least one", kind="no-source")
    return [file for path in paths for file in _expanded(path)]


def _expanded(path: str | os.PathLike[str]) -> list[Path]:
    if is_url(path):
        raise DataError(
            f"{os.fspath(path)} is behind a URL, and files are read from local directories: copy it here first "
            "(the store itself may be written behind a URL)",
            kind="url",
        )
    place = Path(local_place(path))
    if place.is_dir():
        return _files_in(place)
    if place.exists():
        if not place.is_file():
            raise DataError(f"{place} is not a file: name files, folders or patterns", kind="not-a-file")
        return [place]
    if glob.has_magic(str(place)):
        matches = [Path(name) for name in glob.glob(str(place), recursive=True)]
        if files := sorted((match for match in matches if match.is_file()), key=_natural):
            return files
        raise DataError(f"no file matches {place}: check the pattern", kind="missing")
    raise DataError(f"there is no file {place}: check the name", kind="missing")


def _files_in(folder: Path) -> list[Path]:
    if identify(folder) != "directory":
        raise DataError(
            f"{folder} is {appearance(folder)}, not a file or a folder of files: name files", kind="not-a-file"
        )
    inside = [entry for entry in folder.iterdir() if not entry.name.startswith(("_", "."))]
    folders = sorted(entry.name for entry in inside if entry.is_dir())
    if folders:
        raise DataError(
            f"{folder} has a folder {folders[0]} in it, and only the files of one folder are read (the value in a name "
            "like year=2024 is in no file): name the folders or files",
            kind="not-a-file",
        )
    if not inside:
        raise DataError(f"{folder} has no files in it: check the name", kind="missing")
    return sorted(inside, key=_natural)


def _natural(path: Path) -> list[tuple[int, str]]:
    pieces = re.split(r"(\d+)", str(path))
    return [(int(piece), piece) if piece.isdecimal() else (-1, piece) for piece in pieces]


def format_of(files: Sequence[Path], reading: Reading, name: str | None = None) -> str:
    """Return the format of files, and refuse options that do not fit it.

    Parameters
    ----------
    files : sequence of pathlib.Path
        Files.
    reading : Reading
        What is read of them.
    name : str, optional
        Their format, one of `FORMATS`; by default the extensions say it.

    Raises
    ------
    DataError
        ``unknown-format``.
    JobError
        ``mixed-formats``, ``unused-option``, ``invalid-format`` and the like.
    """
    if name is not None and name not in FORMATS:
        raise JobError(
            f"format is {name!r}{did_you_mean(name, FORMATS)}: it must be one of {', '.join(FORMATS)}",
            kind="invalid-format",
        )
    formats = {_format(path) if name is None else name for path in files}
    if len(formats) > 1:
        raise JobError(
            f"files of the formats {', '.join(sorted(formats))} cannot be ingested together: name files of one format",
            kind="mixed-formats",
        )
    name = formats.pop()
    for path in files:
        if path.suffix.lower() in COMPRESSIONS and name not in _COMPRESSED:
            raise DataError(
                f"{path} is a compressed {name} file, and only {' and '.join(_COMPRESSED)} files are read compressed: "
                "decompress it first",
                kind="unknown-format",
            )
    _refuse_unfit(name, reading)
    return name


def open_raw(files: Sequence[Path], reading: Reading, name: str) -> RawFiles:
    """Open CSV or Parquet files as raw columns.

    Parameters
    ----------
    files : sequence of pathlib.Path
        Files.
    reading : Reading
        What is read of them.
    name : {"csv", "parquet"}
        Their format, as of `format_of`.

    Raises
    ------
    DataError
        The errors of the files.
    """
    # Every worker imports this room, so pyarrow is loaded only where it is used.
    if name == "csv":
        from .raw_csv import RawCsv

        return RawCsv(files, reading)
    from .raw_parquet import RawParquet

    return RawParquet(files, reading)


def open_table(files: Sequence[Path], reading: Reading, name: str | None = None) -> InputTable:
    """Open files of one format as one table.

    Parameters
    ----------
    files : sequence of pathlib.Path
        Files.
    reading : Reading
        What is read of them.
    name : str, optional
        Their format, one of `FORMATS`; by default the extensions say it.

    Raises
    ------
    DataError
        Those of `format_of`, and the errors of the tables.
    JobError
        Those of `format_of`.
    """
    name = format_of(files, reading, name)
    # Every worker imports this room, so pyarrow and scikit-learn are loaded only where they are used.
    if name == "csv":
        from .csv_files import CsvTable

        return CsvTable(files, reading)
    if name == "parquet":
        from .parquet_files import ParquetTable

        return ParquetTable(files, reading)
    if name == "svmlight":
        from .svmlight_files import SvmlightTable

        return _weighted(SvmlightTable(files, reading), reading)
    if name == "npz":
        return open_npz(files, reading)
    if reading.weight is None or reading.weight.isdigit():
        return open_npy(files, reading)
    return _weighted(open_npy(files, replace(reading, weight=None)), reading)


def _weighted(table: InputTable, reading: Reading) -> InputTable:
    return table if reading.weight is None else WeightedTable(table, Path(reading.weight))


def _format(path: Path) -> str:
    stem, suffix = path, path.suffix.lower()
    if suffix in COMPRESSIONS:
        stem = path.with_suffix("")
        suffix = stem.suffix.lower()
    if suffix not in _EXTENSIONS:
        raise DataError(
            f"{path} has the unknown extension {suffix!r}: known are {', '.join(_EXTENSIONS)}, also with "
            f"{', '.join(COMPRESSIONS)}; name the format of other files with --format ({', '.join(FORMATS)})",
            kind="unknown-format",
        )
    return _EXTENSIONS[suffix]


def _refuse_unfit(name: str, reading: Reading) -> None:
    """Refuse options that have no meaning for a format, or that contradict each other."""
    if reading.part is not None and reading.part not in ("train", "test"):
        raise JobError(f"part is {reading.part!r}: it must be train or test", kind="part")
    for option, formats in _USED.items():
        if getattr(reading, option) not in (None, ()) and name not in formats:
            flag = "--no-header" if reading.header is False and option == "header" else f"--{option.replace('_', '-')}"
            raise JobError(
                f"{flag} has no meaning for {name} files, only for {', '.join(formats)}: leave it out",
                kind="unused-option",
            )
    if reading.target and reading.no_target:
        raise JobError("--target and --no-target exclude each other: give one", kind="target")
    if reading.features is not None and reading.features < 1:
        raise JobError(f"features is {reading.features}: it must be at least 1", kind="invalid-features")
    if reading.index_base not in (None, 0, 1):
        raise JobError(f"index_base is {reading.index_base!r}: it must be 0, 1 or auto", kind="invalid-index-base")
    mark = reading.delimiter
    if mark is not None and (len(mark) != 1 or not mark.isascii() or mark in '\r\n"\0'):
        raise JobError(
            f"delimiter is {mark!r}: it must be one ASCII character, and no quote or line break",
            kind="invalid-delimiter",
        )

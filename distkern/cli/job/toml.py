"""Reads the TOML of a job file and the settings of ``--set``."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from ...errors import JobError

MAX_JOB_BYTES = 256 * 1024
"""Longest job file that is read; the checks of a hostile one take seconds and much memory."""

_MANY_DOTS = re.compile(r"""(?:\.[\w"'-]{0,64}[ \t]*){100}""")
"""A key of so many parts that the parser, whose time grows with their square, would need minutes."""


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises
    ------
    JobError
        The file is missing, cannot be read or is not TOML; names the file and the line. ``job-file-large``: it has more
        than `MAX_JOB_BYTES`.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_JOB_BYTES + 1)
        if len(content) > MAX_JOB_BYTES:
            raise JobError(
                f"the job file {path} has more than {MAX_JOB_BYTES} bytes, the most of a job file: name the data by "
                "their paths and leave out what is no setting",
                kind="job-file-large",
            )
        text = content.decode("utf-8-sig")
    except FileNotFoundError:
        raise JobError(f"there is no job file {path}", kind="job-file-missing") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise JobError(f"{path}, line {line}: not UTF-8 text", kind="job-file-syntax") from None
    except OSError as error:
        raise JobError(f"cannot read the job file {path}: {error.strerror}", kind="job-file-missing") from None
    try:
        if _MANY_DOTS.search(text):
            raise RecursionError
        return tomllib.loads(text)
    except RecursionError:
        raise JobError(
            f"{path} is not valid TOML: tables or lists are nested too deep", kind="job-file-syntax"
        ) from None
    # The parser raises Python's own ValueError for a number with too many digits.
    except ValueError as error:
        last = f"at line {text.count(chr(10)) + 1}, the end of the file"
        reason = str(error).replace("at end of document", last)
        raise JobError(f"{path} is not valid TOML: {reason}", kind="job-file-syntax") from None


def override(document: dict[str, Any], setting: str) -> None:
    """Put one ``section.key=value``, or ``section.table.key=value``, into a document.

    Parameters
    ----------
    document : dict
        Sections of a job file, changed in place.
    setting : str
        The assignment; a value that is not TOML, such as a bare word, is a string.
    """
    tables, name, text = _parts(setting)
    table: dict[str, Any] = document
    for place in tables:
        inner = table.setdefault(place, {})
        if not isinstance(inner, dict):
            raise JobError(f"--set {setting}: '{place}' is no table of the job file", kind="invalid-job")
        table = inner
    table[name] = _toml_value(text.strip())


def forget(document: dict[str, Any], setting: str) -> None:
    """Remove the value that a setting replaces from a document.

    Parameters
    ----------
    document : dict
        Sections of a job file, changed in place.
    setting : str
        As for `override`.
    """
    tables, name, _ = _parts(setting)
    table: Any = document
    for place in tables:
        table = table.get(place) if isinstance(table, dict) else None
    if isinstance(table, dict):
        table.pop(name, None)


def _parts(setting: str) -> tuple[list[str], str, str]:
    """Return tables, key and value of a setting."""
    key, equals, text = setting.partition("=")
    *tables, name = (part.strip() for part in key.split("."))
    if not (equals and tables and name and all(tables)):
        raise JobError(f"--set {setting}: write section.key=value, as in --set model.sigma=4", kind="invalid-job")
    return tables, name, text


def _toml_value(text: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return parsed["value"] if len(parsed) == 1 else text

"""Environment variables in the texts of a job file: ``${NAME}``, ``${NAME:-default}``, and ``$$`` for a dollar."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from ...errors import JobError
from ...redaction import conceal, names_secret

_REFERENCE = re.compile(r"\$(?:\$|\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\{)")


def with_variables(value: Any, file: object, key: str = "", environment: Mapping[str, str] | None = None) -> Any:
    """Replace references to environment variables in all texts of a document; keys and numbers stay.

    The value of a variable with the name of a secret is removed from all later messages and records.

    Parameters
    ----------
    value : object
        Value of a TOML document.
    file : object
        Name of the file, for messages.
    key : str, default ""
        Key of `value`, for messages.
    environment : mapping, optional
        Variables; those of the process by default.

    Returns
    -------
    object
        The same structure.

    Raises
    ------
    JobError
        ``variable-missing``, ``variable-text`` or ``variable-syntax``: names the variable, the key and the file.
    """
    environment = os.environ if environment is None else environment
    if isinstance(value, Mapping):
        joined = f"{key}." if key else ""
        return {name: with_variables(item, file, f"{joined}{name}", environment) for name, item in value.items()}
    if isinstance(value, list):
        return [with_variables(item, file, f"{key}[{i}]", environment) for i, item in enumerate(value)]
    if not isinstance(value, str):
        return value

    def replaced(found: re.Match[str]) -> str:
        name, default = found.groups()
        if found[0] == "$$":
            return "$"
        if name is None:
            raise JobError(
                f"{file}, {key}: {found[0]!r} is not a valid reference to an environment variable: write "
                "${NAME} or ${NAME:-default}, or $$ for a dollar",
                kind="variable-syntax",
            )
        found_value = environment.get(name, "")
        if default is not None and not found_value:
            return str(default)
        if name not in environment:
            raise JobError(
                f"{file}, {key}: the environment variable {name} is not set: set it, or write a default as in "
                f"${{{name}:-value}}",
                kind="variable-missing",
            )
        try:
            found_value.encode()
        except UnicodeEncodeError:
            raise JobError(
                f"{file}, {key}: the environment variable {name} is not UTF-8 text", kind="variable-text"
            ) from None
        if names_secret(name):
            conceal(found_value)
        return found_value

    return _REFERENCE.sub(replaced, value)

"""Says what is wrong with a job file: the key, the value and what is allowed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, TypeGuard, get_args

from pydantic import BaseModel, ValidationError

from distkern.cli.parameters import RESERVED


def complaints(error: ValidationError, schema: type[BaseModel]) -> list[str]:
    """Return a line for each key that is wrong.

    Parameters
    ----------
    error : pydantic.ValidationError
        From validating a document against `schema`.
    schema : type
        Model of the whole file; the descriptions of its fields say what is allowed.
    """
    seen: dict[tuple[str, ...], str] = {}
    for item in error.errors(include_url=False):
        place = tuple(str(part) for part in item["loc"][:2])
        seen.setdefault(place, _complaint(item, place, schema))
    return list(seen.values())


def _complaint(item: Any, place: tuple[str, ...], schema: type[BaseModel]) -> str:
    section, name = place[0], place[1] if len(place) > 1 else None
    field = schema.model_fields.get(section)
    if field is None:
        return f"unknown section [{section}]{_nearest(section, schema.model_fields, '[{}]')}"
    if item["type"] == "missing" and name is None:
        return f"[{section}] is missing: name the training data there (train, or x and y)"
    if item["type"] == "value_error":
        return f"[{section}] {item['ctx']['error']}"
    if name is None:
        return f"{section} = {_written(item['input'])}: must be a table, [{section}]"
    table = field.annotation
    keys = table.model_fields if _is_table(table) else {}
    if item["type"] == "extra_forbidden":
        if section == "model" and name in RESERVED:
            return f"key '{name}' cannot stand in [model]: {RESERVED[name]}"
        return f"unknown key '{name}' in [{section}]{_nearest(name, keys, repr('{}'))}"
    if len(item["loc"]) > 2 and any(_is_table(part) for part in get_args(keys[name].annotation)):
        key = item["loc"][2]
        what = {"missing": "is missing", "extra_forbidden": "is unknown"}.get(item["type"], "is wrong")
        return f"[{section}] {name}: key '{key}' {what}: must be {keys[name].description}"
    return f"[{section}] {name} = {_written(item['input'])}: must be {keys[name].description or item['msg']}"


def _is_table(annotation: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _nearest(name: str, known: Iterable[str], form: str) -> str:
    names = sorted(known)
    near = get_close_matches(name, names, n=1)
    if near:
        return f": did you mean {form.format(near[0])}?"
    return f"; known are {', '.join(names)}"


def _written(value: object) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)

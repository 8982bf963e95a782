"""Validation messages of a job file: the key, its value and the allowed values."""

from __future__ import annotations

import json
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from ...text import nearest_or_all
from .model_section import RESERVED

_MOST_MESSAGES = 20
"""Wrong keys that are described; the names nearest to each are searched for."""


def validation_messages(error: ValidationError, schema: type[BaseModel]) -> list[str]:
    """Return a line for each of the first wrong keys; the allowed values are in the descriptions of the fields."""
    seen: dict[tuple[str, ...], str] = {}
    for item in error.errors(include_url=False):
        if len(seen) == _MOST_MESSAGES:
            return [*seen.values(), f"{error.error_count()} mistakes in all, of which {_MOST_MESSAGES} are described"]
        path, table, rest = _place(tuple(str(part) for part in item["loc"]), schema)
        seen.setdefault((path, *rest[:1]), _message(item, path, table, rest))
    return list(seen.values())


def _place(places: tuple[str, ...], schema: type[BaseModel]) -> tuple[str, type[BaseModel], tuple[str, ...]]:
    """Return dotted name and model of the innermost table with the error, and the remaining keys."""
    names, table = [], schema
    for name in places[:-1]:
        inner = _table(table.model_fields[name].annotation) if name in table.model_fields else None
        if inner is None:
            break
        names.append(name)
        table = inner
    return ".".join(names), table, places[len(names) :]


def _message(item: Any, path: str, table: type[BaseModel], rest: tuple[str, ...]) -> str:
    name, field = rest[0], table.model_fields.get(rest[0])
    if not path and (field is None or _table(field.annotation) is None):
        return f"unknown section [{name}]{nearest_or_all(name, sorted(table.model_fields))}"
    if not path and item["type"] == "missing":
        return f"[{name}] is missing: name the training data there (train, or x and y)"
    inner = f"{path}.{name}" if path else name
    if item["type"] == "value_error":
        return f"[{inner}] {item['ctx']['error']}"
    if not path:
        return f"{name} = {_written(item['input'])}: must be a table, [{name}]"
    if item["type"] == "extra_forbidden":
        if path == "model" and name in RESERVED:
            return f"key '{name}' is not allowed in [model]: {RESERVED[name]}"
        return f"unknown key '{name}' in [{path}]{nearest_or_all(name, sorted(table.model_fields))}"
    assert field is not None
    if item["type"] == "missing":
        return f"[{path}] {name} is missing: must be {field.description}"
    return f"[{path}] {name} = {_written(item['input'])}: must be {field.description or item['msg']}"


def _table(annotation: Any) -> type[BaseModel] | None:
    """Return the table class of a field, also of an optional one; None for other fields."""
    for part in (annotation, *get_args(annotation)):
        if isinstance(part, type) and issubclass(part, BaseModel):
            return part
    return None


def _written(value: object) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)

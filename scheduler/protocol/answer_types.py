"""Types of the fields of answers, which neither a right checksum nor the name of a class says anything about."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

T = TypeVar("T")


@cache
def _kinds(cls: type[Any]) -> dict[str, Any]:
    """Return the types of the fields of a dataclass."""
    return get_type_hints(cls)


def typed(value: T) -> T:
    """Return a dataclass whose fields have their types; `ValueError` names the first that has not."""
    cls: Any = type(value)
    for name, kind in _kinds(cls).items():
        if not _fits(getattr(value, name), kind):
            raise ValueError(f"the field {name} of {type(value).__name__} has another type")
    return value


def require_typed(value: Any) -> None:
    """Refuse a tree of dataclasses of which a field has another type: `ValueError`."""
    if isinstance(value, list | tuple):
        for item in value:
            require_typed(item)
    elif isinstance(value, dict):
        require_typed(list(value.values()))
    elif is_dataclass(value) and not isinstance(value, type):
        typed(value)
        for field in fields(value):
            require_typed(getattr(value, field.name))


def _without_alias(kind: Any) -> Any:
    """Return the type that an alias of Python 3.12 stands for; numpy from 2.5 on declares its `NDArray` as one."""
    alias = get_origin(kind) or kind
    while hasattr(alias, "__value__"):
        meant, parts = alias.__value__, get_args(kind)
        kind = meant[parts] if parts else meant
        alias = get_origin(kind) or kind
    return kind


def _fits(value: Any, kind: Any) -> bool:
    """Return whether a value has a type; of arrays the kind of their items counts, not the precision."""
    kind = _without_alias(kind)
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any:
        return True
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is np.ndarray:
        item = get_args(parts[1])[0] if len(parts) > 1 and get_args(parts[1]) else Any
        numbers = isinstance(item, type) and issubclass(item, np.number)
        return isinstance(value, np.ndarray) and (not numbers or value.dtype.kind in "iuf")
    if origin is dict:
        return isinstance(value, dict) and all(_fits(k, parts[0]) and _fits(v, parts[1]) for k, v in value.items())
    if origin in (list, tuple):
        same = origin is list or parts[-1] is Ellipsis
        inner = parts[:1] * len(value) if same and isinstance(value, (list, tuple)) else parts
        return isinstance(value, origin) and len(inner) == len(value) and all(map(_fits, value, inner))
    if kind in (int, float):
        numbers_of = (int, np.integer) if kind is int else (int, float, np.integer, np.floating)
        return isinstance(value, numbers_of) and not isinstance(value, bool)
    return isinstance(value, kind)

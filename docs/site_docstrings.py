"""Docstrings of estimators as they are when the program runs; an extension of griffe, which reads sources only."""

from __future__ import annotations

import inspect
from typing import Any

import griffe

APPEND = ("documented", "described")
"""Decorators that append sections to a docstring."""


class RuntimeDocstrings(griffe.Extension):
    """Takes the docstring of a class from the class where a decorator appends to it."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Replace the docstring of one class."""
        if cls.docstring and any(str(item.value).startswith(APPEND) for item in cls.decorators):
            cls.docstring.value = inspect.cleandoc(griffe.dynamic_import(cls.path).__doc__)

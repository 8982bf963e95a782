"""What every table of a job file is."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, PlainValidator
from pydantic_core import PydanticCustomError

from ...estimators.base.parameter_checks import Constraint

PATH = "a path between quotes"
TEXT = "a text between quotes"


class Section(BaseModel):
    """A table of the job file: fixed keys, no conversions between types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def constrained(constraint: Constraint) -> PlainValidator:
    """Return what holds a key to the same constraint as the parameter of an estimator."""

    def check(value: Any) -> Any:
        if value == "none" and constraint.optional:
            return None
        wanted = constraint.violation(value)
        if wanted is not None:
            raise PydanticCustomError("constraint", "{wanted}", {"wanted": wanted})
        return value

    return PlainValidator(check)

"""The base class of the tables of a job file, and their validators."""

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
    """Return a validator that checks the constraint of an estimator's parameter."""

    def check(value: Any) -> Any:
        if value == "none" and constraint.optional:
            return None
        wanted = constraint.violation(value)
        if wanted is not None:
            raise PydanticCustomError("constraint", "{wanted}", {"wanted": wanted})
        return value

    return PlainValidator(check)

"""What every table of a job file is."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

PATH = "a path between quotes"
TEXT = "a text between quotes"


class Section(BaseModel):
    """A table of the job file: fixed keys, no conversions between types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

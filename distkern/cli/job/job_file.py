"""The job file of ``distkern train``: TOML in, a checked `Job` out.

The message for an unknown key names the nearest known one, and that for a wrong value the allowed ones. The keys of
``[model]`` are the parameters of the estimators, from their signatures. Paths are relative to the current directory;
this module does not open the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import Field, ValidationError, create_model, model_validator

from ...errors import JobError
from ...estimators.base.parameter_checks import one_of
from .cluster_section import ClusterSection
from .environment import with_variables
from .model_section import METHODS, model_fields
from .section import PATH as _PATH
from .section import Section, constrained
from .toml import forget, override, read_toml
from .validation_messages import validation_messages

S = TypeVar("S", bound=Section)


class DataSection(Section):
    """``[data]``: a dataset store or two plain zarr arrays, and a zarr array of row weights."""

    train: str | None = Field(default=None, min_length=1, description=_PATH)
    test: str | None = Field(default=None, min_length=1, description=_PATH)
    weight: str | None = Field(default=None, min_length=1, description=_PATH)
    x: str | None = Field(default=None, min_length=1, description=_PATH)
    y: str | None = Field(default=None, min_length=1, description=_PATH)
    test_x: str | None = Field(default=None, min_length=1, description=_PATH)
    test_y: str | None = Field(default=None, min_length=1, description=_PATH)
    task: Annotated[str | None, constrained(one_of("classification", "regression"))] = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        _complete("x", self.x, "y", self.y)
        _complete("test_x", self.test_x, "test_y", self.test_y)
        if self.train is None and self.x is None:
            raise ValueError("name the training data: train = a dataset store, or x = and y = two zarr arrays")
        if self.train is not None and self.x is not None:
            raise ValueError("train and x, y exclude each other")
        if self.test is not None and self.test_x is not None:
            raise ValueError("test and test_x, test_y exclude each other")
        return self


def _complete(name: str, value: str | None, other_name: str, other: str | None) -> None:
    if (value is None) != (other is None):
        present, absent = (name, other_name) if other is None else (other_name, name)
        raise ValueError(f"{present} needs {absent} beside it")


class ModelSection(Section):
    """``[model]``: the method and any parameter of its estimator."""

    method: Annotated[str, constrained(one_of(*METHODS))] = "orols"

    def parameters(self) -> dict[str, Any]:
        """Return the estimator parameters that the job sets."""
        return {name: getattr(self, name) for name in self.model_fields_set if name != "method"}


_OWN_WORKERS = ("kind", "workers", "cores", "host", "job", "ssh", "kubernetes")
_DISPLACED = {
    "scheduler": (*_OWN_WORKERS, "scheduler_file"),
    "scheduler_file": (*_OWN_WORKERS, "scheduler"),
    "workers": ("scheduler", "scheduler_file", "min_workers"),
}
"""Keys of ``[cluster]`` that a flag replaces."""


class _Flags(Section):
    cluster: ClusterSection


class OutputSection(Section):
    """``[output]``: places of the model and of the record of the run; one without a place is not saved."""

    model: str | None = Field(default=None, min_length=1, description=_PATH)
    run: str | None = Field(default=None, min_length=1, description=_PATH)


class Job(Section):
    """A checked job file."""

    data: DataSection
    model: ModelSection = Field(default_factory=ModelSection)
    cluster: ClusterSection = Field(default_factory=ClusterSection)
    output: OutputSection = Field(default_factory=OutputSection)


def load_job(path: str | Path, overrides: Iterable[str] = (), cluster: Mapping[str, Any] | None = None) -> Job:
    """Read and check a job file.

    Parameters
    ----------
    path : str or Path
        The TOML file; its texts may refer to environment variables.
    overrides : iterable of str, default ()
        ``section.key=value`` settings, which replace those of the file.
    cluster : mapping, optional
        Settings of ``[cluster]`` from the command line; a scheduler replaces the file's keys of workers, and workers
        replace its scheduler.

    Returns
    -------
    Job

    Raises
    ------
    JobError
        Names the file and the line, or the key, the value and the allowed values.
    """
    document = read_toml(Path(path))
    overrides = tuple(overrides)
    for setting in overrides:
        # A replaced value may refer to variables that are not set.
        forget(document, setting)
    document = with_variables(document, path)
    for setting in overrides:
        override(document, setting)
    if cluster:
        section = document.setdefault("cluster", {})
        if isinstance(section, dict):
            for name in (name for flag in cluster for name in _DISPLACED.get(flag, ())):
                section.pop(name, None)
            section.update(cluster)
    return parse_job(document)


def parse_job(document: Mapping[str, Any]) -> Job:
    """Check the content of a job file, sections that map keys to values."""
    section = document.get("model", {})
    method = section.get("method", "orols") if isinstance(section, Mapping) else "orols"
    model = create_model("ModelSection", __base__=ModelSection, **model_fields(method))
    schema = create_model("Job", __base__=Job, model=(model, Field(default_factory=model)))
    return _validated(schema, document)


def cluster_of_flags(**flags: Any) -> ClusterSection:
    """Check ``--scheduler``, ``--scheduler-file``, ``--workers`` and ``--memory`` of a command without a job file.

    Parameters
    ----------
    **flags
        Values of ``[cluster]``; None where a flag is not given.

    Returns
    -------
    ClusterSection

    Raises
    ------
    JobError
        Names the key, the value and the allowed values.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    return _validated(_Flags, {"cluster": given}).cluster


def _validated(schema: type[S], document: Mapping[str, Any]) -> S:
    try:
        return schema.model_validate(document)
    except ValidationError as error:
        raise JobError("\n".join(validation_messages(error, schema)), kind="invalid-job") from None

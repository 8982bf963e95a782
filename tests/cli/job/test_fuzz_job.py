"""Damaged and made-up job files: a job that says what was asked for, or an error of ours."""

from __future__ import annotations

from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distkern.cli.job.job_file import (
    ClusterSection,
    DataSection,
    Job,
    ModelSection,
    OutputSection,
    load_job,
    parse_job,
)
from distkern.cli.job.model_section import build, model_fields
from distkern.errors import DistkernError, JobError
from tests.cli.command_line import job_text
from tests.fuzzing import TOKENS, damaged, examples, refusal
from tests.memory_limits import GIB, memory_for

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]

JOBS = [
    b"""
[data]
train = "a.zarr"
test = "b.zarr"
[model]
method = "orols"
sigma = 2.0
max_centers = 100
stop = "none"
standardize = false
[cluster]
workers = 2
memory = "2GiB"
[output]
model = "m"
run = "r"
""",
    b"""
data = {x = "X.zarr", y = "y.zarr", task = "regression"}
[model]
kernel = {name = "polynomial", degree = 3}
regularization = 1e-3
tol = 0.0
patience = 5
selection_rows = 1000
""",
    b"""# a note
[data]\r
"train" = '''a
.zarr'''
[model]
method = "npd"
sigma = "median"
random_state = 0x10
""",
]

MORE = b"sigma sigmma [model] [modle] method 1e3 1979-05-27 12:30 true {name=3} [1] 10_0 0b1 +inf".split()


def use(job: Job) -> None:
    """Take a checked job as far as its estimator, which may still refuse a value."""
    for task in ("classification", "regression"):
        build(job.model.method, task, job.model.parameters(), {})


def check(error: DistkernError | None) -> None:
    assert error is None or (isinstance(error, JobError) and error.kind != "unspecified" and error.message)


@examples(2000)
@given(content=damaged(JOBS, [*TOKENS, *MORE]), setting=st.none() | st.text(max_size=20))
def test_damaged_jobs(tmp_path: Path, content: bytes, setting: str | None) -> None:
    path = tmp_path / "job.toml"
    path.write_bytes(content)
    started = monotonic()
    with memory_for(GIB):
        check(refusal(lambda: use(load_job(path, [] if setting is None else [setting]))))
    assert monotonic() - started < 10


SECTIONS = {"data": DataSection, "model": ModelSection, "cluster": ClusterSection, "output": OutputSection}
names = st.sampled_from(
    sorted({*SECTIONS, *model_fields("orols"), *(key for section in SECTIONS.values() for key in section.model_fields)})
)
scalars = st.one_of(
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        ["orols", "npd", "gaussian", "median", "none", "2GiB", "a.zarr", "polynomial", 10**400, -1, 0, None]
    ),
    st.datetimes(),
)
nested = scalars | st.lists(scalars, max_size=3)
values = nested | st.dictionaries(names | st.text(max_size=4), nested, max_size=4)


@examples(1500)
@given(
    document=st.fixed_dictionaries(
        {},
        optional={section: st.dictionaries(names, values, max_size=4) | values for section in SECTIONS},
    )
)
def test_made_up_jobs(document: dict[str, Any]) -> None:
    check(refusal(lambda: use(parse_job(document))))


@examples(100)
@given(
    parameters=st.dictionaries(st.sampled_from(["sigma", "max_centers", "kernel", "stop", "tol"]), st.integers(1, 9))
)
def test_whole_numbers_survive_the_file(tmp_path: Path, parameters: dict[str, int]) -> None:
    (tmp_path / "job.toml").write_text(job_text(data={"train": "a"}, model=parameters))
    found: list[Job] = []
    error = refusal(lambda: found.append(load_job(tmp_path / "job.toml")))
    if error is None:
        assert found[0].model.parameters() == parameters
    else:
        assert {"kernel", "stop"} & set(parameters)
        assert "kernel" in error.message or "stop" in error.message

"""Damaged and made-up job files: a job that says what was asked for, or an error of ours."""

from __future__ import annotations

from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from command_line import job_text
from fuzzing import TOKENS, damaged, examples
from hypothesis import given
from hypothesis import strategies as st
from memory_limits import GIB, memory_for

from distkern.cli.job import Job, load_job, parse_job
from distkern.cli.parameters import build
from distkern.errors import JobError
from distkern.estimators.parameters import check_parameters

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

JOBS = [
    b'[data]\ntrain = "a.zarr"\ntest = "b.zarr"\n[model]\nmethod = "orols"\nsigma = 2.0\nmax_centers = 100\n'
    b'stop = "none"\nstandardize = false\n[cluster]\nworkers = 2\nmemory = "2GiB"\n[output]\nmodel = "m"\nrun = "r"\n',
    b'data = {x = "X.zarr", y = "y.zarr", task = "regression"}\n[model]\nkernel = {name = "polynomial", degree = 3}\n'
    b"regularization = 1e-3\ntol = 0.0\npatience = 5\nselection_rows = 1000\n",
    b"# a note\n[data]\r\n\"train\" = '''a\n.zarr'''\n[model]\nmethod = \"npd\"\nsigma = \"median\"\nrandom_state = 0x10\n",
]

MORE = [
    b"sigma",
    b"sigmma",
    b"[model]",
    b"[modle]",
    b"method",
    b"1e3",
    b"1979-05-27",
    b"12:30",
    b"true",
    b"{name=3}",
    b"[1]",
]


def use(job: Job) -> None:
    """Take a checked job as far as its estimator, which may still refuse a value."""
    for task in ("classification", "regression"):
        check_parameters(build(job.model.method, task, job.model.parameters(), {}))


@examples(3000)
@given(content=damaged(JOBS, [*TOKENS, *MORE]), setting=st.none() | st.text(max_size=20))
def test_damaged_jobs(tmp_path: Path, content: bytes, setting: str | None) -> None:
    path = tmp_path / "job.toml"
    path.write_bytes(content)
    started = monotonic()
    try:
        with memory_for(GIB):
            use(load_job(path, [] if setting is None else [setting]))
    except JobError as error:
        assert error.kind != "unspecified"
        assert error.message
    assert monotonic() - started < 10


names = st.sampled_from(
    ["data", "model", "cluster", "output", "train", "test", "x", "y", "task", "method", "sigma", "kernel", "name"]
    + ["max_centers", "stop", "tol", "workers", "memory", "scheduler", "run", "degree", "dtype", "client", "factors"]
)
values = st.recursive(
    st.one_of(
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=8),
        st.sampled_from(
            ["orols", "npd", "gaussian", "median", "none", "2GiB", "a.zarr", "polynomial", 10**400, -1, 0, None]
        ),
        st.datetimes(),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names | st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)


@examples(3000)
@given(
    document=st.fixed_dictionaries(
        {},
        optional={
            section: st.dictionaries(names, values, max_size=4) | values
            for section in ("data", "model", "cluster", "output")
        },
    )
)
def test_made_up_jobs(document: dict[str, Any]) -> None:
    try:
        use(parse_job(document))
    except JobError as error:
        assert error.kind != "unspecified"
        assert error.message


@examples(500)
@given(
    parameters=st.dictionaries(st.sampled_from(["sigma", "max_centers", "kernel", "stop", "tol"]), st.integers(1, 9))
)
def test_whole_numbers_survive_the_file(tmp_path: Path, parameters: dict[str, int]) -> None:
    (tmp_path / "job.toml").write_text(job_text(data={"train": "a"}, model=parameters))
    try:
        assert load_job(tmp_path / "job.toml").model.parameters() == parameters
    except JobError as error:
        assert {"kernel", "stop"} & set(parameters)
        assert "between quotes" in error.message or "kernel" in error.message or "stop" in error.message

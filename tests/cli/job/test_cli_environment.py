"""Environment variables in job files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distkern.cli.job.environment import with_variables
from distkern.cli.job.job_file import load_job
from distkern.errors import JobError
from distkern.redaction import redact
from distkern.storage import RunDirectory
from tests.cli.command_line import Call, job_text

SET = {"HOME": "/home/me", "EMPTY": "", "N": "3", "WITH_REF": "${N}$$"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", "plain"),
        ("${HOME}", "/home/me"),
        ("${HOME}/a-${N}.zarr", "/home/me/a-3.zarr"),
        ("${NOT_SET:-x}", "x"),
        ("${NOT_SET:-}", ""),
        ("${EMPTY}", ""),
        ("${EMPTY:-x}", "x"),
        ("${N:-x}", "3"),
        ("${NOT_SET:-a:-b/c d}", "a:-b/c d"),
        ("$$", "$"),
        ("$${HOME}", "${HOME}"),
        ("$$$${N}", "$${N}"),
        ("$$${N}", "$3"),
        ("$HOME costs 5 $", "$HOME costs 5 $"),
        ("${WITH_REF}", "${N}$$"),
    ],
)
def test_texts(text: str, value: str) -> None:
    assert with_variables(text, "job.toml", environment=SET) == value


def test_only_texts_and_wherever_they_are() -> None:
    document = {"a": {"${N}": "${N}", "b": [1, "${N}", {"c": "${N}"}], "d": 2.5, "e": True, "f": None}}
    expected = {"a": {"${N}": "3", "b": [1, "3", {"c": "3"}], "d": 2.5, "e": True, "f": None}}
    assert with_variables(document, "job.toml", environment=SET) == expected


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("/x/${DATA}/y", "variable-missing", ("job.toml", "data.train[1]", "variable DATA is not set", "${DATA:-")),
        ("${1X}", "variable-syntax", ("job.toml", "data.train[1]", "${NAME}")),
        ("${HOME", "variable-syntax", ("$$",)),
        ("${}", "variable-syntax", ("$$",)),
        ("${HOME-x}", "variable-syntax", ("$$",)),
        ("${LATIN}", "variable-text", ("LATIN", "UTF-8")),
    ],
)
def test_what_cannot_be_replaced_is_named(text: str, kind: str, words: tuple[str, ...]) -> None:
    with pytest.raises(JobError) as caught:
        with_variables({"data": {"train": ["", text]}}, "job.toml", environment={**SET, "LATIN": "\udce9"})
    assert caught.value.kind == kind
    for word in words:
        assert word in str(caught.value)


@given(st.text())
def test_escaped_texts_are_restored(text: str) -> None:
    assert with_variables(text.replace("$", "$$"), "job.toml", environment={}) == text


@pytest.fixture
def job(waves: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DISTKERN_TEST_DATA", str(waves))
    monkeypatch.delenv("DISTKERN_TEST_OUT", raising=False)
    text = job_text(
        data={"train": "${DISTKERN_TEST_DATA}/waves.zarr"},
        model={"max_centers": 5},
        output={"model": "${DISTKERN_TEST_OUT:-out}.model", "run": "${DISTKERN_TEST_OUT:-out}.run"},
    )
    (waves / "job.toml").write_text(text)
    return waves / "job.toml"


def test_a_training_and_its_record(job: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    first = call("train", job, "--json")
    assert json.loads(first.out)["model"] == "out.model"
    assert RunDirectory.open("out.run").job["data"]["train"] == str(job.parent / "waves.zarr")
    assert call("train", job, "--json", "--resume", "auto").out == first.out
    assert call("plan", job).code == 0
    monkeypatch.setenv("DISTKERN_TEST_OUT", "other")
    assert json.loads(call("train", job, "--json", "--resume", "auto").out)["model"] == "other.model"


def test_a_variable_that_is_missing_matters_only_where_its_text_does(
    job: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DISTKERN_TEST_DATA")
    done = call("train", job, "--json")
    assert done.code == 2
    error = json.loads(done.out)["error"]
    assert error["kind"] == "variable-missing"
    assert "DISTKERN_TEST_DATA" in error["message"]
    assert "data.train" in error["message"]
    assert "job.toml" in error["message"]
    assert call("train", job, "--set", "data.train=waves.zarr").code == 0


def test_flags_are_left_to_the_shell(job: Path) -> None:
    loaded = load_job(job, ["output.model=${DISTKERN_TEST_DATA}$$"])
    assert loaded.output.model == "${DISTKERN_TEST_DATA}$$"


def test_secrets_stay_out_of_records_and_messages(job: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nothing in the text around them speaks of a secret."""
    secret = "hunter2-and-more"
    monkeypatch.setenv("STORE_TOKEN", secret)
    (job.parent / secret).mkdir()
    (job.parent / "waves.zarr").rename(job.parent / secret / "waves.zarr")
    job.write_text(job.read_text().replace("/waves.zarr", "/${STORE_TOKEN}/waves.zarr"))
    assert call("train", job).code == 0
    for file in filter(Path.is_file, (job.parent / "out.run").rglob("*")):
        assert secret.encode() not in file.read_bytes(), file
    kept: Any = RunDirectory.open("out.run").job
    assert kept["data"]["train"] == str(job.parent / "***" / "waves.zarr")
    (job.parent / secret / "waves.zarr").rename(job.parent / "waves.zarr")
    done = call("train", job, "--json", "--overwrite")
    assert done.code == 3
    assert secret not in done.out + done.err
    assert "***" in done.err
    assert redact(f"a {secret} b") == "a *** b"

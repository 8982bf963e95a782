"""Credentials stay out of whatever people and files get to see."""

from __future__ import annotations

import json
import logging
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from distkern import redaction
from distkern.errors import DataError, JobError, StoreError
from distkern.redaction import conceal, displayed_cause, redact, redact_values
from distkern.storage import RunDirectory, open_arrays, open_dataset

SECRET = "wJalr/XUtn+FEMI"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://AKIA123:wJalr/XUtn+FEMI@bucket/letter.zarr", "s3://***@bucket/letter.zarr"),
        ("https://user:pw@host:8080/a.zarr is missing", "https://***@host:8080/a.zarr is missing"),
        ("https://token@host/a", "https://***@host/a"),
        ("simplecache::s3://k:s@b/x", "simplecache::s3://***@b/x"),
        ("'ftp://u:p@h/x' and 's3://b/y'", "'ftp://***@h/x' and 's3://b/y'"),
        (
            "https://b.s3.amazonaws.com/x.zarr?X-Amz-Credential=AK%2F1&X-Amz-Signature=ab12 cannot be read",
            "https://b.s3.amazonaws.com/x.zarr?X-Amz-Credential=***&X-Amz-Signature=*** cannot be read",
        ),
        ("az://c/x?sv=2024&sig=abc%3D", "az://c/x?sv=***&sig=***"),
        ("https://h/x#access_token=abc", "https://h/x#access_token=***"),
        ("AWS_SECRET_ACCESS_KEY=abc/def next", "AWS_SECRET_ACCESS_KEY=*** next"),
        ("{'secret': 'abc', 'anon': False}", "{'secret': '***', 'anon': False}"),
        ('"api-key": "abc"', '"api-key": "***"'),
        ("Authorization: Bearer abc.def", "Authorization: ***"),
        ("<FsspecStore(S3FileSystem, AKIA:sec/ret@bucket/x)>", "<FsspecStore(S3FileSystem, ***@bucket/x)>"),
    ],
)
def test_credentials_are_taken_out(text: str, expected: str) -> None:
    assert redact(text) == expected
    assert redact(expected) == expected


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/letter.zarr",
        "tcp://127.0.0.1:8786",
        "s3://bucket/a@b/c.zarr",
        "/data/run@home/letter.zarr",
        "rows 0 to 9 of X (chunk 3 of file:///tmp/x) cannot be read: a chunk is damaged",
        "sigma = -1.0: must be above 0",
        "what? a question; and key=value",
        "",
    ],
)
def test_the_rest_stays(text: str) -> None:
    assert redact(text) == text


@given(
    user=st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1),
    secret=st.text(st.characters(codec="ascii", min_codepoint=33, exclude_characters="'\"@"), min_size=6),
    host=st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1),
    around=st.sampled_from(["{}", "cannot read {} today", "'{}'", '{{"url": "{}"}}', "({})"]),
)
def test_no_password_survives(user: str, secret: str, host: str, around: str) -> None:
    assume(secret not in f"{host}***://s3x.zarrcannotreadtoday")
    assert secret not in redact(around.format(f"s3://{user}:{secret}@{host}/x.zarr"))


def test_nested_values() -> None:
    job = {"data": {"train": "s3://k:s3cr3t@b/x", "parts": ("az://c?sig=s3cr3t", 3)}, "n": 1.5, "password": "s3cr3t"}
    assert "s3cr3t" not in json.dumps(redact_values(job))
    assert redact_values(job)["n"] == 1.5
    assert job["data"]["train"] == "s3://k:s3cr3t@b/x"  # type: ignore[index]  # the original is as it was


@pytest.mark.parametrize("error", [DataError, JobError, StoreError])
def test_errors(error: Any) -> None:
    made = error(f"no store at s3://AKIA:{SECRET}@bucket/x", kind="missing")
    for shown in (str(made), repr(made), made.message, str(pickle.loads(pickle.dumps(made)))):
        assert SECRET not in shown
        assert "bucket/x" in shown


def test_causes_with_credentials_are_not_shown() -> None:
    plain, telling = OSError("gone"), OSError(f"https://u:{SECRET}@h/x is gone")
    assert displayed_cause(plain) is plain
    assert displayed_cause(telling) is None
    outer = ValueError("wrapped")
    outer.__cause__ = telling
    assert displayed_cause(outer) is None


def test_stores_behind_urls(caplog: Any) -> None:
    with caplog.at_level(logging.DEBUG):
        for opened in (open_dataset, lambda url: open_arrays(url, url)):
            with pytest.raises(DataError) as caught:
                opened(f"nosuch://AKIA:{SECRET}@bucket/x?sig={SECRET}")
            chain: Any = caught.value
            while chain is not None:
                assert SECRET not in str(chain)
                chain = chain.__cause__
    assert SECRET not in caplog.text


def test_run_directories(tmp_path: Path) -> None:
    url = f"s3://AKIA:{SECRET}@bucket/x"
    run = RunDirectory.create(tmp_path / "r", {"data": {"train": url}})
    run.record({"event": "Started", "source": url})
    run.write_summary({"test": url})
    for file in (tmp_path / "r").iterdir():
        assert SECRET not in file.read_text()
    assert RunDirectory.open(tmp_path / "r").job == {"data": {"train": "s3://***@bucket/x"}}


def test_the_command_line(tmp_path: Path, capfd: Any) -> None:
    from distkern.cli.main import main

    url = f"memory://AKIA:{SECRET}@bucket/x?sig={SECRET}"
    job = tmp_path / "job.toml"
    job.write_text(f'[data]\ntrain = "{url}"\n')
    for arguments in (
        ["train", str(job)],
        ["-v", "train", str(job), "--json"],
        ["plan", str(job)],
        ["info", url],
        ["evaluate", str(tmp_path / "none"), url],
        ["train", str(job), url],
        ["train", str(job), "--set", f"data.nonsense={url}"],
    ):
        assert main(arguments) != 0
        shown = capfd.readouterr()
        assert SECRET not in shown.out + shown.err, arguments
        assert "bucket" in shown.err or "none" in shown.err or "job.toml" in shown.err or "nonsense" in shown.err


def test_a_concealed_text_that_begins_another_leaves_no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_concealed", set())
    for secret in ("open", "opensesame", "opensesame-2"):
        conceal(secret)
    assert redact("key opensesame-2 and opensesame") == "key *** and ***"

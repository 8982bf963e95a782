"""Job files that are far too large, too deep, or no text: one `JobError`, soon and in little memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from distkern.cli.job.job_file import load_job
from tests.hostile.limits import end_of

pytestmark = pytest.mark.timeout(60)

GOOD = b'[data]\ntrain = "a.zarr"\n'
MODEL = GOOD + b"[model]\n"

JOBS: dict[str, tuple[Callable[[], bytes], str]] = {
    "twenty-thousand-unknown-keys": (lambda: MODEL + b"".join(b"k%d = 1\n" % i for i in range(20_000)), "invalid-job"),
    "a-table-in-100000-tables": (lambda: b"[" + b".".join([b"a"] * 100_000) + b"]\nx = 1\n", "job-file-syntax"),
    "dotted-key-of-100000-parts": (lambda: b".".join([b"a"] * 100_000) + b" = 1\n", "job-file-syntax"),
    "list-in-100000-lists": (lambda: MODEL + b"sigma = " + b"[" * 100_000 + b"]" * 100_000, "job-file-syntax"),
    "inline-table-in-1000-tables": (
        lambda: MODEL + b"kernel = " + b"{a=" * 1000 + b"1" + b"}" * 1000,
        "job-file-syntax",
    ),
    "list-in-300-lists": (lambda: MODEL + b"sigma = " + b"[" * 300 + b"]" * 300, "invalid-job"),
    "number-of-4000-digits": (lambda: MODEL + b"max_centers = " + b"9" * 4000, "read"),
    "number-of-a-million-digits": (lambda: MODEL + b"max_centers = " + b"9" * 10**6, "job-file-large"),
    "number-of-100000-digits": (lambda: MODEL + b"max_centers = " + b"9" * 10**5, "job-file-syntax"),
    "key-of-100000-characters": (lambda: MODEL + b"x" * 10**5 + b" = 1", "invalid-job"),
    "float-of-a-million-digits": (lambda: MODEL + b"sigma = 0." + b"9" * 10**6, "job-file-large"),
    "text-of-ten-million-characters": (lambda: MODEL + b'method = "' + b"x" * 10**7 + b'"', "job-file-large"),
    "key-of-a-million-characters": (lambda: MODEL + b"x" * 10**6 + b" = 1", "job-file-large"),
    "nul-bytes": (lambda: GOOD + b"\0" * 1000, "job-file-syntax"),
    "nul-in-a-text": (lambda: b'[data]\ntrain = "a\\u0000b"\n', "read"),
    "byte-order-mark": (lambda: b"\xef\xbb\xbf" + GOOD, "read"),
    "utf-16": (lambda: GOOD.decode().encode("utf-16"), "job-file-syntax"),
    "not-utf-8": (lambda: GOOD + b"# \xff\xfe\n", "job-file-syntax"),
    "the-same-key-twice": (lambda: GOOD + b'train = "b.zarr"\n', "job-file-syntax"),
    "python-in-a-text": (lambda: MODEL + b"sigma = \"__import__('os').system('false')\"", "invalid-job"),
    "infinite-number-of-workers": (lambda: GOOD + b"[cluster]\nworkers = inf\n", "invalid-job"),
    "memory-of-10-to-the-400": (lambda: GOOD + b'[cluster]\nmemory = "1e400GiB"\n', "invalid-job"),
}


@pytest.mark.parametrize("name", JOBS)
def test_hostile_job_files(name: str, tmp_path: Path) -> None:
    content, expected = JOBS[name]
    path = tmp_path / "job.toml"
    path.write_bytes(content())
    assert end_of(lambda: load_job(path)) == expected


def test_a_million_keys(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_bytes(MODEL + b"".join(b"k%d = 1\n" % i for i in range(10**6)))
    assert end_of(lambda: load_job(path)) == "job-file-large"

"""Random damage to valid bytes, and how much of it to try.

`DISTKERN_FUZZ_MINUTES` sets the time for all fuzzing together, about; two minutes where it is not set.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from distkern.errors import DistkernError

MINUTES = float(os.environ.get("DISTKERN_FUZZ_MINUTES", "2"))

TOKENS = [
    *(b"", b"0", b"1", b"-1", b"1e400", b"-1e400", b"1e-400", b"nan", b"NaN", b"inf", b"-Infinity", b"0x10", b"1_000"),
    *(b"9" * 30, b"9" * 400, b"1.7976931348623157e308", b"5e-324", b"--1", b"+1", b".", b"1,5", b"1e", b"1.2.3"),
    *("٣".encode(), "\uff11".encode(), "é".encode(), "\u2028".encode(), b"\xef\xbb\xbf", b"\xff\xfe", b"\xff", b"\x80"),
    *(b"\0", b"\r", b"\n", b"\r\n", b"\n\n\n", b"\t", b" ", b"\x1a", b"\x0b", b'"', b'""', b"'", b"\\", b'"""', b"'''"),
    *(b",", b",,,,", b";", b"|", b"#", b":", b"::", b"=", b"[", b"]", b"{", b"}", b"(", b")", b"[[", b"]]", b"qid:1"),
    *(
        b"true",
        b"None",
        b"null",
        b"NA",
        b"?",
        b"a" * 500,
        b"1979-05-27T07:32:00Z",
        b"descr",
        b"|O8",
        b"<f8",
        b"<U9999999",
    ),
]


def examples(count: int) -> Any:
    """Settings of a test that tries `count` inputs in its share of two minutes."""
    return settings(
        max_examples=max(1, int(count * MINUTES / 2)),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
    )


def refusal(work: Callable[[], object]) -> DistkernError | None:
    """Do something; return the error of ours that it ended with, if it did. Any other error is a finding."""
    try:
        work()
    except DistkernError as error:
        return error
    return None


@st.composite
def damaged(draw: st.DrawFn, bases: list[bytes], tokens: list[bytes] = TOKENS) -> bytes:
    """One of some valid inputs with a few pieces cut out, repeated, put in or replaced."""
    content = draw(st.sampled_from(bases))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        stop = min(len(content), start + draw(st.one_of(st.integers(0, 4), st.integers(0, 60))))
        kind = draw(st.sampled_from(["replace", "insert", "noise", "repeat", "end", "flip"]))
        if kind == "replace":
            piece = draw(st.sampled_from(tokens))
        elif kind == "insert":
            stop, piece = start, draw(st.sampled_from(tokens))
        elif kind == "noise":
            piece = draw(st.binary(max_size=8))
        elif kind == "repeat":
            piece = content[start:stop] * draw(st.integers(2, 20))
        elif kind == "end":
            stop, piece = len(content), b""
        else:
            piece = bytes(byte ^ (1 << draw(st.integers(0, 7))) for byte in content[start : start + 1])
            stop = start + len(piece)
        content = content[:start] + piece + content[stop:]
    return content

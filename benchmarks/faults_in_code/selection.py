"""Which tests may see a fault: those that ran its lines, cheapest first."""

from __future__ import annotations

import ast
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree

from benchmarks.faults_in_code.faults import Fault

FIRST_SECONDS = 60.0
"""Summed durations of the tests that run first."""

UNKNOWN_SECONDS = 1.0
"""Duration of a test that the report of durations does not name."""


class Coverage:
    """Tests by the lines that they ran.

    Parameters
    ----------
    database : Path
        What ``pytest --cov --cov-context=test`` left of a run over this code, with lines and no branches.
    report : Path, optional
        What ``--junitxml`` wrote in the same run, for the durations.
    """

    def __init__(self, database: Path, report: Path | None = None) -> None:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as data:
            self._files = dict(data.execute("SELECT path, id FROM file"))
            self._contexts: dict[int, str] = dict(data.execute("SELECT id, context FROM context"))
            self._lines = data.execute("SELECT file_id, context_id, numbits FROM line_bits").fetchall()
        cases = () if report is None else ElementTree.parse(report).iter("testcase")
        self._seconds = {(case.get("classname"), case.get("name")): float(case.get("time", 0.0)) for case in cases}
        self._breadth = Counter(self._test(context) for _, context, _ in self._lines)

    def tests(self, fault: Fault, text: str) -> dict[str, float]:
        """Return the tests that ran a changed line of the file's text, with their durations.

        Where none did, as for a constant, those that ran a line of the function around it, or of the file. Cheap ones
        that run little else come first.
        """
        files = {number for path, number in self._files.items() if path.endswith("/" + fault.file)}
        ran = [(self._test(context), bits) for file, context, bits in self._lines if file in files]
        lines = fault.lines(text)
        for around in (
            lines,
            _function_around(text, lines[0]),
            range(8 * max((len(bits) for _, bits in ran), default=0)),
        ):
            found = {test: self._duration(test) for test, bits in ran if test and any(_has(bits, n) for n in around)}
            if found:
                return dict(sorted(found.items(), key=lambda item: item[1] * self._breadth[item[0]]))
        return {}

    def _test(self, context: int) -> str:
        return self._contexts[context].rpartition("|")[0]

    def _duration(self, test: str) -> float:
        names, bracket, parameters = test.partition("[")
        path, *classes, name = names.split("::")
        place = ".".join([path.removesuffix(".py").replace("/", "."), *classes])
        return self._seconds.get((place, name + bracket + parameters), UNKNOWN_SECONDS)


def batches(tests: Mapping[str, float], most: float) -> list[list[str]]:
    """Cut tests into a first batch and the rest, as far as their durations sum up to `most`."""
    first: list[str] = []
    rest: list[str] = []
    total = 0.0
    for test, seconds in tests.items():
        total += seconds
        if total <= FIRST_SECONDS or not first:
            first.append(test)
        elif total <= most:
            rest.append(test)
    return [_by_file(batch) for batch in (first, rest) if batch]


def _by_file(tests: Sequence[str]) -> list[str]:
    """Put the tests of a file, which share what it prepares, behind the first of them."""
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    return sorted(tests, key=lambda test: files.index(test.partition("::")[0]))


def _has(bits: bytes, number: int) -> bool:
    return number // 8 < len(bits) and bool(bits[number // 8] & 1 << number % 8)


def mirrored(file: str, root: Path) -> str:
    """Return the folder of tests that mirrors a file's, or the nearest one above it."""
    place = PurePosixPath("tests", *(part for part in PurePosixPath(file).parent.parts if part != "distkern"))
    while not (root / place).is_dir() and len(place.parts) > 1:
        place = place.parent
    return str(place)


def _function_around(text: str, line: int) -> range:
    functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    spans = (range(node.lineno, (node.end_lineno or node.lineno) + 1) for node in functions)
    return min((span for span in spans if line in span), key=len, default=range(0))

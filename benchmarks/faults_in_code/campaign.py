"""Plant each fault in a copy of the checkout, run the tests that may see it, and record the first that fails."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any

import click

from benchmarks import tables
from benchmarks.faults_in_code.faults import ROOT, Fault, copy_tree, planted, require_matching
from benchmarks.faults_in_code.selection import Coverage, batches, mirrored

TEST_SECONDS = 120.0
"""Largest time of a test; a longer one counts as a failure."""

FAST_SECONDS = 600.0
"""Summed durations of the fast tests of a fault that are run."""

SLOW_SECONDS = 240.0
"""Wall time of tests whose durations are not known, such as slow ones; what has not failed by then is no catch."""

NOT_CAUGHT, TIMED_OUT = "not caught", "timed out"

_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", re.MULTILINE)
_MOST_UNRELIABLE = 10


def first_to_fail(root: Path, arguments: Sequence[str], seconds: float) -> str | None:
    """Return the first test that fails in a checkout, None if all pass, `TIMED_OUT` if the time is over before."""
    options = ["-x", "-q", "-rfE", "-p", "no:cacheprovider", f"--timeout={TEST_SECONDS:g}"]
    data = {"DISTKERN_DATA": str(ROOT.parent / "shared" / "data")}
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as listed, tempfile.TemporaryFile("w+") as output:
        listed.write("\n".join(arguments))
        listed.flush()
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, f"@{listed.name}"],
            cwd=root,
            env={**data, **os.environ, "PYTHONPATH": str(root), "CI": "true"},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return TIMED_OUT
        finally:
            # Processes that a failed test started end with it.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        text = output.read()
    found = _FAILED.search(text)
    if found is None and code not in (0, 5):  # 5: no test was selected
        raise click.ClickException(f"pytest ended with {code}:\n{text[-2000:]}")
    return None if found is None else found[1]


def caught_by(fault: Fault, root: Path, coverage: Coverage | None, *, slow: bool) -> tuple[str, str]:
    """Return which test catches a fault in a checkout, and whether it is a "fast" or a "slow" one."""
    places = fault.tests or (mirrored(fault.file, root),)
    passes: list[tuple[str, list[str], float]] = []
    if coverage is None:
        passes.append(("fast", ["-m", "not slow and not cluster", *places], FAST_SECONDS))
    else:
        tests = coverage.tests(fault, (root / fault.file).read_text())
        chosen = batches(tests, FAST_SECONDS)
        passes += [("fast", batch, 300 + 5 * sum(tests[test] for test in batch)) for batch in chosen]
    if slow:
        passes.append(("slow", ["-m", "slow or cluster", *places], SLOW_SECONDS))
    for name, arguments, seconds in passes:
        found = _failing_with_fault_only(fault, root, arguments, seconds)
        if found is not None and (found != TIMED_OUT or arguments[0] != "-m"):
            return found, name
    return NOT_CAUGHT, "-"


def _failing_with_fault_only(fault: Fault, root: Path, arguments: Sequence[str], seconds: float) -> str | None:
    unreliable: list[str] = []
    while len(unreliable) <= _MOST_UNRELIABLE:
        with planted(fault, root):
            failed = first_to_fail(root, [*arguments, *unreliable], seconds)
            if failed in (None, TIMED_OUT):
                return failed
            again = first_to_fail(root, [str(failed)], SLOW_SECONDS)
        if again is not None and first_to_fail(root, [str(failed)], SLOW_SECONDS) is None:
            return failed
        unreliable.append(f"--deselect={failed}")
    raise click.ClickException(f"tests fail without the fault {fault.id}, or now and then: {unreliable}")


def run(
    faults: Sequence[Fault],
    *,
    root: Path = ROOT,
    coverage: Coverage | None = None,
    slow: bool = True,
    jobs: int = 1,
    path: Path | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield a row a fault: where it is, its kind, and the test that catches it.

    Faults are planted in copies of `root`, `jobs` at a time. Rows are saved in `path` after each fault, and faults that
    have a row there are not planted again.
    """
    require_matching(faults, root)
    rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"] if path is not None and path.exists() else []
    yield from rows
    known = {row["fault"] for row in rows}
    copies: queue.SimpleQueue[Path] = queue.SimpleQueue()

    def plant(fault: Fault) -> dict[str, Any]:
        copy, started = copies.get(), perf_counter()
        try:
            line = fault.lines((copy / fault.file).read_text())[0]
            caught, name = caught_by(fault, copy, coverage, slow=slow)
        finally:
            copies.put(copy)
        row = {"fault": fault.id, "room": fault.room, "place": f"{fault.file}:{line}", "kind": fault.kind}
        return row | {"caught by": caught, "pass": name, "seconds": round(perf_counter() - started, 1)}

    with tempfile.TemporaryDirectory(prefix="distkern-faults-") as above, ThreadPoolExecutor(jobs) as pool:
        for number in range(jobs):
            copies.put(copy_tree(root, Path(above, f"copy-{number}")))
        asked = [pool.submit(plant, fault) for fault in faults if fault.id not in known]
        try:
            for answer in as_completed(asked):
                rows.append(answer.result())
                tables.save(path, rows)
                yield rows[-1]
        finally:
            pool.shutdown(cancel_futures=True)


def totals(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Count the faults of each room, and those that fast and slow tests catch."""
    rooms = [*sorted({row["room"] for row in rows}), "all"]
    found = {room: Counter(row["pass"] for row in rows if room in (row["room"], "all")) for room in rooms}
    return [
        {"room": room, "planted": n.total(), "by fast tests": n["fast"], "by slow": n["slow"], "not caught": n["-"]}
        for room, n in found.items()
    ]

"""Reads every hostile input in a process of its own and prints a line of JSON for each: its end, time and memory.

Run as a program, which forks: a process for the writing of each input and one for its reading, so that the memory that
a reading takes is its own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from distkern.cli.job.job_file import load_job
from distkern.errors import DistkernError
from distkern.storage import ingest
from tests.hostile import test_job_files, test_stores, test_table_files
from tests.hostile.limits import SECONDS, nothing_executed
from tests.storage.test_store_fuzzing import USES, write_originals


class Case(NamedTuple):
    """One hostile input."""

    name: str
    write: Callable[[Path], object]
    """Writes it into a folder."""
    read: Callable[[Path], object]
    """Reads it there."""
    expected: str


def cases(originals: Path) -> Iterator[Case]:
    """Yield all inputs; the stores are copies of good ones in a folder."""
    for name, (content, kind) in test_job_files.JOBS.items():
        yield Case(
            name,
            lambda folder, content=content: (folder / "job.toml").write_bytes(content()),  # type: ignore[misc]
            lambda folder: load_job(folder / "job.toml"),
            kind,
        )
    tables = test_table_files
    for name, table in {**tables.NUMPY, **tables.TEXT, **tables.PARQUET, **tables.SLOW}.items():
        yield Case(
            name,
            lambda folder, table=table: (folder / table[0]).write_bytes(table[1]()),  # type: ignore[misc]
            lambda folder, table=table: ingest(folder / table[0], folder / "out", **tables.options(table)),  # type: ignore[misc]
            table[2],
        )
    for name, (kind, change, expected) in test_stores.STORES.items():
        yield Case(
            name,
            lambda folder, kind=kind, change=change: change(  # type: ignore[misc]
                Path(shutil.copytree(originals / kind, folder / "store"))
            ),
            lambda folder, kind=kind: USES[kind](folder / "store"),  # type: ignore[misc]
            expected,
        )


def alone(work: Callable[[], str]) -> tuple[str, float, int]:
    """Do something in a process of its own; return its result, seconds and largest resident set in MiB."""
    read, write = os.pipe()
    started = monotonic()
    pid = os.fork()
    if not pid:
        result = "died"
        try:
            signal.alarm(int(2 * SECONDS))
            result = work()
        except BaseException as error:
            result = f"untyped: {error!r:.200}"
        finally:
            os.write(write, result.encode())
            os._exit(0)
    os.close(write)
    with open(read, "rb") as stream:
        result = stream.read().decode()
    _, _, usage = os.wait4(pid, 0)
    return result or "killed", monotonic() - started, usage.ru_maxrss >> 10


def main() -> None:
    """Print a line for every input."""
    warnings.simplefilter("ignore", UserWarning)
    with tempfile.TemporaryDirectory() as place:
        originals = Path(place, "originals")

        def prepare() -> str:
            originals.mkdir()
            write_originals(originals)
            return ""

        alone(prepare)
        for number, case in enumerate(cases(originals)):
            folder = Path(place, str(number))
            folder.mkdir()
            os.chdir(folder)

            def write(case: Case = case, folder: Path = folder) -> str:
                case.write(folder)
                return ""

            def read(case: Case = case, folder: Path = folder) -> str:
                with nothing_executed():
                    try:
                        case.read(folder)
                    except DistkernError as error:
                        return error.kind
                return "read"

            alone(write)
            end, seconds, mib = alone(read)
            facts = {"name": case.name, "expected": case.expected, "end": end, "seconds": seconds, "mib": mib}
            print(json.dumps(facts), flush=True)
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()

"""Runs of the campaign: one after another on one cluster, each with the faults of its seed.

Each must give the bits of an undisturbed run, or end with a typed error after which a resumed run has these bits. It
must end in time, and leave nothing in the memory of workers and on disks.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import NamedTemporaryFile, TemporaryDirectory
from time import monotonic, sleep
from typing import Any

from benchmarks import generated
from benchmarks.cluster.processes import running
from benchmarks.faults.driver import PHASES, TRAINING
from benchmarks.faults.hosts import Hosts, await_, signal_to
from benchmarks.faults.kinds import KINDS, Scene, reads_in_trouble
from distkern.storage import write_dataset

WORKERS = 3
ROWS, FEATURES, BLOCK_ROWS = 3000, 4, 250
PATIENCE = 150.0
"""Seconds that a driver may take in addition to a multiple of the undisturbed time."""

RESUMPTIONS = 3
"""Drivers after the first one, each of which resumes what the one before it has left."""

LEFT_SECONDS = 20.0


@dataclass
class Outcome:
    """Result of one run."""

    seconds: float = 0.0
    digest: str = ""
    """Of the result; empty if there is none."""
    errors: list[str] = field(default_factory=list)
    """Typed errors, after each of which the run was resumed."""
    failure: str = ""
    """An error that is not typed, or a hang."""
    left: list[str] = field(default_factory=list)
    """State and files that remained."""


class Campaign:
    """The cluster and the data of a campaign.

    Parameters
    ----------
    folder : Path
        Holds all files.
    phases : tuple of str
        Phases that runs are made of.
    server : S3Server, optional
        Object store, which kinds of faults of remote reads need.
    """

    def __init__(self, folder: Path, phases: tuple[str, ...] = PHASES, server: Any = None) -> None:
        self._folder = folder
        self._server = server
        self._data, self._more = folder / "rows.zarr", folder / "more.zarr"
        for part, path in enumerate((self._data, self._more)):
            X, y = generated.in_memory(generated.waves(ROWS, FEATURES, seed=part))
            write_dataset(path, X, y, chunk_rows=BLOCK_ROWS, task="regression")
        self._remote = server.upload(self._data, "rows.zarr") if server is not None else None
        self.hosts = Hosts(WORKERS, folder)
        try:
            self.undisturbed = {phase: self._run(phase, "none", 0) for phase in ("selection", *phases)}
        except BaseException:
            self.hosts.close()
            raise
        for phase, outcome in self.undisturbed.items():
            if outcome.failure or outcome.errors or outcome.left:
                self.hosts.close()
                raise RuntimeError(f"the undisturbed run of {phase} failed: {outcome}")

    @property
    def _model(self) -> Path:
        return self._folder / "selection-none-0.run"

    def run(self, phase: str, kind: str, seed: int) -> Outcome:
        """Compute a phase once, with a kind of faults."""
        return self._run(phase, kind, seed)

    def _run(self, phase: str, kind: str, seed: int) -> Outcome:
        name = f"{phase}-{kind}-{seed}"
        files = {what: self._folder / f"{name}.{what}" for what in ("run", "notes", "result")}
        outcome, begun = Outcome(), monotonic()
        self.hosts.repair()
        known = self.undisturbed[phase].seconds if kind != "none" else 600.0
        remote = kind in KINDS and KINDS[kind].remote

        def start() -> int:
            files["result"].unlink(missing_ok=True)
            files["notes"].unlink(missing_ok=True)
            return self.hosts.processes.start(
                "faults-driver",
                "",
                self.hosts.log,
                scheduler=self.hosts.address,
                data=self._remote if remote else str(self._data),
                more=str(self._more),
                model=str(self._model),
                run=str(files["run"]),
                notes=str(files["notes"]),
                result=str(files["result"]),
                phase=phase,
            )

        scene = Scene(
            self.hosts, random.Random(seed), start(), files["notes"], self._data, self._server, start
        )  # a seed names the faults
        with ExitStack() as stack:
            if kind != "none":
                stack.enter_context(reads_in_trouble(KINDS[kind], self._server, scene.draw))
                self._disturb(kind, scene, known, outcome)
            for attempt in range(1 + RESUMPTIONS):
                self._await_end(scene, known, outcome)
                found = json.loads(files["result"].read_text()) if files["result"].exists() else None
                if found is None:
                    outcome.failure = outcome.failure or "the driver disconnected"
                elif "digest" in found:
                    outcome.digest = found["digest"]
                elif found["typed"]:
                    outcome.errors.append(f"{found['error']} {found['kind']}")
                else:
                    outcome.failure = f"{found['error']}: {found['message']}"
                if outcome.digest or outcome.failure or attempt == RESUMPTIONS:
                    break
                self.hosts.repair()
                scene.driver = start()
        outcome.seconds = monotonic() - begun
        outcome.left = self._left()
        if kind != "none":
            for path in files.values():
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
            shutil.rmtree(f"{files['run']}.part", ignore_errors=True)
        return outcome

    def _disturb(self, kind: str, scene: Scene, known: float, outcome: Outcome) -> None:
        fault = KINDS[kind]
        try:
            if fault.in_load:
                await_(scene.loading, PATIENCE, "no worker held the run")
            else:
                await_(lambda: scene.notes.exists() or not running(scene.driver), PATIENCE, "the driver did not begin")
                sleep(scene.draw.uniform(0.0, 0.6 * known))
            fault.act(scene)
        except Exception as error:
            outcome.failure = f"the fault itself failed: {type(error).__name__}: {error}"

    def _await_end(self, scene: Scene, known: float, outcome: Outcome) -> None:
        """Wait for the driver, and start workers in place of those that ended, as a nanny does."""
        deadline = monotonic() + 3 * known + PATIENCE
        while running(scene.driver):
            if monotonic() > deadline:
                for pid in (scene.driver, *(worker.pid for worker in self.hosts.workers)):
                    signal_to(pid, signal.SIGABRT)  # each writes its stacks to the log
                sleep(1.0)
                signal_to(scene.driver, signal.SIGKILL)
                with NamedTemporaryFile(prefix="distkern-hang-", suffix=".log", delete=False) as kept:
                    kept.write(self.hosts.log.read_bytes())
                outcome.failure = f"no end within {3 * known + PATIENCE:.0f} s: {kept.name} has the stacks"
            for worker in self.hosts.workers:
                if not running(worker.pid):
                    self.hosts.replace(worker)
            sleep(0.05)

    def _left(self) -> list[str]:
        """Return state and files of the ended run, after some time for their removal."""
        self.hosts.repair()
        deadline = monotonic() + LEFT_SECONDS
        while True:
            held = self.hosts.held()
            if held is None and monotonic() > deadline + PATIENCE:
                return ["a worker that does not answer"]
            left = None if held is None else held + self.hosts.left_on_disk()
            if left is not None and (not left or monotonic() > deadline):
                return left
            sleep(0.1)

    def close(self) -> None:
        """End all processes."""
        self.hosts.close()


def schedule(runs: int, seed: int = 0) -> Iterator[tuple[str, str, int]]:
    """Yield phase, kind and seed of each run: all kinds in turn, and all phases with each."""
    pairs = [
        (phase, name)
        for number in range(len(PHASES))
        for place, (name, kind) in enumerate(KINDS.items())
        for phase in [PHASES[(place + number) % len(PHASES)]]
        if phase in TRAINING or not kind.training
    ]
    for number in range(seed, seed + runs):
        yield (*pairs[number % len(pairs)], number)


@contextmanager
def _object_store() -> Iterator[Any]:
    from tests.s3_server import leading_to, s3_server

    with s3_server() as server, leading_to(server):
        yield server


def campaign(runs: int, seed: int) -> Iterator[dict[str, Any]]:
    """Run a campaign; yield a row of the table for each run."""
    with TemporaryDirectory(prefix="distkern-faults-") as name, _object_store() as server:
        shared = Campaign(Path(name), server=server)
        try:
            for phase, kind, number in schedule(runs, seed):
                outcome = shared.run(phase, kind, number)
                yield {
                    "seed": number,
                    "phase": phase,
                    "fault": kind,
                    "s": outcome.seconds,
                    "undisturbed s": shared.undisturbed[phase].seconds,
                    "same bits": outcome.digest == shared.undisturbed[phase].digest,
                    "typed errors": "; ".join(outcome.errors),
                    "left": "; ".join(outcome.left),
                    "failure": outcome.failure,
                }
        finally:
            shared.close()


def totals(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each kind of faults: runs, seeds, times and failures."""
    table = []
    for kind in KINDS:
        runs = [row for row in rows if row["fault"] == kind]
        if runs:
            table.append(
                {
                    "fault": kind,
                    "runs": len(runs),
                    "seeds": f"{runs[0]['seed']} to {runs[-1]['seed']}",
                    "median s": median(row["s"] for row in runs),
                    "largest s": max(row["s"] for row in runs),
                    "resumed": sum(bool(row["typed errors"]) for row in runs),
                    "other bits": sum(not row["same bits"] for row in runs),
                    "left": sum(bool(row["left"]) for row in runs),
                    "failures": sum(bool(row["failure"]) for row in runs),
                }
            )
    return table

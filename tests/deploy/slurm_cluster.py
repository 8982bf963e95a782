"""A Slurm of this machine in a folder of its own: munge, a controller and two nodes, ended with the context."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "sinfo", "squeue", "scancel")
"""Of the packages munge, slurmctld, slurmd and slurm-client."""

SECONDS = 60.0

CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=100000
KillWait=5
SlurmdParameters=config_overrides
{nodes}
PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""

NODES = ("node1", "node2")
NODE = "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=8 RealMemory=16000"
"""More than a small machine has: nothing is bound to a core or held to its memory."""


def found(program: str) -> str | None:
    """Where a program is; those of the daemons are often outside the PATH of a user."""
    return shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]))


def missing() -> list[str]:
    return [program for program in PROGRAMS if found(program) is None]


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@dataclass
class Slurm:
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which its programs find it."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def call(self, *command: str, cwd: Path | None = None, **variables: str) -> str:
        done = subprocess.run(
            command,
            env=os.environ | self.environment | variables,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr, self.logs())
        return done.stdout.strip()

    def states(self) -> dict[str, str]:
        """The state of every job it knows, by number."""
        lines = self.call("squeue", "--states=all", "--noheader", "--format=%i %T").splitlines()
        return dict(line.split() for line in lines)

    def wait_for(self, job: str, *states: str, seconds: float = 300.0) -> str:
        end = monotonic() + seconds
        while (state := self.states().get(job, "UNKNOWN")) not in states:
            assert monotonic() < end, (job, state, self.logs())
            sleep(0.3)
        return state

    def logs(self) -> str:
        return "\n".join(f"{log.name}:\n{log.read_text()[-2000:]}" for log in sorted(self.folder.glob("*.log")))


@contextmanager
def slurm_cluster(folder: Path) -> Iterator[Slurm]:
    """Start a Slurm of this machine; needs to be root, since a node must."""
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    for name in ("state", *(f"spool-{node}" for node in NODES)):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    host = socket.gethostname().partition(".")[0]
    nodes = "\n".join(NODE.format(name=name, host=host, port=free_port()) for name in NODES)
    (folder / "slurm.conf").write_text(
        CONFIGURATION.format(folder=folder, host=host, user="root", controller_port=free_port(), nodes=nodes)
    )
    slurm = Slurm(folder)
    munged = ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket"]
    munged += [f"--pid-file={folder}/munge.pid", f"--seed-file={folder}/munge.seed", f"--log-file={folder}/munged.log"]
    with ExitStack() as stack:
        slurmds = [["slurmd", "-D", "-c", "-N", node] for node in NODES]
        for command in (munged, ["slurmctld", "-D", "-c"], *slurmds):
            stack.enter_context(daemon(command, slurm))
        end = monotonic() + SECONDS
        while (
            "idle"
            not in subprocess.run(
                ["sinfo", "--noheader", "--format=%t"],
                env=os.environ | slurm.environment,
                capture_output=True,
                text=True,
            ).stdout.split()
        ):
            assert monotonic() < end, slurm.logs()
            sleep(0.2)
        try:
            yield slurm
        finally:
            subprocess.run(["scancel", "--user=root"], env=os.environ | slurm.environment, check=False)
            end = monotonic() + 15
            while set(slurm.states().values()) & {"RUNNING", "COMPLETING", "PENDING"} and monotonic() < end:
                sleep(0.2)


@contextmanager
def daemon(command: list[str], slurm: Slurm) -> Iterator[None]:
    program = found(command[0])
    assert program is not None
    with (slurm.folder / f"{command[0]}.out.log").open("a") as output:
        process = subprocess.Popen(
            [program, *command[1:]], env=os.environ | slurm.environment, stdout=output, stderr=output
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

"""Hosts that are network namespaces: reached by ssh, trained on through a scheduler file, unplugged on the way."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from benchmarks.cluster.network_hosts import Host, network, not_permitted
from distkern.errors import ClusterError
from distkern.scheduler import TlsFiles, WorkerSize, ssh_client
from tests.deploy.conftest import model_bits, write_job
from tests.deploy.programs import distkern_command, environment, program, run
from tests.deploy.slurm_cluster import free_port
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(900)]


@pytest.fixture
def hosts() -> Iterator[list[Host]]:
    """The host of the driver, and two others."""
    reason = not_permitted()
    if reason is not None:
        pytest.skip(reason)
    with network(3) as made:
        yield made


@contextmanager
def running(command: list[str], log: Path, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=env)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def undisturbed(folder: Path, job: Path) -> bytes:
    settings = ["--set", "output.model=whole", "--set", "output.run=whole.run"]
    done = distkern_command("train", job, *settings, cwd=folder, env=environment(folder / "bin"))
    assert done.code == 0, done.err
    return model_bits(folder / "whole")


def events(run: Path) -> list[dict[str, Any]]:
    path = run / "events.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines() if line] if path.exists() else []


def test_a_host_that_is_unplugged(hosts: list[Host], here: Path) -> None:
    """The others take over its blocks; the model has the same bits."""
    model = {"sigma": 0.7, "max_centers": 200, "stop": "none", "candidates": 64, "panel": 1}
    job = write_job(here, model=model)
    expected = undisturbed(here, job)
    env, head, programs = environment(here / "bin"), hosts[0], here / "bin"
    file = here / "scheduler.json"
    with ExitStack() as stack:
        scheduler = [f"{programs}/dask", "scheduler", "--host", head.address, "--port", "0", "--no-dashboard"]
        command = head.command(*scheduler, "--scheduler-file", file)
        stack.enter_context(running(command, here / "scheduler.log", env))
        for number, host in enumerate(hosts[1:]):
            worker = [f"{programs}/dask", "worker", "--scheduler-file", file, "--nthreads", "1", "--no-dashboard"]
            command = host.command(*worker, "--local-directory", here / f"scratch{number}")
            stack.enter_context(running(command, here / f"worker{number}.log", env))
        train = [sys.executable, "-m", "distkern", "train", job, "--scheduler-file", file]
        command = head.command(*train, "--set", "cluster.min_workers=2")
        driver = stack.enter_context(running(command, here / "driver.log", env))
        log = here / "driver.log"
        wait_until(lambda: "training on" in log.read_text() or driver.poll() is not None, 120)
        sleep(1.0)
        assert driver.poll() is None, log.read_text()
        hosts[2].unplug()
        assert driver.wait(300) == 0, log.read_text()
    assert model_bits(here / "waves.model") == expected
    lost = [event for event in events(here / "waves.run") if "WorkerLost" in json.dumps(event)]
    assert len(lost) == 1, log.read_text()
    assert hosts[2].address in json.dumps(lost)


SSHD = """\
ListenAddress {address}
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PidFile {folder}/sshd-{address}.pid
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
"""


def sshd_program() -> str:
    """The daemon, which wants to be called by its whole path."""
    found = shutil.which("sshd", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))
    if found is None:
        pytest.skip("sshd is not installed (Debian: openssh-server)")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # it will not run as root without
    return found


@contextmanager
def ssh_daemon(folder: Path, host: Host, port: int) -> Iterator[None]:
    """An sshd of that host which lets the key in the folder in."""
    sshd = sshd_program()
    configuration = folder / f"sshd-{host.address}.conf"
    configuration.write_text(SSHD.format(address=host.address, port=port, folder=folder))
    log = folder / f"sshd-{host.address}.log"
    with running(host.command(sshd, "-D", "-e", "-f", configuration), log, dict(os.environ)):
        wait_until(lambda: "Server listening" in log.read_text(), 20)
        yield


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A folder with a user's key, the key of the hosts, and known_hosts."""
    asyncssh = pytest.importorskip("asyncssh", reason="ssh is spoken by asyncssh, of the ssh extra")
    folder = tmp_path / "keys"
    folder.mkdir()
    for name in ("key", "host_key"):
        key = asyncssh.generate_private_key("ssh-ed25519")
        key.write_private_key(folder / name)
        (folder / name).chmod(0o600)
        key.write_public_key(folder / f"{name}.pub")
    return folder


def python_of(folder: Path) -> str:
    """A Python that finds this distkern when ssh runs it."""
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    program(folder / "bin" / "python", f'PYTHONPATH="{path}" exec {sys.executable} "$@"')
    return str(folder / "bin" / "python")


def test_hosts_that_are_reached_by_ssh(hosts: list[Host], here: Path, keys: Path) -> None:
    job = write_job(here)
    expected = undisturbed(here, job)
    port = 2222  # of namespaces that are new
    host_key = (keys / "host_key.pub").read_text().strip()
    known = "".join(f"[{host.address}]:{port} {host_key}\n" for host in hosts)
    (keys / "known_hosts").write_text(known)
    cluster: dict[str, Any] = {
        "kind": "ssh",
        "workers": 4,
        "memory": "256MiB",
        "host": hosts[0].address,
        "ssh": {
            "hosts": [host.address for host in hosts[1:]],
            "port": port,
            "key": str(keys / "key"),
            "known_hosts": str(keys / "known_hosts"),
            "python": python_of(here),
            "local_directory": str(here / "scratch"),
        },
    }
    job = write_job(here, cluster=cluster)
    env = environment(here / "bin")
    train = hosts[0].command(sys.executable, "-m", "distkern", "train", job, "--json")
    with ExitStack() as stack:
        for host in hosts[1:]:
            stack.enter_context(ssh_daemon(keys, host, port))
        done = run(*train, cwd=here, env=env)
        assert done.code == 0, done.err
        assert model_bits(here / "waves.model") == expected
        assert "workers 4" in done.err
        (keys / "known_hosts").write_text("")
        refused = run(*train, "--overwrite", cwd=here, env=env)
    assert refused.code == 5
    assert "Host key is not trusted" in refused.err
    assert "[cluster.ssh]" in refused.err


def test_hosts_that_talk_tls(here: Path, keys: Path, certificates: dict[str, str]) -> None:
    machine, port = Host("", "127.0.0.1"), free_port()
    login = {"port": port, "key": str(keys / "key"), "known_hosts": str(keys / "known_hosts")}
    (keys / "known_hosts").write_text(f"[127.0.0.1]:{port} {(keys / 'host_key.pub').read_text()}")
    tls = TlsFiles(**certificates)
    with (
        ssh_daemon(keys, machine, port),
        ssh_client(
            WorkerSize(1, 1 << 28), ["127.0.0.1"], python=python_of(here), host="127.0.0.1", tls=tls, **login
        ) as client,
    ):
        assert client.scheduler.address.startswith("tls://")
        assert all(worker.startswith("tls://") for worker in client.nthreads())
        assert len(client.nthreads()) == 1


def test_a_host_that_does_not_answer(keys: Path) -> None:
    size = WorkerSize(1, 1 << 28)
    with (
        pytest.raises(ClusterError, match=r"did not start on 127\.0\.0\.1.*\[cluster\.ssh\]") as error,
        ssh_client(size, ["127.0.0.1"], port=1, key=str(keys / "key"), host="127.0.0.1"),
    ):
        pass
    assert error.value.kind == "no-workers"

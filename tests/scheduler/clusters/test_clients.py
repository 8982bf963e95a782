"""Clients and clusters that distkern makes: who can reach them, who may, and how long they are waited for."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import dask
import psutil
import pytest
from distributed import Client, WorkerPlugin

from distkern.errors import ClusterError, JobError
from distkern.monitoring.events import EventBus
from distkern.scheduler import TlsFiles, connect, local_client, run_training, worker_wait
from distkern.scheduler.clusters.clients import (
    GIVE_UP_DEFAULT,
    GIVE_UP_KEY,
    NEVER_GIVE_UP,
    WORKER_WAIT_SECONDS,
    default_worker_wait,
)
from distkern.scheduler.clusters.worker_queries import SILENCE_SECONDS, silence_worker_logs
from distkern.scheduler.clusters.worker_settings import provide_user_folder
from distkern.scheduler.execution.dask_executor import DaskExecutor
from tests.scheduler.faults import Trouble, expected, run, source, wait_for
from tests.scheduler.trainings import assert_same_bits, make_job

MakeFiles = Callable[[str], TlsFiles]


@pytest.fixture
def tls_files(tmp_path: Path) -> MakeFiles:
    """Makes the three files of a cluster of its own, self-signed."""
    trustme = pytest.importorskip("trustme", reason="certificates are made by trustme, of the test extra")

    def make(name: str) -> TlsFiles:
        folder = tmp_path / name
        folder.mkdir()
        authority = trustme.CA()
        certificate = authority.issue_cert("127.0.0.1", "localhost")
        authority.cert_pem.write_to_path(folder / "ca.pem")
        certificate.private_key_pem.write_to_path(folder / "key.pem")
        certificate.cert_chain_pems[0].write_to_path(folder / "cert.pem")
        return TlsFiles(*(str(folder / f"{part}.pem") for part in ("ca", "cert", "key")))

    return make


@pytest.mark.cluster
def test_a_cluster_that_talks_tls(tls_files: MakeFiles) -> None:
    files = tls_files("ours")
    with local_client(1, tls=files) as client:
        address = client.scheduler.address
        assert address.startswith("tls://127.0.0.1:")
        assert all(worker.startswith("tls://") for worker in client.scheduler_info()["workers"])
        result, _ = run(client, Trouble({}))
        assert_same_bits(result, expected())
        with connect(address, tls=files) as other:
            assert len(other.nthreads()) == 1
        for stranger in (None, tls_files("theirs")):
            with (
                pytest.raises(ClusterError, match=r"\[cluster\] security") as error,
                connect(address, timeout=2.0, tls=stranger),
            ):
                pass
            assert error.value.kind == "no-scheduler"
        with (
            pytest.raises(ClusterError, match=r"\[cluster\] security"),
            connect(address.replace("tls", "tcp"), timeout=2.0, tls=files),
        ):
            pass
        assert len(client.nthreads()) == 1


def refuse(*_: Any, **__: Any) -> None:
    raise RuntimeError("encryption required")


@pytest.mark.parametrize("failure", ["nothing-listens", "encryption-required"])
def test_a_client_that_does_not_connect_is_closed(failure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that is closed when it is collected may wait for a lock that its own thread holds."""
    made: list[Client] = []
    begin = Client.start

    def start(client: Client, **settings: Any) -> None:
        made.append(client)
        begin(client, **settings)

    monkeypatch.setattr(Client, "start", start)
    before = {thread.ident for thread in threading.enumerate()}
    if failure == "encryption-required":
        monkeypatch.setattr(Client, "_ensure_connected", refuse)
    with pytest.raises(ClusterError), connect("tcp://127.0.0.1:1", timeout=0.5):
        pass
    (client,) = made
    assert client.status == "closed"
    assert not [t for t in threading.enumerate() if t.name == "IO loop" and t.ident not in before]


@pytest.mark.parametrize("part", ["ca", "cert", "key"])
def test_a_certificate_that_is_missing_or_none(tls_files: MakeFiles, part: str) -> None:
    files = tls_files("ours")
    assert files.security().require_encryption
    Path(getattr(files, part)).write_text("no certificate")
    with pytest.raises(JobError, match=r"\[cluster\] security") as error:
        files.security()
    assert error.value.kind == "security"
    Path(getattr(files, part)).unlink()
    with pytest.raises(JobError, match=f"{part}.pem of {part} in .cluster. security does not exist"):
        files.security()


def listening(process: psutil.Process) -> set[str]:
    return {found.laddr.ip for found in process.net_connections(kind="inet") if found.status == psutil.CONN_LISTEN}


@pytest.mark.cluster
def test_clusters_listen_on_loopback_only() -> None:
    here = psutil.Process()
    before = listening(here)
    with local_client(2) as client:
        found = [psutil.Process(pid) for pid in client.run(os.getpid).values()]
        assert len(found) == 2
        assert {address for process in found for address in listening(process)} == {"127.0.0.1"}
        assert listening(here) - before <= {"127.0.0.1"}
        assert client.dashboard_link.startswith("http://127.0.0.1:")
        assert dask.config.get(GIVE_UP_KEY) == NEVER_GIVE_UP


class LastWords(WorkerPlugin):  # type: ignore[misc]  # distributed has no types
    def teardown(self, worker: Any) -> None:
        logging.getLogger("distributed.worker").error("the last words of a worker")


@pytest.mark.cluster
def test_workers_that_are_closed_log_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with local_client(1) as client:
        client.register_plugin(LastWords())
        client.run(logging.getLogger("distributed.worker").error, "words before")
    err = capfd.readouterr().err
    assert "words before" in err
    assert "last words" not in err


@pytest.mark.cluster
@pytest.mark.slow
def test_a_worker_that_hangs_does_not_hold_up_the_end() -> None:
    with local_client(2) as client:
        first, _ = client.run(os.getpid).values()
        os.kill(first, signal.SIGSTOP)
        begun = monotonic()
        silence_worker_logs(client)
        assert monotonic() - begun < 3 * SILENCE_SECONDS
        os.kill(first, signal.SIGCONT)


@pytest.mark.cluster
def test_frames_are_not_sampled_where_that_can_stop_python() -> None:
    key = "distributed.worker.profile.enabled"
    with local_client(1) as client:
        assert set(client.run(dask.config.get, key).values()) == {sys.version_info >= (3, 12)}


@pytest.mark.cluster
def test_clusters_listen_at_a_given_host() -> None:
    with local_client(1, host="127.0.0.2") as client:
        assert client.scheduler.address.startswith("tcp://127.0.0.2:")
        assert all(worker.startswith("tcp://127.0.0.2:") for worker in client.scheduler_info()["workers"])


def test_how_long_workers_are_waited_for() -> None:
    assert default_worker_wait() == WORKER_WAIT_SECONDS
    with worker_wait(None):
        assert default_worker_wait() == WORKER_WAIT_SECONDS
    with worker_wait(2.5):
        assert default_worker_wait() == 2.5
    with dask.config.set({"distkern.worker-wait": "2 minutes"}):
        assert default_worker_wait() == 120.0


def test_the_wait_reaches_a_training(threads: Any) -> None:
    threads.cluster.scale(0)
    wait_for(threads, lambda workers: not workers)
    with worker_wait(0.25), pytest.raises(ClusterError, match=r"within 0.25 s") as error:
        run_training(make_job(), source(), client=threads, factors="workers")
    assert error.value.kind == "no-workers"


@pytest.mark.parametrize(("before", "after"), [(GIVE_UP_DEFAULT, NEVER_GIVE_UP), ("20s", "20s")])
def test_a_local_cluster_goes_on_restarting_its_workers(threads: Any, before: str, after: str) -> None:
    """Unless the user has said how long it should."""
    with dask.config.set({GIVE_UP_KEY: before}):
        DaskExecutor(threads, source(), EventBus()).close()
        assert dask.config.get(GIVE_UP_KEY) == after


def test_a_client_that_is_closed_in_a_training_is_named(threads: Any) -> None:
    executor = DaskExecutor(threads, source(), EventBus())
    threads.close()
    with pytest.raises(ClusterError, match="the dask client is closed") as error:
        executor._staff.look()
    assert error.value.kind == "client-closed"
    executor.close()


@pytest.mark.slow
def test_a_cluster_starts_for_a_user_without_HOME() -> None:
    code = """
import os, pwd
def unknown(number):
    raise KeyError(number)
pwd.getpwuid = unknown
from distkern.scheduler import local_client
with local_client(0) as client:
    print(client.status, os.environ["HOME"])
"""
    environment = {name: value for name, value in os.environ.items() if name != "HOME"}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["running", "/nonexistent"]


def test_the_home_directory_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    provide_user_folder()
    assert os.environ["HOME"] == "/home/somebody"

"""``[cluster]`` of a job file: kinds, sizes and tables that go together, and what is said where they do not."""

from __future__ import annotations

from typing import Any

import pytest

from distkern.cli.job.cluster_section import KINDS, QUEUES, ClusterSection
from distkern.cli.job.job_file import cluster_of_flags, load_job, parse_job
from distkern.cli.running.cluster_client import seconds_to_wait
from distkern.errors import JobError
from distkern.scheduler import QUEUE_WAIT_SECONDS
from distkern.scheduler.clusters.batch_queue import QUEUE_SYSTEMS

DATA = {"train": "a.zarr"}
SLURM = {"kind": "slurm", "workers": 8, "memory": "2GiB"}
SSH = {"kind": "ssh", "memory": "2GiB", "ssh": {"hosts": ["a", "b", "c"]}}
PODS = {"kind": "kubernetes", "workers": 4, "memory": "2GiB", "kubernetes": {"image": "here/distkern"}}


def section(**keys: Any) -> ClusterSection:
    return parse_job({"data": DATA, "cluster": keys}).cluster


def refused(**keys: Any) -> str:
    with pytest.raises(JobError) as caught:
        section(**keys)
    assert caught.value.kind == "invalid-job"
    return caught.value.message


@pytest.mark.parametrize(
    ("keys", "where", "workers", "least", "starts"),
    [
        ({}, None, None, None, False),
        ({"memory": "1GiB"}, None, None, None, False),
        ({"workers": 2}, "local", 2, 2, True),
        ({"kind": "local", "workers": 2, "cores": 3}, "local", 2, 2, True),
        ({"scheduler": "tcp://a:1"}, "scheduler", None, None, False),
        ({"scheduler_file": "s.json", "min_workers": 3}, "scheduler", None, 3, False),
        (SLURM, "slurm", 8, 8, True),
        ({**SLURM, "min_workers": 2}, "slurm", 8, 2, True),
        (SSH, "ssh", 3, 3, True),
        ({**SSH, "workers": 6}, "ssh", 6, 6, True),
        (PODS, "kubernetes", 4, 4, True),
    ],
)
def test_what_a_section_asks_for(
    keys: dict[str, Any], where: str | None, workers: int | None, least: int | None, starts: bool
) -> None:
    cluster = section(**keys)
    assert (cluster.where, cluster.n_workers, cluster.least_workers) == (where, workers, least)
    assert cluster.starts_workers == starts


def test_jobs_of_a_queue_say_what_they_need() -> None:
    job = {
        "workers_per_job": 4,
        "walltime": "1-04:00:00",
        "queue": "batch",
        "account": "me",
        "directives": ["--constraint=rome"],
        "setup": ["module load python", 'source "$HOME/env/bin/activate"'],
        "interface": "ib0",
        "local_directory": "$TMPDIR",
    }
    cluster = section(**SLURM, cores=2, job=job)
    assert cluster.job is not None
    assert cluster.job.model_dump(exclude_none=True) == job
    assert cluster.cores == 2


def test_every_queue_can_be_submitted_to() -> None:
    assert set(QUEUES) == set(QUEUE_SYSTEMS)
    assert set(QUEUES) < set(KINDS)


@pytest.mark.parametrize(
    ("keys", "parts"),
    [
        ({"kind": "slurmm", "workers": 1}, ['[cluster] kind = "slurmm"', "did you mean 'slurm'", "'kubernetes'"]),
        ({"kind": "slurm", "workers": 2}, ['kind = "slurm" needs memory', '"4GiB"']),
        ({"kind": "slurm", "memory": "1GiB"}, ['kind = "slurm" needs workers']),
        ({"kind": "local"}, ['kind = "local" needs workers']),
        ({"kind": "ssh", "memory": "1GiB"}, ['kind = "ssh" needs hosts']),
        ({"kind": "kubernetes", "workers": 2, "memory": "1GiB"}, ["needs an image"]),
        ({**SLURM, "min_workers": 9}, ["min_workers = 9 is more than workers = 8"]),
        ({**SLURM, "job": {"workers_per_job": 3}}, ["workers = 8 is no multiple of workers_per_job = 3"]),
        ({**SLURM, "scheduler": "tcp://a:1"}, ['kind = "slurm" starts a scheduler of its own', "leave out"]),
        ({"scheduler": "tcp://a:1", "scheduler_file": "s.json"}, ["scheduler and scheduler_file exclude each other"]),
        ({"scheduler_file": "s.json", "workers": 2}, ["scheduler_file and workers exclude", "min_workers"]),
        ({"scheduler": "tcp://a:1", "cores": 2}, ["scheduler and cores exclude"]),
        ({"scheduler": "tcp://a:1", "host": "b"}, ["host needs workers"]),
        ({"min_workers": 2}, ["min_workers needs workers"]),
        ({"cores": 2}, ["cores needs workers"]),
        ({**PODS, "host": "0.0.0.0"}, ["scheduler in a pod", "leave out host"]),
        ({**SSH, "job": {}}, ["job is for kind = ", '"slurm"']),
        ({**SLURM, "ssh": {"hosts": ["a"]}}, ['ssh is for kind = "ssh"']),
        ({"kubernetes": {"image": "a"}}, ['kubernetes is for kind = "kubernetes"']),
        ({**SLURM, "job": {"waltime": "1"}}, ["unknown key 'waltime' in [cluster.job] (did you mean 'walltime'?)"]),
        ({**SLURM, "job": {"walltime": 4}}, ["[cluster.job] walltime = 4: must be a time limit", '"04:00:00"']),
        ({**SLURM, "job": {"walltime": "4 hours"}}, ['[cluster.job] walltime = "4 hours"']),
        ({**SLURM, "job": {"directives": "-x"}}, ['[cluster.job] directives = "-x": must be a list']),
        ({**SLURM, "job": {"setup": [1]}}, ["[cluster.job] setup = 1: must be a list of shell lines"]),
        ({**SLURM, "job": "long"}, ['[cluster] job = "long": must be a table, [cluster.job]']),
        ({**SSH, "ssh": {}}, ["[cluster.ssh] hosts is missing", '["node1", "node2"]']),
        ({**SSH, "ssh": {"hosts": []}}, ["[cluster.ssh] hosts = []"]),
        ({**SSH, "ssh": {"hosts": ["a"], "port": 70000}}, ["[cluster.ssh] port = 70000: must be a port such as 22"]),
        ({**SSH, "ssh": {"hosts": ["a"], "usr": "b"}}, ["[cluster.ssh] (did you mean 'user'?"]),
        ({**PODS, "kubernetes": {"image": "a", "name": "No"}}, ['[cluster.kubernetes] name = "No"']),
        ({**PODS, "kubernetes": {"image": "a", "claims": {"b": 1}}}, ["[cluster.kubernetes] claims = 1", "a table of"]),
    ],
)
def test_what_does_not_go_together_is_named(keys: dict[str, Any], parts: list[str]) -> None:
    message = refused(**keys)
    for part in parts:
        assert part in message


def load(folder: Any, text: str, *settings: str, **flags: object) -> ClusterSection:
    path = folder / "job.toml"
    path.write_text(f'[data]\ntrain = "a"\n{text}')
    return load_job(path, settings, flags).cluster


WRITTEN = '[cluster]\nkind = "slurm"\nworkers = 8\nmin_workers = 4\nmemory = "1GiB"\n[cluster.job]\nwalltime = "1"\n'


def test_a_time_without_quotes_is_refused_in_words(tmp_path: Any) -> None:
    with pytest.raises(JobError, match="between quotes such as"):
        load(tmp_path, WRITTEN.replace('"1"', "04:00:00"))


@pytest.mark.parametrize("flags", [{"scheduler": "tcp://a:1"}, {"scheduler_file": "s.json"}])
def test_a_running_cluster_takes_the_place_of_one_to_start(tmp_path: Any, flags: dict[str, str]) -> None:
    cluster = load(tmp_path, WRITTEN, **flags)
    assert cluster.model_dump(exclude_none=True) == {**flags, "min_workers": 4, "memory": 2**30}
    other = load(tmp_path, '[cluster]\nscheduler = "tcp://b:2"\n', scheduler_file="t.json")
    assert other.model_dump(exclude_none=True) == {"scheduler_file": "t.json"}


def test_a_number_of_workers_keeps_the_kind(tmp_path: Any) -> None:
    cluster = load(tmp_path, WRITTEN, workers=2)
    assert (cluster.where, cluster.n_workers, cluster.least_workers) == ("slurm", 2, 2)
    assert load(tmp_path, '[cluster]\nscheduler_file = "s.json"\n', workers=2).where == "local"


def test_settings_reach_the_inner_tables(tmp_path: Any) -> None:
    cluster = load(tmp_path, WRITTEN, "cluster.job.walltime='2:00'", 'cluster.job.setup=["a", "b"]')
    assert cluster.job is not None
    assert (cluster.job.walltime, cluster.job.setup) == ("2:00", ["a", "b"])
    one = load(tmp_path, WRITTEN + 'queue = "${NOT_SET}"\nsetup = ["c"]\n', "cluster.job.queue=short")
    assert one.job is not None
    assert (one.job.walltime, one.job.queue, one.job.setup) == ("1", "short", ["c"])
    with pytest.raises(JobError, match="'workers' is no table"):
        load(tmp_path, WRITTEN, "cluster.workers.most=3")


def test_flags_of_commands_without_a_job() -> None:
    assert cluster_of_flags(scheduler_file="s.json", workers=None).where == "scheduler"
    with pytest.raises(JobError, match="exclude each other"):
        cluster_of_flags(scheduler_file="s.json", workers=2)


@pytest.mark.parametrize(
    ("keys", "seconds"),
    [
        ({"workers": 2}, None),
        (SSH, None),
        (SLURM, QUEUE_WAIT_SECONDS),
        (PODS, QUEUE_WAIT_SECONDS),
        ({**SLURM, "wait": 5}, 5.0),
        ({"workers": 2, "wait": 7}, 7.0),
    ],
)
def test_the_wait_for_workers_of_a_queue_is_longer(keys: dict[str, Any], seconds: float | None) -> None:
    assert seconds_to_wait(section(**keys)) == seconds

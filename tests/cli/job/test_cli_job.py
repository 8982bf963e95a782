from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from distkern.cli.job.job_file import Job, load_job, parse_job
from distkern.cli.job.model_section import RESERVED, estimator, model_fields, signature
from distkern.errors import JobError

DATA = {"train": "a.zarr"}


def refused(document: dict[str, Any]) -> str:
    with pytest.raises(JobError) as caught:
        parse_job(document)
    return caught.value.message


def written(folder: Path, text: str) -> Path:
    path = folder / "job.toml"
    path.write_text(text)
    return path


def test_a_full_job_is_read(tmp_path: Path) -> None:
    job = load_job(
        written(
            tmp_path,
            """
            [data]
            train = "letter.zarr"
            test = "letter-test.zarr"
            [model]
            method = "orols"
            sigma = 2
            max_centers = 1000
            stop = "none"
            standardize = false
            [cluster]
            workers = 2
            memory = "2GiB"
            [output]
            model = "letter.model"
            run = "letter.run"
            """,
        )
    )
    assert job.data.train == "letter.zarr"
    assert job.model.method == "orols"
    assert job.model.parameters() == {"sigma": 2, "max_centers": 1000, "stop": None, "standardize": False}
    assert (job.cluster.workers, job.cluster.memory) == (2, 2**31)
    assert (job.output.model, job.output.run) == ("letter.model", "letter.run")


def test_a_cluster_with_certificates_is_read(tmp_path: Path) -> None:
    text = """
        [data]
        train = "letter.zarr"
        [cluster]
        workers = 2
        host = "0.0.0.0"
        wait = 300
        security = { ca = "ca.pem", cert = "cert.pem", key = "key.pem" }
        """
    cluster = load_job(written(tmp_path, text)).cluster
    assert (cluster.host, cluster.wait) == ("0.0.0.0", 300.0)
    assert cluster.security is not None
    assert cluster.security.model_dump() == {"ca": "ca.pem", "cert": "cert.pem", "key": "key.pem"}
    remote = load_job(written(tmp_path, text), cluster={"scheduler": "tls://host:8786"}).cluster
    assert (remote.workers, remote.host, remote.security) == (None, None, cluster.security)


def test_only_data_is_needed() -> None:
    job = parse_job({"data": DATA})
    assert job.model.method == "orols"
    assert job.model.parameters() == {}
    assert job.cluster.workers is None
    assert job.output.model is None


def test_plain_arrays_are_a_source() -> None:
    job = parse_job({"data": {"x": "X.zarr", "y": "y.zarr", "test_x": "a", "test_y": "b"}})
    assert (job.data.x, job.data.y) == ("X.zarr", "y.zarr")


@pytest.mark.parametrize(
    ("section", "key", "near"),
    [
        ("model", "sigmma", "sigma"),
        ("model", "max_centres", "max_centers"),
        ("data", "trian", "train"),
        ("cluster", "worker", "workers"),
        ("output", "modle", "model"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_one(section: str, key: str, near: str) -> None:
    document = {"data": dict(DATA)}
    document.setdefault(section, {})[key] = "2"
    assert f"unknown key '{key}' in [{section}] (did you mean '{near}'?)" in refused(document)


def test_an_unknown_section_is_refused_with_the_nearest_one() -> None:
    assert refused({"data": DATA, "modle": {}}) == "unknown section [modle] (did you mean 'model'?)"


def test_a_key_like_no_other_gets_the_list_of_keys() -> None:
    message = refused({"data": DATA, "cluster": {"zzz": 1}})
    assert "known are cores, host, job, kind, kubernetes, memory, min_workers, scheduler, scheduler_file, " in message


def test_every_wrong_key_is_named() -> None:
    message = refused({"data": DATA, "model": {"sigmma": 2, "panel": 0}})
    assert "sigmma" in message
    assert "panel = 0" in message
    assert len(message.splitlines()) == 2


@pytest.mark.parametrize(
    ("section", "key", "value", "parts"),
    [
        ("model", "sigma", -3, ["[model] sigma = -3", "a number above 0", "median"]),
        ("model", "sigma", True, ["[model] sigma = true"]),
        ("model", "sigma", float("nan"), ["[model] sigma = NaN", "above 0"]),
        ("model", "sigma", [], ["[model] sigma"]),
        ("model", "sigma", [1.0, -2.0], ["[model] sigma", "a list of different ones"]),
        ("model", "sigma", [1.0, "median"], ["[model] sigma"]),
        ("model", "max_centers", "many", ['[model] max_centers = "many"', "whole number above 0"]),
        ("model", "max_centers", 2.5, ["[model] max_centers = 2.5"]),
        ("model", "selection_rows", 1, ["[model] selection_rows = 1", "a whole number of at least 2"]),
        ("model", "selection_rows", 0.25, ["[model] selection_rows = 0.25"]),
        ("model", "standardize", "yes", ['standardize = "yes"', "true or false"]),
        ("model", "dtype", "float16", ['dtype = "float16"', "float32"]),
        ("model", "method", "svm", ['method = "svm"', "orols"]),
        ("model", "method", "ls-svn", ["(did you mean 'ls-svm'?)"]),
        ("model", "sampler", "mixtures", ['sampler = "mixtures"', "'uniform', 'all' (did you mean 'mixture'?)"]),
        ("model", "candidates", 0, ["[model] candidates = 0: must be a whole number above 0"]),
        ("model", "kernel", 3, ["[model] kernel = 3"]),
        ("cluster", "workers", 0, ["[cluster] workers = 0", "whole number above 0"]),
        ("cluster", "memory", "2 potatoes", ['memory = "2 potatoes"', "2GiB"]),
        ("cluster", "memory", 0, ["memory = 0"]),
        ("cluster", "memory", True, ["memory = true"]),
        ("cluster", "wait", -1, ["[cluster] wait = -1", "a number of seconds"]),
        ("cluster", "wait", "long", ['[cluster] wait = "long"']),
        ("cluster", "host", 5, ["[cluster] host = 5", "an address of this machine"]),
        ("cluster", "host", "0.0.0.0", ["[cluster] host needs workers"]),
        ("cluster", "security", "ca.pem", ['[cluster] security = "ca.pem"', "{ ca ="]),
        ("cluster", "security", {"ca": "a", "cert": "b"}, ["[cluster.security] key is missing: must be a path"]),
        ("cluster", "security", {"ca": "a", "cert": "b", "key": 3}, ["[cluster.security] key = 3: must be a path"]),
        ("cluster", "security", {"ca": "a", "cert": "b", "kye": "c"}, ["in [cluster.security] (did you mean 'key'?)"]),
        ("data", "train", 5, ["[data] train = 5", "a path"]),
        ("data", "train", "", ['[data] train = ""']),
        ("data", "task", "ranking", ['task = "ranking"', "regression"]),
        ("output", "run", ["a"], ["[output] run = ", "a path"]),
    ],
)
def test_a_wrong_value_names_key_value_and_what_is_allowed(
    section: str, key: str, value: object, parts: list[str]
) -> None:
    document: dict[str, Any] = {"data": dict(DATA)}
    document.setdefault(section, {})[key] = value
    message = refused(document)
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("data", "part"),
    [
        ({}, "name the training data"),
        ({"x": "X.zarr"}, "x needs y"),
        ({"y": "y.zarr"}, "y needs x"),
        ({"train": "a", "x": "X", "y": "y"}, "exclude each other"),
        ({"train": "a", "test_x": "X"}, "test_x needs test_y"),
        ({"train": "a", "test": "b", "test_x": "X", "test_y": "y"}, "exclude each other"),
    ],
)
def test_data_must_name_one_source(data: dict[str, str], part: str) -> None:
    assert part in refused({"data": data})


def test_a_job_without_data_is_refused() -> None:
    assert "name the training data" in refused({"model": {"sigma": 2.0}})


def test_a_section_must_be_a_table() -> None:
    assert refused({"data": DATA, "model": 3}) == "model = 3: must be a table, [model]"


@pytest.mark.parametrize("where", [{}, {"scheduler": "tcp://a:1"}, {"workers": 2}])
def test_memory_limits_whatever_process_holds_the_rows(where: dict[str, Any]) -> None:
    assert parse_job({"data": DATA, "cluster": {"memory": "1GiB", **where}}).cluster.memory == 2**30


def test_scheduler_and_workers_exclude_each_other() -> None:
    assert "exclude" in refused({"data": DATA, "cluster": {"scheduler": "tcp://a:1", "workers": 2}})


@pytest.mark.parametrize("name", RESERVED)
def test_parameters_of_other_sections_say_where_they_belong(name: str) -> None:
    assert RESERVED[name] in refused({"data": DATA, "model": {name: "a"}})


@pytest.mark.parametrize("method", ["orols", "npd"])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_every_estimator_parameter_is_a_key(method: str, task: str) -> None:
    assert set(signature(estimator(method, task))) - set(RESERVED) <= set(model_fields(method))


@pytest.mark.parametrize(
    "kernel",
    [
        {"name": "polynomial", "degree": 3},
        {"name": "wendland", "radius": 2.0},
        {"name": "laplacian", "sigma": 1.5, "norm": "l1"},
    ],
)
def test_a_kernel_can_be_a_table(kernel: dict[str, object]) -> None:
    assert parse_job({"data": DATA, "model": {"kernel": kernel}}).model.parameters() == {"kernel": kernel}


def load(folder: Path, *settings: str, **cluster: object) -> Job:
    text = '[data]\ntrain = "a"\n[model]\nsigma = 2\n[cluster]\nworkers = 2\nmemory = "1GiB"\n'
    return load_job(written(folder, text), settings, cluster)


def test_settings_replace_the_file(tmp_path: Path) -> None:
    job = load(tmp_path, "model.sigma=4", "model.stop=none", "data.train=b.zarr", 'model.kernel="linear"')
    assert job.model.parameters() == {"sigma": 4, "stop": None, "kernel": "linear"}
    assert job.data.train == "b.zarr"


def test_settings_may_add_a_section(tmp_path: Path) -> None:
    assert load(tmp_path, "output.model=a.model").output.model == "a.model"


@pytest.mark.parametrize("setting", ["sigma=4", "model.sigma", "model=4", ".sigma=4", "model.=4"])
def test_a_setting_needs_section_key_and_value(tmp_path: Path, setting: str) -> None:
    with pytest.raises(JobError, match=r"section\.key=value"):
        load(tmp_path, setting)


def test_a_setting_is_checked_like_the_file(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="did you mean 'sigma'"):
        load(tmp_path, "model.sgima=4")
    with pytest.raises(JobError, match="max_centers = -1"):
        load(tmp_path, "model.max_centers=-1")


def test_a_setting_cannot_smuggle_lines_in(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="max_centers"):
        load(tmp_path, "model.max_centers=3\nother = 4")


def test_a_scheduler_flag_displaces_workers(tmp_path: Path) -> None:
    cluster = load(tmp_path, scheduler="tcp://a:1").cluster
    assert (cluster.scheduler, cluster.workers, cluster.memory) == ("tcp://a:1", None, 2**30)


def test_a_workers_flag_keeps_the_memory(tmp_path: Path) -> None:
    cluster = load(tmp_path, workers=4).cluster
    assert (cluster.workers, cluster.memory) == (4, 2**30)


def test_flags_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="exclude"):
        load(tmp_path, workers=4, scheduler="tcp://a:1")


def test_broken_toml_names_file_and_line(tmp_path: Path) -> None:
    path = written(tmp_path, '[data]\ntrain = "a"\nnot toml [\n')
    with pytest.raises(JobError, match=r"job\.toml is not valid TOML: .*line 3"):
        load_job(path)


def test_toml_that_ends_early_names_the_last_line(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="line 2"):
        load_job(written(tmp_path, "[data]\ntrain ="))


def test_a_file_that_is_no_text_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_bytes(b"[data]\ntrain = '\xff'\n")
    with pytest.raises(JobError, match=r"job\.toml, line 2: not UTF-8"):
        load_job(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"nosuch\.toml"):
        load_job(tmp_path / "nosuch.toml")


def test_a_directory_is_no_job_file(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="cannot read"):
        load_job(tmp_path)

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.command_line import Call, Finished, job_text, tree

KEYS = {
    "n_rows",
    "n_features",
    "feature_itemsize",
    "block_rows",
    "n_blocks",
    "target_columns",
    "n_targets",
    "n_problems",
    "memberships",
    "read_ahead",
    "selected_rows",
    "n_workers",
    "threads",
    "rounds",
    "exchanges",
    "kernel_columns",
    "passes",
    "flops",
    "bytes_read",
    "scratch_written",
    "scratch_read",
    "bytes_sent",
    "in_driver",
    "together",
    "planned_peak_bytes",
    "planned_peak_driver",
    "loss_passes",
    "norm_refit",
    "solver",
    "solving_seconds",
    "memory_limit",
    "scratch_bytes",
    "memory",
}

TERMS = {
    "baseline",
    "rows",
    "residual",
    "loading",
    "workspaces",
    "answers",
    "columns",
    "refit",
    "sample",
    "lazy_results",
    "driver",
    *(f"{place}_{name}" for place in ("resident", "scratch") for name in ("features", "work", "pool", "factors")),
}

WAVES = {
    "data": {"train": "waves.zarr"},
    "model": {"sigma": 0.5, "max_centers": 48, "candidates": 64, "stop": "none"},
    "output": {"model": "waves.model", "run": "waves.run"},
}


def write_job(folder: Path, **sections: dict[str, Any]) -> Path:
    path = folder / "job.toml"
    path.write_text(job_text(**sections))
    return path


def record_of(done: Finished, code: int = 0) -> dict[str, Any]:
    assert done.code == code, done.err
    record = json.loads(done.out)
    assert isinstance(record, dict)
    return record


def test_json_is_one_object_with_exactly_the_keys(waves: Path, call: Call) -> None:
    before = tree(waves)
    job = write_job(waves, **WAVES)
    done = call("plan", job, "--json")
    record = record_of(done)
    assert set(record) == KEYS
    assert set(record["memory"]) == TERMS
    assert set(record["flops"]) == {"kernel", "projection", "pool", "update", "refit", "total"}
    assert done.out.count("\n") == 1
    assert (record["n_rows"], record["n_features"], record["n_targets"]) == (400, 2, 1)
    assert (record["block_rows"], record["n_blocks"]) == (128, 4)
    assert record["planned_peak_bytes"] == record["planned_peak_driver"]
    inside = sum(size for name, size in record["memory"].items() if not name.startswith("scratch_"))
    assert record["planned_peak_bytes"] == inside
    # A plan leaves nothing behind.
    assert tree(waves) == before | {"job.toml"}


def test_the_plan_counts_the_search_for_a_width(waves: Path, call: Call) -> None:
    job, searched = write_job(waves, **WAVES), ("--set", "model.sigma=cv", "--set", "model.folds=3")
    plain = record_of(call("plan", job, "--json", "--memory", "2GiB"))
    record = record_of(call("plan", job, "--json", "--memory", "2GiB", *searched))
    assert set(record) == KEYS | {"search"}
    assert record["search"] == {"models": 30, "at_a_time": 30}
    assert record["planned_peak_bytes"] > plain["planned_peak_bytes"]
    assert {name: record[name] for name in ("exchanges", "passes", "memory")} == {
        name: plain[name] for name in ("exchanges", "passes", "memory")
    }
    assert "30 models at most, up to 30 side by side" in call("plan", job, "--memory", "2GiB", *searched).out


def test_the_plan_is_that_of_the_training(waves: Path, call: Call) -> None:
    job = write_job(waves, **WAVES)
    plan = record_of(call("plan", job, "--json", "--memory", "300MiB"))
    done = call("train", job, "--json", "--memory", "300MiB", "-q")
    assert done.code == 0, done.err
    summary = json.loads(done.out.splitlines()[-1])
    assert plan["planned_peak_bytes"] == summary["planned_peak_bytes"]
    assert plan["bytes_read"] == summary["bytes_read"]
    for name in ("rounds", "exchanges", "kernel_columns"):
        assert summary[name] <= plan[name] <= 1.5 * summary[name], name


def test_a_classification_is_read_once_more(blobs: Path, call: Call) -> None:
    for rows in ("none", 100):
        model = {"sigma": 2.0, "max_centers": 9, "stop": "none"}
        job = write_job(blobs, data={"train": "blobs.zarr"}, model=model)
        setting = ("--set", f"model.selection_rows={rows}", "--json")
        plan, done = record_of(call("plan", job, *setting)), call("train", job, *setting, "-q")
        assert done.code == 0, done.err
        # A plan takes labels for numbers of eight bytes.
        assert 1.0 <= plan["bytes_read"] / json.loads(done.out.splitlines()[-1])["bytes_read"] < 1.2
        assert plan["passes"] == (2 if rows == "none" else 3)


def test_the_tables_are_for_a_person(waves: Path, call: Call) -> None:
    done = call("plan", write_job(waves, **WAVES), "--memory", "64MiB")
    assert done.code == 0, done.err
    for part in ("400 x 2", "rounds, exchanges", "64.0 MiB", "peak, driver", "resident factors", "kernel"):
        assert part in done.out, part
    assert "\x1b" not in done.out


def test_only_metadata_is_read(waves: Path, call: Call) -> None:
    """The chunks may be gone: a plan looks at shapes alone."""
    import shutil

    for chunks in waves.glob("waves.zarr/*/c"):
        shutil.rmtree(chunks)
    assert record_of(call("plan", write_job(waves, **WAVES), "--json"))["n_rows"] == 400


def test_classes_are_targets(blobs: Path, call: Call) -> None:
    job = write_job(blobs, data={"train": "blobs.zarr"}, model={"sigma": 2.0, "max_centers": 20})
    shared = record_of(call("plan", job, "--json"))
    assert (shared["n_targets"], shared["n_problems"]) == (3, 1)
    each = record_of(call("plan", job, "--json", "--set", "model.multiclass=one-vs-rest"))
    assert (each["n_targets"], each["n_problems"]) == (3, 3)
    assert each["memory"]["resident_factors"] == 3 * shared["memory"]["resident_factors"]


def test_what_if_there_were_more_rows(waves: Path, call: Call) -> None:
    job = write_job(waves, **{**WAVES, "model": {**WAVES["model"], "selection_rows": "none"}})
    now = record_of(call("plan", job, "--json", "--memory", "4GiB"))
    later = record_of(call("plan", job, "--json", "--memory", "4GiB", "--rows", 40_000_000))
    assert later["n_rows"] == 40_000_000
    assert later["n_blocks"] == -(-40_000_000 // 128)
    assert later["bytes_read"] == 100_000 * now["bytes_read"]
    assert later["flops"]["total"] == pytest.approx(100_000 * now["flops"]["total"], rel=1e-3)
    sampled = record_of(call("plan", write_job(waves, **WAVES), "--json", "--rows", 40_000_000))
    assert (now["selected_rows"], later["selected_rows"], sampled["selected_rows"]) == (400, 40_000_000, 5000)
    assert sampled["flops"]["total"] < later["flops"]["total"] / 10


def test_fewer_rows_have_smaller_blocks(waves: Path, call: Call) -> None:
    fewer = record_of(call("plan", write_job(waves, **WAVES), "--json", "--rows", 50))
    assert (fewer["n_rows"], fewer["n_blocks"], fewer["block_rows"]) == (50, 1, 50)
    some = record_of(call("plan", write_job(waves, **WAVES), "--json", "--rows", 300))
    assert (some["n_rows"], some["n_blocks"], some["block_rows"]) == (300, 3, 128)


def test_what_if_there_were_workers(waves: Path, call: Call) -> None:
    job = write_job(waves, **{**WAVES, "model": {**WAVES["model"], "selection_rows": "none"}})
    plans = {
        n: record_of(call("plan", job, "--json", "--rows", 4_000_000, "--memory", "4GiB", "--workers", n))
        for n in (1, 2, 8)
    }
    for n, plan in plans.items():
        assert plan["n_workers"] == n
        assert plan["threads"] == 1
        assert plan["memory_limit"] == 4 << 30
        assert plan["memory"]["driver"] == 0
    peaks = [plans[n]["planned_peak_bytes"] for n in (1, 2, 8)]
    assert peaks == sorted(peaks, reverse=True)
    factors = {n: plan["memory"]["resident_factors"] + plan["memory"]["scratch_factors"] for n, plan in plans.items()}
    assert factors[8] == pytest.approx(factors[1] / 8, rel=0.01)
    driver = record_of(call("plan", job, "--json", "--workers", 2, "--set", "model.factors=driver"))
    assert driver["in_driver"]
    assert not driver["together"]
    assert driver["memory"]["driver"] > 0
    assert driver["memory"]["columns"] > 0


def test_data_that_does_not_exist(here: Path, call: Call) -> None:
    job = write_job(here, data={"train": "dream.zarr"}, model={"max_centers": 500, "dtype": "float32"})
    options = ("--rows", 1_000_000_000, "--features", 32, "--workers", 100, "--memory", "8GiB", "--json")
    plan = record_of(call("plan", job, *options))
    assert (plan["n_rows"], plan["n_features"], plan["n_targets"]) == (10**9, 32, 1)
    assert plan["feature_itemsize"] == 4
    assert plan["selected_rows"] == 5000
    assert plan["bytes_read"] == 2 * 10**9 * (32 * 4 + 8)
    assert plan["planned_peak_bytes"] <= (8 << 30) + (250 << 20)
    classes = record_of(call("plan", job, *options, "--targets", 10))
    assert classes["n_targets"] == 10
    assert 2 * classes["bytes_read"] == 3 * plan["bytes_read"]  # a pass calibrates
    chunks = record_of(call("plan", job, *options, "--chunk-rows", 1000))
    assert chunks["block_rows"] % 1000 == 0
    # Without shapes there is nothing to plan.
    for given in (("--rows", 10), ("--features", 10), ()):
        done = call("plan", job, *given)
        assert done.code == 3
        assert "dream.zarr" in done.err


@pytest.mark.parametrize("option", ["--features", "--targets", "--chunk-rows"])
def test_shapes_of_data_that_exists_are_its_own(waves: Path, call: Call, option: str) -> None:
    done = call("plan", write_job(waves, **WAVES), option, 7)
    assert done.code == 2
    assert option in done.err
    assert "waves.zarr" in done.err


@pytest.mark.parametrize(("option", "value"), [("--rows", 0), ("--workers", -1), ("--memory", "much"), ("--rows", "x")])
def test_options_that_make_no_sense(waves: Path, call: Call, option: str, value: object) -> None:
    done = call("plan", write_job(waves, **WAVES), option, value)
    assert done.code == 2
    assert str(value) in done.err


@pytest.mark.parametrize("flags", [(), ("--workers", 2, "--set", "model.candidates=400")])
def test_a_refusal_ends_with_4_and_shows_the_plan(waves: Path, call: Call, flags: tuple[object, ...]) -> None:
    job = write_job(waves, **WAVES)
    before = tree(waves)
    done = call("plan", job, "--memory", "1MiB", *flags)
    assert done.code == 4
    assert "peak, such a process" in done.out
    assert ("this process needs" if not flags else "a worker needs") in done.err
    assert "the limit is 1.0 MiB" in done.err
    assert "memory_limit" in done.err
    record = record_of(call("plan", job, "--memory", "1MiB", "--json", *flags), code=4)
    assert record["memory_limit"] == 1 << 20
    # A training is refused in the same words, before anything is written and before workers are started.
    refused = call("train", job, "--memory", "1MiB", *flags)
    assert refused.code == 4
    assert refused.err.splitlines()[-1] == done.err.splitlines()[-1]
    assert refused.out == ""
    assert "training on" not in refused.err
    assert tree(waves) == before


def test_a_limit_in_the_job_file_counts(waves: Path, call: Call) -> None:
    job = write_job(waves, **WAVES, cluster={"memory": "1MiB"})
    assert call("plan", job).code == 4
    assert call("plan", job, "--memory", "1GiB").code == 0
    record = record_of(call("plan", job, "--json", "--set", "cluster.memory=512MiB"))
    assert record["memory_limit"] == 512 << 20


def test_a_training_whose_rows_are_in_scratch_gives_the_same_model(waves: Path, call: Call) -> None:
    from distkern.estimators import load_model

    job = write_job(waves, **WAVES)
    free = record_of(call("plan", job, "--json", "--memory", "1GiB"))
    assert free["scratch_bytes"] == 0
    least = sum(size for name, size in free["memory"].items() if "_" not in name and name != "baseline")
    tight = record_of(call("plan", job, "--json", "--memory", least))
    assert tight["scratch_bytes"] > 0
    assert sum(size for name, size in tight["memory"].items() if name.startswith("resident_")) == 0
    models = []
    for memory in ("1GiB", least):
        assert call("train", job, "--memory", memory, "--overwrite").code == 0
        models.append(load_model("waves.model"))
    assert np.array_equal(models[0].coef_, models[1].coef_)
    assert np.array_equal(models[0].centers_, models[1].centers_)
    assert call("train", job, "--memory", least - 1, "--overwrite").code == 4


@pytest.mark.slow
@pytest.mark.cluster
def test_a_running_cluster_is_asked_for_its_workers(waves: Path, shell: Call) -> None:
    from distkern.scheduler import local_client

    with local_client(2, memory=512 << 20) as client:
        done = shell(
            "plan", write_job(waves, **WAVES), "--json", "--set", f"cluster.scheduler={client.scheduler.address}"
        )
        record = record_of(done)
    assert record["n_workers"] == 2
    assert record["memory_limit"] == int(0.7 * ((512 + 250) << 20)) - (250 << 20)

"""The sums of a run under a URL: those of one process, complete, whatever others have left or write meanwhile."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from distkern.errors import RunError
from distkern.storage import RunDirectory, read_model, write_model
from distkern.storage.io.remote_folders import RemoteFolder
from tests.s3_server import BUCKET, S3Server

pytest.importorskip("moto")
pytest.importorskip("obstore")

URL = f"s3://{BUCKET}"


def appended(run: RunDirectory, parts: int, value: float) -> str:
    """Write sums of a part and publish them; return their place."""
    place = run.place_for_sums(parts)
    write_model(place, {}, {"a": np.full(3, value)}, overwrite=parts == 0)
    run.publish_sums(parts, place)
    return str(place)


def objects_of_sums(run: RunDirectory) -> set[str]:
    """Parts and objects of the run whose names are those of sums."""
    return {name.partition("/")[0] for name in RemoteFolder(str(run.path)).names() if name.startswith("sums-")}


def test_sums_that_a_killed_process_left_incomplete_are_not_those_of_the_run(s3: S3Server) -> None:
    run = RunDirectory.create(f"{URL}/cut", {})
    s3.put(f"{BUCKET}/cut/sums-0000/a.npy", b"first upload, cut short")
    assert run.sums() is None
    first = appended(run, 0, 0.0)
    for name in ("sums-0001", "sums-0001-0123abcd"):
        s3.put(f"{BUCKET}/cut/{name}/a.npy", b"cut short")
        assert run.sums() == (0, first)
    second = appended(run, 1, 1.0)
    assert RunDirectory.open(run.path).sums() == (1, second)
    assert read_model(second)[1]["a"].tolist() == [1.0] * 3
    assert objects_of_sums(run) == {"sums-0001.json", second.rpartition("/")[2]}
    third = appended(run, 2, 2.0)
    assert RunDirectory.open(run.path).sums() == (2, third)
    assert objects_of_sums(run) == {"sums-0002.json", third.rpartition("/")[2]}


def test_only_one_of_several_processes_appends_a_part(s3: S3Server) -> None:
    run = RunDirectory.create(f"{URL}/both", {})
    appended(run, 0, 0.0)
    start = threading.Barrier(4)

    def append(number: int) -> str:
        own = RunDirectory.open(run.path)
        place = own.place_for_sums(1)
        write_model(place, {}, {"a": np.full(3, number)})
        start.wait()
        try:
            own.publish_sums(1, place)
        except RunError as error:
            return error.kind
        return str(number)

    with ThreadPoolExecutor(4) as threads:
        ends = list(threads.map(append, range(4)))
    assert sorted(ends)[1:] == ["superseded"] * 3
    found = run.sums()
    assert found is not None
    assert read_model(found[1])[1]["a"].tolist() == [float(min(ends))] * 3
    assert objects_of_sums(run) == {"sums-0001.json", str(found[1]).rpartition("/")[2]}


def test_a_run_with_sums_that_an_object_names_has_a_format_of_its_own(s3: S3Server) -> None:
    run = RunDirectory.create(f"{URL}/formats", {"x": 1})
    versions = []
    for parts in range(2):
        appended(run, parts, 0.0)
        versions.append(RemoteFolder(str(run.path)).read_json("job.json")["format_version"])
    RunDirectory.open(run.path).restart()
    versions.append(RemoteFolder(str(run.path)).read_json("job.json")["format_version"])
    assert versions == [1, 2, 2]


def test_sums_of_version_0_2_under_a_url(s3: S3Server) -> None:
    run = RunDirectory.create(f"{URL}/former", {})
    write_model(f"{URL}/former/sums-0003", {}, {})
    assert run.sums() == (3, f"{run.path}/sums-0003")


@pytest.mark.parametrize("text", [b"{", b"[]", b'{"part": "sums-0002-00000000"}', b'{"part": "../other"}'])
def test_an_object_that_names_no_sums(s3: S3Server, text: bytes) -> None:
    run = RunDirectory.create(f"{URL}/damaged", {}, overwrite=True)
    s3.put(f"{BUCKET}/damaged/sums-0001.json", text)
    with pytest.raises(RunError, match=r"sums-0001\.json") as caught:
        run.sums()
    assert caught.value.kind == "corrupt"

"""Commands on stores behind URLs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from distkern.storage.io.remote_folders import RemoteFolder
from tests.cli.command_line import Call
from tests.faulty import rows, write_array
from tests.s3_server import BUCKET, S3Server

pytest.importorskip("moto")
pytest.importorskip("obstore")


def test_plain_arrays_are_read_once_a_pass_also_for_the_score(s3: S3Server, tmp_path: Path, call: Call) -> None:
    X, y = rows(300, 3)
    write_array(tmp_path / "X", X, (50, 3))
    write_array(tmp_path / "y", y, (300,))
    for name in ("X", "y"):
        s3.upload(tmp_path / name, f"{name}.zarr")
    places = {"x": "X", "y": "y", "test_x": "X", "test_y": "y"}
    data = "\n".join(f'{key} = "s3://{BUCKET}/{name}.zarr"' for key, name in places.items())
    job = tmp_path / "job.toml"
    job.write_text(f'[data]\n{data}\n[model]\nmax_centers = 8\nstop = "none"\n[output]\nrun = "{tmp_path / "run"}"\n')
    s3.reset()
    done = call("-v", "train", job)
    assert done.code == 0, done.err
    # Once to train and once to test.
    assert set(s3.chunk_reads("X.zarr").values()) == {2}
    assert s3.chunk_reads("y.zarr") == {"y.zarr/c/0": 2}
    shown = (
        done.out
        + done.err
        + "".join(
            path.read_bytes().decode(errors="replace") for path in (tmp_path / "run").rglob("*") if path.is_file()
        )
    )
    assert f"s3://{BUCKET}/X.zarr" in shown
    assert "very-secret" not in shown


def test_ingest_predict_and_evaluate(s3: S3Server, tmp_path: Path, call: Call) -> None:
    X, y = rows(120, 2)
    np.savetxt(tmp_path / "rows.csv", np.column_stack([X, y]), delimiter=",", header="a,b,y", comments="")
    store, model, out = (f"s3://{BUCKET}/{name}" for name in ("cli-rows", "cli-model", "cli-out"))
    done = call("ingest", tmp_path / "rows.csv", "--target", "y", "--out", store)
    assert done.code == 0, done.err
    assert call("ingest", tmp_path / "rows.csv", "--target", "y", "--out", store).code == 3
    job = tmp_path / "job.toml"
    job.write_text(f'[data]\ntrain = "{store}"\n[model]\nmax_centers = 8\n[output]\nmodel = "{model}"\n')
    assert call("train", job).code == 0
    assert call("predict", model, store, "--out", out).code == 0
    assert call("evaluate", model, store, "--json").code == 0
    for place, kind in ((store, "dataset"), (model, "model"), (out, "predictions")):
        assert f'"kind": "{kind}"' in call("info", place, "--json").out.replace('":"', '": "')


@pytest.mark.parametrize("output", ["model", "run"])
def test_outputs_inside_the_data_are_refused(output: str, s3: S3Server, tmp_path: Path, call: Call) -> None:
    job = tmp_path / "job.toml"
    job.write_text(f'[data]\ntrain = "s3://{BUCKET}/cli-rows"\n[output]\n{output} = "s3://{BUCKET}/cli-rows/inside"\n')
    done = call("train", job)
    assert done.code == 2
    assert "lie inside each other" in done.err
    assert s3.counts("PUT") == {}


def test_a_model_that_cannot_be_written_is_reported_before_the_training(
    s3: S3Server, tmp_path: Path, call: Call
) -> None:
    s3.fail("cli-denied/*", method="PUT", status=403, code="AccessDenied", times=10)
    job = tmp_path / "job.toml"
    job.write_text(f'[data]\ntrain = "{tmp_path / "no-such-data"}"\n[output]\nmodel = "s3://{BUCKET}/cli-denied"\n')
    done = call("train", job)
    assert done.code == 6
    assert "AccessDenied" in done.err
    assert RemoteFolder(f"s3://{BUCKET}/cli-denied").names() == []

"""The page about remote data: its examples run, against a server where they need one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distkern.cli.main import main
from distkern.storage import write_dataset
from tests.s3_server import S3Server, leading_to, s3_server

pytest.importorskip("moto")
pytest.importorskip("obstore")

PAGE = (Path(__file__).parents[2] / "docs" / "remote-data.md").read_text()
BLOCK = re.compile(r"^```python\n(.*?)^```$\n\n^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
JOB = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall(PAGE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    X = np.random.default_rng(0).uniform(-2, 2, (2000, 3))
    path = tmp_path_factory.mktemp("page") / "waves"
    write_dataset(path, X, np.sin(2 * X.sum(axis=1)))
    with s3_server() as running, leading_to(running):
        running.upload(path, "waves.zarr")
        yield running


def test_every_block_has_an_output() -> None:
    assert len(BLOCKS) == PAGE.count("```python\n") == 4


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_an_example_prints_what_the_page_shows(
    number: int, server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    pytest.importorskip("xarray")
    monkeypatch.chdir(tmp_path)
    code, shown = BLOCKS[number]
    exec(compile(code, "remote-data.md", "exec"), {"__name__": "page", "endpoint": server.endpoint})
    assert capsys.readouterr().out == shown


def test_the_job_of_the_page_trains(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (document,) = JOB.findall(PAGE)
    (tmp_path / "job.toml").write_text(document)
    assert main(["train", "job.toml"]) == 0
    assert main(["predict", "s3://rows/waves.model", "s3://rows/waves.zarr", "--out", "s3://rows/predicted.zarr"]) == 0
    assert main(["info", "s3://rows/waves.run"]) == 0
    assert "finished" in capsys.readouterr().out
    assert main(["plan", "job.toml"]) == 0
    assert "blocks on their way" in capsys.readouterr().out
    assert main(["train", "job.toml", "--set", "output.run=again.run"]) == 6
    assert "s3://rows/waves.model exists already" in capsys.readouterr().err

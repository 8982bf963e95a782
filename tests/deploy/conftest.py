from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.deploy.programs import installed
from tests.deploy.slurm_cluster import Slurm, missing, slurm_cluster


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with waves.zarr, job.toml, and the programs of distkern in bin."""
    from distkern.storage import write_dataset

    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (2000, 2))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(2000)
    write_dataset(tmp_path / "waves.zarr", X, y, chunk_rows=256, task="regression")
    installed(tmp_path / "bin")
    write_job(tmp_path)
    return tmp_path


def write_job(folder: Path, centers: int = 60, **sections: dict[str, Any]) -> Path:
    """Write a job file of the waves; tables within sections are written in line."""
    job = {
        "data": {"train": f"{folder}/waves.zarr"},
        "model": {"sigma": 0.7, "max_centers": centers, "stop": "none", "candidates": 64},
        "output": {"model": f"{folder}/waves.model", "run": f"{folder}/waves.run"},
        **sections,
    }
    path = folder / "job.toml"
    path.write_text("\n".join(f"[{name}]\n{written(keys)}" for name, keys in job.items()))
    return path


def written(keys: dict[str, Any]) -> str:
    return "".join(f"{name} = {in_line(value)}\n" for name, value in keys.items())


def in_line(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {in_line(inner)}" for name, inner in value.items()) + " }"
    return json.dumps(value)


def model_bits(place: Path) -> bytes:
    """Return the bits of a stored model that decide its predictions."""
    from distkern.estimators import load_model

    model = load_model(place)
    return b"".join(np.ascontiguousarray(a).tobytes() for a in (model.centers_, model.coef_, model.intercept_))


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    absent = missing()
    if absent:
        pytest.skip(f"Slurm is not installed: {', '.join(absent)} (Debian: slurmctld, slurmd, slurm-client, munge)")
    if os.geteuid() != 0:
        pytest.skip("only root can run the daemon of a Slurm node")
    with slurm_cluster(tmp_path_factory.mktemp("slurm") / "cluster") as running:
        yield running


@pytest.fixture
def certificates(tmp_path: Path) -> dict[str, str]:
    """Paths of an authority, and of a certificate of this machine with its key."""
    trustme = pytest.importorskip("trustme", reason="certificates are made by trustme, of the test extra")
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    return {part: str(tmp_path / f"{part}.pem") for part in ("ca", "cert", "key")}

"""The driver of one training of the fault campaign, in a process of its own so that it can be killed.

Run as ``python -m benchmarks.fault_driver SETTINGS.json``; see `Settings`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from distributed import Client
from zarr.storage import LocalStore

import distkern
from distkern.storage import Fault, FaultyStore


@dataclass(frozen=True)
class Settings:
    """Settings of the training, its cluster and its data, and the rate of failing reads."""

    scheduler: str
    """Address of the scheduler."""
    data: str
    """Directory of the zarr arrays X and y."""
    run: str
    """Run directory."""
    result: str
    """File for the arrays of the model."""
    parameters: dict[str, Any]
    """Parameters of the estimator."""
    failing: float = 0.0
    """Probability that a read fails, at most twice for each chunk."""
    seed: int = 0

    def write(self, path: Path) -> None:
        """Write the settings to a file."""
        path.write_text(json.dumps(asdict(self)))


def opened(settings: Settings, name: str) -> Any:
    """Open an array in a store whose reads fail at the rate of the settings."""
    faults = [
        Fault("transient", key="c/*", times=2, probability=settings.failing),
        Fault("timeout", key="c/*", times=2, probability=settings.failing),
    ]
    store = LocalStore(Path(settings.data, name), read_only=True)
    return zarr.open_array(FaultyStore(store, faults, seed=settings.seed) if settings.failing else store, mode="r")


def main(path: str) -> None:
    """Train, and save the arrays of the model."""
    settings = Settings(**json.loads(Path(path).read_text()))
    with Client(settings.scheduler, set_as_default=False) as client:
        model = distkern.OROLSRegressor(client=client, run_dir=settings.run, factors="workers", **settings.parameters)
        model.fit(opened(settings, "X"), opened(settings, "y"))
    with Path(settings.result).open("wb") as stream:
        np.savez(
            stream,
            rows=model.center_indices_,
            centers=model.centers_,
            coef=model.coef_,
            intercept=model.intercept_,
            history=model.history_,
        )


if __name__ == "__main__":
    main(sys.argv[1])

"""One training whose driver notes its own processor time for each exchange, in a process of its own."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from time import perf_counter, process_time, time
from typing import Any

import numpy as np
import zarr

import distkern
from distkern.monitoring.events import BlocksReplayed, Event, ExchangeDone, WorkerLost


def model_digest(model: Any) -> str:
    """Return a digest of the arrays of a fitted model: equal for equal bits."""
    state = hashlib.blake2b(digest_size=8)
    for array in (model.center_indices_, model.centers_, model.coef_, model.intercept_, model.history_):
        state.update(np.ascontiguousarray(array).tobytes())
    return state.hexdigest()


class Notes:
    """A subscriber that notes times and lost workers, also in a file that others may read during the training."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("w")  # noqa: SIM115  the notes last as long as the process
        self._own, self._wall = process_time(), perf_counter()

    def __call__(self, event: Event) -> None:
        """Note an event."""
        note: dict[str, Any] = {"event": type(event).__name__, "time": time()}
        if isinstance(event, ExchangeDone):
            own, wall = process_time(), perf_counter()
            note |= {"name": event.name, "own": own - self._own, "wall": wall - self._wall}
            self._own, self._wall = own, wall
        elif isinstance(event, WorkerLost):
            note |= {"worker": event.worker, "reason": event.reason}
        elif isinstance(event, BlocksReplayed):
            note |= {"worker": event.worker, "blocks": len(event.blocks)}
        else:
            return
        self._file.write(json.dumps(note) + "\n")
        self._file.flush()


def drive(
    data: str,
    notes: str,
    result: str,
    parameters: dict[str, Any],
    scheduler: str | None = None,
    n_workers: int = 0,
) -> None:
    """Train on a cluster, or in this process, and write the digest of the model."""
    watch = Notes(notes)
    X, y = (zarr.open_array(Path(data, name), mode="r") for name in ("X", "y"))
    if scheduler is None:
        model = distkern.OROLSRegressor(callbacks=(watch,), **parameters).fit(X, y)
    else:
        from distributed import Client

        with Client(scheduler, set_as_default=False, timeout=60) as client:
            client.wait_for_workers(n_workers, timeout=300)
            model = distkern.OROLSRegressor(client=client, callbacks=(watch,), factors="workers", **parameters).fit(
                X, y
            )
    Path(result).write_text(json.dumps({"digest": model_digest(model)}))

"""A large model in the graphs of lazy predictions: on the cluster of the current client, which it is sent to once.

Covers the layer of the graph only; the predictions are in `dask_arrays`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Set
from typing import Any

from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph, Layer, MaterializedLayer

from distkern.models.kernel_model import KernelModel

from ..clusters.client_choice import found_client
from ..clusters.futures import submit
from .on_workers import hold_model


class HeldModel(Layer):  # type: ignore[misc]  # dask has no types
    """The layer of one model: a task on the cluster of the client that is current when the graph is computed.

    After a restart, or on another cluster, the model is sent again; without a client it is in the graph.

    Parameters
    ----------
    model : KernelModel
        The model.
    """

    def __init__(self, model: KernelModel) -> None:
        super().__init__()
        self.key = f"kernel-model-{uuid.uuid4().hex}"
        self._model = model
        self._future: Any = None

    def delayed(self) -> Any:
        """Return the model as a value of dask."""
        return Delayed(self.key, HighLevelGraph({self.key: self}, {self.key: set()}))

    def send(self) -> Any:
        """Return the model, as a future on the cluster of the current client where there is one."""
        client = found_client()
        if client is None or client.status != "running":
            return self._model
        held = self._future
        if held is None or held.client is not client or held.status in ("cancelled", "lost"):
            self._future = held = submit(client, "kernel-model", hold_model, self._model, key=self.key)
        return held

    def is_materialized(self) -> bool:
        """Return False: the task depends on the client."""
        return False

    def get_output_keys(self) -> Set[Any]:
        """Return the key of the model."""
        return {self.key}

    def __getitem__(self, key: Any) -> Any:
        if key != self.key:
            raise KeyError(key)
        return self.send()

    def __iter__(self) -> Iterator[Any]:
        return iter((self.key,))

    def __len__(self) -> int:
        return 1

    def __reduce__(self) -> tuple[Any, ...]:
        return MaterializedLayer, ({self.key: self.send()},)

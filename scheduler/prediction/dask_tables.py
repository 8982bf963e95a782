"""Raw rows in dask DataFrames, encoded lazily."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.storage.arrays.lazy import partitions
from distkern.storage.tables.encode import TableEncoding
from distkern.storage.tables.frames import encoded_table, frame_table


def encoded_frame(frame: Any, made: TableEncoding, lengths: Sequence[int] | None = None) -> Any:
    """Return the encoded rows of a DataFrame as a lazy matrix; its partitions become row chunks.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
        Raw rows.
    made : TableEncoding
        Encoding.
    lengths : sequence of int, optional
        Rows of each partition, which training rows need; without them the chunks have unknown sizes.
    """
    import dask
    import dask.array as da

    parts = partitions(frame)
    width = made.schema.n_encoded
    counts = [float("nan")] * len(parts) if lengths is None else lengths
    starts = [0] * len(parts) if lengths is None else np.concatenate([[0], np.cumsum(lengths)])[:-1].tolist()
    shared, encode = dask.delayed(made), dask.delayed(_encoded)
    pieces = [
        da.from_delayed(
            encode(shared, part, start, f" in partition {number}" if lengths is None else ""),
            shape=(length, width),
            dtype=np.float64,
        )
        for number, (part, start, length) in enumerate(zip(parts, starts, counts, strict=True))
        if length != 0
    ]
    return da.concatenate(pieces) if pieces else da.empty((0, width), dtype=np.float64)


def _encoded(made: TableEncoding, part: Any, first: int, within: str) -> NDArray[np.float64]:
    return encoded_table(made, frame_table(part), first=first, within=within)

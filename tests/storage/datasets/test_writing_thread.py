"""Chunks that a thread writes: rows may be used again, and errors are those of the writer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from distkern.storage import DatasetWriter, open_dataset, write_dataset
from distkern.storage.arrays.chunks import ChunkAppender


def test_a_piece_may_be_used_again(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(300, 3))
    piece = np.empty((30, 3))
    with DatasetWriter(tmp_path / "d", chunk_rows=20) as writer:
        for start in range(0, 300, 30):
            piece[:] = X[start : start + 30]
            writer.append(piece, piece[:, 0])
            assert writer.rows_written == start + 30
            piece[:] = np.nan
    data = open_dataset(tmp_path / "d")
    np.testing.assert_array_equal(data.X[:], X)
    data.verify()


@pytest.mark.parametrize("chunk", [1, 9])
def test_an_error_of_the_thread_leaves_no_store(chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, stored = ChunkAppender._store, []

    def fail(appender: ChunkAppender, rows: np.ndarray) -> None:
        if rows.ndim == 2:
            stored.append(len(rows))
            if len(stored) == chunk + 1:
                raise OSError("no room")
        store(appender, rows)

    monkeypatch.setattr(ChunkAppender, "_store", fail)
    X = np.random.default_rng(0).normal(size=(200, 3))
    with pytest.raises(OSError, match="no room"):
        write_dataset(tmp_path / "d", X, X[:, 0], chunk_rows=20)
    assert len(stored) == chunk + 1
    assert not (tmp_path / "d").exists()

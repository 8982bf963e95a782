"""The callback in a real notebook kernel, which has no widgets."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import distkern

ROOT = Path(distkern.__file__).parents[1]

CELL = """
import sys
sys.path.insert(0, {root!r})
import distkern as dk, numpy as np
X = np.random.default_rng(0).normal(size=(2000, 3))
dk.OROLSRegressor(max_centers=60, sigma=1.0, callbacks=[dk.Progress()]).fit(X, np.sin(X[:, 0]) * X[:, 1])
None
"""

# In a process of its own: the client leaves sockets and event loops to the garbage collector.
RUN = """
import json, sys
import nbformat
from nbclient import NotebookClient
book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(sys.argv[1])])
NotebookClient(book, kernel_name="python3", timeout=120).execute()
print(json.dumps(book.cells[0].outputs))
"""


@pytest.mark.slow
def test_a_notebook_shows_one_output_and_how_the_run_ended() -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN, CELL.format(root=str(ROOT))],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (output,) = json.loads(done.stdout.splitlines()[-1])
    assert output["output_type"] == "display_data"
    assert "training on 2000 rows x 3 features" in output["data"]["text/html"]
    assert "stopped: max-centers" in output["data"]["text/html"]

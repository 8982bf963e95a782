"""Versions that driver and workers must share, so that a model has the same bits on all of them.

Covers the comparison of two processes; when workers are compared and refused is in `..execution.worker_pool`.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

Facts = Mapping[str, str]
"""Name of each compared fact to its value in one process."""

AskFacts = Callable[[], Facts]
"""Returns the facts of the process that calls it; driver and workers call the same function."""


@dataclass(frozen=True)
class Difference:
    """One thing in which a worker differs from the driver."""

    what: str
    """Name of the fact."""
    driver: str
    """Its value in the driver."""
    worker: str
    """Its value in the worker."""

    def __str__(self) -> str:
        return f"{self.what} is {self.worker} there and {self.driver} here"


@cache
def process_facts() -> Facts:
    """Return the versions of this process that decide the bits of a model, or whether messages are understood.

    For BLAS these are the library, its version and the kind of processor that it chose its kernels for.
    """
    import numpy as np
    import scipy.linalg  # noqa: F401  its BLAS must be loaded before threadpoolctl looks
    from threadpoolctl import threadpool_info

    import distkern

    libraries = {
        " ".join(str(library.get(key) or "") for key in ("internal_api", "version", "architecture")).strip()
        for library in threadpool_info()
        if library["user_api"] == "blas"
    }
    return {
        "distkern": distkern.__version__,
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "numpy": np.__version__,
        "BLAS": ", ".join(sorted(libraries)),
    }


def difference(driver: Facts, worker: Facts) -> Difference | None:
    """Return the first fact that differs, None if there is none.

    A process that has loaded more BLAS libraries than the other (some package brought its own) does not differ.
    """
    for what, ours in driver.items():
        theirs = worker.get(what, "unknown")
        if what == "BLAS":
            few, many = sorted((set(ours.split(", ")), set(theirs.split(", "))), key=len)
            if few <= many or few == {""}:
                continue
        if ours != theirs:
            return Difference(what, ours, theirs)
    return None

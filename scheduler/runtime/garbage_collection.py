"""Full garbage collections that skip what is older than a run with many workers.

The graph of an exchange with a thousand workers has tens of thousands of small objects, so that Python's garbage
collector starts a full collection every few exchanges, and a full collection visits every object of the process: 110
to 140 ms for the 200,000 of dask, numpy and zarr alone, more than the exchange itself. Objects that were made before
the run are exempt during it; a full collection then takes 2 to 5 ms.
"""

from __future__ import annotations

import gc
import threading

FROZEN_BY_PYTHON = 1_000
"""Most objects that the interpreter itself has frozen: some 400 in Python 3.12, none in others. A program that freezes
its objects has many more."""

_lock = threading.Lock()
_runs = 0


def exempt_present_objects() -> bool:
    """Exempt all present objects from garbage collections, until `end_exemption` was called as often.

    Returns
    -------
    bool
        Whether `end_exemption` must be called: False where the program has frozen objects itself, which end together
        with those of a run.
    """
    global _runs
    with _lock:
        if _runs == 0:
            if gc.get_freeze_count() > FROZEN_BY_PYTHON:
                return False
            # Garbage of earlier runs would be kept, too.
            gc.collect()
            gc.freeze()
        _runs += 1
        return True


def end_exemption() -> None:
    """Return the exempt objects to the garbage collector, where no other run needs them exempt."""
    global _runs
    with _lock:
        _runs -= 1
        if _runs == 0:
            gc.unfreeze()

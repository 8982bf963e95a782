"""Peak memory of this process."""

from __future__ import annotations

import resource
import sys


def peak_rss() -> int:
    """Return the largest resident set of this process so far, in bytes."""
    try:
        # getrusage also counts the parent process, up to the moment that exec replaced it.
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        scale = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale

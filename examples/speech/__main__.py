"""Train and compare recognisers of spoken digits: ``python -m examples.speech``."""

from __future__ import annotations

import signal

EXTRA = ("hmmlearn", "jiwer", "librosa")
"""Packages of the extra ``speech``."""

try:
    from examples.speech.command import main
except ModuleNotFoundError as error:
    if error.name not in EXTRA:
        raise
    raise SystemExit(
        f"python -m examples.speech needs a package that is not installed ({error.name}); from the clone of distkern: "
        "pip install -e '.[speech]'"
    ) from None

if __name__ == "__main__":
    # Queues end a job by SIGTERM: the results so far are printed then, too, and temporary stores are removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    main()

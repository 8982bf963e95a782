"""One training in a fresh process, for the peak of its memory: ``python peaks.py JSON`` prints its summary."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from typing import Any


def measured(options: dict[str, Any]) -> dict[str, Any]:
    """Train on a dataset store as `options` say; return the summary and the plan."""
    from distkern.scheduler import local_client, run_training
    from distkern.scheduler.runtime.processes import peak_rss
    from distkern.storage import as_source, open_dataset
    from tests.scheduler.trainings import make_job

    with ExitStack() as stack:
        client = None
        if options.get("workers"):
            client = stack.enter_context(local_client(options["workers"], options.get("limit")))
        elif options.get("in_process"):
            from tests.scheduler.worker_clusters import cluster

            client = stack.enter_context(cluster(options["in_process"], processes=False))
        before = peak_rss()
        result = run_training(
            make_job(**options["job"]),
            as_source(open_dataset(options["store"])),
            client=client,
            factors=options.get("factors", "auto"),
            memory_limit=options.get("limit"),
        )
    return {**result.summary, "before": before, "centers": len(result.paths[0].rows)}


if __name__ == "__main__":
    print(json.dumps(measured(json.loads(sys.argv[1]))))

"""Prints the model with the lowest error among results of ``distkern train --json``; a table goes to standard error."""

import json
import sys
from pathlib import Path

results = {name: json.loads(Path(name).read_text()) for name in sys.argv[1:]}
failed = [name for name, result in results.items() if "error" in result]
if failed:
    sys.exit(f"these trainings failed: {', '.join(failed)}")


def error(name: str) -> float:
    """Return the error on the test rows of the job, for classification and regression."""
    return float(next(iter(results[name]["test"].values())))


ranked = sorted(results, key=error)
for name in ranked:
    centers, reason = results[name]["n_centers"], results[name]["stop_reason"]
    print(f"{error(name):.4f}  {centers:5d} centres  {reason:15s} {Path(name).stem}", file=sys.stderr)
print(results[ranked[0]]["model"])

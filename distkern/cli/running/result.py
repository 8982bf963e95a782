"""What a training came to, as one JSON object or as a table for a person."""

from __future__ import annotations

from typing import Any

from ...estimators.scoring import ModelScore
from ...selection.stopping import StopReason
from ...text import byte_size
from ..console.output import pairs, print_table
from ..job.job_file import Job

_COSTS = (
    "seconds",
    "rounds",
    "exchanges",
    "kernel_columns",
    "bytes_read",
    "planned_peak_bytes",
    "peak_rss_driver",
    "peak_rss_worker",
)


_ORDER = (
    "model",
    "run",
    "n_rows",
    "n_features",
    "n_targets",
    "n_centers",
    "lambda",
    "gcv",
    "stop_reason",
    *_COSTS,
    "test",
)


def is_result(summary: dict[str, Any]) -> bool:
    """Tell whether the summary of a run is what a command recorded, and not that of an estimator or damaged."""
    numbers = ("n_rows", "n_features", "n_centers", *(name for name in _COSTS if not name.startswith("peak_")))
    return (
        set(_ORDER) - {"test"} <= summary.keys() <= set(_ORDER)
        and all(isinstance(summary[name], (int, float)) for name in numbers)
        and (summary["stop_reason"] is None or summary["stop_reason"] in {str(reason) for reason in StopReason})
        and isinstance(summary.get("test", {}), dict)
    )


class RecordedResult:
    """What a training came to, as its run directory keeps it.

    Parameters
    ----------
    summary : dict
        What `JobResult.record` returned then.
    """

    def __init__(self, summary: dict[str, Any]) -> None:
        self._summary = summary

    def record(self) -> dict[str, Any]:
        """Return the summary that ``--json`` prints."""
        return {name: self._summary[name] for name in _ORDER if name in self._summary}

    def show(self) -> None:
        """Print the summary for a person."""
        _show(self.record())


class JobResult:
    """What a training came to.

    Parameters
    ----------
    job : Job
        What was asked for.
    model : fitted estimator
        What was trained.
    score : ClassificationScore, RegressionScore or None
        On the test data, where the job names some.
    """

    def __init__(self, job: Job, model: Any, score: ModelScore | None) -> None:
        self.job = job
        self.model = model
        self.score = score

    @property
    def test(self) -> dict[str, float] | None:
        """``{"error": fraction}`` or ``{"rmse": value}`` where test data was named."""
        return None if self.score is None else self.score.headline()

    def record(self) -> dict[str, Any]:
        """Return the summary that ``--json`` prints."""
        summary, reason = self.model.summary_, getattr(self.model, "stop_reason_", None)
        record = {
            "model": self.job.output.model,
            "run": self.job.output.run,
            "n_rows": summary["n_rows"],
            "n_features": summary["n_features"],
            "n_targets": summary["n_targets"],
            "n_centers": summary["n_centers"],
            "lambda": getattr(self.model, "lambda_", None),
            "gcv": getattr(self.model, "gcv_", None),
            "stop_reason": None if reason is None else StopReason(reason).value,
            **{name: summary[name] for name in _COSTS},
        }
        return record if self.score is None else {**record, "test": self.test}

    def show(self) -> None:
        """Print the summary for a person."""
        _show(self.record())


def _show(record: dict[str, Any]) -> None:
    reason = None if record["stop_reason"] is None else StopReason(record["stop_reason"])
    rows: list[tuple[str, object]] = [
        ("rows x features", f"{record['n_rows']} x {record['n_features']}"),
        ("targets", record["n_targets"]),
        ("centres", record["n_centers"]),
        ("lambda", record["lambda"]),
        ("gcv", record["gcv"]),
        ("stopped", None if reason is None else f"{reason}: {reason.advice}"),
        ("seconds", f"{record['seconds']:.1f}"),
        ("rounds, exchanges", f"{record['rounds']}, {record['exchanges']}"),
        ("read", byte_size(record["bytes_read"])),
        ("peak memory", _peaks(record)),
        ("model", record["model"] or "not saved: the job names no model in [output]"),
        ("run", record["run"] or "not kept: the job names no run in [output]"),
    ]
    rows += [(f"test {name}", value) for name, value in (record.get("test") or {}).items()]
    print_table(pairs([row for row in rows if row[1] is not None]))


def _peaks(record: dict[str, Any]) -> str:
    driver, worker, planned = (
        byte_size(record[name]) for name in ("peak_rss_driver", "peak_rss_worker", "planned_peak_bytes")
    )
    workers = f", largest worker {worker}" if record["peak_rss_worker"] else ""
    return f"driver {driver}{workers}, planned {planned}"

"""What a training came to, as one JSON object or as a table for a person."""

from __future__ import annotations

from typing import Any

from distkern.cli.job import Job
from distkern.cli.render import bytes_shown, pairs, print_table
from distkern.estimators.scoring import Score
from distkern.stopping import StopReason

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


class TrainingResult:
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

    def __init__(self, job: Job, model: Any, score: Score | None) -> None:
        self.job = job
        self.model = model
        self.score = score

    @property
    def test(self) -> dict[str, float] | None:
        """``{"error": fraction}`` or ``{"rmse": value}`` where test data was named."""
        return None if self.score is None else self.score.headline()

    @property
    def _reason(self) -> StopReason | None:
        """Why selection ended, where a method selects."""
        reason = getattr(self.model, "stop_reason_", None)
        return None if reason is None else StopReason(reason)

    def record(self) -> dict[str, Any]:
        """Return the summary that ``--json`` prints."""
        summary = self.model.summary_
        record = {
            "model": self.job.output.model,
            "run": self.job.output.run,
            "n_rows": summary["n_rows"],
            "n_features": summary["n_features"],
            "n_targets": summary["n_targets"],
            "n_centers": summary["n_centers"],
            "lambda": getattr(self.model, "lambda_", None),
            "gcv": getattr(self.model, "gcv_", None),
            "stop_reason": None if self._reason is None else self._reason.value,
            **{name: summary[name] for name in _COSTS},
        }
        return record if self.score is None else {**record, "test": self.test}

    def show(self) -> None:
        """Print the summary for a person."""
        record, reason = self.record(), self._reason
        rows: list[tuple[str, object]] = [
            ("rows x features", f"{record['n_rows']} x {record['n_features']}"),
            ("targets", record["n_targets"]),
            ("centres", record["n_centers"]),
            ("lambda", record["lambda"]),
            ("gcv", record["gcv"]),
            ("stopped", None if reason is None else f"{reason}: {reason.advice}"),
            ("seconds", f"{record['seconds']:.1f}"),
            ("rounds, exchanges", f"{record['rounds']}, {record['exchanges']}"),
            ("read", bytes_shown(record["bytes_read"])),
            ("peak memory", _peaks(record)),
            ("model", record["model"] or "not saved: the job names no model in [output]"),
            ("run", record["run"] or "not kept: the job names no run in [output]"),
        ]
        rows += [(f"test {name}", value) for name, value in (self.test or {}).items()]
        print_table(pairs([row for row in rows if row[1] is not None]))


def _peaks(record: dict[str, Any]) -> str:
    driver, worker, planned = (
        bytes_shown(record[name]) for name in ("peak_rss_driver", "peak_rss_worker", "planned_peak_bytes")
    )
    workers = f", largest worker {worker}" if record["peak_rss_worker"] else ""
    return f"driver {driver}{workers}, planned {planned}"

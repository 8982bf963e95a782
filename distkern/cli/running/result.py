"""The result of a training, as a JSON object or as a table for users."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from distkern.scheduler.planning.large_plan import FACTORS

from ...estimators.scoring import ModelScore
from ...selection.losses import SQUARED
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
    "selection_rows",
    "solver",
    "loss",
    "n_features",
    "n_targets",
    "n_centers",
    "lambda",
    "gcv",
    "stop_reason",
    "chosen",
    *_COSTS,
    "appended",
    "test",
)
_OPTIONAL = {"selection_rows", "solver", "loss", "chosen", "appended", "test"}
"""Entries that are absent from records of version 0.1 and of methods without a choice of rows, where nothing was
appended, and where there is no test."""


def recorded_result(summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the record in the summary of a run; None where an estimator wrote the summary, or it is damaged."""
    numbers = ("n_rows", "n_features", "n_centers", *(name for name in _COSTS if not name.startswith("peak_")))
    if (
        set(_ORDER) - _OPTIONAL <= summary.keys() <= set(_ORDER)
        and all(isinstance(summary[name], (int, float)) for name in numbers)
        and (summary["stop_reason"] is None or summary["stop_reason"] in {str(reason) for reason in StopReason})
        and isinstance(summary.get("test", {}), dict)
    ):
        return {name: summary[name] for name in _ORDER if name in summary}
    return None


@dataclass(frozen=True)
class JobResult:
    """The result of a job's training."""

    record: dict[str, Any]
    """Record of ``--json`` and of the run directory."""
    model: Any
    score: ModelScore | None
    """Score on the test data, where the job names some."""

    @classmethod
    def of(cls, job: Job, model: Any, score: ModelScore | None) -> JobResult:
        """Return the result of the trained model of a job."""
        summary, reason = model.summary_, getattr(model, "stop_reason_", None)
        record = {
            "model": job.output.model,
            "run": job.output.run,
            "n_rows": summary["n_rows"],
            **{name: summary[name] for name in ("selection_rows", "solver", "loss") if name in summary},
            "n_features": summary["n_features"],
            "n_targets": summary["n_targets"],
            "n_centers": summary["n_centers"],
            "lambda": getattr(model, "lambda_", None),
            "gcv": getattr(model, "gcv_", None),
            "stop_reason": None if reason is None else StopReason(reason).value,
            **({"chosen": summary["chosen"]} if summary.get("chosen") else {}),
            **{name: summary[name] for name in _COSTS},
            **({"appended": summary["appended"]} if "appended" in summary else {}),
        }
        return cls(record if score is None else {**record, "test": score.headline()}, model, score)


def show_result(record: Mapping[str, Any]) -> None:
    """Print the known values in the record of a training as a table."""
    known, reason = {name: value for name, value in record.items() if value is not None}, record.get("stop_reason")
    advice = f": {StopReason(reason).advice}" if reason in set(StopReason) else ""
    forms: tuple[tuple[str, str, Callable[[Any], object]], ...] = (
        ("n_features", "rows x features", lambda count: f"{known.get('n_rows')} x {count}"),
        ("selection_rows", "rows for selection", lambda value: value),
        ("solver", "weights by", lambda value: value.replace("-", " ")),
        ("loss", "loss", lambda value: value),
        ("n_targets", "targets", lambda value: value),
        ("n_centers", "centres", lambda value: value),
        ("lambda", "lambda", lambda value: value),
        ("gcv", "gcv", lambda value: value),
        ("stop_reason", "stopped", lambda name: f"{name}{advice}"),
        ("chosen", "chosen by evidence", _values),
        ("seconds", "seconds", lambda seconds: f"{seconds:.1f}"),
        ("rounds", "rounds, exchanges", lambda rounds: f"{rounds}, {known.get('exchanges')}"),
        ("bytes_read", "read", byte_size),
        ("planned_peak_bytes", "peak memory", lambda planned: f"{_peaks(known)}planned {byte_size(planned)}"),
    )
    if known.get("selection_rows") == known.get("n_rows"):
        known.pop("selection_rows", None)
    if known.get("solver") == FACTORS:
        known.pop("solver")
    if known.get("loss") == SQUARED:
        known.pop("loss")
    rows = [(label, form(known[name])) for name, label, form in forms if name in known]
    if "model" in record:
        rows.append(("model", record["model"] or "not saved: the job names no model in [output]"))
        rows.append(("run", record["run"] or "not kept: the job names no run in [output]"))
    rows += [(f"appended, part {i}", drift_text(part)) for i, part in enumerate(known.get("appended", ()), start=1)]
    test = known.get("test")
    rows += [(f"test {name}", value) for name, value in (test.items() if isinstance(test, Mapping) else ())]
    print_table(pairs(rows))


def drift_text(part: Mapping[str, Any]) -> str:
    """Return the drift of one appended part in words."""
    from distkern.scheduler import Drift

    return str(Drift(**{field.name: part[field.name] for field in fields(Drift)}))


def _values(chosen: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in chosen.items())


def _peaks(known: Mapping[str, Any]) -> str:
    parts = (("driver", known.get("peak_rss_driver")), ("largest worker", known.get("peak_rss_worker")))
    return "".join(f"{name} {byte_size(peak)}, " for name, peak in parts if peak)

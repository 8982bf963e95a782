"""Figures of runs as Prometheus metrics: the same names and values on a scheduler's ``/metrics`` and in a file.

Every sample has the label ``run``. Names begin with ``distkern_``, units are seconds and bytes. Names of counters end
in ``_total``; a counter only grows during a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from numbers import Real
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from .run_state import CUT_SHORT, OVER, RunFigures

__all__ = ["Runs", "families"]

Runs = Iterable[tuple[str, str, RunFigures]]
"""Name, title and figures of each run."""

_Kind = type[GaugeMetricFamily] | type[CounterMetricFamily]

_GAUGE, _COUNTER = GaugeMetricFamily, CounterMetricFamily


def _largest(value: Any) -> Any:
    """Return lambda, the largest where targets or problems have their own."""
    return max(value, default=None) if isinstance(value, list | tuple) else value


def _final(name: str, along: str | None = None) -> Callable[[RunFigures], Any]:
    """Return a function of a run: the figure of its model, or of the path while there is no model."""
    return lambda run: _largest(run.summary[name]) if name in run.summary else run.latest(along or name)


def _of_workers(kind: str) -> Callable[[RunFigures], dict[str, Any]]:
    return lambda run: {worker: found.get(kind) for worker, found in run.memory.items()}


_SINGLE: tuple[tuple[str, _Kind, str, Callable[[RunFigures], Any]], ...] = (
    ("run_running", _GAUGE, "1 until the run is over.", lambda run: int(run.state not in OVER)),
    (
        "run_cut_short",
        _GAUGE,
        "1 while the run is cut short: it ended without a model, and no process has resumed it.",
        lambda run: int(run.state == CUT_SHORT),
    ),
    ("run_started_timestamp_seconds", _GAUGE, "Time of the first start of the run.", lambda run: run.started),
    ("run_updated_timestamp_seconds", _GAUGE, "Time of the last event of the run.", lambda run: run.updated),
    ("run_seconds", _GAUGE, "Time of the training so far.", lambda run: run.training_seconds),
    ("run_left_seconds", _GAUGE, "Time that is left to the largest number of centres.", lambda run: run.seconds_left),
    ("run_rows", _GAUGE, "Rows of the training data.", lambda run: run.shapes.get("n_rows")),
    ("run_features", _GAUGE, "Features of a row.", lambda run: run.shapes.get("n_features")),
    ("run_workers", _GAUGE, "Workers at the start.", lambda run: run.shapes.get("workers")),
    ("max_centers", _GAUGE, "Most centres that may be selected.", lambda run: run.shapes.get("max_centers")),
    ("centers", _GAUGE, "Centres of the model; of the path during the run.", _final("n_centers")),
    ("steps", _COUNTER, "Centres selected along the path.", lambda run: run.n_centers),
    (
        "lambda",
        _GAUGE,
        "Regularisation; the largest where targets or problems have their own.",
        _final("lambda", "lambda_"),
    ),
    ("gcv", _GAUGE, "Generalised cross validation.", _final("gcv")),
    (
        "residual_max",
        _GAUGE,
        "Largest absolute residual of any row before the last round.",
        lambda run: run.latest("residual_max"),
    ),
    ("validation_error", _GAUGE, "Mean squared residual of the held-out rows.", lambda run: run.latest("validation")),
    ("exchanges", _COUNTER, "Exchanges between driver and workers.", lambda run: run.exchanges),
    (
        "search_exchanges",
        _COUNTER,
        "Exchanges of the search for settings before the training.",
        lambda run: run.search_exchanges,
    ),
    (
        "metric_rounds",
        _GAUGE,
        "Rounds of the learnt metric before the training.",
        lambda run: run.metric_rounds or None,
    ),
    (
        "metric_error",
        _GAUGE,
        "Lowest error of these rounds on rows held out, over that of their mean.",
        lambda run: run.metric_error,
    ),
    ("read_bytes", _COUNTER, "Bytes of the arrays read from the store.", lambda run: run.bytes_read),
    ("replayed_blocks", _COUNTER, "Blocks rebuilt from the run log.", lambda run: run.replayed_blocks),
    ("workers_lost", _COUNTER, "Workers that failed, retired or were paused.", lambda run: run.workers_lost),
    ("storage_retries", _COUNTER, "Reads that failed and were repeated.", lambda run: run.storage_retries),
    ("resumptions", _COUNTER, "Times that another process resumed the run.", lambda run: run.resumed),
)
"""Name without ``distkern_`` and ``_total``, type, help, and the value of a run; None where there is none."""

_LABELLED: tuple[tuple[str, _Kind, str, str, Callable[[RunFigures], Mapping[str, Any]]], ...] = (
    (
        "messages",
        _COUNTER,
        "Messages to the workers, by name.",
        "message",
        lambda run: run.exchange_counts,
    ),
    (
        "message_seconds",
        _COUNTER,
        "Time that the driver waited for answers, by name of the message.",
        "message",
        lambda run: run.exchange_seconds,
    ),
    (
        "thread_seconds",
        _COUNTER,
        "Time of all workers' threads during exchanges, by phase.",
        "phase",
        lambda run: run.busy,
    ),
    ("worker_resident_bytes", _GAUGE, "Resident set of a worker's process.", "worker", _of_workers("resident")),
    ("worker_cache_bytes", _GAUGE, "Row matrices that a worker holds in memory.", "worker", _of_workers("cache")),
    ("worker_scratch_bytes", _GAUGE, "Row matrices that a worker has in scratch.", "worker", _of_workers("scratch")),
    (
        "worker_planned_bytes",
        _GAUGE,
        "Planned peak of the resident set of a worker's process.",
        "worker",
        _of_workers("planned"),
    ),
)
"""As `_SINGLE`, with the name of a second label, and the values by that label."""


def families(runs: Runs) -> Iterator[Metric]:
    """Yield the metrics of runs with unique names; a metric has no samples where no run has a value."""
    known = list(runs)
    info = GaugeMetricFamily("distkern_run_info", "Names and titles of runs.", labels=["run", "title"])
    reasons = GaugeMetricFamily("distkern_stop_reason_info", "Why selection ended.", labels=["run", "reason"])
    for run, title, figures in known:
        info.add_metric([run, title], 1)
        if figures.stop_reason is not None:
            reasons.add_metric([run, figures.stop_reason], 1)
    yield info
    yield reasons
    for name, kind, text, value in _SINGLE:
        yield _family(name, kind, text, ["run"], (([run], value(figures)) for run, _, figures in known))
    for name, kind, text, label, values in _LABELLED:
        found = (([run, at], value) for run, _, figures in known for at, value in values(figures).items())
        yield _family(name, kind, text, ["run", label], found)


def _family(name: str, kind: _Kind, text: str, labels: list[str], found: Iterable[tuple[list[str], Any]]) -> Metric:
    family = kind(f"distkern_{name}", text, labels=labels)
    for at, value in found:
        if isinstance(value, Real):
            family.add_metric(at, float(value))
    return family

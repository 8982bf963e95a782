"""Figures of runs as Prometheus metrics: the same names and values on a scheduler's ``/metrics`` and in a file.

Every sample has the label ``run``. Names begin with ``distkern_``, units are seconds and bytes, and counters, which
only grow while a run lasts, end in ``_total``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from numbers import Real
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from .run_state import CUT_SHORT, OVER, RunFigures

__all__ = ["METRICS", "Runs", "families"]

Runs = Iterable[tuple[str, str, RunFigures]]
"""Name of each run, what people know it by, and its figures."""

Samples = Mapping[tuple[str, ...], Any]
"""Label values to a value; None where there is none."""

_GAUGE, _COUNTER = "gauge", "counter"


def _one(value: Any) -> Samples:
    return {(): value}


def _largest(value: Any) -> Any:
    """Lambda of a model, the largest where targets or problems have their own."""
    return max(value, default=None) if isinstance(value, list | tuple) else value


def _last(figures: RunFigures, name: str) -> Any:
    values = figures.series[name]
    return values[-1] if values else None


def _final(name: str, along: str) -> Callable[[RunFigures], Samples]:
    """Figure of the model once it is there, and until then of the path so far."""
    return lambda figures: _one(_largest(figures.summary[name]) if name in figures.summary else _last(figures, along))


def _of_workers(kind: str) -> Callable[[RunFigures], Samples]:
    return lambda figures: {(worker,): found.get(kind) for worker, found in figures.memory.items()}


def _seconds(figures: RunFigures) -> Samples:
    return _one(_last(figures, "seconds") if figures.seconds is None else figures.seconds)


METRICS: tuple[tuple[str, str, str, tuple[str, ...], Callable[[RunFigures], Samples]], ...] = (
    ("run_running", _GAUGE, "1 until the run is over.", (), lambda f: _one(float(f.state not in OVER))),
    (
        "run_cut_short",
        _GAUGE,
        "1 where the run was ended without a model, as long as no process goes on with it.",
        (),
        lambda f: _one(float(f.state == CUT_SHORT)),
    ),
    ("run_started_timestamp_seconds", _GAUGE, "When the run began.", (), lambda f: _one(f.started)),
    ("run_updated_timestamp_seconds", _GAUGE, "When the run was last heard of.", (), lambda f: _one(f.updated)),
    ("run_seconds", _GAUGE, "Time that the training has taken.", (), _seconds),
    ("run_left_seconds", _GAUGE, "Time to the largest number of centres.", (), lambda f: _one(f.seconds_left)),
    ("run_rows", _GAUGE, "Rows of the training data.", (), lambda f: _one(f.shapes.get("n_rows"))),
    ("run_features", _GAUGE, "Features of a row.", (), lambda f: _one(f.shapes.get("n_features"))),
    ("run_workers", _GAUGE, "Workers at the start.", (), lambda f: _one(f.shapes.get("workers"))),
    ("max_centers", _GAUGE, "Most centres that may be selected.", (), lambda f: _one(f.shapes.get("max_centers"))),
    (
        "centers",
        _GAUGE,
        "Centres of the model; of the path so far while the run lasts.",
        (),
        _final("n_centers", "n_centers"),
    ),
    ("steps", _COUNTER, "Centres selected along the path.", (), lambda f: _one(f.n_centers)),
    (
        "lambda",
        _GAUGE,
        "Regularisation; the largest where targets or problems have their own.",
        (),
        _final("lambda", "lambda_"),
    ),
    ("gcv", _GAUGE, "Generalised cross validation.", (), _final("gcv", "gcv")),
    (
        "residual_max",
        _GAUGE,
        "Largest absolute residual of any row before the last round.",
        (),
        lambda f: _one(_last(f, "residual_max")),
    ),
    (
        "validation_error",
        _GAUGE,
        "Mean squared residual of the held-out rows.",
        (),
        lambda f: _one(_last(f, "validation")),
    ),
    ("exchanges", _COUNTER, "Exchanges between driver and workers.", (), lambda f: _one(f.exchanges)),
    (
        "search_exchanges",
        _COUNTER,
        "Exchanges of the search for settings before the training.",
        (),
        lambda f: _one(f.search_exchanges),
    ),
    (
        "messages",
        _COUNTER,
        "Messages to the workers by what they asked for.",
        ("message",),
        lambda f: {(name,): count for name, count in f.exchange_counts.items()},
    ),
    (
        "message_seconds",
        _COUNTER,
        "Time that the driver waited for answers, by what the messages asked for.",
        ("message",),
        lambda f: {(name,): seconds for name, seconds in f.exchange_seconds.items()},
    ),
    (
        "thread_seconds",
        _COUNTER,
        "Time of all workers' threads during exchanges, by what they did.",
        ("phase",),
        lambda f: {(phase,): seconds for phase, seconds in f.busy.items()},
    ),
    ("read_bytes", _COUNTER, "Bytes of the arrays read from the store.", (), lambda f: _one(f.bytes_read)),
    ("replayed_blocks", _COUNTER, "Blocks rebuilt from the run log.", (), lambda f: _one(f.replayed_blocks)),
    ("workers_lost", _COUNTER, "Workers that could not be used any more.", (), lambda f: _one(f.workers_lost)),
    ("storage_retries", _COUNTER, "Reads that failed and were tried again.", (), lambda f: _one(f.storage_retries)),
    ("resumptions", _COUNTER, "Times that another process went on with the run.", (), lambda f: _one(f.resumed)),
    ("worker_resident_bytes", _GAUGE, "Resident set of a worker's process.", ("worker",), _of_workers("resident")),
    ("worker_cache_bytes", _GAUGE, "Row matrices that a worker holds in memory.", ("worker",), _of_workers("cache")),
    ("worker_scratch_bytes", _GAUGE, "Row matrices that a worker has in scratch.", ("worker",), _of_workers("scratch")),
    (
        "worker_planned_bytes",
        _GAUGE,
        "Largest resident set that was planned for a worker's process.",
        ("worker",),
        _of_workers("planned"),
    ),
)
"""Name without ``distkern_`` and ``_total``, type, help, labels beside ``run``, and the samples of a run's figures."""


def families(runs: Runs) -> Iterator[Metric]:
    """Yield the metrics of some runs.

    Parameters
    ----------
    runs : iterable of (str, str, RunFigures)
        Name, title and figures of each; names are unique.

    Yields
    ------
    prometheus_client.core.Metric
        Without samples where no run has a value.
    """
    known = list(runs)
    info = GaugeMetricFamily("distkern_run_info", "Runs, and what people know them by.", labels=["run", "title"])
    reasons = GaugeMetricFamily("distkern_stop_reason_info", "Why selection ended.", labels=["run", "reason"])
    for run, title, figures in known:
        info.add_metric([run, title], 1)
        if figures.stop_reason is not None:
            reasons.add_metric([run, figures.stop_reason], 1)
    yield info
    yield reasons
    for name, kind, text, labels, samples in METRICS:
        family = (CounterMetricFamily if kind == _COUNTER else GaugeMetricFamily)(
            f"distkern_{name}", text, labels=["run", *labels]
        )
        for run, _, figures in known:
            for values, value in samples(figures).items():
                if isinstance(value, Real):
                    family.add_metric([run, *values], float(value))
        yield family

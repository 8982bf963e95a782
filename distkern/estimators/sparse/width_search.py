"""The choice of the width: by the evidence of few rows, ``sigma="auto"``, or by a search, ``sigma="cv"``.

Covers the widths that a search tries, the results of searches over settings, and what a choice leaves on an estimator.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.scheduler import (
    FewRowsChoice,
    FewRowsRoom,
    LearntMetric,
    Plan,
    SearchResult,
    TrainingJob,
    TrainingResult,
    WorkerFacts,
    Workload,
    choose_once,
    may_choose,
    worker_facts,
    workload,
)
from distkern.storage import BlockSource, RunDirectory

from ..base.parameter_checks import AUTO
from .rkhs_refit import penalised

SIGMA_FACTORS = 2.0 ** (np.arange(-6, 4) / 2)
"""Multiples of the median distance, the narrowest first."""


def width_jobs(job: TrainingJob) -> list[TrainingJob]:
    """Return a job for each width."""
    return [replace(job, sigma_factor=float(factor)) for factor in SIGMA_FACTORS]


def sigma_results(found: SearchResult) -> dict[str, NDArray[Any]]:
    """Return the results of a search over widths."""
    sigma = np.array([kernel.parameters()["sigma"] for kernel in found.kernels])
    return {"sigma": sigma, **summarise(found)}


def summarise(found: SearchResult) -> dict[str, NDArray[Any]]:
    """Return arrays with an entry for each setting."""
    return {
        "mean_error": found.mean_errors,
        "std_error": np.ma.masked_invalid(found.errors).std(axis=1).filled(np.nan),
        "n_centers": found.n_centers.sum(axis=1) / found.trained.sum(axis=1),
        "errors": found.errors,
    }


class WidthChoice:
    """Part of the estimators whose `sigma` may be "auto"."""

    sigma: Any
    _memory_bytes: int | None
    chosen_: dict[str, Any]

    def _chooses(self, job: TrainingJob, n_rows: int, n_features: int) -> bool:
        """Return whether width and regularisation are chosen by the evidence of the rows."""
        automatic = isinstance(self.sigma, str) and self.sigma == AUTO
        # With a metric that is asked for the rounds choose, unless they leave the kernel open.
        open_ = job.kernel == AUTO or getattr(self, "metric", "isotropic") in ("isotropic", AUTO)
        return automatic and open_ and may_choose(job, n_rows, n_features)

    def _plan_choice(self, planned: Plan, job: TrainingJob, work: Workload, facts: WorkerFacts | None) -> Plan:
        """Return a plan with the choice, if there is one, before the training."""
        if not self._chooses(job, work.n_rows, work.n_features):
            return planned
        return FewRowsRoom(job, work, facts, self._memory_bytes).before(planned)

    def _choose(
        self,
        job: TrainingJob,
        source: BlockSource,
        run: RunDirectory | None,
        client: Any,
        learnt: LearntMetric | None = None,
    ) -> tuple[FewRowsChoice, FewRowsRoom] | None:
        """Choose after the rounds, if there is anything to choose; return the choice and its plan."""
        if not self._chooses(job, source.n_rows, source.n_features):
            return None
        facts = None if client is None else worker_facts(client)
        room = FewRowsRoom(job, workload(job, source), facts, self._memory_bytes)
        room.require_fit()
        return choose_once(run, job, source, client, learnt), room

    def _note_choice(self, chosen: tuple[FewRowsChoice, FewRowsRoom] | None, summary: dict[str, Any]) -> None:
        """Add the values and the costs of a choice to the summary of a training."""
        if chosen is None:
            return
        choice, room = chosen
        costs = {"passes": 1, "bytes_read": choice.bytes_read, "seconds": choice.seconds}
        summary |= {name: summary[name] + cost for name, cost in costs.items()}
        summary["plan"] = {**summary["plan"], **room.terms}
        for name in ("planned_peak_driver", *(["planned_peak_bytes"] if room.together else [])):
            summary[name] = max(summary[name], room.peak)
        if choice.sigma:
            names = ("factor", "log_evidence", "mu", "rows", "sigma")
            summary["chosen"] = {name: getattr(choice, name) for name in names}

    def _penalised(self, result: TrainingResult) -> TrainingResult:
        """Return the result of a training, or of one with rows that came later, with what was chosen before it."""
        chosen = result.summary.get("chosen")
        return penalised(result, float(chosen["mu"])) if chosen else result

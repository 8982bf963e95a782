"""The plan of a job before the training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .cluster_client import running_client

if TYPE_CHECKING:
    from distkern.scheduler import Plan, WorkerFacts, Workload

    from ..job.job_file import Job


def plan_of(job: Job, estimator: Any, work: Workload) -> Plan:
    """Plan a job on its workers, with its memory limit."""
    planned: Plan = estimator.plan(work, workers_of(job))
    return planned


def workers_of(job: Job) -> WorkerFacts | None:
    """Return the workers of a job; None for this process alone."""
    from distkern.scheduler import WorkerFacts, worker_facts

    section, facts = job.cluster, None
    if section.starts_workers:
        assert section.least_workers is not None
        facts = WorkerFacts(section.least_workers, section.cores or 1, None, False)
    elif section.where is not None:
        with running_client(section) as client:
            facts = worker_facts(client)
    return facts


def planned_estimator(job: Job, task: str) -> Any:
    """Return the unfitted estimator of a job, with its memory limit."""
    from ..job.model_section import build

    return build(job.model.method, task, job.model.parameters(), {"memory_limit": job.cluster.memory})

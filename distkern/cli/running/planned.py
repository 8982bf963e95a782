"""The plan of a job before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .cluster_client import running_client

if TYPE_CHECKING:
    from distkern.scheduler import Plan, Workload

    from ..job.job_file import Job


def plan_of(job: Job, estimator: Any, work: Workload) -> Plan:
    """Plan a job on the workers that it asks for, with the memory that it gives the estimator."""
    from distkern.scheduler import WorkerFacts, worker_facts

    section, facts = job.cluster, None
    if section.starts_workers:
        assert section.least_workers is not None
        facts = WorkerFacts(section.least_workers, section.cores or 1, None, False)
    elif section.where is not None:
        with running_client(section) as client:
            facts = worker_facts(client)
    planned: Plan = estimator.plan(work, facts)
    return planned


def planned_estimator(job: Job, task: str) -> Any:
    """Return the estimator of a job, unfitted, with the memory that the job gives it."""
    from ..job.model_section import build

    return build(job.model.method, task, job.model.parameters(), {"memory_limit": job.cluster.memory})

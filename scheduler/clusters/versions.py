"""The version of distkern on scheduler and workers, compared where tasks may run on any worker.

A training compares its workers before it uses them, see `..execution.worker_pool`. The tasks of passes and predictions
run on whatever worker is free. Their driver asks workers that it does not know once, before the first task, since a
task that a worker cannot read ends its process. One that joins later compares its version in every task, and after an
error that another version may explain the driver asks scheduler and workers again.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Collection
from typing import Any, TypeVar

import distkern
from distkern.errors import ClusterError, DistkernError

from ..runtime.environment import process_facts
from .worker_queries import workers_of

T = TypeVar("T")

ASK_VERSIONS_SECONDS = 10.0
"""Most time for the answers of all workers, which may have to import distkern first."""

logger = logging.getLogger(__name__)

_asked: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()


def checked_call(version: str, function: Callable[..., T], *arguments: Any) -> T:
    """Call a function in a task of a driver, which must have the version of distkern that this process has.

    Raises
    ------
    ClusterError
        ``version-mismatch``.
    """
    if version != distkern.__version__:
        from distributed import get_worker

        raise _mismatch(f"worker {get_worker().address}", distkern.__version__, version)
    return function(*arguments)


def compare_versions(client: Any) -> None:
    """Refuse a cluster with a worker of another version of distkern; workers are asked once.

    Parameters
    ----------
    client : distributed.Client
        The cluster.

    Raises
    ------
    ClusterError
        ``version-mismatch``.
    """
    asked = _asked.setdefault(client, set())
    new = {worker for worker in workers_of(client) if not worker.startswith("inproc://")} - asked
    if new:
        _require_version(_of_workers(client, sorted(new)))
        asked |= new


def require_one_version(client: Any, error: BaseException) -> None:
    """Refuse a cluster of which a process has another version of distkern, after an error that this may explain.

    Parameters
    ----------
    client : distributed.Client
        The cluster.
    error : BaseException
        Error of a task. One of distkern's own explains itself.

    Raises
    ------
    ClusterError
        ``version-mismatch``.
    """
    if isinstance(error, DistkernError) or not isinstance(error, Exception):
        return
    try:
        _require_version(_of_scheduler(client) | _of_workers(client))
    except ClusterError as mismatch:
        raise mismatch from error


def _require_version(found: dict[str, Any]) -> None:
    ours = distkern.__version__
    for process, facts in found.items():
        if isinstance(facts, OSError):
            continue  # it left
        # Who cannot import this function, or a module that it needs, has another version.
        theirs = f"unusable ({facts})" if isinstance(facts, Exception) else str(facts["distkern"])
        if theirs != ours:
            raise _mismatch(process, theirs, ours)


def _mismatch(process: str, there: str, here: str) -> ClusterError:
    return ClusterError(
        f"{process} cannot take part: distkern is {there} there and {here} in the driver; give scheduler, workers and "
        "driver the same environment",
        kind="version-mismatch",
    )


def _of_scheduler(client: Any) -> dict[str, Any]:
    try:
        return {"the scheduler": client.run_on_scheduler(process_facts)}
    except (ImportError, AttributeError) as error:
        return {"the scheduler": error}
    except Exception:  # it may run no functions of others
        logger.info("the scheduler did not answer with its versions", exc_info=True)
        return {}


def _of_workers(client: Any, workers: Collection[str] | None = None) -> dict[str, Any]:
    """Return the facts or the errors of those workers that answer."""
    how = {"workers": workers, "on_error": "return", "callback_timeout": ASK_VERSIONS_SECONDS}
    try:
        answers = client.sync(client._run, process_facts, **how)
    except Exception:
        logger.info("the workers did not answer with their versions", exc_info=True)
        return {}
    return {f"worker {worker}": facts for worker, facts in sorted(answers.items())}

"""Which solver fits the weights of a training over all rows, and the numbers of each.

"factors" keeps the thin factors of all centres and sums their Gram matrix over all rows: exact, nested in the number of
centres, and quadratic in it. "conjugate-gradients" selects the first centres so, draws the others, and needs some tens
of passes whose cost is linear in the centres. The numbers are measured, see
`docs/design/046-models-with-many-centres.md`. Covers the choice; the fits are in `refit` and `large_models`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from distkern.kernels import Polynomial, Sigmoid

from ..planning.large_plan import CONJUGATE_GRADIENTS, FACTORS, LargeModel

if TYPE_CHECKING:
    from .driver_loop import TrainingJob

LARGE = 3000
"""Centres above which "auto" takes conjugate gradients: the memory and time of the factors grow with the square of the
centres and more."""

SELECTED_CENTERS = 2000
"""Centres that are selected one after another before the others are drawn."""

LAMBDAS = (1e-5, 5e-4, 2e-2, 1.0)
"""Regularisation among which generalised cross validation chooses, in units of the mean diagonal of the kernel."""

PROBES = 1
"""Right-hand sides of random signs for the degrees of freedom, for each lambda."""

MOST_ITERATIONS = 25

PLANNED_ITERATIONS = 15
"""Iterations for which time and bytes are planned."""


def solver_of(job: TrainingJob, n_rows: int) -> str:
    """Return the solver of a job on `n_rows` rows; "auto" depends on shapes and settings only."""
    if job.solver != "auto":
        return job.solver
    large = min(job.max_centers, n_rows) > LARGE
    return CONJUGATE_GRADIENTS if large and unsolvable(job) is None else FACTORS


def unsolvable(job: TrainingJob) -> tuple[str, str] | None:
    """Return a parameter that conjugate gradients cannot serve, and what it must be; None where there is none."""
    if job.refit is not None:
        return "refit", "None with conjugate gradients, which keep that norm small anyway"
    if job.loss is not None:
        return "loss", "'squared' with conjugate gradients, which solve normal equations"
    if isinstance(job.regularization, str) and job.regularization.startswith("evidence"):
        return "regularization", "'gcv', 'gcv-per-target', 'none' or a number with conjugate gradients"
    if job.n_widths > 1:
        return "sigma", "one width with conjugate gradients: several have no norm in the space of one kernel"
    indefinite = job.kernel == "sigmoid" or isinstance(job.kernel, Sigmoid)
    if indefinite or (isinstance(job.kernel, Polynomial) and job.kernel.offset < 0.0):
        return "kernel", "positive definite with conjugate gradients, such as 'gaussian'"
    return None


def selected_centers(job: TrainingJob) -> int:
    """Return the most centres that a job selects one after another."""
    return min(job.max_centers, SELECTED_CENTERS) if job.solver == CONJUGATE_GRADIENTS else job.max_centers


def large_model(job: TrainingJob, n_rows: int) -> LargeModel | None:
    """Return the shapes of a resolved job's draws and solution; None where it keeps its factors."""
    if job.solver != CONJUGATE_GRADIENTS:
        return None
    m, lambdas = min(job.max_centers, n_rows), len(lambdas_of(job.regularization))
    return LargeModel(
        centers=m,
        drawn=m - min(m, selected_centers(job)),
        lambdas=lambdas,
        probes=probes_of(job.regularization),
        iterations=PLANNED_ITERATIONS,
        most_iterations=MOST_ITERATIONS,
        itemsize=4 if job.dtype == "float32" else 8,
    )


def probes_of(regularization: str | float) -> int:
    """Return the right-hand sides of random signs for each lambda."""
    return 0 if regularization == "none" else PROBES


def lambdas_of(regularization: str | float) -> tuple[float, ...]:
    """Return the lambdas that are tried."""
    if isinstance(regularization, str):
        return (0.0,) if regularization == "none" else LAMBDAS
    return (float(regularization),)

"""Every method solves with one BLAS thread, so that bits do not depend on how many the process has."""

from __future__ import annotations

from typing import Any

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import distkern as dk
from distkern.estimators.dense import kernel_fisher, kernel_mse, lssvm
from distkern.estimators.linear import fisher, ho_kashyap, mse, widrow_hoff
from distkern.scheduler.passes import krls
from distkern.scheduler.training import run
from tests.estimators.fits import data_for

SOLUTIONS: dict[str, tuple[Any, str, Any]] = {
    "kernel Fisher": (kernel_fisher, "fisher_directions", dk.KernelFisherDiscriminant()),
    "kernel MSE": (kernel_mse, "solve_full", dk.KernelMSEClassifier()),
    "reduced kernel MSE": (kernel_mse, "solve_reduced", dk.KernelMSEClassifier(max_centers=20)),
    "LS-SVM": (lssvm, "solve_bordered", dk.LSSVMRegressor()),
    "LS-SVM by iterations": (lssvm, "conjugate_gradients", dk.LSSVMClassifier(solver="cg")),
    "KRLS": (krls, "reduced_weights", dk.KRLSRegressor()),
    "Fisher": (fisher, "fisher", dk.FisherDiscriminant()),
    "MSE": (mse, "least_squares", dk.MSEClassifier()),
    "LMS": (widrow_hoff, "run_lms", dk.WidrowHoffClassifier()),
    "Ho-Kashyap": (ho_kashyap, "run_ho_kashyap", dk.HoKashyapClassifier(max_iter=5)),
    "OROLS": (run, "train", dk.OROLSRegressor(max_centers=5)),
}


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.mark.parametrize("name", SOLUTIONS)
def test_methods_solve_on_one_blas_thread(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, function, model = SOLUTIONS[name]
    solve, seen = getattr(module, function), []

    def solve_and_count(*arguments: Any, **options: Any) -> Any:
        seen.append(blas_threads())
        return solve(*arguments, **options)

    monkeypatch.setattr(module, function, solve_and_count)
    with threadpool_limits(2, user_api="blas"):
        if blas_threads() != {2}:
            pytest.skip("BLAS has one thread here, whatever its limit is")
        model.fit(*data_for(model))
        assert seen
        assert all(threads == {1} for threads in seen)
        assert blas_threads() == {2}

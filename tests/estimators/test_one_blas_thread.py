"""Every method solves with one BLAS thread, so that bits do not depend on how many the process has."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import distkern as dk
from distkern.estimators.dense import kernel_fisher, kernel_mse, lssvm
from distkern.estimators.linear import fisher, ho_kashyap, mse, widrow_hoff
from distkern.estimators.sparse import kernel_least_squares
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
    "weights of OROLS": (kernel_least_squares, "path_weights", dk.OROLSRegressor(max_centers=5)),
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


FITS = """
import hashlib
import numpy as np
import distkern as dk
from tests.estimators.fits import classes
X, y = classes(800, 3)
models = [dk.LSSVMClassifier(), dk.LSSVMClassifier(solver="cg"), dk.KernelFisherDiscriminant()]
models += [dk.KernelMSEClassifier(), dk.KernelMSEClassifier(max_centers=200)]
models += [dk.OROLSClassifier(max_centers=150, refit="rkhs", stop=None)]
models += [dk.OROLSClassifier(max_centers=400, stop=None)]
for model in models:
    model.fit(X, y)
    digest = hashlib.sha256()
    for part in (model.coef_, model.intercept_, model.decision_function(X), model.predict_proba(X)):
        digest.update(np.ascontiguousarray(part).tobytes())
    if hasattr(model, "transform"):
        digest.update(model.transform(X).tobytes())
    print(model, digest.hexdigest())
"""


@pytest.mark.slow
def test_processes_of_any_number_of_blas_threads_fit_the_same_bits() -> None:
    found = []
    for threads in (1, 2, 8):
        limits = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
        run = subprocess.run([sys.executable, "-c", FITS], env=os.environ | limits, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        found.append(run.stdout.splitlines())
    assert found[0] == found[1] == found[2]

"""Nonlinear pseudo-discriminants (Andelic, thesis 2007, Algorithm 1): no lambda, epsilon on the diagonal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distkern.estimators.kinds import KernelClassifier, KernelRegressor
from distkern.events import Subscriber
from distkern.kernels import Kernel


class NPDRegressor(KernelRegressor):
    """Sparse kernel regression by nonlinear pseudo-discriminants.

    The thesis's order-recursive pseudoinverse (3.62) gives the same weights as the thin factors used here, with
    lambda = 0; sparsity is the only regularisation beside `epsilon`.

    Parameters
    ----------
    kernel : str or Kernel
        "gaussian", "polynomial", "sigmoid", "linear", or a kernel object.
    sigma : float or "median"
        Width of the Gaussian kernel in the (standardised) feature space; "median" takes the median distance
        of a sample of rows.
    max_centers : int
        Most centres to select.
    criterion : {"error-reduction", "residual"}
        How a centre is chosen: the largest error reduction among a pool of candidates, or the row with the
        largest residual, one at a time (Algorithm 1 of the paper).
    sampler : {"mixture", "residual-weighted", "top-residual", "uniform", "all"}
        How rows become candidates; "mixture" takes half by largest residual and half drawn with probability
        proportional to the squared residual.
    candidates : int
        Size of the pool; with this many rows or fewer, every row is a candidate.
    panel : int
        Centres accepted a round.
    stop : {"gcv", "lambda", "validation", None}
        When to end before `max_centers`: at the minimum of generalised cross validation with selected centres
        counted twice, when lambda is calm (the paper's rule), or at the minimum of the error on a tenth of the
        rows that is held out.
    tol : float, optional
        For ``stop="lambda"`` the relative change that counts as calm (0.01); otherwise selection ends when the
        largest absolute residual is at most this.
    patience : int, optional
        Centres without a new minimum before "gcv" or "validation" stop (the larger of 20 and a fifth of the
        centres so far), or calm steps in a row for "lambda" (5).
    epsilon : float
        Added to each kernel column at its own row; K + epsilon I is strictly positive definite. Dependent
        columns are skipped anyway, so 0 is safe; above 0 a weight is no longer the same as
        repeated rows.
    standardize : bool
        Whether to bring every feature to zero mean and unit standard deviation.
    dtype : {"float64", "float32"}
        Precision of the kernel columns and Q; sums over rows are always float64.
    factors : {"auto", "driver", "workers"}
        Where the rows of Q live when a dask client is used.
    client : distributed.Client, optional
        Cluster to train on. Without one, zarr and dask input use the current client if there is any, and
        everything else trains in this process.
    run_dir : path-like, optional
        Directory to make for the events and the summary of the run.
    random_state : int
        Key of the row draws.
    callbacks : sequence of callable
        Called with each event of `distkern.events`.

    Attributes
    ----------
    centers_ : array, shape (m, d)
        Selected rows, in the caller's feature space.
    center_indices_ : array, shape (m,)
        Their row numbers.
    coef_ : array, shape (m, T)
        Weights.
    intercept_ : array, shape (T,)
        Intercepts.
    lambda_ : float or array, shape (T,)
        Regularisation of the model; one a target with one-vs-rest or "gcv-per-target".
    gcv_ : float
        Generalised cross validation of the model.
    n_centers_ : int
        Centres in the model.
    history_ : structured array
        A row per step: center, lambda_, gcv, residual_max, q_norm, round, problem.
    stop_reason_ : StopReason
        Why selection ended; its `advice` says what that means.
    kernel_ : Kernel
        The kernel with its width.
    plan_ : dict
        Planned bytes, a term a buffer.
    summary_ : dict
        Counts and peaks of the training.
    n_features_in_ : int
        Features seen in `fit`.
    """

    def __init__(
        self,
        *,
        kernel: str | Kernel = "gaussian",
        sigma: float | str = "median",
        max_centers: int = 1000,
        criterion: str = "error-reduction",
        sampler: str = "mixture",
        candidates: int = 256,
        panel: int = 16,
        stop: str | None = "gcv",
        tol: float | None = None,
        patience: int | None = None,
        epsilon: float = 0.0,
        standardize: bool = True,
        dtype: str = "float64",
        factors: str = "auto",
        client: Any = None,
        run_dir: Any = None,
        random_state: int = 0,
        callbacks: Sequence[Subscriber] = (),
    ) -> None:
        self.kernel = kernel
        self.sigma = sigma
        self.max_centers = max_centers
        self.criterion = criterion
        self.sampler = sampler
        self.candidates = candidates
        self.panel = panel
        self.stop = stop
        self.tol = tol
        self.patience = patience
        self.epsilon = epsilon
        self.standardize = standardize
        self.dtype = dtype
        self.factors = factors
        self.client = client
        self.run_dir = run_dir
        self.random_state = random_state
        self.callbacks = callbacks


class NPDClassifier(KernelClassifier):
    """Sparse kernel classification by nonlinear pseudo-discriminants.

    The thesis's order-recursive pseudoinverse (3.62) gives the same weights as the thin factors used here, with
    lambda = 0; sparsity is the only regularisation beside `epsilon`.

    Parameters
    ----------
    kernel : str or Kernel
        "gaussian", "polynomial", "sigmoid", "linear", or a kernel object.
    sigma : float or "median"
        Width of the Gaussian kernel in the (standardised) feature space; "median" takes the median distance
        of a sample of rows.
    max_centers : int
        Most centres to select (of each class with one-vs-rest).
    criterion : {"error-reduction", "residual"}
        How a centre is chosen: the largest error reduction among a pool of candidates, or the row with the
        largest residual, one at a time (Algorithm 1 of the paper).
    sampler : {"mixture", "residual-weighted", "top-residual", "uniform", "all"}
        How rows become candidates; "mixture" takes half by largest residual and half drawn with probability
        proportional to the squared residual.
    candidates : int
        Size of the pool; with this many rows or fewer, every row is a candidate.
    panel : int
        Centres accepted a round.
    stop : {"gcv", "lambda", "validation", None}
        When to end before `max_centers`: at the minimum of generalised cross validation with selected centres
        counted twice, when lambda is calm (the paper's rule), or at the minimum of the error on a tenth of the
        rows that is held out.
    tol : float, optional
        For ``stop="lambda"`` the relative change that counts as calm (0.01); otherwise selection ends when the
        largest absolute residual is at most this.
    patience : int, optional
        Centres without a new minimum before "gcv" or "validation" stop (the larger of 20 and a fifth of the
        centres so far), or calm steps in a row for "lambda" (5).
    epsilon : float
        Added to each kernel column at its own row; K + epsilon I is strictly positive definite. Dependent
        columns are skipped anyway, so 0 is safe; above 0 a weight is no longer the same as
        repeated rows.
    multiclass : {"shared", "one-vs-rest"}
        One set of centres for all classes, or one a class (the paper's way), trained in lockstep.
    standardize : bool
        Whether to bring every feature to zero mean and unit standard deviation.
    dtype : {"float64", "float32"}
        Precision of the kernel columns and Q; sums over rows are always float64.
    factors : {"auto", "driver", "workers"}
        Where the rows of Q live when a dask client is used.
    client : distributed.Client, optional
        Cluster to train on. Without one, zarr and dask input use the current client if there is any, and
        everything else trains in this process.
    run_dir : path-like, optional
        Directory to make for the events and the summary of the run.
    random_state : int
        Key of the row draws.
    callbacks : sequence of callable
        Called with each event of `distkern.events`.

    Attributes
    ----------
    centers_ : array, shape (m, d)
        Selected rows, in the caller's feature space.
    center_indices_ : array, shape (m,)
        Their row numbers.
    coef_ : array, shape (m, T)
        Weights.
    intercept_ : array, shape (T,)
        Intercepts.
    lambda_ : float or array, shape (T,)
        Regularisation of the model; one a target with one-vs-rest or "gcv-per-target".
    gcv_ : float
        Generalised cross validation of the model.
    n_centers_ : int
        Centres in the model.
    history_ : structured array
        A row per step: center, lambda_, gcv, residual_max, q_norm, round, problem.
    stop_reason_ : StopReason
        Why selection ended; its `advice` says what that means.
    kernel_ : Kernel
        The kernel with its width.
    plan_ : dict
        Planned bytes, a term a buffer.
    summary_ : dict
        Counts and peaks of the training.
    classes_ : array, shape (n_classes,)
        Sorted labels.
    n_features_in_ : int
        Features seen in `fit`.
    """

    def __init__(
        self,
        *,
        kernel: str | Kernel = "gaussian",
        sigma: float | str = "median",
        max_centers: int = 1000,
        criterion: str = "error-reduction",
        sampler: str = "mixture",
        candidates: int = 256,
        panel: int = 16,
        stop: str | None = "gcv",
        tol: float | None = None,
        patience: int | None = None,
        epsilon: float = 0.0,
        multiclass: str = "shared",
        standardize: bool = True,
        dtype: str = "float64",
        factors: str = "auto",
        client: Any = None,
        run_dir: Any = None,
        random_state: int = 0,
        callbacks: Sequence[Subscriber] = (),
    ) -> None:
        self.kernel = kernel
        self.sigma = sigma
        self.max_centers = max_centers
        self.criterion = criterion
        self.sampler = sampler
        self.candidates = candidates
        self.panel = panel
        self.stop = stop
        self.tol = tol
        self.patience = patience
        self.epsilon = epsilon
        self.multiclass = multiclass
        self.standardize = standardize
        self.dtype = dtype
        self.factors = factors
        self.client = client
        self.run_dir = run_dir
        self.random_state = random_state
        self.callbacks = callbacks

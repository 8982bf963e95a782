"""Kernel recursive least squares (Engel et al.; thesis 3.4.3, Algorithms 3 and 4)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from distkern.scheduler import Plan, WorkerFacts, Workload, worker_facts
from distkern.scheduler.passes.krls import KRLSJob, Recursion, train_krls
from distkern.scheduler.passes.krls_plan import plan_krls
from distkern.storage import BlockSource, plain_labels

from ...errors import StoreError
from ...kernels import Kernel
from ...methods.krls import Dictionary, ReducedSums, packed_size
from ...models.kernel_model import KernelModel
from ..base.documentation import described
from ..base.estimator import BlockEstimator
from ..base.parameter_checks import plain_parameter, refuse, whole
from ..base.probability_arrays import class_weights_of
from ..base.regressor_classifier import BlockClassifier, BlockRegressor

_PARAMETER_TEXTS = {
    "nu": """
        float
            Squared distance from the span of the rows before it, in the space of k + 1, above which a row becomes a
            centre (3.94). The larger, the fewer centres; values up to 1 are useful with the Gaussian kernel.""",
    "max_centers": """
        int, optional
            Most centres. After that many rows have joined, no other can, whatever its distance, and a warning names the
            `nu` that would have been large enough. By default the number is limited by `nu` and by memory, which grows
            with its square.""",
    "standardize": """
        bool
            Whether to scale every feature to zero mean and unit standard deviation. This takes a pass over the rows
            before the one that trains, and so does ``sigma="median"``.""",
    "dtype": """
        {"float64", "float32"}
            Precision of the kernel values in sums and predictions; centres are always chosen in float64.""",
    "memory_limit": """
        int or str, optional
            Memory that each process may take beside the interpreter's own, in bytes or as in "2GiB". A dictionary that
            outgrows it ends the training. By default most of the free memory here, or of dask's limit for a worker.""",
}

_ATTRIBUTE_TEXTS = """
    centers_ : array, shape (m, d)
        The dictionary: rows in the caller's feature space, in the order in which they joined.
    center_indices_ : array, shape (m,)
        Their row numbers, counted from the first row of the first call.
    coef_ : array, shape (m, T)
        Weights.
    intercept_ : array, shape (T,)
        Intercepts: the kernel is k + 1, so they are the sums of the weights.
    n_centers_ : int
        Centres in the model.
    kernel_ : Kernel
        The kernel with its width, without the 1.
    plan_ : dict
        Planned bytes of each buffer, for the present number of centres.
    summary_ : dict
        Counts and peaks of the training, over all calls of `partial_fit`.
    n_features_in_ : int
        Features seen in `fit`."""


@dataclass(kw_only=True, eq=False, repr=False)
class KernelRecursiveLeastSquares(BlockEstimator):
    """Base of both; see the subclasses for the parameters."""

    _constraints: ClassVar = {"max_centers": whole(1).or_none()}
    _memory_advice = "raise nu so that fewer rows join the dictionary"

    kernel: str | Kernel = "gaussian"
    sigma: float | str = "median"
    nu: float = 0.1
    max_centers: int | None = None
    standardize: bool = True
    dtype: Any = "float64"
    client: Any = None
    memory_limit: int | str | None = None

    def _set_class_weights(self, weights: NDArray[np.float64]) -> None:
        """Set the weights of the rows of every class, in classifiers."""

    def _job(self) -> KRLSJob:
        return KRLSJob(
            classification=self._classification,
            kernel=self.kernel,
            sigma=self.sigma if isinstance(self.sigma, str) else float(self.sigma),
            nu=float(self.nu),
            max_centers=None if self.max_centers is None else int(self.max_centers),
            standardize=bool(self.standardize),
            dtype=plain_parameter(self.dtype),
        )

    def plan(self, work: Workload, facts: WorkerFacts | None) -> Plan:
        """Plan for as many centres as may be; for one where nothing but `nu` limits them, see `BlockEstimator.plan`."""
        passes = 2 if self._job().needs_statistics else 1
        most = 1 if self.max_centers is None else min(int(self.max_centers), work.n_rows)
        return plan_krls(work, facts, self._memory_bytes, passes, most)

    def _train(self, source: BlockSource, client: Any) -> None:
        self._advance(source, client, None, None, checked=True)

    def _advance(
        self,
        source: BlockSource,
        client: Any,
        before: Recursion | None,
        classes: NDArray[Any] | None,
        *,
        checked: bool,
    ) -> None:
        """Train on the rows of a source, which follow those of `before`, and set the fitted attributes."""
        job = self._job() if before is None else replace(self._job(), dtype=before.dtype)
        work = Workload.known(source, classification=job.classification, classes=classes)
        facts = None if client is None else worker_facts(client)
        passes = 2 if before is None and job.needs_statistics else 1
        plan_for = partial(plan_krls, work, facts, self._memory_bytes, passes)
        centers = 0 if before is None else len(before.dictionary)
        most = 1 if job.max_centers is None else min(job.max_centers, centers + source.n_rows)
        summed = None if before is None else self.summary_
        with self._fitting(source, client, plan_for(max(centers, most))) as fit:
            recursion = train_krls(job, fit, plan_for, before=before, classes=classes, checked=checked)
            coef = recursion.weights()
        if summed is not None:
            self.summary_ = _added(summed, self.summary_)
        dictionary = recursion.dictionary
        self._set_model(
            KernelModel(
                dictionary.kernel, dictionary.scaling, dictionary.features, coef, coef.sum(axis=0), recursion.dtype
            ),
            dictionary.rows,
        )
        if recursion.classes is not None:
            self.classes_ = recursion.classes
            more = class_weights_of(source, recursion.classes)
            self._set_class_weights(more if before is None else self._class_weights + more)
        self._recursion: Recursion | None = recursion

    def _partial_fit(self, X: Any, y: Any, sample_weight: Any, classes: Any) -> None:
        self._check_parameters()
        before = self._restored_recursion()
        # A stream may come row by row; `fit` needs two rows.
        with self._rows_to_train(X, y, sample_weight, 1, more=before is not None) as (source, client):
            self._continue(source, client, before, classes)

    def _continue(self, source: BlockSource, client: Any, before: Recursion | None, classes: Any) -> None:
        given = None if classes is None else np.unique(plain_labels(classes))
        known = None if before is None else before.classes
        if given is not None and known is not None and not np.array_equal(given, known):
            raise refuse("classes", given.tolist(), f"as in the first call, {np.asarray(known).tolist()}")
        self._advance(source, client, before, given, checked=False)

    def _restored_recursion(self) -> Recursion | None:
        """Return the recursion after the rows so far, None before the first call; one from a store is restored here."""
        if not hasattr(self, "_model"):
            return None
        if self._recursion is None:
            # A store keeps the sums; the dictionary's factor follows from the centres.
            sums, n_rows = self._stored_sums
            model = self._model
            try:
                dictionary = Dictionary.of(
                    model.kernel, model.scaling, float(self.nu), self.center_indices_, self.centers_
                )
            except ValueError as error:
                raise StoreError(
                    f"the model that was loaded cannot be trained further: {error}; train again or fetch a fresh copy",
                    kind="corrupt",
                ) from None
            self._recursion = Recursion(dictionary, sums, getattr(self, "classes_", None), n_rows, model.dtype)
        return self._recursion

    def _stored_arrays(self) -> dict[str, NDArray[Any]]:
        sums = self._stored_sums[0] if self._recursion is None else self._recursion.sums
        return {"reduced_gram": sums.gram, "reduced_products": sums.products}

    def _stored_values(self) -> dict[str, Any]:
        sums, n_rows = self._stored_sums if self._recursion is None else (self._recursion.sums, self._recursion.n_rows)
        return {"n_rows_seen": n_rows, "largest_delta": sums.largest}

    def _restore(self, stored: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        gram, products = arrays["reduced_gram"], arrays["reduced_products"]
        for name, array, shape in (
            ("reduced_gram", gram, (packed_size(self.n_centers_),)),
            ("reduced_products", products, self.coef_.shape),
        ):
            if array.shape != shape or array.dtype.kind != "f" or not np.isfinite(array).all():
                raise ValueError(f"{name} does not fit the centres")
        if not isinstance(stored["n_rows_seen"], int) or stored["n_rows_seen"] < self.n_centers_:
            raise ValueError("n_rows_seen is no count of rows")
        self._recursion = None
        self._stored_sums = (ReducedSums(gram, products, float(stored["largest_delta"])), stored["n_rows_seen"])


def _added(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Add up the counts of two calls; peaks are the larger ones."""
    summed = {name: before[name] + now[name] for name in ("rounds", "exchanges", "bytes_read", "seconds")}
    largest = ("passes", "planned_peak_bytes", "peak_rss_driver", "peak_rss_worker")
    return {**now, **summed, **{name: max(before[name], now[name]) for name in largest}}


@described(_PARAMETER_TEXTS, _ATTRIBUTE_TEXTS)
class KRLSRegressor(BlockRegressor, KernelRecursiveLeastSquares):
    """Sparse kernel regression by kernel recursive least squares, in one pass over the rows.

    Rows become centres in their order, without a look at the targets, where they are approximately independent of those
    before (thesis 3.94-3.96, with k + 1 for the kernel); all rows count in the weights, a = inv(K~) inv(R'R) R'y
    (3.104, 3.105). The model depends on the order of rows.
    """

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Train on rows that follow those of earlier calls.

        The model is that of one `fit` to all rows, as far as the kernel's space is the same: with
        ``standardize=True`` or ``sigma="median"`` it stays as the first call, or `fit`, has found it. `nu` and
        `max_centers` may change between calls.

        Parameters
        ----------
        X : array-like, zarr.Array, dask array or DataFrame, xarray rows or Dataset, shape (n_rows, n_features)
            Rows; one is enough.
        y : array-like, shape (n_rows,) or (n_rows, n_targets), optional
            Targets.
        sample_weight : array-like, shape (n_rows,), optional
            Row weights; a weight counts as repeated rows, zero as absent.

        Returns
        -------
        self

        Raises
        ------
        JobError
            A parameter is wrong.
        DataError
            The rows cannot be trained on; the model stays as it was.
        """
        self._partial_fit(X, y, sample_weight, None)
        return self


@described(_PARAMETER_TEXTS, _ATTRIBUTE_TEXTS)
class KRLSClassifier(BlockClassifier, KernelRecursiveLeastSquares):
    """Sparse kernel classification by kernel recursive least squares, in one pass over the rows.

    Rows become centres in their order, without a look at the labels, where they are approximately independent of those
    before (thesis 3.94-3.96, with k + 1 for the kernel); all rows count in the weights, a = inv(K~) inv(R'R) R'y
    (3.104, 3.105), on targets of +-1 a class. The model depends on the order of rows.
    """

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> Self:
        """Train on rows that follow those of earlier calls.

        The model is that of one `fit` to all rows, as far as the kernel's space is the same: with
        ``standardize=True`` or ``sigma="median"`` it stays as the first call, or `fit`, has found it. `nu` and
        `max_centers` may change between calls.

        Parameters
        ----------
        X : array-like, zarr.Array, dask array or DataFrame, xarray rows or Dataset, shape (n_rows, n_features)
            Rows; one is enough.
        y : array-like, shape (n_rows,), optional
            Labels.
        classes : array-like, shape (n_classes,), optional
            All labels of the stream, used in the first call only; by default the labels of its rows.
        sample_weight : array-like, shape (n_rows,), optional
            Row weights; a weight counts as repeated rows, zero as absent.

        Returns
        -------
        self

        Raises
        ------
        JobError
            A parameter is wrong.
        DataError
            The rows cannot be trained on; the model stays as it was.
        """
        self._partial_fit(X, y, sample_weight, classes)
        return self

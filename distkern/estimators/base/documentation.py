"""The parameters and attributes that the estimators share, described once.

`documented` appends to a class's docstring the texts of exactly those parameters that are in its signature.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TypeVar

C = TypeVar("C", bound=type)

PARAMETERS = {
    "kernel": """
        str or Kernel
            "gaussian", "laplacian" (of the Euclidean distance), "laplacian-l1" (of the sum of absolute differences, as
            in scikit-learn), "matern", "polynomial", "sigmoid", "linear", or a kernel object, such as
            ``Wendland(radius)``, which is zero beyond the radius.""",
    "sigma": """
        float or "median"
            Width of the Gaussian, Laplacian or Matern kernel in the (standardised) feature space; "median" takes the
            median distance of a sample of rows, in the norm of the kernel.""",
    "folds": """
        int
            Folds of the cross-validation with ``sigma="cv"``. The search stops training a width that
            can no longer be the best, where this costs no further read of the data.""",
    "max_centers": """
        int
            Most centres to select; of each class with one-vs-rest, of each pair with one-vs-one and dag.""",
    "criterion": """
        {"error-reduction", "residual", "loo-error"}
            How a centre is chosen: the largest error reduction among a pool of candidates; the row with the
            largest residual, one at a time (Algorithm 1 of the paper); or, for classifiers, the candidate with the
            lowest leave-one-out misclassification rate, one at a time (Hong, Chen and Harris, 2006).""",
    "sampler": """
        {"mixture", "residual-weighted", "top-residual", "uniform", "all"}
            How rows become candidates; "mixture" takes half by largest residual and half drawn with probability
            proportional to the squared residual.""",
    "candidates": """
        {"auto"} or int
            Size of the pool; with this many rows or fewer, every row is a candidate. With several widths a row is as
            many candidates. "auto" is 384, and 512 after rounds that learn a metric or choose the kernel.""",
    "panel": """
        int
            Centres accepted in a round.""",
    "regularization": """
        {"gcv", "gcv-per-target", "evidence", "evidence-per-target", "none"} or float
            Lambda re-estimated at every step, by generalised cross validation or by the Bayesian evidence, shared or
            one for each target; zero; or fixed. "evidence" usually gives a larger lambda, which protects a path that
            is longer than necessary.""",
    "ridge": """
        float
            Lambda, the same at every step.""",
    "stop": """
        {"gcv", "bic", "mdl", "lambda", "validation", "loo", "none"} or None
            When to end before `max_centers`: at the minimum of generalised cross validation with selected centres
            counted twice, of the Bayesian information criterion or of the description length, when lambda has
            converged (the paper's rule), or at the minimum of the error on a held-out tenth of the rows. "bic" and
            "mdl" give smaller models than "gcv", and less accurate ones where many centres are needed. "loo" ends
            ``criterion="loo-error"`` when no candidate lowers the rate.""",
    "tol": """
        float, optional
            For ``stop="lambda"`` the relative change up to which lambda counts as converged (0.01); otherwise
            selection ends when the largest absolute residual is at most this, for several targets of different scale
            in units of the one with the largest deviation.""",
    "patience": """
        int, optional
            Centres without a new minimum before "gcv", "bic", "mdl" or "validation" stop (the larger of 20 and a fifth
            of the centres so far), or steps in a row with a converged lambda for "lambda" (5).""",
    "epsilon": """
        float
            Added to each kernel column at its own row; K + epsilon I is strictly positive definite. Dependent
            columns are skipped anyway, so 0 is safe; above 0 a weight is no longer the same as repeated rows.""",
    "fit_intercept": """
        bool
            Whether the model has a constant, to which lambda does not apply; targets are then centred. Without one the
            weights explain the targets as they are, and far from all centres the predictions go to zero instead of the
            mean.""",
    "selection_rows": """
        {"auto"}, int or None
            Choose the centres on a random sample of this many rows, then fit weights and lambda on all rows. The cost
            of the selection then does not grow with the data, and X is read once or twice more. "auto" takes five rows
            for each of `max_centers`, 5000 at least, and all rows where the sample were more than two thirds of them,
            or where the settings ask about every row; after rounds that learn a metric or choose the kernel, up to a
            third more rows. ``summary_["selection_rows"]`` is the number that it took.
            None takes all rows. With ``stop="validation"`` a tenth of the sample is held out while centres are chosen;
            the weights are fitted on those rows too.""",
    "solver": """
        {"auto", "factors", "conjugate-gradients"}
            How the weights are fitted to all rows. "factors" sums a Gram matrix of all centres. "conjugate-gradients"
            selects the first 2000 centres as always, draws the others in proportion to the squared residual, and solves
            for the weights that are small in the norm of the kernel's space by passes over the rows, without a Gram
            matrix; lambda is chosen by generalised cross validation, and `truncate` and `transform` do not exist.
            "auto" takes that for more than 3000 centres, where the other parameters allow it.""",
    "metric": """
        {"isotropic", "diagonal", "full", "auto"}
            Linear map of the (standardised) features before the kernel: none, a factor for each feature, or a matrix,
            learnt in rounds on a sample of the rows: fit, average the outer products of the gradients, map, fit again.
            "auto" tries all three, "full" matrices and factors. The simplest map that is as good as the best is kept,
            by the error on rows of the sample that are held out. The attribute `feature_importances_`, shape (d,), then
            has the share of each standardised feature in the mean squared gradient of the model of that round; columns
            of categories, gaps and dates count by their variance. Columns with heavy or uneven tails are mapped by
            arcsinh before they are standardised, where that lowers the error of the first round (`arcsinh_columns_`);
            not with standardize=False.""",
    "metric_rounds": """
        int, optional
            Most rounds of a map (12).""",
    "metric_rank": """
        int, optional
            Most directions that a learnt map keeps, the longest ones; all by default.""",
    "multiclass": """
        {"shared", "one-vs-rest", "one-vs-one", "dag"}
            One set of centres for all classes; or one for each class (the paper's way), or one for each pair of classes
            on the rows of the two (thesis 4.2.1), trained in lockstep. All pairs vote, or a decision graph evaluates
            one pair fewer than there are classes ("dag").""",
    "class_weight": """
        {"balanced"}, dict or None
            Factors on the row weights: of each label in a dict, one for others; or "balanced", so that every class has
            the same weight. Probabilities and shares of the classes are those of the weighted rows.""",
    "probabilities": """
        {"logistic", "gaussian"}
            How outputs become probabilities: by log odds that are linear in leave-one-out outputs, or, as in the thesis
            (4.6-4.8), by a Gaussian of the output of each pair of classes on the rows of either, and pairwise coupling.
            The former have the lower log loss on most sets; the latter may name another class than `predict`.""",
    "refit": """
        {"rkhs", "none"} or None
            The norm that the final weights keep small: by default that of the weights of the orthogonal columns, with
            lambda; "rkhs" minimises the squared error plus mu times the squared norm of the function in the kernel's
            space, with mu by generalised cross validation with selected centres counted twice. That reads no rows,
            changes little after a stop rule, and repairs much of a path that is too long. The kernel must be positive
            definite.""",
    "loss": """
        {"squared", "logistic", "huber", "quantile"}
            Loss of the final weights, on centres that squares select: for classifiers "logistic" (softmax for several
            classes), whose outputs are log odds, so that probabilities need no calibration; for regressors "huber",
            which grows linearly beyond `huber_threshold`, or "quantile", whose minimum is the conditional quantile of
            level `quantile`. The weights are small in the norm of the kernel's space, with lambda by held-out rows
            where `regularization` is "gcv"; the log odds of "logistic" are then averaged with those of calibrated
            squares. A pass for each evaluation of the loss, about ten for a large set.""",
    "huber_threshold": """
        float
            Residual from which the Huber loss grows linearly, in robust standard deviations of the residuals.""",
    "quantile": """
        float
            Level of ``loss="quantile"``, above 0 and below 1.""",
    "intervals": """
        {"auto"} or bool
            Whether `fit` keeps leave-one-out residuals of a sample of the rows, which `predict_interval` needs; they
            take one more pass over the rows. "auto" keeps them where the rows are arrays in memory. A model store has
            standard deviations for ``predict(X, return_std=True)`` only with True: they are as large as the square of
            the number of centres.""",
    "standardize": """
        bool
            Whether to scale every feature to zero mean and unit standard deviation.""",
    "dtype": """
        {"float64", "float32"} or a dtype of numpy
            Precision of the kernel columns and Q; sums over rows are always float64.""",
    "factors": """
        {"auto", "driver", "workers"}
            Where the rows of Q live when a dask client is used.""",
    "client": """
        distributed.Client, optional
            Cluster to train on. Without one, training on zarr and dask input uses the current client, if there is any
            that this thread can wait for; other input is trained on in this process.""",
    "memory_limit": """
        int or str, optional
            Memory that each process with rows may take beside the interpreter's own, in bytes or as in "2GiB"; larger
            buffers are in scratch files on its local disk. By default most of the free memory here, or of dask's limit
            for a worker.""",
    "max_seconds": """
        float, optional
            Seconds that `fit` may take, reading included. Selection ends early enough for the remaining work, with the
            model of the centres so far and the stop reason "time-limit"; another `fit` with the same `run_dir` resumes
            there and has the same seconds again. The first centres are chosen whatever the time. A search
            (``sigma="cv"``) that takes longer is an error.""",
    "run_dir": """
        path-like, optional
            Directory that keeps every exchange of the training, its events and its summary. If it holds the run
            already, `fit` resumes it, or returns the finished model; `max_centers` may differ, and any other setting
            that would change the model is refused. Clones, as in cross-validation, do not inherit it.""",
    "random_state": """
        int, RandomState or None
            Key of the row draws. From a `RandomState`, numpy's own for None, each `fit` draws a new one; with `run_dir`
            a run keeps the one that it began with.""",
    "callbacks": """
        sequence of callable
            Functions that get each event of `distkern.monitoring.events`; `distkern.Progress` shows them during the
            training.""",
}

_SEARCHED = {
    "sigma": """
        float, sequence of float, "median" or "cv"
            Width of the Gaussian kernel in the (standardised) feature space; "median" takes the median distance of a
            sample of rows, "cv" the best by cross-validation of ten multiples of that, from an eighth to
            2.8; the attribute `cv_results_` then has arrays with an entry for each width: sigma, mean_error and
            std_error over the folds, n_centers. With several widths a centre is a row with one of them, and a row may
            become a centre with more than one; not with ``criterion="residual"`` or ``refit="rkhs"``.""",
}
"""Parameters of the OROLS family, in place of those of `PARAMETERS`."""

_CHOSEN = {
    "sigma": """
        float, sequence of float, "auto", "median" or "cv"
            Width of the Gaussian kernel in the (standardised) feature space; "median" takes the median distance of a
            sample of rows, "cv" the best by cross-validation of ten multiples of that, from an eighth to
            2.8; the attribute `cv_results_` then has arrays with an entry for each width: sigma, mean_error and
            std_error over the folds, n_centers. With several widths a centre is a row with one of them, and a row may
            become a centre with more than one; not with ``criterion="residual"`` or ``refit="rkhs"``. "auto" is
            "median", except for at most 600 rows of at most 2000 features, with the defaults of `regularization`,
            `stop`, `epsilon`, `refit`, `criterion`, `dtype`, `multiclass` and `metric`: there width and regularisation
            have nearly the largest evidence with every row as a centre, and selection ends within 1 % of that fit;
            `chosen_` then has the values.""",
}
"""Text of the width of estimators that choose it by the evidence of few rows."""

_AUTO_KERNEL = {
    "kernel": """
        str or Kernel
            "gaussian", "laplacian", "laplacian-l1", "matern", "polynomial", "sigmoid", "linear", or a kernel object,
            such as ``Wendland(radius)``, which is zero beyond the radius. "auto" chooses among the Gaussian and the two
            Laplacian kernels, and their width, on rows of a sample that are held out.""",
}
"""Texts of estimators that learn a metric."""

ATTRIBUTES = """
    centers_ : array, shape (m, d)
        Selected rows, in the caller's feature space.
    center_indices_ : array, shape (m,)
        Their row numbers; a row that is a centre with two widths is named twice.
    coef_ : array, shape (m, T)
        Weights.
    intercept_ : array, shape (T,)
        Intercepts.
    lambda_ : float or array, shape (T,)
        Regularisation of the model; one for each target with one-vs-rest and the rules "-per-target". With
        ``refit="rkhs"`` it is mu; with another `loss` that of its penalty.
    gcv_ : float
        Generalised cross validation of the model; of targets of different scale, in units of about their deviations
        relative to the largest one. With another `loss` the mean loss of held-out rows, in units of the scale of the
        residuals.
    n_centers_ : int
        Centres in the model.
    history_ : structured array
        A row for each step of the path, whatever `refit` is: center, lambda_, gcv, residual_max, q_norm, round,
        problem. With `selection_rows`, lambda_ and gcv are of all rows, residual_max and q_norm of the sample.
    stop_reason_ : StopReason
        The reason for which selection ended; its `advice` explains it.
    chosen_ : dict
        What ``sigma="auto"`` chose on few rows: sigma, factor (of the median distance), mu, log_evidence and rows (of
        positive weight); `lambda_` is then mu. Empty where it chose nothing.
    solver_ : {"factors", "conjugate-gradients"}
        How the weights were fitted.
    loss_ : {"squared", "logistic", "huber", "quantile"}
        The loss that they minimise.
    kernel_ : Kernel
        The kernel with its width; where `sigma` is a sequence, ``kernel_.sigma`` has the width of every centre.
    plan_ : dict
        Planned bytes of each buffer.
    summary_ : dict
        Counts and peaks of the training.
    n_features_in_ : int
        Features seen in `fit`."""

METRIC_ATTRIBUTES = """
    metric_ : array, shape (d,) or (d, d)
        Metric of the standardised features: the squared distance of two rows is that of their difference in it. A
        vector is the diagonal; of ones where no map was better than the standardised features, or none was learnt.
    arcsinh_columns_ : array, shape (k,)
        Numbers of the columns that arcsinh maps before they are standardised; empty where none is.
    metric_rounds_ : list of dict
        Kernel, shape, round, width factor and error of every round, and whether it is kept."""

CLASSES = """
    classes_ : array, shape (n_classes,)
        Sorted labels.
    class_prior_ : array, shape (n_classes,)
        Weighted share of each class among the training rows."""


def _with_default(kind: str, default: object) -> str:
    if default is inspect.Parameter.empty or (default is None and "optional" in kind):
        return kind
    return f'{kind}, default "{default}"' if isinstance(default, str) else f"{kind}, default {default!r}"


def documented(cls: C) -> C:
    """Append the sections Parameters and Attributes to the docstring of an estimator of the OROLS family."""
    learns = "metric" in inspect.signature(cls).parameters
    attributes = f"{inspect.cleandoc(ATTRIBUTES)}\n{inspect.cleandoc(METRIC_ATTRIBUTES)}" if learns else ATTRIBUTES
    chooses = inspect.signature(cls).parameters["sigma"].default == "auto"
    return described((_CHOSEN if chooses else _SEARCHED) | (_AUTO_KERNEL if learns else {}), attributes)(cls)


def described(parameters: Mapping[str, str], attributes: str) -> Callable[[C], C]:
    """Return a decorator that appends the sections Parameters and Attributes to a docstring.

    Parameters
    ----------
    parameters : mapping
        Texts by name, in addition to `PARAMETERS` or in place of its texts.
    attributes : str
        Entries of the section Attributes; those of `CLASSES` are added for classifiers.
    """

    def decorate(cls: C) -> C:
        texts = {**PARAMETERS, **parameters}
        sections = [inspect.cleandoc(cls.__doc__ or ""), "", "Parameters", "----------"]
        # Parameters of one method come after the kernel, in whatever order the bases have them.
        own = [name for name in parameters if name not in PARAMETERS]
        order = ["kernel", "sigma", *own, *PARAMETERS]
        for name, parameter in sorted(inspect.signature(cls).parameters.items(), key=lambda item: order.index(item[0])):
            kind, *lines = inspect.cleandoc(texts[name]).splitlines()
            sections += [f"{name} : {_with_default(kind, parameter.default)}", *lines]
        sections += ["", "Attributes", "----------", inspect.cleandoc(attributes)]
        if getattr(cls, "_classification", False):
            sections.append(inspect.cleandoc(CLASSES))
        cls.__doc__ = "\n".join(sections) + "\n"
        return cls

    return decorate

"""Parameters and attributes of the linear methods, described once."""

from __future__ import annotations

SHRINKAGE = """
    float
        Share of the covariance, 0 to 1, that is replaced by a multiple of the identity with the same trace."""

MARGIN_PARAMETER = """
    float
        Every number of b: the target value of the hyperplane's equation for the rows of a class."""

SHARED = {
    "memory_limit": """
        int or str, optional
            Memory that each process with rows may take beside the interpreter's own, in bytes or as in "2GiB"; a
            training that needs more is refused. Rows that are read several times stay in memory where there is room. By
            default most of the free memory here, or of dask's limit for a worker.""",
}

LINEAR_ATTRIBUTES = """
    coef_ : array, shape (d, T)
        Weights of the features, in the caller's units; one column for two classes.
    intercept_ : array, shape (T,)
        Intercepts.
    rank_ : int
        Directions of the feature space that the rows determine; fewer than d for duplicate or constant features.
    plan_ : dict
        Planned bytes of each buffer.
    summary_ : dict
        Counts and peaks of the training.
    n_features_in_ : int
        Features seen in `fit`."""

AUGMENTED = """
    a_ : array, shape (d + 1,) or (d + 1, n_classes)
        Augmented weight vectors, the bias first. For two classes a'(1, x) is above 0 on the side of the first class,
        as in the slides, and so is minus the decision function; for more, one column for each class."""

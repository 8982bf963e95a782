"""The scikit-learn transformer of raw tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from distkern.storage import frame_columns, is_dask_frame, names_of, plain_array, to_numeric, write_model
from distkern.storage.tables.schema import TableSchema

from ...errors import DataError
from .encoded_rows import EncodedRows, encode_training, memory_columns
from .inputs import require_shape
from .parameter_checks import FROM_ZERO, Constraint, one_of, whole

_CONSTRAINTS = {
    "categorical": Constraint("a list of names of columns", lambda names: not isinstance(names, str) and _texts(names)),
    "max_one_hot": whole(0),
    "smoothing": FROM_ZERO,
    "task": one_of("classification", "regression").or_none(),
    "unknown": one_of("warn", "ignore", "error"),
}


def _texts(names: Any) -> bool:
    return isinstance(names, Iterable) and all(isinstance(name, str) for name in names)


class TableEncoder(TransformerMixin, BaseEstimator):
    """Encode raw columns as numbers: categories, gaps, dates, truth values and decimals.

    Categories of up to `max_one_hot` levels get a column for each level, which have one scale together; others get the
    mean target of the rows of their level, smoothed, and for training rows without the rows of their own fold, so
    `fit_transform` is not `fit` and `transform`, as in scikit-learn's `TargetEncoder`. Without targets, or for more
    than 30 classes, they get columns for their most frequent levels and one for all others. Missing numbers become the
    mean, with a column that is 1 for them; missing levels are a level. Dates become days since 1970, and sines and
    cosines of the day, the week and the year, where they vary in these. Text is read as numbers, truth values or dates
    where all its values are such. The estimators do the same by themselves for frames.

    Parameters
    ----------
    categorical : sequence of str, default ()
        Columns that are categories whatever their values are.
    max_one_hot : int, default 32
        Most levels of a category with a column each.
    smoothing : float, default 10.0
        Rows of the mean target that are added to those of a level.
    task : {"classification", "regression"}, optional
        Whether targets are labels or numbers; by default text, bool and integers of at most 100 distinct values are
        labels.
    unknown : {"warn", "ignore", "error"}, default "warn"
        Whether a `TableWarning` or a `DataError` names levels, and gaps, that the training did not have. Such a level
        is none of the known ones, with the mean target; such a gap is filled with the mean.

    Attributes
    ----------
    table_schema_ : TableSchema
        Kinds, levels, fills and statistics of the raw columns.
    n_features_in_ : int
        Number of raw columns.
    feature_names_in_ : array of str
        Names of the raw columns, where they have names.
    """

    def __init__(
        self,
        *,
        categorical: Any = (),
        max_one_hot: int = 32,
        smoothing: float = 10.0,
        task: str | None = None,
        unknown: str = "warn",
    ) -> None:
        self.categorical = categorical
        self.max_one_hot = max_one_hot
        self.smoothing = smoothing
        self.task = task
        self.unknown = unknown

    def __sklearn_tags__(self) -> Any:
        """Declare to scikit-learn that text, categories and gaps are allowed."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn kinds, levels, fills and statistics.

        Parameters
        ----------
        X : frame of pandas, polars, pyarrow or dask, or array-like, shape (n_rows, n_columns)
            Training rows.
        y : array-like, shape (n_rows,) or (n_rows, n_targets), optional
            Targets or labels.
        sample_weight : array-like, shape (n_rows,), optional
            Row weights of the means of targets and numbers; rows of weight zero are absent.

        Returns
        -------
        self

        Raises
        ------
        DataError
            A column cannot be used.
        """
        self._fitted(X, y, sample_weight)
        return self

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Learn the columns, and encode the training rows with target statistics of the other folds.

        Parameters
        ----------
        X : frame of pandas, polars, pyarrow or dask, or array-like, shape (n_rows, n_columns)
            Training rows.
        y : array-like, shape (n_rows,) or (n_rows, n_targets), optional
            Targets or labels.
        sample_weight : array-like, shape (n_rows,), optional
            Row weights of the means of targets and numbers; rows of weight zero are absent.

        Returns
        -------
        array, shape (n_rows, n_encoded)
            Encoded rows, which keep the scales of their columns for the estimators; a dask array for a dask frame.

        Raises
        ------
        DataError
            A column cannot be used.
        """
        rows = self._fitted(X, y, sample_weight)
        return EncodedRows.of(rows, self.table_schema_.scales) if isinstance(rows, np.ndarray) else rows

    def transform(self, X: Any) -> Any:
        """Encode new rows.

        Parameters
        ----------
        X : frame of pandas, polars, pyarrow or dask, or array-like, shape (n_rows, n_columns)
            Rows; the columns of a frame in any order, and others are passed over.

        Returns
        -------
        array, shape (n_rows, n_encoded)
            Encoded rows; a dask array for a dask frame.

        Raises
        ------
        DataError
            ``unknown-column``, ``type-changed``, ``unknown-level`` and the like.
        """
        from distkern.storage.tables.encode import TableEncoding
        from distkern.storage.tables.frames import encoded_table

        check_is_fitted(self)
        made = TableEncoding(self.table_schema_, unknown=self.unknown)
        if is_dask_frame(X):
            from distkern.scheduler.prediction.dask_tables import encoded_frame

            return encoded_frame(X, made)
        table = self._table(X, self.table_schema_.names)
        return EncodedRows.of(encoded_table(made, table), self.table_schema_.scales)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the encoded columns.

        Parameters
        ----------
        input_features : array-like of str, optional
            Names of the raw columns, where these had none.

        Returns
        -------
        array of str, shape (n_encoded,)
        """
        check_is_fitted(self)
        names = _check_feature_names_in(self, input_features)
        columns = zip(self.table_schema_.columns, names, strict=True)
        renamed = TableSchema(tuple(replace(column, name=name) for column, name in columns), self.table_schema_.targets)
        return np.array(renamed.encoded_names, dtype=object)

    def save(self, path: Any, *, overwrite: bool = False) -> None:
        """Write the encoder to a store, which `load_model` reads: plain arrays and JSON, no pickle.

        Parameters
        ----------
        path : path-like
            Directory to make.
        overwrite : bool, default False
            Whether to replace a model at `path`.

        Raises
        ------
        StoreError
            The store exists, or cannot be written.
        """
        check_is_fitted(self)
        named = hasattr(self, "feature_names_in_")
        parameters = {**self.get_params(), "categorical": list(self.categorical)}
        meta = {"estimator": type(self).__name__, "parameters": parameters, "named": named}
        write_model(path, meta, {"table_schema": self.table_schema_.to_bytes()}, overwrite=overwrite)

    @classmethod
    def _of_store(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]], place: str) -> Self:
        """Return the encoder of a store; errors as of `read_estimator`."""
        encoder = cls(**meta["parameters"])
        encoder._check_parameters()
        schema = TableSchema.from_bytes(arrays["table_schema"], place)
        encoder._set(schema, schema.names if meta["named"] else None)
        return encoder

    def _fitted(self, X: Any, y: Any, sample_weight: Any) -> Any:
        """Set the fitted attributes, and return the encoded training rows."""
        self._check_parameters()
        names = names_of(X) if frame_columns(X) is not None or is_dask_frame(X) else None
        y, sample_weight = memory_columns(y=y, sample_weight=sample_weight)
        rows, schema = encode_training(
            X if is_dask_frame(X) else self._table(X, None),
            y,
            sample_weight,
            task=self.task,
            categorical=tuple(self.categorical),
            max_one_hot=self.max_one_hot,
            smoothing=self.smoothing,
        )
        self._set(schema, names)
        return rows

    def _set(self, schema: TableSchema, names: list[str] | None) -> None:
        self.table_schema_ = schema
        self.n_features_in_ = len(schema.columns)
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    @property
    def _n_features_out(self) -> int:
        return self.table_schema_.n_encoded

    def _check_parameters(self) -> None:
        for name, constraint in _CONSTRAINTS.items():
            constraint.check(name, getattr(self, name))

    def _table(self, X: Any, known: list[str] | None) -> Any:
        """Return rows in memory as an Arrow table; columns without names get those that are known."""
        # Commands and workers that need no table load no pyarrow.
        from distkern.storage.tables.frames import array_table, frame_table

        columns = frame_columns(X)
        if columns is not None:
            require_shape(np.broadcast_to(0.0, (len(X), len(columns))), 1)
            if known is None or hasattr(self, "feature_names_in_"):
                return frame_table(X)
            values: list[Any] = [column for _, column in columns]
        else:
            array = plain_array(X, "X")
            require_shape(array, 1)
            if array.dtype.kind not in "OUT":
                array = to_numeric(array, "X")
            objects = array.astype(object) if array.dtype.kind in "UT" else array
            values = [np.ascontiguousarray(objects[:, place]) for place in range(array.shape[1])]
        if known is not None and len(values) != len(known):
            raise DataError(
                f"X has {len(values)} features, but {type(self).__name__} is expecting {len(known)} features as input",
                kind="feature-count",
            )
        return array_table(values, known or [f"x{place}" for place in range(len(values))])

"""Estimators with the scikit-learn interface, and `load_model`, which reads one from a model store."""

from __future__ import annotations

import os
from typing import Any

from distkern.storage import is_run

from .base.kept_sums import read_sums
from .base.persistence import read_estimator
from .base.table_encoder import TableEncoder
from .dense.forward_selection import (
    OLSForwardClassifier,
    OLSForwardRegressor,
    QRForwardClassifier,
    QRForwardRegressor,
)
from .dense.kernel_fisher import KernelFisherDiscriminant
from .dense.kernel_mse import KernelMSEClassifier
from .dense.lssvm import LSSVMClassifier, LSSVMRegressor
from .linear.fisher import FisherDiscriminant
from .linear.ho_kashyap import HoKashyapClassifier
from .linear.mse import MSEClassifier
from .linear.widrow_hoff import WidrowHoffClassifier
from .sparse.grid_search import GridSearch
from .sparse.krls import KRLSClassifier, KRLSRegressor
from .sparse.loo_forward import LOOForwardClassifier
from .sparse.npd import NPDClassifier, NPDRegressor
from .sparse.orols import OROLSClassifier, OROLSRegressor

ESTIMATORS = (
    FisherDiscriminant,
    HoKashyapClassifier,
    KRLSClassifier,
    KRLSRegressor,
    KernelFisherDiscriminant,
    KernelMSEClassifier,
    LOOForwardClassifier,
    LSSVMClassifier,
    LSSVMRegressor,
    MSEClassifier,
    NPDClassifier,
    NPDRegressor,
    OLSForwardClassifier,
    OLSForwardRegressor,
    OROLSClassifier,
    OROLSRegressor,
    QRForwardClassifier,
    QRForwardRegressor,
    WidrowHoffClassifier,
)
"""Classes of the models that a store may hold."""

__all__ = ["ESTIMATORS", "GridSearch", "TableEncoder", "load_model", *(cls.__name__ for cls in ESTIMATORS)]


def load_model(path: str | os.PathLike[str]) -> Any:
    """Read the store of a model, or of a `TableEncoder`, or the sums of a run.

    Parameters
    ----------
    path : path-like
        Directory written by `save`; or a run directory (`run_dir`), whose estimator keeps its path, so that it can
        `append` and `truncate`.

    Returns
    -------
    estimator or TableEncoder
        Fitted, of the saved class.

    Raises
    ------
    StoreError
        There is no model, or it is damaged, incomplete or of a newer format.
    RunError
        ``no-sums``: the run keeps no sums.
    """
    known = {cls.__name__: cls for cls in ESTIMATORS}
    if is_run(path):
        return read_sums(path, known)
    return read_estimator(path, known)

"""Estimators with the scikit-learn interface."""

from .base.persistence import load_model
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

__all__ = ["ESTIMATORS", "GridSearch", "load_model", *(cls.__name__ for cls in ESTIMATORS)]

"""Estimators with the scikit-learn interface."""

from distkern.estimators.fisher import FisherDiscriminant
from distkern.estimators.forward import (
    OLSForwardClassifier,
    OLSForwardRegressor,
    QRForwardClassifier,
    QRForwardRegressor,
)
from distkern.estimators.ho_kashyap import HoKashyapClassifier
from distkern.estimators.kernel_fisher import KernelFisherDiscriminant
from distkern.estimators.kernel_mse import KernelMSEClassifier
from distkern.estimators.krls import KRLSClassifier, KRLSRegressor
from distkern.estimators.loo import LOOForwardClassifier
from distkern.estimators.lssvm import LSSVMClassifier, LSSVMRegressor
from distkern.estimators.mse import MSEClassifier
from distkern.estimators.npd import NPDClassifier, NPDRegressor
from distkern.estimators.orols import OROLSClassifier, OROLSRegressor
from distkern.estimators.persistence import load_model
from distkern.estimators.search import GridSearch
from distkern.estimators.widrow_hoff import WidrowHoffClassifier

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

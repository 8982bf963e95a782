"""Estimators with the scikit-learn interface."""

from distkern.estimators.krls import KRLSClassifier, KRLSRegressor
from distkern.estimators.loo import LOOForwardClassifier
from distkern.estimators.npd import NPDClassifier, NPDRegressor
from distkern.estimators.orols import OROLSClassifier, OROLSRegressor
from distkern.estimators.persistence import load_model
from distkern.estimators.search import GridSearch

ESTIMATORS = (
    KRLSClassifier,
    KRLSRegressor,
    LOOForwardClassifier,
    NPDClassifier,
    NPDRegressor,
    OROLSClassifier,
    OROLSRegressor,
)

__all__ = ["ESTIMATORS", "GridSearch", "load_model", *(cls.__name__ for cls in ESTIMATORS)]

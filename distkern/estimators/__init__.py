"""Estimators with the scikit-learn interface."""

from distkern.estimators.npd import NPDClassifier, NPDRegressor
from distkern.estimators.orols import OROLSClassifier, OROLSRegressor
from distkern.estimators.persistence import load_model

ESTIMATORS = (NPDClassifier, NPDRegressor, OROLSClassifier, OROLSRegressor)

__all__ = ["ESTIMATORS", "NPDClassifier", "NPDRegressor", "OROLSClassifier", "OROLSRegressor", "load_model"]

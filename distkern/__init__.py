"""distkern: out-of-core, distributed training of sparse kernel least-squares models.

``import distkern`` loads neither dask nor zarr; a public name loads its modules when it is first used.
"""

from __future__ import annotations

import importlib
from typing import Any

from . import former_names

__version__ = "0.2.0"

_MODULES = {
    "OROLSRegressor": "distkern.estimators",
    "OROLSClassifier": "distkern.estimators",
    "NPDRegressor": "distkern.estimators",
    "NPDClassifier": "distkern.estimators",
    "LOOForwardClassifier": "distkern.estimators",
    "GridSearch": "distkern.estimators",
    "KRLSRegressor": "distkern.estimators",
    "KRLSClassifier": "distkern.estimators",
    "FisherDiscriminant": "distkern.estimators",
    "MSEClassifier": "distkern.estimators",
    "WidrowHoffClassifier": "distkern.estimators",
    "HoKashyapClassifier": "distkern.estimators",
    "LSSVMRegressor": "distkern.estimators",
    "LSSVMClassifier": "distkern.estimators",
    "KernelFisherDiscriminant": "distkern.estimators",
    "KernelMSEClassifier": "distkern.estimators",
    "QRForwardRegressor": "distkern.estimators",
    "QRForwardClassifier": "distkern.estimators",
    "OLSForwardRegressor": "distkern.estimators",
    "OLSForwardClassifier": "distkern.estimators",
    "TableEncoder": "distkern.estimators",
    "load_model": "distkern.estimators",
    "Dataset": "distkern.storage",
    "open_dataset": "distkern.storage",
    "write_dataset": "distkern.storage",
    "Gaussian": "distkern.kernels",
    "Polynomial": "distkern.kernels",
    "Sigmoid": "distkern.kernels",
    "Linear": "distkern.kernels",
    "Laplacian": "distkern.kernels",
    "Matern": "distkern.kernels",
    "Wendland": "distkern.kernels",
    "Kernel": "distkern.kernels",
    "Progress": "distkern.monitoring.progress",
    "StopReason": "distkern.selection.stopping",
    "DistkernError": "distkern.errors",
    "JobError": "distkern.errors",
    "DataError": "distkern.errors",
    "BudgetError": "distkern.errors",
    "ClusterError": "distkern.errors",
    "RunError": "distkern.errors",
    "StoreError": "distkern.errors",
    "Cancelled": "distkern.errors",
    "DistkernWarning": "distkern.errors",
    "LazyRowsWarning": "distkern.errors",
    "RoundingWarning": "distkern.errors",
    "ScaleWarning": "distkern.errors",
    "TableWarning": "distkern.errors",
}

__all__ = [*_MODULES, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = getattr(importlib.import_module(_MODULES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'distkern' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})


former_names.install()

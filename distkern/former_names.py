"""Modules of earlier versions under their former names, which occur in their pickles and documentation.

Both names import the same module, so its classes are the same too. Covers the modules whose classes are in pickles of
versions 0.1 and 0.2, and those that README and docs of 0.1 import; not the others, which users had no reason to import.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Loader
else:
    Loader = object  # importlib.abc takes 10 ms to import

NEW_NAMES = {
    "distkern.calibration": "distkern.probability.calibration",
    "distkern.estimators.fisher": "distkern.estimators.linear.fisher",
    "distkern.estimators.forward": "distkern.estimators.dense.forward_selection",
    "distkern.estimators.ho_kashyap": "distkern.estimators.linear.ho_kashyap",
    "distkern.estimators.kernel_fisher": "distkern.estimators.dense.kernel_fisher",
    "distkern.estimators.kernel_mse": "distkern.estimators.dense.kernel_mse",
    "distkern.estimators.krls": "distkern.estimators.sparse.krls",
    "distkern.estimators.loo": "distkern.estimators.sparse.loo_forward",
    "distkern.estimators.lssvm": "distkern.estimators.dense.lssvm",
    "distkern.estimators.mse": "distkern.estimators.linear.mse",
    "distkern.estimators.npd": "distkern.estimators.sparse.npd",
    "distkern.estimators.orols": "distkern.estimators.sparse.orols",
    "distkern.estimators.search": "distkern.estimators.sparse.grid_search",
    "distkern.estimators.widrow_hoff": "distkern.estimators.linear.widrow_hoff",
    "distkern.events": "distkern.monitoring.events",
    "distkern.figures": "distkern.monitoring.run_state",
    "distkern.kernel_base": "distkern.kernels.base",
    "distkern.krls": "distkern.methods.krls",
    "distkern.linear_model": "distkern.models.linear_model",
    "distkern.model": "distkern.models.kernel_model",
    "distkern.progress": "distkern.monitoring.progress",
    "distkern.radial_kernels": "distkern.kernels.radial",
    "distkern.scaling": "distkern.numerics.scaling",
    "distkern.scheduler.calibrating": "distkern.scheduler.training.calibration_rows",
    "distkern.scheduler.krls": "distkern.scheduler.passes.krls",
    "distkern.stopping": "distkern.selection.stopping",
    "distkern.storage.blosc_guard": "distkern.storage.io.guarded_reads",
    "distkern.storage.dataset": "distkern.storage.datasets.dataset",
    "distkern.storage.io.blosc_guard": "distkern.storage.io.guarded_reads",
}


class FormerNames(Loader):
    """Finds and loads modules by the names of version 0.1."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the new name of a module as its origin, None where it has only one name."""
        package, _, leaf = fullname.rpartition(".")
        # A module of a package that moved would be found on the path of the package, and loaded twice.
        name = f"{NEW_NAMES[package]}.{leaf}" if package in NEW_NAMES else NEW_NAMES.get(fullname)
        return None if name is None else ModuleSpec(fullname, self, origin=name)

    def create_module(self, spec: ModuleSpec) -> None:
        """Return None: the import system then makes an empty module, which `exec_module` replaces."""

    def exec_module(self, module: ModuleType) -> None:
        """Replace the empty module in `sys.modules` by the module of the new name."""
        assert module.__spec__ is not None
        sys.modules[module.__name__] = import_module(str(module.__spec__.origin))


def install() -> None:
    """Install the finder of the former names for all imports."""
    sys.meta_path.insert(0, FormerNames())

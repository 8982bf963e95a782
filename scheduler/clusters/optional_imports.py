"""Packages that only some kinds of clusters need."""

from __future__ import annotations

import importlib
from types import ModuleType

from distkern.errors import ClusterError


def required(module: str, *, kind: str, extra: str) -> ModuleType:
    """Import a package that a kind of cluster needs.

    Parameters
    ----------
    module : str
        What to import.
    kind : str
        What needs it.
    extra : str
        Extra of distkern that installs it.

    Raises
    ------
    ClusterError
        ``missing-package``: names the extra.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ClusterError(
            f'[cluster] kind = "{kind}" needs a package that is not installed ({error}): '
            f"pip install 'distkern[{extra}]'",
            kind="missing-package",
        ) from error

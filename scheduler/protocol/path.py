"""The path of one problem, the result of selection."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distkern.arrays import Array
from distkern.selection.factors import kernel_weights
from distkern.selection.stopping import StopReason

from .candidates import candidate_numbers


@dataclass(frozen=True)
class Path:
    """The nested path of one problem, and the length of the prefix that the model keeps."""

    n_centers: int
    """Centres to keep."""
    rows: NDArray[np.int64]
    """(m,): row of every centre."""
    widths: NDArray[np.int64]
    """(m,): number of its width, among the widths of the kernel."""
    features: NDArray[Any]
    """(m, d): their raw features."""
    u: Array
    """(m + 1, m + 1): U."""
    s: Array
    """(m + 1,)."""
    z: Array
    """(m + 1, T)."""
    lambdas: Array
    """(m + 1, 1 or T): lambda after each step."""
    gcv: Array
    """(m,): GCV after each step."""
    target_norms: Array
    """(T,): y'y of each centred target."""
    reason: StopReason
    solved: Array | None = None
    """(m + 1, T): weights of all centres that were solved without factors, the intercept on centred targets first; U,
    s and z are then empty, and there are no weights of fewer centres. None, the default, with factors."""
    target_units: tuple[float, ...] | None = None
    """(T,): units in which lambda was chosen for targets of different scale; None, the default, for ones. z,
    target_norms and solved are in those of the user in the result of a training."""

    def in_units(self) -> Path:
        """Return the path with targets in its own units, as in the training; itself where they are ones."""
        return self if self.target_units is None else self._times(1.0 / np.array(self.target_units))

    def in_users_units(self) -> Path:
        """Return the path with targets in the units of the user, the inverse of `in_units`."""
        return self if self.target_units is None else self._times(np.array(self.target_units))

    def _times(self, factors: Array) -> Path:
        """Return the path of targets times `factors`, powers of two, which change no digit."""
        return replace(
            self,
            z=self.z * factors,
            target_norms=self.target_norms * np.square(factors),
            solved=None if self.solved is None else self.solved * factors,
        )

    mu: float | None = None
    """Regularisation in the norm of the kernel's space that U, s and z contain, as rows below those of the data; lambda
    is then 0. None, the default, where they are of the data alone."""
    selected: Path | None = None
    """With mu, the path of the data alone; None by default."""

    def of_data(self) -> Path:
        """Return the path without a penalty in its factors, up to the centres that are kept: what new rows add to."""
        if self.selected is None:
            return self
        path, m, k = self.selected, self.n_centers, self.n_centers + 1
        return replace(
            path,
            n_centers=m,
            rows=path.rows[:m],
            widths=path.widths[:m],
            features=path.features[:m],
            u=path.u[:k, :k],
            s=path.s[:k],
            z=path.z[:k],
            lambdas=path.lambdas[:k],
            gcv=path.gcv[:m],
            reason=self.reason,
        )

    def candidates(self, n_rows: int) -> NDArray[np.int64]:
        """Return the candidate number of every centre in data of `n_rows` rows, shape (m,)."""
        return candidate_numbers(self.rows, self.widths, n_rows)

    def weights(self, count: int) -> Array:
        """Return the first `count` centres' weights, shape (count + 1, T), the intercept on centred targets first."""
        if self.solved is not None:
            assert count == len(self.rows), "there are weights of all centres only"
            return self.solved
        k = count + 1
        return kernel_weights(self.u[:k, :k], self.s[:k], self.z[:k], self.lambdas[count])

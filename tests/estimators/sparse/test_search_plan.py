"""Plans for ``sigma="cv"``: the search, and the model that is trained after it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import distkern as dk
from distkern.errors import BudgetError
from distkern.scheduler import Workload
from tests.markers import variants

SETTINGS = {"sigma": "cv", "folds": 4, "max_centers": 12, "candidates": 32}


def store(folder: Path, rows: int = 450) -> dk.Dataset:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, 4))
    dk.write_dataset(folder / "data.zarr", X, np.sin(X[:, 0]) + X[:, 1] ** 2, chunk_rows=150)
    return dk.open_dataset(folder / "data.zarr")


def work_of(model: dk.OROLSRegressor, rows: dk.Dataset) -> Workload:
    return model.shapes(rows.source())


def fixed(work: Workload, models: int) -> int:
    """Bytes of a training of some models side by side that no scratch can take."""
    side_by_side = dk.OROLSRegressor(**{**SETTINGS, "sigma": "median"}, memory_limit=1 << 20)
    many = Workload(**{**vars(work), "n_problems": models, "memberships": -(-models * 3 // 4)})
    return side_by_side.plan(many, None).needed


def test_all_models_side_by_side_where_they_fit(tmp_path: Path) -> None:
    rows = store(tmp_path)
    model = dk.OROLSRegressor(**SETTINGS, memory_limit="2GiB")
    planned = model.plan(work_of(model, rows), None)
    search, final = planned.processes
    assert search.scratch_bytes == 0
    assert planned.peak == search.total > final.total
    assert planned.record()["search"] == {"models": 40, "at_a_time": 40}
    model.fit(rows)
    assert model.summary_["planned_peak_bytes"] == planned.peak
    assert model.summary_["planned_peak_driver"] == planned.driver_peak


@pytest.mark.parametrize("models", variants([1], [1, 3, 4]))
def test_fewer_side_by_side_in_less_memory_choose_the_same(tmp_path: Path, models: int) -> None:
    rows = store(tmp_path)
    roomy = dk.OROLSRegressor(**SETTINGS).fit(rows)
    work = work_of(roomy, rows)
    model = dk.OROLSRegressor(**SETTINGS, memory_limit=fixed(work, models) + (64 << 10))
    assert model.memory_limit < fixed(work, models + 1) or models == 4
    planned = model.plan(work, None)
    assert planned.search is not None
    assert planned.search["at_a_time"] == models
    model.fit(rows)
    assert model.summary_["planned_peak_bytes"] == planned.peak
    assert model.kernel_ == roomy.kernel_
    np.testing.assert_array_equal(model.coef_, roomy.coef_)


def test_a_search_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    rows = store(tmp_path)
    model = dk.OROLSRegressor(**SETTINGS, memory_limit="512KiB")
    planned = model.plan(work_of(model, rows), None)
    with pytest.raises(BudgetError) as refused:
        planned.require_fit()
    with pytest.raises(BudgetError) as failed:
        model.fit(rows)
    assert str(failed.value) == str(refused.value)


def test_a_width_of_ones_own_is_not_searched_for(tmp_path: Path) -> None:
    rows = store(tmp_path)
    model = dk.OROLSRegressor(**{**SETTINGS, "sigma": 1.0})
    planned = model.plan(work_of(model, rows), None)
    assert planned.search is None
    assert "search" not in planned.record()

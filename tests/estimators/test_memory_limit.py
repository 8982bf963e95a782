"""The parameter `memory_limit` of the estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from distkern import NPDRegressor, OROLSClassifier, OROLSRegressor
from distkern.errors import BudgetError, JobError

X, Y = make_blobs(300, n_features=3, centers=3, random_state=0)


def small(**options: Any) -> OROLSClassifier:
    return OROLSClassifier(**{"sigma": 2.0, "max_centers": 12, "candidates": 32, "panel": 4, **options})


def test_the_model_does_not_depend_on_it() -> None:
    free = small().fit(X, Y)
    least = sum(size for name, size in free.plan_.items() if "_" not in name and name != "baseline")
    assert not any(size for name, size in free.plan_.items() if name.startswith("scratch_"))
    for limit in (least, least + 20_000, "2GiB", np.int64(1 << 30)):
        limited = small(memory_limit=limit).fit(X, Y)
        np.testing.assert_array_equal(limited.coef_, free.coef_)
        np.testing.assert_array_equal(limited.center_indices_, free.center_indices_)
    in_scratch = small(memory_limit=least).fit(X, Y).plan_
    assert not any(size for name, size in in_scratch.items() if name.startswith("resident_"))
    assert sum(in_scratch.values()) == sum(free.plan_.values())


@pytest.mark.parametrize("kind", [OROLSClassifier, OROLSRegressor, NPDRegressor])
def test_too_little_is_refused(kind: Any) -> None:
    with pytest.raises(BudgetError, match=r"the limit is 1\.0 MiB") as error:
        kind(memory_limit="1MiB").fit(X, Y)
    assert error.value.kind == "memory"
    assert error.value.exit_code == 4


@pytest.mark.parametrize("value", [0, -1, "much", "", "-3GiB", True, 1.5, [1], float("nan")])
def test_what_is_no_size_is_refused(value: Any) -> None:
    with pytest.raises(JobError, match="memory_limit") as error:
        small(memory_limit=value).fit(X, Y)
    assert error.value.kind == "invalid-parameter"
    assert repr(value) in str(error.value)

"""Splits, published numbers and verdicts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distkern.errors import DataError, JobError
from reproduction import ENTRIES, Row, Study, Verdict, data_folder, find
from reproduction import published as p
from reproduction.report import binomial_error, compare
from reproduction.sets import OCR, RAETSCH, REGRESSION, RIPLEY, SETS, SetFacts, partitions, scaled_continuous
from reproduction.sinc import draw
from reproduction.widths import folds_of

FOLDER = Path(os.environ.get("DISTKERN_DATA") or Path(__file__).parents[3] / "shared" / "data")
PRESENT = [name for name, facts in SETS.items() if (FOLDER / f"{facts.file}.npz").is_file()]


def save(folder: Path, facts: SetFacts, **arrays: Any) -> None:
    np.savez(folder / f"{facts.file}.npz", **arrays)


# --- published numbers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "evaluations"),
    [("letter", 17888), ("optdigits", 3899), ("pendigits", 1424), ("satimage", 1996), ("usps", 7291)],
)
def test_a_prediction_of_one_vs_rest_asks_every_classifier(name: str, evaluations: int) -> None:
    facts = OCR[name]
    assert p.OCR_OROLS[name].evaluations(facts.n_train, facts.n_classes) == pytest.approx(evaluations, abs=1)


def test_table_5_3_prints_sparsity() -> None:
    assert p.RAETSCH_OROLS["banana"].fraction == 10
    assert p.RAETSCH_OROLS["banana"].evaluations(400) == pytest.approx(40)
    assert p.RAETSCH_NPD["titanic"].fraction == 27
    assert p.Published(1.0).evaluations(100) is None


def test_the_tables_name_the_same_sets() -> None:
    assert p.OCR_OROLS.keys() == p.OCR_NPD.keys() == OCR.keys()
    assert p.OCR_SVM.keys() == OCR.keys()
    for table in (p.RAETSCH_OROLS, p.RAETSCH_NPD, p.RAETSCH_SVM, p.RAETSCH_KFD, p.RAETSCH_OLS):
        assert table.keys() == RAETSCH.keys()
    assert len(RAETSCH) == 13
    for table in (p.REGRESSION_OROLS, p.THESIS_REGRESSION_OROLS, p.THESIS_REGRESSION_NPD, p.REGRESSION_QR):
        assert table.keys() == REGRESSION.keys()
    assert p.LOO.keys() == p.LOO_SIZE_DEVIATION.keys() <= RAETSCH.keys()


def test_sums_of_the_columns() -> None:
    """A digit that is typed wrong changes a sum; these are of the printed tables."""
    sums = {
        "ocr": (p.OCR_OROLS, 17.98, None),
        "ocr npd": (p.OCR_NPD, 18.3, None),
        "raetsch": (p.RAETSCH_OROLS, 189.7, 19.1),
        "raetsch npd": (p.RAETSCH_NPD, 189.2, 19.5),
        "ocr svm": (p.OCR_SVM, 20.08, None),
        "raetsch svm": (p.RAETSCH_SVM, 188.7, 19.3),
        "raetsch kfd": (p.RAETSCH_KFD, 188.6, 19.9),
        "raetsch ols": (p.RAETSCH_OLS, 188.8, 19.6),
        "regression": (p.REGRESSION_OROLS, 12.22, 3.45),
        "thesis": (p.THESIS_REGRESSION_OROLS, 12.24, 3.61),
        "thesis npd": (p.THESIS_REGRESSION_NPD, 12.0, 3.82),
        "qr": (p.REGRESSION_QR, 12.88, 5.96),
        "loo": (p.LOO, 64.54, 10.4),
    }
    for name, (table, means, deviations) in sums.items():
        assert sum(value.mean for value in table.values()) == pytest.approx(means), name
        if deviations is not None:
            assert sum(value.deviation or 0 for value in table.values()) == pytest.approx(deviations), name


def test_the_worked_example_solves_its_equations() -> None:
    y = np.array([[1, 1, 2], [1, 2, 0], [-1, -3, -1], [-1, -2, -3]])
    np.testing.assert_allclose(np.linalg.lstsq(y, np.ones(4), rcond=None)[0], p.MSE_EXAMPLE)


# --- splits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESENT)
def test_partitions_have_the_published_sizes(name: str) -> None:
    facts = SETS[name]
    parts = list(partitions(facts, FOLDER))
    counts = {"boston": 100, "abalone": 10, "raetsch_splice": 10, "raetsch_twonorm": 1, "raetsch_diabetis": 1}
    expected = counts.get(facts.file, 10 if facts.file.startswith("raetsch") else 1)
    assert len(parts) == expected
    for part in parts:
        assert not part.note
        assert (len(part.X), len(part.y), len(part.X_test)) == (facts.n_train, facts.n_train, facts.n_test)
        if facts.n_classes:
            assert len(np.unique(part.y)) == facts.n_classes


def test_random_partitions_are_seeded_and_differ(tmp_path: Path) -> None:
    facts = SetFacts("toy", 30, 10, 0, 5, 3)
    save(tmp_path, facts, X=np.arange(40.0)[:, None], y=np.arange(40))
    first, second = list(partitions(facts, tmp_path)), list(partitions(facts, tmp_path))
    assert len(first) == 3
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one.X, other.X)
        assert sorted(np.concatenate([one.y, one.y_test])) == list(range(40))
    assert not np.array_equal(first[0].X, first[1].X)


def test_a_file_of_another_size_has_a_note(tmp_path: Path) -> None:
    rows = np.zeros((5, 2))
    save(tmp_path, RIPLEY, X_train=rows, y_train=rows[:, 0], X_test=rows, y_test=rows[:, 0])
    (part,) = partitions(RIPLEY, tmp_path)
    assert "5 training and 5 test rows; the published split has 250 and 1000" in part.note


def test_rows_without_targets_are_refused(tmp_path: Path) -> None:
    rows = np.zeros((5, 2))
    save(tmp_path, RIPLEY, X_train=rows, y_train=rows[:4, 0], X_test=rows, y_test=rows[:, 0])
    with pytest.raises(DataError, match="5 and 5 rows of features in a split, and 4 and 5 targets"):
        list(partitions(RIPLEY, tmp_path))


@pytest.mark.parametrize("content", [b"no archive", b"PK\x03\x04 cut off"])
def test_an_unreadable_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "ripley.npz").write_bytes(content)
    with pytest.raises(DataError, match="ripley"):
        list(partitions(RIPLEY, tmp_path))


def test_pickles_and_missing_arrays_are_refused(tmp_path: Path) -> None:
    save(tmp_path, RIPLEY, X=np.array([{}], dtype=object), y=np.zeros(1))
    with pytest.raises(DataError, match="cannot be read"):
        list(partitions(RIPLEY, tmp_path))
    save(tmp_path, RIPLEY, X=np.zeros((3, 2)))
    with pytest.raises(DataError, match="it must hold"):
        list(partitions(RIPLEY, tmp_path))


def test_only_continuous_features_are_scaled(tmp_path: Path) -> None:
    facts = SetFacts("toy", 30, 10, 0, 5, 1)
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 2, 40), rng.normal(5, 3, 40)])
    save(tmp_path, facts, X=X, y=np.arange(40))
    (raw,) = partitions(facts, tmp_path)
    part = scaled_continuous(raw)
    np.testing.assert_array_equal(part.X[:, 0], raw.X[:, 0])
    assert part.X[:, 1].mean() == pytest.approx(0, abs=1e-12)
    assert part.X[:, 1].std() == pytest.approx(1)
    np.testing.assert_allclose(
        part.X_test[:, 1], (raw.X_test[:, 1] - raw.X[:, 1].mean()) / raw.X[:, 1].std(), rtol=1e-12
    )


def test_folds_hold_every_row_out_once() -> None:
    part = draw(0)
    folds = folds_of(part)
    held = np.concatenate([fold.X_test[:, 0] for fold in folds])
    assert sorted(held) == sorted(part.X[:, 0])
    for fold in folds:
        assert len(fold.X) + len(fold.X_test) == len(part.X)
        assert not set(fold.X[:, 0]) & set(fold.X_test[:, 0])


def test_sinc_draws() -> None:
    part = draw(3, 30, 0.0)
    assert (len(part.X), len(part.X_test)) == (30, 1000)
    np.testing.assert_allclose(part.y, np.sin(part.X[:, 0]) / part.X[:, 0])
    np.testing.assert_allclose(part.y_test, np.sin(part.X_test[:, 0]) / part.X_test[:, 0])
    np.testing.assert_array_equal(draw(3, 30, 0.0).X_test, part.X_test)
    assert not np.array_equal(draw(4, 30, 0.0).X, part.X)


# --- verdicts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "published", "error", "published_error", "verdict"),
    [
        (1.0, 2.0, 0.3, 0.3, Verdict.BETTER),
        (1.0, 2.0, 0.3, 0.4, Verdict.EQUAL),
        (2.0, 2.0, 0.0, None, Verdict.EQUAL),
        (2.19, 2.0, 0.1, None, Verdict.EQUAL),
        (2.21, 2.0, 0.1, None, Verdict.WORSE),
        (1.0, 2.0, None, 0.1, Verdict.ONE_PARTITION),
        (2.0, None, 1.0, 1.0, Verdict.NOT_COMPARED),
    ],
)
def test_compare(
    ours: float, published: float | None, error: float | None, published_error: float | None, verdict: Verdict
) -> None:
    assert compare(ours, published, error, published_error) is verdict


def test_rows_compare_themselves() -> None:
    row = Row("set", "OROLS", "% wrong", published=2.0, error=0.5)
    assert row.verdict is Verdict.ABSENT
    assert row.record()["as_good"] is None
    assert Row("set", "OROLS", "%", published=2.0, ours=2.9, error=0.5).record()["as_good"] is True
    assert Row("set", "OROLS", "%", published=2.0, ours=3.1, error=0.5).record()["verdict"] == "worse"
    assert Row("set", "OROLS", "%", published=2.0, ours=1.0, published_error=0.1).record()["as_good"] is None
    assert Row("set", "OROLS", "%", published=2.0, ours=9.0, comparable=False).verdict is Verdict.NOT_COMPARED
    assert Row("set", "MSE", "a", published=-2.0, ours=-2.5, equality=True).verdict is Verdict.WORSE
    assert Row("set", "MSE", "a", published=-2.0, ours=-2.0 + 1e-12, equality=True).verdict is Verdict.EQUAL


def test_binomial_error() -> None:
    assert binomial_error(2.61, 4000) == pytest.approx(0.2521, abs=1e-4)
    assert binomial_error(0.0, 10) == 0


# --- names and the folder --------------------------------------------------------------------------------------------


def test_names() -> None:
    names = [entry.name for entry in ENTRIES]
    assert len(set(names)) == len(names)
    assert [entry.name for entry in find(["all"])] == names
    assert [entry.name for entry in find(["loo-heart", "paper-table-2", "loo-heart"])] == ["paper-table-2", "loo-heart"]
    with pytest.raises(JobError, match="did you mean 'paper-table-2'"):
        find(["paper-table2"])
    with pytest.raises(JobError, match="known are paper-table-2"):
        find(["zzz"])


def test_the_folder_is_given_or_reported_as_missing(tmp_path: Path) -> None:
    assert data_folder(str(tmp_path), {}) == tmp_path
    assert data_folder(None, {"DISTKERN_DATA": str(tmp_path)}) == tmp_path
    with pytest.raises(DataError, match=r"--data DIR or set DISTKERN_DATA"):
        data_folder(None, {})
    with pytest.raises(DataError, match=r"--data is .*nowhere"):
        data_folder(str(tmp_path / "nowhere"), {})
    with pytest.raises(DataError, match=r"DISTKERN_DATA is .*nowhere"):
        data_folder(None, {"DISTKERN_DATA": str(tmp_path / "nowhere")})


def test_a_study_limits_runs_and_does_things_once(tmp_path: Path) -> None:
    facts = SetFacts("toy", 30, 10, 0, 5, 3)
    save(tmp_path, facts, X=np.zeros((40, 1)), y=np.arange(40))
    assert len(Study(tmp_path).partitions(facts)) == 3
    assert len(Study(tmp_path, runs=2).partitions(facts)) == 2
    study = Study(tmp_path, runs=7)
    assert (study.runs(100), study.runs(3)) == (7, 3)
    calls: list[int] = []
    assert [study.once(("a",), lambda: calls.append(1) or len(calls)) for _ in range(3)] == [1, 1, 1]
    assert not Study(None).is_present(facts)

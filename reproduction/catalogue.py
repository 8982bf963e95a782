"""The list of all tables and figures that can be reproduced, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from distkern.errors import JobError
from distkern.text import nearest_or_all

from .illustrations import mse_example, ripley_figure, spirals_figure
from .ocr import ocr_table
from .published import LOO, REGRESSION_OROLS, THESIS_REGRESSION_NPD, THESIS_REGRESSION_OROLS
from .raetsch import loo_table, raetsch_table
from .regression import WIDTH_ONLY, regression_table
from .report import Report
from .sets import OCR, RAETSCH, REGRESSION, RIPLEY, SPIRALS, SetFacts
from .sinc import example_figure, noise_figure, sinc_table, size_figure
from .study import Study

ALL = "all"
"""Name for all entries."""


@dataclass(frozen=True)
class Entry:
    """A table or a figure."""

    name: str
    """Name on the command line."""
    title: str
    """Content and source."""
    sets: tuple[SetFacts, ...]
    """Sets that the entry reads; a set that is not in the folder is listed as absent."""
    run: Callable[[Study], Report]
    """Function that computes the report."""
    is_figure: bool = False
    """Whether the report can be drawn."""


_OCR_SETS, _RAETSCH_SETS, _REGRESSION_SETS = tuple(OCR.values()), tuple(RAETSCH.values()), tuple(REGRESSION.values())

ENTRIES: tuple[Entry, ...] = (
    Entry("paper-table-2", "test errors on five sets, OROLS", _OCR_SETS, partial(ocr_table, methods=("OROLS",))),
    Entry("paper-table-3", "RMSE on the noisy sinc function", (), sinc_table),
    Entry(
        "paper-table-4",
        "mean squared errors on Boston and abalone, OROLS",
        _REGRESSION_SETS,
        partial(regression_table, tables={WIDTH_ONLY: REGRESSION_OROLS, "OROLS": REGRESSION_OROLS}),
    ),
    Entry(
        "paper-figure-1",
        "example fit to the noisy sinc function (thesis, Figure 5.2)",
        (),
        example_figure,
        is_figure=True,
    ),
    Entry("paper-figure-2", "RMSE along the training rows, sinc (thesis, Figure 5.3)", (), size_figure, is_figure=True),
    Entry("paper-figure-3", "RMSE along the noise, sinc (thesis, Figure 5.4)", (), noise_figure, is_figure=True),
    Entry(
        "thesis-table-5.2",
        "test errors on five sets, OROLS and NPD",
        _OCR_SETS,
        partial(ocr_table, methods=("OROLS", "NPD")),
    ),
    Entry("thesis-table-5.3", "test errors on Raetsch's 13 sets, OROLS and NPD", _RAETSCH_SETS, raetsch_table),
    Entry("thesis-table-5.4", "RMSE on the noisy sinc function, the paper's Table 3", (), sinc_table),
    Entry(
        "thesis-table-5.5",
        "mean squared errors on Boston and abalone, OROLS and NPD",
        _REGRESSION_SETS,
        partial(
            regression_table,
            tables={
                WIDTH_ONLY: THESIS_REGRESSION_OROLS,
                "OROLS": THESIS_REGRESSION_OROLS,
                "NPD": THESIS_REGRESSION_NPD,
            },
        ),
    ),
    Entry(
        "thesis-figure-3.2",
        "NPD with ten centres beside the full KFD, Ripley",
        (RIPLEY,),
        ripley_figure,
        is_figure=True,
    ),
    Entry("thesis-figure-5.1", "NPD with 90 and 120 centres, two spirals", (SPIRALS,), spirals_figure, is_figure=True),
    *(
        Entry(
            f"loo-{name.replace('_', '-')}",
            f"forward selection by leave-one-out error, {name.replace('_', ' ')} (slides of Hong, Chen, Harris)",
            (RAETSCH[name],),
            partial(loo_table, name=name),
        )
        for name in LOO
    ),
    Entry("mse-example", "worked example of the slides on minimum squared error", (), mse_example),
)
"""All entries in the order of the sources; the thesis's Figures 5.2 to 5.4 are the paper's 1 to 3."""


def find(names: Sequence[str]) -> list[Entry]:
    """Return the entries of these names, each once, in the order of `ENTRIES`.

    Parameters
    ----------
    names : sequence of str
        Names of entries; `ALL` is the name of all.

    Raises
    ------
    JobError
        A name is unknown; the message has the nearest known name.
    """
    known = [*(entry.name for entry in ENTRIES), ALL]
    for name in names:
        if name not in known:
            raise JobError(
                f"there is no table or figure {name!r}{nearest_or_all(name.lower(), known)}", kind="unknown-entry"
            )
    return [entry for entry in ENTRIES if ALL in names or entry.name in names]

"""The report as one HTML file: no script, no request to any host; for light and dark, small screens and paper."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ..redaction import redact, redact_values
from . import charts, sections
from .evaluation import Evaluation
from .metric import metric_part
from .predictions import test_part
from .record import RunRecord

GENERATOR = "distkern report"
"""Generator in the page, by which the command recognises a report."""


def render_report(
    record: RunRecord,
    *,
    model: Any = None,
    evaluation: Evaluation | None = None,
    planned: Mapping[str, float] | None = None,
    feature_names: Sequence[str] | None = None,
    missing: Sequence[str] = (),
) -> str:
    """Return the page of a run.

    Parameters
    ----------
    record : RunRecord
        The run.
    model : fitted estimator, optional
        The model of the run.
    evaluation : Evaluation, optional
        The model on test rows.
    planned : mapping, optional
        Planned rounds, exchanges, kernel columns and bytes read.
    feature_names : sequence of str, optional
        Feature names of the training data.
    missing : sequence of str, default ()
        Sentences about missing parts.
    """
    # Run directories are written without credentials, but a user may have written one by hand.
    record.job = redact_values(record.job)
    test = None if evaluation is None else test_part(evaluation, record)
    environment = Environment(
        loader=PackageLoader("distkern.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.get_template("report.html")
    # The style sheet is a file of this package.
    style = Markup(environment.get_template("style.css").render())  # noqa: S704
    return template.render(
        generator=GENERATOR,
        style=style,
        title=os.path.basename(record.path),
        record=record,
        now=f"{datetime.now().astimezone():%Y-%m-%d %H:%M %Z}",
        headline=sections.headline(record, test),
        advice=sections.advice(record),
        facts=[(name, redact(text)) for name, text in sections.run_facts(record)],
        jobs=sections.job_tables(record),
        curves=sections.curves(record),
        test=test,
        centers=None if model is None else sections.center_part(model, feature_names),
        metric=metric_part(record, model, feature_names),
        planned=sections.planned_part(record, planned),
        terms=[] if model is None else sections.memory_terms(model),
        appended=sections.appended_part(record),
        timeline=charts.timeline(record),
        phases=sections.phase_table(record),
        incidents=sections.incident_rows(record),
        unlisted=sum(record.incident_counts.values()) - len(record.incidents),
        note=sections.model_note(record, model),
        missing=[redact(text) for text in missing],
    )

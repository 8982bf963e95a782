"""Reports on runs: one HTML file each, from a run directory, its model and its test data."""

from .evaluation import Evaluation, evaluate_model
from .page import GENERATOR, render_report
from .record import RunRecord, read_run

__all__ = ["GENERATOR", "Evaluation", "RunRecord", "evaluate_model", "read_run", "render_report"]

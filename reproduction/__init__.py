"""The sources' tables and figures, with the published protocols and splits."""

from .catalogue import ALL, ENTRIES, Entry, find
from .report import Report, Row, Verdict
from .study import DATA_VARIABLE, Study, data_folder

__all__ = ["ALL", "DATA_VARIABLE", "ENTRIES", "Entry", "Report", "Row", "Study", "Verdict", "data_folder", "find"]

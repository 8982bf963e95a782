"""The sources' tables and figures, with the published protocols and splits."""

from distkern.reproduction.catalogue import ALL, ENTRIES, Entry, find
from distkern.reproduction.report import Report, Row, Verdict
from distkern.reproduction.study import DATA_VARIABLE, Study, data_folder

__all__ = ["ALL", "DATA_VARIABLE", "ENTRIES", "Entry", "Report", "Row", "Study", "Verdict", "data_folder", "find"]

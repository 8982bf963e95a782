"""Tables and figures of the published sources, repeated with the published protocols and splits.

An application of the library: `catalogue` lists the entries, the modules of the sets compute them, `report` compares
the values, ``python -m reproduction`` prints them. The wheel of distkern does not contain it.
"""

from .catalogue import ALL, ENTRIES, Entry, find
from .report import Report, Row, Verdict
from .study import DATA_VARIABLE, Study, data_folder

__all__ = ["ALL", "DATA_VARIABLE", "ENTRIES", "Entry", "Report", "Row", "Study", "Verdict", "data_folder", "find"]

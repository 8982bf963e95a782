"""Progress of a training: on a terminal, in a notebook, or as lines of a log."""

from .display import Display, RunDisplay
from .log_lines import LineDisplay
from .notebook import NotebookDisplay
from .progress import Progress
from .terminal import TerminalDisplay

__all__ = [
    "Display",
    "LineDisplay",
    "NotebookDisplay",
    "Progress",
    "RunDisplay",
    "TerminalDisplay",
]

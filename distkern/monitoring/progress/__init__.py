"""Shows a training while it runs, as suits the place: a terminal, a notebook, or a file that is read later."""

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

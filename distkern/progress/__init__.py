"""Shows a training while it runs, as suits the place: a terminal, a notebook, or a file that is read later."""

from distkern.progress.display import Display, RunDisplay
from distkern.progress.lines import LineDisplay
from distkern.progress.notebook import NotebookDisplay
from distkern.progress.subscriber import Progress
from distkern.progress.terminal import TerminalDisplay

__all__ = [
    "Display",
    "LineDisplay",
    "NotebookDisplay",
    "Progress",
    "RunDisplay",
    "TerminalDisplay",
]

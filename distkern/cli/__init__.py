"""The command line: job files in, results on standard output, progress and logs on standard error.

Commands contain no mathematics and open no store; they call the rooms that do. They import these rooms only when a
command runs, so that ``distkern --help`` is fast.
"""

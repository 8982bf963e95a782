"""The command line: job files in, results on standard output, progress and logs on standard error.

Commands hold no mathematics and open no store themselves; they call the rooms that do, which they import only
once a command runs, so that ``distkern --help`` answers at once.
"""

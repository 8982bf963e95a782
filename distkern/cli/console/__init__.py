"""What reaches the terminal and what comes from it: tables, options, signals."""

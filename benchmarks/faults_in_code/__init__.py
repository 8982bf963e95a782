"""Small faults planted in the code one at a time, and which test catches each.

The faults are data: ``lists/*.toml``, a file a room. `faults` plants them, `selection` finds the tests that may see
one, `campaign` runs them. A test catches a fault if it fails twice with the fault in the code and passes
without.
"""

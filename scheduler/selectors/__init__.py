"""Selection of centres in the driver: problems and their state machines."""

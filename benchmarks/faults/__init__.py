"""A campaign of faults: trainings, predictions and appended rows that meet trouble must end with the same bits."""

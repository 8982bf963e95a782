"""Forward selection of centres: candidates, criteria, factors, lambda, stop rules and final weights."""

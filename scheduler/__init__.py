"""The engine: executors, rounds over a run log, and the driver. The only room that imports dask."""

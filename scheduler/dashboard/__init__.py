"""The page of a training on the dask dashboard."""

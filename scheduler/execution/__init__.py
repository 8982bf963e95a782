"""Executors: how messages reach blocks in this process or on dask workers."""

"""Executors: sending of messages to blocks, in this process or on dask workers."""

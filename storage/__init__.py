"""Stores: datasets, block sources, ingest and models. The only room that imports zarr."""

"""The page of trainings on the dask dashboard."""

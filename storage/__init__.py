"""Stores of datasets, models, predictions and runs; block sources; ingest. The only room that imports zarr."""

from .arrays.blocks import block_boundaries, chunk_rows_for
from .arrays.checks import (
    check_rows_agree,
    check_weights,
    column_name,
    numeric_dtype,
    require_extent,
    require_finite,
    to_numeric,
)
from .arrays.column_names import names_of, require_names
from .arrays.labels import as_targets, plain_labels
from .arrays.lazy import is_dask_frame, is_dask_series
from .arrays.plain import frame_columns, plain_array
from .arrays.rows import is_zarr_array, memory_array
from .arrays.source import BlockSource
from .arrays.wrappers import CountingStore, Fault, FaultyStore, SlowStore
from .datasets.dataset import Dataset, open_dataset
from .datasets.opening import as_source, in_memory, open_array, open_arrays
from .datasets.sources import ArraySource, DatasetSource, ZarrRows, ZarrSource
from .datasets.sparse_source import is_sparse, source_in_memory, sparse_rows
from .datasets.writer import DatasetWriter
from .datasets.writing import write_dataset
from .describe import describe
from .ingest import RowFiles, ingest
from .io.checksums import differing_arrays, rows_checksum
from .io.formats import identify as store_kind
from .io.retries import ReadReport, RetryPolicy, collect_report, note_report, read_patiently
from .io.scratch import ScratchFile
from .io.urls import is_url, place_of
from .models.model_store import check_model_destination, read_model, write_model
from .models.prediction_files import check_prediction_destination, open_predictions
from .models.predictions import Predictions, PredictionWriter, read_predictions
from .runs.event_tail import EventTail
from .runs.journal import Journal
from .runs.records import Driver, driver_of, read_records, recorded
from .runs.run_directory import RunDirectory, is_run, run_exists

__all__ = [
    "ArraySource",
    "BlockSource",
    "CountingStore",
    "Dataset",
    "DatasetSource",
    "DatasetWriter",
    "Driver",
    "EventTail",
    "Fault",
    "FaultyStore",
    "Journal",
    "PredictionWriter",
    "Predictions",
    "ReadReport",
    "RetryPolicy",
    "RowFiles",
    "RunDirectory",
    "ScratchFile",
    "SlowStore",
    "ZarrRows",
    "ZarrSource",
    "as_source",
    "as_targets",
    "block_boundaries",
    "check_model_destination",
    "check_prediction_destination",
    "check_rows_agree",
    "check_weights",
    "chunk_rows_for",
    "collect_report",
    "column_name",
    "describe",
    "differing_arrays",
    "driver_of",
    "frame_columns",
    "in_memory",
    "ingest",
    "is_dask_frame",
    "is_dask_series",
    "is_run",
    "is_sparse",
    "is_url",
    "is_zarr_array",
    "memory_array",
    "names_of",
    "note_report",
    "numeric_dtype",
    "open_array",
    "open_arrays",
    "open_dataset",
    "open_predictions",
    "place_of",
    "plain_array",
    "plain_labels",
    "read_model",
    "read_patiently",
    "read_predictions",
    "read_records",
    "recorded",
    "require_extent",
    "require_finite",
    "require_names",
    "rows_checksum",
    "run_exists",
    "source_in_memory",
    "sparse_rows",
    "store_kind",
    "to_numeric",
    "write_dataset",
    "write_model",
]

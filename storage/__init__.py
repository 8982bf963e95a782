"""Stores: datasets, block sources, ingest and models. The only room that imports zarr."""

from distkern.storage.blocks import block_boundaries, chunk_rows_for
from distkern.storage.checks import (
    check_rows_agree,
    check_weights,
    column_name,
    numeric_dtype,
    require_extent,
    require_finite,
    to_numeric,
)
from distkern.storage.checksums import differing_arrays, rows_checksum
from distkern.storage.dataset import Dataset, open_dataset
from distkern.storage.event_tail import EventTail
from distkern.storage.ingest import ingest
from distkern.storage.journal import Driver, Journal, driver_of, recorded
from distkern.storage.kinds import describe
from distkern.storage.labels import as_targets, plain_labels
from distkern.storage.model_store import check_model_destination, read_model, write_model
from distkern.storage.opening import as_source, open_arrays
from distkern.storage.predictions import (
    Predictions,
    PredictionWriter,
    check_prediction_destination,
    read_predictions,
)
from distkern.storage.remote import is_url, place_of
from distkern.storage.retries import ReadReport, RetryPolicy, collect_report, note_report, read_patiently
from distkern.storage.rows import is_zarr_array, memory_array
from distkern.storage.run_directory import RunDirectory, is_run, run_place
from distkern.storage.scratch import ScratchFile
from distkern.storage.source import BlockSource
from distkern.storage.sources import ArraySource, DatasetSource, ZarrRows, ZarrSource
from distkern.storage.wrappers import CountingStore, Fault, FaultyStore, SlowStore
from distkern.storage.writer import DatasetWriter, write_dataset

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
    "ingest",
    "is_run",
    "is_url",
    "is_zarr_array",
    "memory_array",
    "note_report",
    "numeric_dtype",
    "open_arrays",
    "open_dataset",
    "place_of",
    "plain_labels",
    "read_model",
    "read_patiently",
    "read_predictions",
    "recorded",
    "require_extent",
    "require_finite",
    "rows_checksum",
    "run_place",
    "to_numeric",
    "write_dataset",
    "write_model",
]

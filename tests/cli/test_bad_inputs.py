"""Bad inputs from outside: each ends with the right exit code and names the place, soon, and leaves nothing behind.

A case is what is done to a folder that holds good stores, a command line, its exit code, and words of the message.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from distkern.cli.main import main
from distkern.storage import write_dataset
from tests.cli.command_line import Call, job_text

SECONDS = 10.0

Prepare = Callable[[Path], object]


@dataclass(frozen=True)
class Bad:
    """One thing that goes wrong."""

    command: str
    code: int
    words: tuple[str, ...]
    """All of them stand in the message."""
    prepare: Prepare = lambda folder: None


def text(name: str, content: str | bytes) -> Prepare:
    return lambda folder: (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def job(model: dict[str, Any] | None = None, **sections: dict[str, Any]) -> Prepare:
    document = {
        "data": {"train": "d.zarr"},
        "model": {"max_centers": 5, **(model or {})},
        "output": {"model": "new", "run": "log"},
    }
    return text("job.toml", job_text(**{**document, **sections}))


def arrays(**content: Any) -> Prepare:
    return lambda folder: np.savez(folder / "a.npz", **content)


def npy(content: Any, **options: Any) -> Prepare:
    return lambda folder: np.save(folder / "a.npy", content, **options)


def table(**columns: Any) -> Prepare:
    return lambda folder: pq.write_table(pa.table(columns), folder / "a.parquet")


def both(*steps: Prepare) -> Prepare:
    return lambda folder: [step(folder) for step in steps]


def zarrs(X: Any, y: Any, rows: int | None = None, **options: Any) -> Prepare:
    """Two plain arrays, and a job on them; options are zarr's for X, of which the first rows are written, or all."""

    def prepare(folder: Path) -> None:
        with warnings.catch_warnings():
            # For dtypes that its specification does not name.
            warnings.simplefilter("ignore", zarr.errors.UnstableSpecificationWarning)
            write(folder)
        job(data={"x": "X.zarr", "y": "y.zarr"})(folder)

    def write(folder: Path) -> None:
        for name, values, given in (("X.zarr", X, options), ("y.zarr", y, {})):
            values = np.asarray(values)
            whole = tuple(max(1, length) for length in values.shape)
            stored = zarr.create_array(
                folder / name, shape=values.shape, dtype=values.dtype, **{"chunks": whole, **given}
            )
            if rows is not None and name == "X.zarr":
                stored[:rows] = values[:rows]
            elif values.size:
                stored[...] = values

    return prepare


def edited(path: str, change: Callable[[Any], object]) -> Prepare:
    """Change what a JSON file says."""

    def prepare(folder: Path) -> None:
        document = json.loads((folder / path).read_text())
        change(document)
        (folder / path).write_text(json.dumps(document))

    return prepare


def cut(path: str, keep: float) -> Prepare:
    """Keep the first part of a file's bytes."""

    def prepare(folder: Path) -> None:
        content = (folder / path).read_bytes()
        (folder / path).write_bytes(content[: int(keep * len(content))])

    return prepare


def without(path: str) -> Prepare:
    def prepare(folder: Path) -> None:
        place = folder / path
        shutil.rmtree(place) if place.is_dir() else place.unlink()

    return prepare


def forged(name: str, change: Callable[[Any], Any]) -> Prepare:
    """Change an array of the model, with everything that describes it."""

    def prepare(folder: Path) -> None:
        file = folder / "m.model" / f"{name}.npy"
        values = change(np.load(file))
        np.save(file, values)
        description = folder / "m.model" / "model.json"
        document = json.loads(description.read_text())
        document["arrays"][name] |= {
            "shape": list(values.shape),
            "dtype": values.dtype.str,
            "sha256": sha256(file.read_bytes()).hexdigest(),
        }
        description.write_text(json.dumps(document))

    return prepare


def corrupted(folder: Path) -> None:
    """Change a byte in the middle of a chunk."""
    file = chunk_file(folder, "d.zarr/X")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(bytes(content))


def with_nan(values: Any) -> Any:
    values = values.copy()
    values.flat[1] = np.nan
    return values


def chunk_file(folder: Path, array: str) -> Path:
    return next(path for path in sorted((folder / array / "c").rglob("*")) if path.is_file())


X, LABELS = np.arange(24.0).reshape(12, 2) ** 1.5, np.arange(12) % 2
HOLE = np.where(np.arange(24).reshape(12, 2) == 7, np.nan, X)
RECORDS = np.zeros(12, dtype=[("a", "f8"), ("b", "i4")])
ROWS = "".join(f"{i},{i * i},{'ab'[i % 2]}\n" for i in range(12))
MANY = "".join(f"{i},{i},{'pq'[i % 2]}\n" for i in range(40))
"""Rows of more numbers than a category may have levels of its own."""

INGEST = "ingest {} --target y --out new"
CSV, NPZ, NPY, PARQUET = (INGEST.format(f"a.{kind}") for kind in ("csv", "npz", "npy", "parquet"))
NPZ = "ingest a.npz --out new"
SVM = "ingest a.svm --out new"
TRAIN = "train job.toml"
PREDICT = "predict m.model d.zarr --out new"
EVALUATE = "evaluate m.model d.zarr"

COMMANDS: dict[str, Bad] = {
    "no such command": Bad("trian job.toml", 2, ("No such command", "trian")),
    "no arguments to train": Bad("train", 2, ("Missing argument", "JOB")),
    "an unknown flag": Bad("train job.toml --bogus", 2, ("No such option", "--bogus")),
    "--set without a value": Bad(
        "train job.toml --set model.sigma", 2, ("--set model.sigma", "section.key=value"), job()
    ),
    "--set of an unknown key": Bad("train job.toml --set model.sgima=2", 2, ("sgima", "'sigma'"), job()),
    "--set out of range": Bad("train job.toml --set model.max_centers=0", 2, ("max_centers = 0", "above 0"), job()),
    "--workers that is no number": Bad("train job.toml --workers two", 2, ("--workers", "two"), job()),
    "--workers and --scheduler": Bad(
        "train job.toml --workers 2 --scheduler tcp://127.0.0.1:1", 2, ("exclude each other",), job()
    ),
    "--memory that is no size": Bad("train job.toml --memory plenty", 2, ("plenty", "2GiB"), job()),
    "--memory too small for anything": Bad("train job.toml --memory 1KB", 4, ("memory", "1000 B"), job()),
    "--chunk-rows of zero": Bad(f"{CSV} --chunk-rows 0", 2, ("--chunk-rows", "0"), text("a.csv", "a,b,y\n" + ROWS)),
    "--missing of no kind": Bad(f"{CSV} --missing guess", 2, ("--missing", "guess"), text("a.csv", "a,b,y\n" + ROWS)),
    "--task of no kind": Bad(f"{CSV} --task rank", 2, ("--task", "rank"), text("a.csv", "a,b,y\n" + ROWS)),
    "--part of no kind": Bad(f"{NPZ} --part both", 2, ("--part", "both"), arrays(X=X, y=LABELS)),
    "--part of a CSV file": Bad(f"{CSV} --part test", 2, ("--part", "csv"), text("a.csv", "a,b,y\n" + ROWS)),
    "--delimiter of two characters": Bad(
        f"{CSV} --delimiter ;;", 2, ("delimiter", ";;"), text("a.csv", "a,b,y\n" + ROWS)
    ),
    "--delimiter that is no ASCII": Bad(f"{CSV} --delimiter é", 2, ("delimiter", "é"), text("a.csv", "aéy\n1é2\n")),
    "--delimiter that is a quote": Bad(f'{CSV} --delimiter "', 2, ("delimiter", "quote"), text("a.csv", "a,y\n1,2\n")),
    "--proba of a regression": Bad("predict r.model r.zarr --out new --proba", 2, ("--proba", "classifier")),
}

JOBS: dict[str, Bad] = {
    "no job file": Bad("train none.toml", 2, ("none.toml",)),
    "a directory as job file": Bad("train d.zarr", 2, ("d.zarr", "directory")),
    "no TOML": Bad(TRAIN, 2, ("job.toml", "line 2"), text("job.toml", "[data]\ntrain = = 3\n")),
    "a TOML file cut short": Bad(TRAIN, 2, ("job.toml", "line 2"), text("job.toml", '[data]\ntrain = "d.za')),
    "no text": Bad(TRAIN, 2, ("job.toml", "line 2", "UTF-8"), text("job.toml", b"[data]\ntrain = '\xff\xfe'\n")),
    "a NUL byte": Bad(TRAIN, 2, ("job.toml", "line 2"), text("job.toml", '[data]\ntrain = "d\0.zarr"\n')),
    "one key twice": Bad(TRAIN, 2, ("job.toml", "line 3"), text("job.toml", '[data]\ntrain="a"\ntrain="b"\n')),
    "nesting without end": Bad(TRAIN, 2, ("job.toml",), text("job.toml", "a = " + "[" * 50_000)),
    "an empty job file": Bad(TRAIN, 2, ("[data] is missing", "train"), text("job.toml", "")),
    "an unknown section": Bad(TRAIN, 2, ("[modle]", "'model'"), job(modle={"sigma": 2})),
    "an unknown key": Bad(TRAIN, 2, ("'sigmma'", "[model]", "'sigma'"), job({"sigmma": 2})),
    "a section that is a value": Bad(
        TRAIN, 2, ("cluster = 3", "table"), text("job.toml", 'cluster = 3\n[data]\ntrain="a"')
    ),
    "a section that is a list": Bad(TRAIN, 2, ("data", "table"), text("job.toml", '[[data]]\ntrain = "d.zarr"\n')),
    "text for a number": Bad(TRAIN, 2, ('max_centers = "5"', "whole number"), job({"max_centers": "5"})),
    "a negative width": Bad(TRAIN, 2, ("sigma = -1", "above 0"), job({"sigma": -1})),
    "a width that is not finite": Bad(
        TRAIN, 2, ("sigma", "above 0"), text("job.toml", "[data]\ntrain='d.zarr'\n[model]\nsigma=nan")
    ),
    "a width of no rule": Bad(TRAIN, 2, ("sigma", "mean", "median"), job({"sigma": "mean"})),
    "a kernel table of an unknown name": Bad(
        TRAIN, 2, ("gausian", "gaussian"), text("job.toml", "[data]\ntrain='d.zarr'\n[model]\nkernel={name='gausian'}")
    ),
    "a job without data": Bad(TRAIN, 2, ("[data] is missing", "train"), text("job.toml", "[model]\nsigma = 2.0\n")),
    "data that names nothing": Bad(TRAIN, 2, ("name the training data",), job(data={})),
    "an unknown method": Bad(TRAIN, 2, ('method = "svm"', "orols"), job({"method": "svm"})),
    "an unknown kernel": Bad(TRAIN, 2, ("gausian", "gaussian"), job({"kernel": "gausian"})),
    "a kernel's unknown parameter": Bad(
        TRAIN,
        2,
        ("polynomial", "'degre'", "'degree'"),
        text("job.toml", "[data]\ntrain='d.zarr'\n[model]\nkernel={name='polynomial', degre=2}"),
    ),
    "a criterion of no kind": Bad(
        TRAIN, 2, ("criterion", "residuals", "error-reduction"), job({"criterion": "residuals"})
    ),
    "an integer of ten thousand digits": Bad(
        TRAIN,
        2,
        ("job.toml", "digits"),
        text("job.toml", "[data]\ntrain='d.zarr'\n[model]\nmax_centers=" + "9" * 10_000),
    ),
    "x without y": Bad(TRAIN, 2, ("x needs y",), job(data={"x": "X.zarr"})),
    "train beside x and y": Bad(TRAIN, 2, ("exclude",), job(data={"train": "d.zarr", "x": "X.zarr", "y": "y.zarr"})),
    "an empty path": Bad(TRAIN, 2, ('train = ""', "path"), job(data={"train": ""})),
    "training data that is not there": Bad(TRAIN, 3, ("none.zarr",), job(data={"train": "none.zarr"})),
    "test data that is not there": Bad(TRAIN, 3, ("none.zarr",), job(data={"train": "d.zarr", "test": "none.zarr"})),
    "test data of another width": Bad(
        TRAIN, 3, ("r.zarr", "3 features", "2"), job(data={"train": "d.zarr", "test": "r.zarr"})
    ),
    "a regression of class labels": Bad(
        TRAIN, 3, ("class labels", "classifier"), job(data={"train": "d.zarr", "task": "regression"})
    ),
    "an output inside the data": Bad(TRAIN, 2, ("d.zarr", "inside"), job(output={"model": "d.zarr/model"})),
    "one output inside another": Bad(TRAIN, 2, ("inside", "run"), job(output={"model": "new", "run": "new/run"})),
    "an output that exists": Bad(TRAIN, 6, ("m.model", "overwrite"), job(output={"model": "m.model"})),
    "an output that is something else": Bad(
        "train job.toml --overwrite",
        6,
        ("notes.txt",),
        both(text("notes.txt", "mine"), job(output={"model": "notes.txt"})),
    ),
    "an output below a file": Bad(
        TRAIN, 6, ("notes.txt",), both(text("notes.txt", "mine"), job(output={"model": "notes.txt/model"}))
    ),
    "a run that exists": Bad(
        TRAIN, 6, ("old", "overwrite"), both(lambda f: (f / "old").mkdir(), job(output={"run": "old"}))
    ),
    "a scheduler that is not there": Bad(
        TRAIN, 5, ("tcp://127.0.0.1:9", "scheduler"), job(cluster={"scheduler": "tcp://127.0.0.1:9"})
    ),
    "a scheduler's address that is none": Bad(TRAIN, 5, ("nowhere",), job(cluster={"scheduler": "nowhere"})),
}

DATASETS: dict[str, Bad] = {
    "a file instead of a dataset": Bad(
        TRAIN, 3, ("a.csv", ".csv file"), both(text("a.csv", "a,y\n"), job(data={"train": "a.csv"}))
    ),
    "a model instead of a dataset": Bad(TRAIN, 3, ("m.model", "a distkern model"), job(data={"train": "m.model"})),
    "an empty directory": Bad(
        TRAIN, 3, ("void", "directory"), both(lambda f: (f / "void").mkdir(), job(data={"train": "void"}))
    ),
    "a plain array instead of a dataset": Bad(
        TRAIN, 3, ("d.zarr/X", "zarr array"), job(data={"train": "d.zarr/X"}, output={"model": "new"})
    ),
    "metadata cut short": Bad(TRAIN, 3, ("d.zarr",), both(cut("d.zarr/zarr.json", 0.5), job())),
    "metadata of an array cut short": Bad(TRAIN, 3, ("d.zarr",), both(cut("d.zarr/X/zarr.json", 0.5), job())),
    "a dataset of a newer format": Bad(
        TRAIN,
        3,
        ("d.zarr", "version 99", "upgrade"),
        both(edited("d.zarr/zarr.json", lambda d: d["attributes"]["distkern"].update(format_version=99)), job()),
    ),
    "a dataset that was never finished": Bad(
        TRAIN,
        3,
        ("d.zarr", "not written to its end"),
        both(edited("d.zarr/zarr.json", lambda d: d["attributes"]["distkern"].update(complete=False)), job()),
    ),
    "a dataset without y": Bad(TRAIN, 3, ("d.zarr", "y"), both(without("d.zarr/y"), job())),
    "a missing chunk": Bad(
        TRAIN, 3, ("chunk", "X", "d.zarr"), both(lambda f: chunk_file(f, "d.zarr/X").unlink(), job())
    ),
    "a chunk cut short": Bad(
        TRAIN, 3, ("X", "d.zarr"), both(lambda f: cut(str(chunk_file(f, "d.zarr/X").relative_to(f)), 0.3)(f), job())
    ),
    "a chunk with a byte that changed": Bad(TRAIN, 3, ("chunk", "X", "d.zarr"), both(corrupted, job())),
    "an existing store as output of ingest": Bad(
        "ingest a.csv --target y --out d.zarr", 3, ("d.zarr", "overwrite"), text("a.csv", "a,b,y\n" + ROWS)
    ),
    "nothing to describe": Bad("info none", 3, ("none",)),
    "something unknown to describe": Bad("info notes.txt", 3, ("notes.txt",), text("notes.txt", "mine")),
}

ZARRS: dict[str, Bad] = {
    "NaN in X, odd chunks": Bad(TRAIN, 3, ("X holds NaN", "row 3", "column 1"), zarrs(HOLE, LABELS, chunks=(5, 1))),
    "NaN in X behind a shard": Bad(
        TRAIN, 3, ("X holds NaN", "row 3", "column 1"), zarrs(HOLE, LABELS, chunks=(2, 2), shards=(6, 2))
    ),
    "NaN as fill value of chunks that are absent": Bad(
        TRAIN, 3, ("X holds NaN", "row 4"), zarrs(X, LABELS, rows=4, chunks=(4, 2), fill_value=np.nan)
    ),
    "X without rows": Bad(TRAIN, 3, ("X has 0 rows",), zarrs(X[:0], LABELS[:0], chunks=(1, 2))),
    "X without columns": Bad(TRAIN, 3, ("X has 0 features",), zarrs(X[:, :0], LABELS, chunks=(12, 1))),
    "X of one dimension": Bad(TRAIN, 3, ("X has shape (24,)", "two dimensions"), zarrs(X.ravel(), LABELS)),
    "X of three dimensions": Bad(TRAIN, 3, ("X has shape (12, 2, 1)",), zarrs(X[:, :, None], LABELS)),
    "y of another length": Bad(TRAIN, 3, ("X has 12 rows", "y has 11"), zarrs(X, LABELS[1:])),
    "y of three dimensions": Bad(TRAIN, 3, ("y has shape",), zarrs(X, LABELS[:, None, None])),
    "y that is one number": Bad(TRAIN, 3, ("y has shape ()",), zarrs(X, np.float64(3.0))),
    "complex X": Bad(TRAIN, 3, ("X has dtype complex128",), zarrs(X + 1j, LABELS)),
    "dates in X": Bad(TRAIN, 3, ("X has dtype datetime64",), zarrs(X.astype("datetime64[s]"), LABELS)),
    "text in X": Bad(TRAIN, 3, ("X has dtype", "U"), zarrs(X.astype("U8"), LABELS)),
    "records in X": Bad(TRAIN, 3, ("X",), zarrs(RECORDS, LABELS)),
    "complex y": Bad(TRAIN, 3, ("y has dtype complex128",), zarrs(X, LABELS + 1j)),
    "dates in y": Bad(TRAIN, 3, ("y has dtype datetime64",), zarrs(X, LABELS.astype("datetime64[s]"))),
    "NaN in y": Bad(TRAIN, 3, ("y holds NaN", "row 3"), zarrs(X, HOLE[:, 1])),
    "infinity in y": Bad(TRAIN, 3, ("y holds inf", "row 3"), zarrs(X, np.where(np.isnan(HOLE[:, 1]), np.inf, 1.0))),
    "one class in y": Bad(TRAIN, 3, ("one class", "7"), zarrs(X, np.full(12, 7))),
    "x that is a group": Bad(TRAIN, 3, ("d.zarr", "dataset"), job(data={"x": "d.zarr", "y": "d.zarr/y"})),
    "x that is a file": Bad(
        TRAIN, 3, ("a.csv", "file"), both(text("a.csv", "a"), job(data={"x": "a.csv", "y": "d.zarr/y"}))
    ),
    "x that is not there": Bad(TRAIN, 3, ("none",), job(data={"x": "none", "y": "d.zarr/y"})),
    "metadata that is no array's": Bad(
        TRAIN, 3, ("X.zarr",), both(zarrs(X, LABELS), edited("X.zarr/zarr.json", lambda d: d.update(shape="many")))
    ),
    "an unknown codec": Bad(
        TRAIN,
        3,
        ("X.zarr",),
        both(zarrs(X, LABELS), edited("X.zarr/zarr.json", lambda d: d["codecs"].append({"name": "magic"}))),
    ),
}

MODELS: dict[str, Bad] = {
    "no model": Bad("predict none.model d.zarr --out new", 6, ("none.model",)),
    "a dataset as model": Bad("predict d.zarr d.zarr --out new", 6, ("d.zarr", "a distkern dataset")),
    "a file as model": Bad("predict notes.txt d.zarr --out new", 6, ("notes.txt", "file"), text("notes.txt", "mine")),
    "a model without description": Bad(PREDICT, 6, ("m.model", "model.json"), without("m.model/model.json")),
    "a description cut short": Bad(PREDICT, 6, ("m.model", "JSON"), cut("m.model/model.json", 0.5)),
    "a description of something else": Bad(PREDICT, 6, ("m.model",), text("m.model/model.json", "[1, 2]")),
    "a model of a newer format": Bad(
        PREDICT,
        6,
        ("m.model", "version 99", "upgrade"),
        edited("m.model/model.json", lambda d: d.update(format_version=99)),
    ),
    "an array that is missing": Bad(PREDICT, 6, ("coef.npy",), without("m.model/coef.npy")),
    "an array cut short": Bad(EVALUATE, 6, ("coef.npy", "bytes"), cut("m.model/coef.npy", 0.9)),
    "an array of another shape": Bad(PREDICT, 6, ("coef",), forged("coef", lambda a: a[:-1])),
    "more centres than rows of numbers": Bad(
        PREDICT, 6, ("center_indices",), forged("center_indices", lambda a: a[:-1])
    ),
    "centres of another width": Bad(PREDICT, 6, ("feature_shift",), forged("centers", lambda a: a[:, :1])),
    "a scale of another width": Bad(PREDICT, 6, ("feature_scale",), forged("feature_scale", lambda a: a[:1])),
    "NaN among the weights": Bad(PREDICT, 6, ("coef",), forged("coef", with_nan)),
    "NaN among the centres": Bad(PREDICT, 6, ("centers",), forged("centers", with_nan)),
    "infinity among the intercepts": Bad(PREDICT, 6, ("intercept",), forged("intercept", lambda a: a + np.inf)),
    "a scale of zero": Bad(PREDICT, 6, ("feature_scale",), forged("feature_scale", np.zeros_like)),
    "text among the weights": Bad(PREDICT, 6, ("coef",), forged("coef", lambda a: a.astype("U8"))),
    "fewer classes than weights": Bad(PREDICT, 6, ("classes",), forged("classes", lambda a: a[:1])),
    "a width of zero": Bad(
        PREDICT,
        6,
        ("m.model", "sigma"),
        edited("m.model/model.json", lambda d: d["meta"]["kernel"]["parameters"].update(sigma=0)),
    ),
    "an estimator of no kind": Bad(
        PREDICT, 6, ("m.model", "Oracle"), edited("m.model/model.json", lambda d: d["meta"].update(estimator="Oracle"))
    ),
    "a number of features that is none": Bad(
        PREDICT,
        6,
        ("m.model", "n_features"),
        edited("m.model/model.json", lambda d: d["meta"].update(n_features=77)),
    ),
    "data of another width": Bad("predict m.model r.zarr --out new", 3, ("r.zarr", "3 features", "2")),
    "data of another width, evaluated": Bad("evaluate m.model r.zarr", 3, ("r.zarr", "3 features", "2")),
    "no data to predict": Bad("predict m.model none.zarr --out new", 3, ("none.zarr",)),
    "predictions that exist": Bad("predict m.model d.zarr --out p.zarr", 3, ("p.zarr", "overwrite")),
    "predictions over data": Bad("predict m.model d.zarr --out r.zarr --overwrite", 3, ("r.zarr",)),
}

FILES: dict[str, Bad] = {
    "no source": Bad("ingest none.csv --target y --out new", 3, ("none.csv",)),
    "a source of no known kind": Bad(
        "ingest notes.txt --target y --out new", 3, ("notes.txt", ".txt"), text("notes.txt", "a")
    ),
    "a folder as source": Bad("ingest d.zarr --target y --out new", 3, ("d.zarr", "not a file")),
    "sources of two kinds": Bad(
        "ingest a.csv a.svm --target y --out new",
        2,
        ("csv", "svmlight"),
        both(text("a.csv", "a,y\n"), text("a.svm", "1 1:1\n")),
    ),
    "CSV: nothing": Bad(CSV, 3, ("a.csv", "empty"), text("a.csv", "")),
    "CSV: empty lines": Bad(CSV, 3, ("a.csv", "empty"), text("a.csv", "\n\n\r\n")),
    "CSV: only a header": Bad(CSV, 3, ("a.csv", "no rows"), text("a.csv", "a,b,y\n")),
    "CSV: no such target": Bad(CSV, 3, ("'y'", "'yy'"), text("a.csv", "a,b,yy\n" + ROWS)),
    "CSV: no target named": Bad("ingest a.csv --out new", 3, ("--target",), text("a.csv", "a,b,y\n" + ROWS)),
    "CSV: only a target": Bad(CSV, 3, ("no column besides the target",), text("a.csv", "y\n1\n2\n")),
    "CSV: two columns of one name": Bad(CSV, 3, ("more than one column 'a'",), text("a.csv", "a,a,y\n" + ROWS)),
    "CSV: too many values": Bad(CSV, 3, ("row 2", "4 values"), text("a.csv", "a,b,y\n1,2,p\n1,2,q,3\n")),
    "CSV: too few values": Bad(CSV, 3, ("row 2", "2 values"), text("a.csv", "a,b,y\n1,2,p\n1,q\n")),
    "CSV: a separator at the end of lines": Bad(
        CSV, 3, ("row 1", "4 values"), text("a.csv", "a,b,y\n1,2,p,\n1,2,q,\n")
    ),
    "CSV: text among numbers": Bad(CSV, 3, ("'b'", "'two'", "row 2"), text("a.csv", f"a,b,y\n1,2,p\n1,two,q\n{MANY}")),
    "CSV: hexadecimal": Bad(CSV, 3, ("'b'", "'0x10'", "row 2"), text("a.csv", f"a,b,y\n1,2,p\n1,0x10,q\n{MANY}")),
    "CSV: digits of another script": Bad(CSV, 3, ("'b'", "row 2"), text("a.csv", f"a,b,y\n1,2,p\n1,٣,q\n{MANY}")),
    "CSV: a comma for the point": Bad(CSV, 3, ("row 1", "4 values"), text("a.csv", "a,b,y\n1,2,5,p\n")),
    "CSV: 1e400": Bad(CSV, 3, ("'b'", "row 2", "infinite"), text("a.csv", "a,b,y\n1,2,p\n1,1e400,q\n")),
    "CSV: infinity": Bad(CSV, 3, ("'b'", "row 2", "infinite"), text("a.csv", "a,b,y\n1,2,p\n1,-inf,q\n")),
    "CSV: a hole": Bad(
        f"{CSV} --missing error", 3, ("'b'", "row 2", "--missing"), text("a.csv", "a,b,y\n1,2,p\n1,,q\n")
    ),
    "CSV: a hole in the target": Bad(CSV, 3, ("the target", "row 2"), text("a.csv", "a,b,y\n1,2,p\n1,3,\n")),
    "CSV: a column of holes": Bad(
        f"{CSV} --missing mean", 3, ("'b'", "no value"), text("a.csv", "a,b,y\n1,,p\n2,,q\n")
    ),
    "CSV: all rows dropped": Bad(f"{CSV} --missing drop", 3, ("row",), text("a.csv", "a,b,y\n1,,p\n2,,q\n")),
    "CSV: one class": Bad(CSV, 3, ("one class", "'p'"), text("a.csv", "a,b,y\n1,2,p\n3,4,p\n")),
    "CSV: labels for a regression": Bad(
        f"{CSV} --task regression", 3, ("y", "labels"), text("a.csv", "a,b,y\n" + ROWS)
    ),
    "CSV: another separator": Bad(CSV, 3, ("'y'", "--delimiter"), text("a.csv", "a;b;y\n1;2;p\n")),
    "CSV: not UTF-8": Bad(CSV, 3, ("a.csv",), text("a.csv", b"a,b,y\n1,2,\xff\xfe\n3,4,q\n")),
    "CSV: NUL bytes": Bad(CSV, 3, ("'b'", "row 1", r"\x00"), text("a.csv", f"a,b,y\n1,\0,p\n3,4,q\n{MANY}")),
    "CSV: a quote that never ends": Bad(
        CSV, 3, ("'y'", "line break", "row 1"), text("a.csv", 'a,b,y\n1,2,"p\n3,4,q\n')
    ),
    "CSV: no gzip": Bad("ingest a.csv.gz --target y --out new", 3, ("a.csv.gz",), text("a.csv.gz", "a,b,y\n" + ROWS)),
    "CSV: gzip cut short": Bad(
        "ingest a.csv.gz --target y --out new",
        3,
        ("a.csv.gz",),
        text("a.csv.gz", gzip.compress(("a,b,y\n" + ROWS * 99).encode())[:90]),
    ),
    "CSV: other columns in a second file": Bad(
        "ingest a.csv b.csv --target y --out new",
        3,
        ("'b'", "b.csv"),
        both(text("a.csv", "a,b,y\n" + ROWS), text("b.csv", "a,y\n1,p\n")),
    ),
    "CSV: the target dropped": Bad(f"{CSV} --drop y", 3, ("'y'",), text("a.csv", "a,b,y\n" + ROWS)),
    "svmlight: nothing": Bad(SVM, 3, ("a.svm", "no rows"), text("a.svm", "")),
    "svmlight: labels only": Bad(SVM, 3, ("a.svm", "no features"), text("a.svm", "1\n-1\n")),
    "svmlight: text": Bad(SVM, 3, ("a.svm", "line 2"), text("a.svm", "1 1:2\nspam\n")),
    "svmlight: indices that fall": Bad(SVM, 3, ("a.svm", "line 2"), text("a.svm", "1 1:2\n-1 3:1 2:1\n")),
    "svmlight: a negative index": Bad(SVM, 3, ("a.svm", "line 2"), text("a.svm", "1 1:2\n-1 -3:1\n")),
    "svmlight: an index beyond all memory": Bad(
        SVM, 3, ("a.svm", "2147483646", "2097152"), text("a.svm", "1 1:2\n-1 2147483646:1\n")
    ),
    "svmlight: an index beyond all integers": Bad(
        SVM, 3, ("a.svm", "line 2"), text("a.svm", "1 1:2\n-1 99999999999999999999:1\n")
    ),
    "svmlight: NaN": Bad(SVM, 3, ("row 1", "column '1'"), text("a.svm", "1 1:nan\n-1 1:2\n")),
    "svmlight: 1e400": Bad(SVM, 3, ("row 2", "infinite"), text("a.svm", "1 1:3\n-1 1:1e400\n")),
    "svmlight: one class": Bad(SVM, 3, ("one class", "1"), text("a.svm", "1 1:2\n1 1:3\n")),
    "svmlight: several labels": Bad(SVM, 3, ("a.svm", "line 1"), text("a.svm", "1,2 1:3\n-1 1:1\n")),
    "npz: no archive": Bad(NPZ, 3, ("a.npz",), text("a.npz", "spam")),
    "npz: an archive cut short": Bad(NPZ, 3, ("a.npz",), both(arrays(X=X, y=LABELS), cut("a.npz", 0.6))),
    "npz: no y": Bad(NPZ, 3, ("'y'", "X"), arrays(X=X)),
    "npz: two parts": Bad(NPZ, 2, ("--part",), arrays(X_train=X, y_train=LABELS, X_test=X, y_test=LABELS)),
    "npz: rows that differ": Bad(NPZ, 3, ("12 rows", "11"), arrays(X=X, y=LABELS[1:])),
    "npz: no rows": Bad(NPZ, 3, ("X of a.npz", "empty"), arrays(X=X[:0], y=LABELS[:0])),
    "npz: one dimension": Bad(NPZ, 3, ("X of a.npz", "two dimensions"), arrays(X=X.ravel(), y=LABELS)),
    "npz: text": Bad(NPZ, 3, ("X of a.npz", "dtype"), arrays(X=X.astype("U4"), y=LABELS)),
    "npz: complex numbers": Bad(NPZ, 3, ("X of a.npz", "complex128"), arrays(X=X + 1j, y=LABELS)),
    "npz: pickles": Bad(NPZ, 3, ("a.npz", "pickled"), arrays(X=X.astype(object), y=LABELS)),
    "npz: NaN": Bad(NPZ, 3, ("row 4", "column 1"), arrays(X=HOLE, y=LABELS)),
    "npz: NaN in y": Bad(NPZ, 3, ("the target", "row 4"), arrays(X=X, y=HOLE[:, 1])),
    "npz: dates in y": Bad(NPZ, 3, ("y", "datetime64"), arrays(X=X, y=LABELS.astype("datetime64[s]"))),
    "npy: no array": Bad("ingest a.npy --target 0 --out new", 3, ("a.npy",), text("a.npy", "spam")),
    "npy: pickles": Bad(
        "ingest a.npy --target 0 --out new", 3, ("a.npy", "pickled"), npy(X.astype(object), allow_pickle=True)
    ),
    "npy: cut short": Bad("ingest a.npy --target 0 --out new", 3, ("a.npy",), both(npy(X), cut("a.npy", 0.7))),
    "npy: a header that lies": Bad(
        "ingest a.npy --target 0 --out new",
        3,
        ("a.npy",),
        both(npy(X), lambda f: (f / "a.npy").write_bytes((f / "a.npy").read_bytes().replace(b"(12, 2)", b"(12e9,)"))),
    ),
    "npy: more rows than bytes": Bad(
        "ingest a.npy --target 0 --out new",
        3,
        ("a.npy", "ends before"),
        both(npy(X), lambda f: (f / "a.npy").write_bytes((f / "a.npy").read_bytes().replace(b"(12, 2)", b"(99,22)"))),
    ),
    "npy: no such column": Bad("ingest a.npy --target 2 --out new", 3, ("a.npy", "2"), npy(X)),
    "npy: only a target": Bad("ingest a.npy --target 0 --out new", 3, ("a.npy", "target"), npy(X[:, :1])),
    "npy: a target file that is not there": Bad("ingest a.npy --target y.npy --out new", 3, ("y.npy",), npy(X)),
    "npy: no target": Bad("ingest a.npy --out new", 3, ("--target",), npy(X)),
    "Parquet: no Parquet": Bad(PARQUET, 3, ("a.parquet",), text("a.parquet", "spam")),
    "Parquet: cut short": Bad(PARQUET, 3, ("a.parquet",), both(table(a=X[:, 0], y=LABELS), cut("a.parquet", 0.6))),
    "Parquet: bytes": Bad(PARQUET, 3, ("'a'", "binary"), table(a=[b"p", b"q"], y=[0, 1])),
    "Parquet: lists": Bad(PARQUET, 3, ("'a'", "list"), table(a=[[1], [2]], y=[0, 1])),
    "Parquet: lists in the target": Bad(PARQUET, 3, ("'y'", "list"), table(a=[1, 2], y=[[0], [1]])),
    "Parquet: no rows": Bad(PARQUET, 3, ("a.parquet", "no rows"), table(a=X[:0, 0], y=LABELS[:0])),
    "Parquet: a hole": Bad(f"{PARQUET} --missing error", 3, ("'a'", "row 2"), table(a=[1.0, None], y=[0, 1])),
    "Parquet: no target of that name": Bad(PARQUET, 3, ("'y'", "'z'"), table(a=[1.0, 2.0], z=[0, 1])),
}

CASES = {**COMMANDS, **JOBS, **DATASETS, **ZARRS, **MODELS, **FILES}


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two data sets, their models and predictions, from which every case starts."""
    folder = tmp_path_factory.mktemp("good")
    rng = np.random.default_rng(0)
    features = rng.standard_normal((60, 2))
    write_dataset(
        folder / "d.zarr", features, np.array(["ant", "bee"])[(features[:, 0] > 0).astype(int)], chunk_rows=20
    )
    wide = rng.standard_normal((60, 3))
    write_dataset(folder / "r.zarr", wide, wide.sum(axis=1))
    for name, data in (("m", "d"), ("r", "r")):
        job = folder / f"{name}.toml"
        job.write_text(
            job_text(
                data={"train": str(folder / f"{data}.zarr")},
                model={"max_centers": 5},
                output={"model": str(folder / f"{name}.model")},
            )
        )
        assert main(["train", str(job), "-q"]) == 0
        job.unlink()
    assert (
        main(["predict", str(folder / "m.model"), str(folder / "d.zarr"), "--out", str(folder / "p.zarr"), "-q"]) == 0
    )
    return folder


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


def test_there_are_enough_of_them() -> None:
    assert len(CASES) == sum(map(len, (COMMANDS, JOBS, DATASETS, ZARRS, MODELS, FILES)))
    assert len(CASES) >= 80


@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name == "a scheduler that is not there" else name for name in CASES],
)
def test_a_bad_input_is_named_and_leaves_nothing(name: str, good: Path, here: Path, call: Call) -> None:
    case = CASES[name]
    shutil.copytree(good, here, dirs_exist_ok=True)
    case.prepare(here)
    before = contents(here)
    started = monotonic()
    done = call(*case.command.split(" "))
    seconds = monotonic() - started
    assert done.code == case.code, done.err
    assert done.out == ""
    message = re.sub(r"\s+", " ", done.err)
    for word in case.words:
        assert word in message
    assert "Traceback" not in message
    assert "unexpected" not in message
    assert contents(here) == before
    assert seconds < SECONDS

"""The command: its options, its messages, and the output of results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

import click

from distkern.errors import DataError, DistkernError
from examples.speech.acoustic import MODELS, Sizes
from examples.speech.corpus import Corpus
from examples.speech.experiment import Result, measure
from examples.speech.material import prepare
from examples.speech.splits import KINDS, Split, check, splits
from examples.speech.table import print_results, write_results

COMPARED = ("GMM", "OROLS shared centres")
"""Models that are also trained with each speaker left out, or on each alone."""

STRING_ROUNDS = {"takes": 2, "left-out": 1, "per-speaker": 2}
"""Number of times that the test recordings of a split are joined to strings."""

LARGEST_SEED = 2**32 - 1
"""Largest seed of scikit-learn."""


class Failed(click.ClickException):
    """Ends the command with the message and the exit code of an error."""

    def __init__(self, error: DistkernError) -> None:
        super().__init__(error.message)
        self.exit_code = error.exit_code


def _once(_: click.Context, __: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    """Return each repeated value once: a mean over repeated results would look like a mean over speakers."""
    return tuple(dict.fromkeys(values))


@click.command()
@click.option(
    "--data",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=Path("../shared/data/spoken_digits.npz"),
    show_default=True,
    help="Recordings: an npz file with audio, offsets, digit, speaker, take and rate.",
)
@click.option(
    "--split",
    "kinds",
    type=click.Choice(KINDS),
    multiple=True,
    default=("takes", "left-out"),
    show_default=True,
    callback=_once,
    help="The set's own test takes; each speaker left out in turn; or each speaker alone. May be given more than once.",
)
@click.option(
    "--model",
    "models",
    type=click.Choice(list(MODELS)),
    multiple=True,
    callback=_once,
    help="Model to compare, may be given more than once; by default all on the test takes, and on other splits the "
    "baseline and shared centres.",
)
@click.option("--takes", type=click.IntRange(min=6), help="Takes of each digit and speaker to use; by default all.")
@click.option("--centers", type=click.IntRange(min=1), help="Centres of the model with shared centres.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder that keeps the datasets of frames; by default a temporary directory. Datasets of an earlier run in it "
    "are replaced.",
)
@click.option(
    "--json",
    "json_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for the results, written after each model.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0, max=LARGEST_SEED),
    default=0,
    show_default=True,
    help="Seed of pauses, strings, and all other draws.",
)
def main(
    data: Path,
    kinds: Sequence[str],
    models: Sequence[str],
    takes: int | None,
    centers: int | None,
    folder: Path | None,
    json_path: Path | None,
    seed: int,
) -> None:
    """Train acoustic models on spoken digits, decode digits and strings of digits, and print a table.

    The table goes to standard output, progress to standard error. If the command is interrupted, the table has the
    results so far.
    """
    sizes = Sizes() if centers is None else Sizes(shared=centers)
    results: list[Result] = []
    try:
        _check_writable(json_path)
        divided = _divided(data, takes, kinds)
        with _stores(folder) as place, _printed(results):
            for kind, split, rate in divided:
                click.echo(
                    f"{split.name}: {len(split.train)} recordings to train on, {len(split.test)} to test", err=True
                )
                material = prepare(split, rate, STRING_ROUNDS[kind], place / split.name.replace(" ", "-"), seed)
                for name in models or (tuple(MODELS) if kind == "takes" else COMPARED):
                    click.echo(f"  {name}: ", nl=False, err=True)
                    result = measure(material, split.name, name, sizes, seed)
                    click.echo(
                        f"trained in {result.training_seconds:.0f} s, frame error {result.frame_error:.1f} %, word "
                        f"accuracy {result.strings.accuracy:.2f} %",
                        err=True,
                    )
                    results.append(result)
                    if json_path is not None:
                        write_results(json_path, results)
    except DistkernError as error:
        raise Failed(error) from error


def _divided(data: Path, takes: int | None, kinds: Sequence[str]) -> list[tuple[str, Split, int]]:
    """Return all splits, and the samples in a second; refuse recordings that cannot be split, before any training."""
    try:
        corpus = Corpus.load(data)
        if takes is not None:
            corpus = corpus.with_takes(takes)
        divided = [(kind, split, corpus.rate) for kind in kinds for split in splits(corpus, kind)]
        for _, split, rate in divided:
            check(split, rate)
    except DataError as error:
        raise click.BadParameter(error.message, param_hint="--data") from error
    return divided


def _check_writable(json_path: Path | None) -> None:
    """Refuse a file that cannot be written, before any training."""
    if json_path is None:
        return
    folder = json_path.absolute().parent
    if json_path.is_dir():
        raise click.BadParameter(f"{str(json_path)!r} is a folder.", param_hint="--json")
    if not folder.is_dir():
        raise click.BadParameter(f"there is no folder {str(json_path.parent)!r}.", param_hint="--json")
    try:
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise click.BadParameter(
            f"{str(json_path)!r} cannot be written: {error.strerror}.", param_hint="--json"
        ) from error


@contextmanager
def _stores(folder: Path | None) -> Iterator[Path]:
    """Yield the folder of the stores."""
    if folder is None:
        with TemporaryDirectory(prefix="distkern-speech-") as temporary:
            yield Path(temporary)
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise click.BadParameter(f"{str(folder)!r} cannot be used: {error.strerror}.", param_hint="--folder") from error
    yield folder


@contextmanager
def _printed(results: Sequence[Result]) -> Iterator[None]:
    """Print the results in the list at the end, after an error too."""
    try:
        yield
    finally:
        if results:
            try:
                print_results(results)
            except BrokenPipeError:
                raise
            except OSError as error:
                raise click.ClickException(f"the table cannot be printed: {error.strerror}") from error

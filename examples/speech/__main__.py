"""Train and compare recognisers of spoken digits: ``python -m examples.speech``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import BadZipFile

import click

from examples.speech.acoustic import MODELS, Sizes
from examples.speech.corpus import Corpus
from examples.speech.experiment import Result, measure
from examples.speech.material import prepare
from examples.speech.splits import KINDS, splits
from examples.speech.table import print_results

COMPARED = ("GMM", "OROLS shared centres")
"""Models that are also trained with each speaker left out, or on each alone."""

STRING_ROUNDS = {"takes": 2, "left-out": 1, "per-speaker": 2}
"""Times that the test recordings of a split are joined to strings."""


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
    help="The set's own test takes; each speaker left out in turn; or each speaker alone. May be given more than once.",
)
@click.option(
    "--model",
    "models",
    type=click.Choice(list(MODELS)),
    multiple=True,
    help="Models to compare; by default all on the test takes, and on other splits the baseline and shared centres.",
)
@click.option("--takes", type=click.IntRange(min=6), help="Takes of each digit and speaker to use; by default all.")
@click.option("--centers", type=click.IntRange(min=1), help="Centres of the model with shared centres.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the datasets of frames go, to keep them; by default a temporary directory.",
)
@click.option(
    "--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures here, too."
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Of pauses, strings, and all else that is drawn.",
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
    """Train acoustic models on spoken digits, decode digits and strings of digits, and print a table."""
    if json_path is not None and not json_path.absolute().parent.is_dir():
        raise click.BadParameter(f"there is no folder {str(json_path.parent)!r}.", param_hint="--json")
    try:
        corpus = Corpus.load(data)
    except (BadZipFile, KeyError, TypeError, ValueError) as error:
        raise click.BadParameter(
            f"{str(data)!r} is no npz file with audio, offsets, digit, speaker, take and rate.", param_hint="--data"
        ) from error
    if takes is not None:
        corpus = corpus.with_takes(takes)
    sizes = Sizes() if centers is None else Sizes(shared=centers)
    results: list[Result] = []
    with TemporaryDirectory(prefix="distkern-speech-") as temporary:
        for kind in kinds:
            names = models or (tuple(MODELS) if kind == "takes" else COMPARED)
            for split in splits(corpus, kind):
                click.echo(
                    f"{split.name}: {len(split.train)} recordings to train on, {len(split.test)} to test", err=True
                )
                place = (folder or Path(temporary)) / split.name.replace(" ", "-")
                material = prepare(split, corpus.rate, STRING_ROUNDS[kind], place, seed)
                for result in measure(material, split.name, names, sizes, seed):
                    click.echo(
                        f"  {result.model}: trained in {result.training_seconds:.0f} s, frame error "
                        f"{result.frame_error:.1f} %, word accuracy {result.strings.accuracy:.2f} %",
                        err=True,
                    )
                    results.append(result)
    print_results(results)
    if json_path is not None:
        json_path.write_text(json.dumps([asdict(result) for result in results], indent=2) + "\n")


if __name__ == "__main__":
    main()

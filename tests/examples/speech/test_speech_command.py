"""The command: what it prints and writes, and how it refuses options."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import distkern
from examples.speech.__main__ import main

ROOT = Path(__file__).parents[3]

BASELINE, SHARED = "GMM", "OROLS shared centres"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "examples.speech", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )


def rows(text: str) -> dict[str, list[str]]:
    """The table's cells by the first of each row."""
    lines = [line.strip().strip("|").split("|") for line in text.splitlines() if line.strip().startswith("|")]
    return {line[0].strip(): [cell.strip() for cell in line[1:]] for line in lines}


@pytest.fixture(scope="module")
def done(
    digits_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]], Path]:
    """Two models on two takes to train on, of two speakers."""
    here = tmp_path_factory.mktemp("speech-command")
    chosen = ["--takes", 7, "--split", "takes", "--model", BASELINE, "--model", SHARED, "--centers", 200]
    finished = run("--data", digits_file, *chosen, "--json", here / "figures.json", "--folder", here / "stores")
    assert finished.returncode == 0, finished.stderr
    return finished, json.loads((here / "figures.json").read_text()), here / "stores"


Done = tuple[subprocess.CompletedProcess[str], list[dict[str, Any]], Path]


@pytest.mark.nightly
def test_the_table_shows_the_figures_that_are_written(done: Done) -> None:
    finished, figures, _ = done
    table = rows(finished.stdout)
    assert [result["model"] for result in figures] == [BASELINE, SHARED]
    assert table["takes"][:3] == ["frame error %", "digit error %", "word accuracy %"]
    for result in figures:
        errors = result["strings"]
        wrong = errors["substitutions"] + errors["insertions"] + errors["deletions"]
        cells = table[result["model"]]
        assert cells[0] == f"{result['frame_error']:.1f}"
        assert cells[1] == f"{result['digit_error']:.2f}"
        assert cells[2] == f"{100 - 100 * wrong / errors['words']:.2f}"
        assert cells[6:8] == [str(errors["words"]), str(result["n_centers"])]


@pytest.mark.nightly
def test_the_command_says_what_it_does_beside_the_table(done: Done) -> None:
    finished, _, _ = done
    assert "takes: 40 recordings to train on, 100 to test" in finished.stderr
    assert f"{SHARED}: trained in" in finished.stderr
    assert "Warning" not in finished.stderr


@pytest.mark.nightly
def test_shared_centres_have_a_lower_frame_error_and_decode_no_fewer_words(done: Done) -> None:
    _, figures, _ = done
    baseline, shared = figures
    assert shared["frame_error"] < baseline["frame_error"]

    def wrong(result: dict[str, Any]) -> int:
        return sum(result["strings"][kind] for kind in ("substitutions", "insertions", "deletions"))

    assert baseline["strings"]["words"] == shared["strings"]["words"] == 200
    assert wrong(shared) <= wrong(baseline)


@pytest.mark.nightly
def test_the_centres_are_as_many_as_asked_for(done: Done) -> None:
    assert done[1][1]["n_centers"] == 200


@pytest.mark.nightly
def test_stores_are_kept_in_the_folder(done: Done) -> None:
    folder = done[2] / "takes"
    frames, context = (distkern.open_dataset(folder / name) for name in ("frames.zarr", "context.zarr"))
    assert (frames.n_features, context.n_features) == (39, 60)
    np.testing.assert_array_equal(frames.targets(), context.targets())
    assert set(np.unique(context.targets())) == set(range(83))


@pytest.mark.nightly
def test_left_out_speakers_are_a_row_of_means_and_spreads(digits_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    finished = run(
        *("--data", digits_file, "--takes", 6, "--split", "left-out", "--model", SHARED),
        *("--centers", 100, "--json", path),
    )
    assert finished.returncode == 0, finished.stderr
    figures = json.loads(path.read_text())
    assert [result["split"] for result in figures] == ["left-out 0", "left-out 1"]
    errors = [result["frame_error"] for result in figures]
    assert rows(finished.stdout)[SHARED][0] == f"{np.mean(errors):.1f} ({np.std(errors, ddof=1):.1f})"


def refused(*arguments: object) -> str:
    """Return the message of a refused command, which prints no traceback."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    return result.output


@pytest.fixture
def some_file(tmp_path: Path) -> Path:
    path = tmp_path / "some.npz"
    np.savez(path, audio=np.zeros(3))
    return path


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--takes", 5, "5 is not in the range x>=6"),
        ("--centers", 0, "0 is not in the range x>=1"),
        ("--seed", -1, "-1 is not in the range"),
        ("--seed", 2**32, "4294967296 is not in the range"),
        ("--json", "", "is a folder"),
        ("--model", "HMM", "'OROLS shared centres'"),
        ("--split", "speakers", "'per-speaker'"),
        ("--colour", "red", "No such option"),
    ],
)
def test_options_that_cannot_be_are_refused(option: str, value: object, said: str, some_file: Path) -> None:
    text = refused("--data", some_file, option, value)
    assert option in text
    assert said in text


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    text = refused("--data", tmp_path / "none.npz")
    assert "none.npz" in text
    assert "does not exist" in text


def test_a_folder_that_is_not_there_is_refused_before_anything_is_read(some_file: Path, tmp_path: Path) -> None:
    text = refused("--data", some_file, "--json", tmp_path / "none" / "figures.json")
    assert "--json" in text
    assert "there is no folder" in text


def test_a_folder_that_cannot_be_made_is_refused_before_anything_is_trained(digits_file: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    text = refused("--data", digits_file, "--folder", tmp_path / "file" / "stores")
    assert "--folder" in text
    assert "cannot be used: Not a directory" in " ".join(text.split())


def test_what_is_named_twice_is_measured_once(some_file: Path) -> None:
    """Or the mean over twice the same would be printed as if over speakers."""
    twice = ["--split", "takes", "--model", SHARED, "--model", BASELINE] * 2
    options = main.make_context("speech", ["--data", str(some_file), *twice]).params
    assert options["kinds"] == ("takes",)
    assert options["models"] == (SHARED, BASELINE)


@pytest.mark.nightly
def test_without_the_extra_the_command_says_what_to_install() -> None:
    """None in the place of a module is what Python takes for one that is not there."""
    absent = (
        "import runpy, sys; sys.modules['librosa'] = None; runpy.run_module('examples.speech', run_name='__main__')"
    )
    finished = subprocess.run(
        [sys.executable, "-c", absent], cwd=ROOT, capture_output=True, text=True, check=False, timeout=100
    )
    assert finished.returncode == 1
    assert "(librosa)" in finished.stderr
    assert "pip install -e '.[speech]'" in finished.stderr
    assert "Traceback" not in finished.stderr


def test_a_speaker_cannot_be_left_out_of_one(digits_file: Path, tmp_path: Path) -> None:
    with np.load(digits_file) as given:
        arrays = {name: given[name] for name in given}
    path = tmp_path / "one.npz"
    np.savez(path, **{**arrays, "speaker": arrays["speaker"] * 0})
    text = " ".join(refused("--data", path).split())
    assert "split left-out 0: no training recording" in text
    assert "left-out needs two speakers" in text


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_was_measured_before_an_interruption_is_printed_and_written(
    number: signal.Signals, digits_file: Path, tmp_path: Path
) -> None:
    path, temporary = tmp_path / "figures.json", tmp_path / "temporary"
    temporary.mkdir()
    chosen = ["--split", "takes", "--model", BASELINE, "--model", "NPD one-vs-one", "--json", str(path)]
    with subprocess.Popen(
        [sys.executable, "-m", "examples.speech", "--data", str(digits_file), *chosen],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell in the background has it ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        assert process.stderr is not None
        said = ""
        while "NPD one-vs-one: " not in said:
            letter = process.stderr.read(1)
            assert letter, said
            said += letter
        assert list(temporary.glob("distkern-speech-*"))
        process.send_signal(number)
        printed, rest = process.communicate(timeout=100)
    assert process.returncode == 1
    assert "Aborted!" in rest
    assert "Traceback" not in rest
    assert set(rows(printed)) >= {"takes", BASELINE}
    assert "NPD one-vs-one" not in printed
    assert [result["model"] for result in json.loads(path.read_text())] == [BASELINE]
    assert not list(temporary.glob("distkern-speech-*"))


@pytest.mark.nightly
def test_a_table_that_cannot_be_printed_is_no_traceback(digits_file: Path) -> None:
    device = Path("/dev/full")
    if not device.is_char_device():
        pytest.skip("there is no device that is always full")
    chosen = ["--takes", "6", "--split", "takes", "--model", BASELINE]
    with device.open("w") as full:
        finished = subprocess.run(
            [sys.executable, "-m", "examples.speech", "--data", str(digits_file), *chosen],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=500,
        )
    assert finished.returncode == 1
    assert "Error: the table cannot be printed: No space left on device" in finished.stderr
    assert "Traceback" not in finished.stderr


@pytest.mark.nightly
def test_a_folder_with_something_else_in_it_is_left_alone(digits_file: Path, tmp_path: Path) -> None:
    note = tmp_path / "takes" / "frames.zarr" / "note.txt"
    note.parent.mkdir(parents=True)
    note.write_text("mine")
    finished = run("--data", digits_file, "--takes", 6, "--split", "takes", "--model", BASELINE, "--folder", tmp_path)
    assert finished.returncode == 3
    assert "Error: " in finished.stderr
    assert "frames.zarr exists and is not of the kind" in finished.stderr
    assert "Traceback" not in finished.stderr
    assert note.read_text() == "mine"


@pytest.mark.parametrize("content", ["one array", "another archive", "text", "cut short", "nothing"])
def test_a_file_without_recordings_is_refused(content: str, some_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "given.npz"
    if content == "one array":
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
    elif content in ("text", "nothing"):
        path.write_text("digits" if content == "text" else "")
    else:
        archive = some_file.read_bytes()
        path.write_bytes(archive[: len(archive) // 2] if content == "cut short" else archive)
    text = refused("--data", path)
    assert "given.npz" in text
    assert "audio, offsets, digit, speaker, take and rate" in " ".join(text.split())


def test_help_names_the_models_and_splits() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    for name in (BASELINE, SHARED, "left-out", "--json", "--takes"):
        assert name in " ".join(result.output.replace("-\n", "-").split())

"""Errors counted by hand, and the word penalty that is chosen."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from time import perf_counter, sleep

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distkern.errors import DataError, StoreError
from examples.speech.acoustic import AcousticModel
from examples.speech.corpus import Corpus, Recording
from examples.speech.decoder import Decoder
from examples.speech.evaluation import (
    PENALTIES,
    Speed,
    Words,
    frame_error,
    scoring_speed,
    string_errors,
    tuned,
    word_errors,
)
from examples.speech.experiment import Result, trained
from examples.speech.material import Utterances
from examples.speech.splits import Split, check, splits
from examples.speech.table import COLUMNS, print_results, write_results
from examples.speech.topology import N_STATES, SILENCE, states_of

words = st.lists(st.integers(0, 9), min_size=1, max_size=6).map(tuple)


class Given:
    """Emission scores that are the inputs themselves."""

    def __call__(self, frames: np.ndarray) -> np.ndarray:
        return frames


@pytest.mark.parametrize(
    ("spoken", "decoded", "expected"),
    [
        ([(1, 2, 3)], [(1, 2, 3)], Words(3, 0, 0, 0)),
        ([(1, 2, 3)], [(1, 4, 3)], Words(3, 1, 0, 0)),
        ([(1, 2, 3)], [(1, 2, 2, 3)], Words(3, 0, 1, 0)),
        ([(1, 2, 3)], [(1, 3)], Words(3, 0, 0, 1)),
        ([(1, 2, 3)], [()], Words(3, 0, 0, 3)),
        ([(1, 2), (3,)], [(), (3, 4)], Words(3, 0, 1, 2)),
        ([(1, 1, 1, 1)], [(1, 1)], Words(4, 0, 0, 2)),
        ([(1, 2, 3, 4, 5)], [(2, 3, 9, 5, 5)], Words(5, 1, 1, 1)),
        ([(0,), (1,), (2,)], [(1,), (1,), (0, 0, 0)], Words(3, 2, 2, 0)),
    ],
)
def test_errors_counted_by_hand(spoken: list, decoded: list, expected: Words) -> None:
    assert word_errors(spoken, decoded) == expected


def edits(spoken: tuple[int, ...], decoded: tuple[int, ...]) -> int:
    """Fewest substitutions, insertions and deletions from one to the other."""
    if not spoken or not decoded:
        return len(spoken) + len(decoded)
    changed = edits(spoken[1:], decoded[1:]) + (spoken[0] != decoded[0])
    return min(changed, edits(spoken[1:], decoded) + 1, edits(spoken, decoded[1:]) + 1)


@given(pairs=st.lists(st.tuples(words, st.lists(st.integers(0, 9), max_size=5).map(tuple)), min_size=1, max_size=4))
def test_errors_are_the_fewest_that_explain_what_was_decoded(pairs: list) -> None:
    spoken, decoded = zip(*pairs, strict=True)
    found = word_errors(spoken, decoded)
    assert found.words == sum(map(len, spoken))
    assert found.substitutions + found.insertions + found.deletions == sum(map(edits, spoken, decoded))
    assert found.insertions - found.deletions == sum(map(len, decoded)) - sum(map(len, spoken))


@pytest.mark.parametrize(
    ("errors", "accuracy"),
    [((20, 0, 0, 0), 100.0), ((20, 1, 2, 3), 70.0), ((20, 0, 0, 20), 0.0), ((20, 10, 15, 0), -25.0)],
)
def test_accuracy_takes_off_all_three_kinds_of_errors(errors: tuple[int, int, int, int], accuracy: float) -> None:
    assert Words(*errors).accuracy == pytest.approx(accuracy)


def planted(chain: list[int], contrast: float, frames_each: int = 2) -> np.ndarray:
    path = np.repeat([state for word in chain for state in states_of(word)], frames_each)
    scores = np.zeros((len(path), N_STATES))
    scores[np.arange(len(path)), path] = contrast
    return scores


def test_strings_are_decoded_and_compared() -> None:
    decoder = Decoder(Given(), np.full(N_STATES, 0.6), penalty=2.0)
    inputs = [planted([SILENCE, *chain, SILENCE], 10.0) for chain in ([1, 2], [3, SILENCE, 3])]
    assert string_errors(decoder, inputs, [(1, 2), (3, 3)]) == Words(4, 0, 0, 0)
    assert string_errors(decoder, inputs, [(1, 4), (3,)]) == Words(3, 1, 1, 0)


def test_the_penalty_is_the_middle_of_those_with_the_fewest_errors() -> None:
    """A word's frames are worth 128: larger penalties delete it."""
    stay, spoken = np.full(N_STATES, 0.6), [(1, 2, 3), (4, 4)]
    inputs = [planted([SILENCE, 1, SILENCE, 2, 3, SILENCE], 8.0), planted([SILENCE, 4, SILENCE, 4, SILENCE], 8.0)]
    errors = [string_errors(Decoder(Given(), stay, float(p)), inputs, spoken) for p in PENALTIES]
    accuracy = np.array([found.accuracy for found in errors])
    best = np.array(PENALTIES)[accuracy == accuracy.max()]
    assert 1 < len(best) < len(PENALTIES)
    chosen = tuned(Decoder(Given(), stay, penalty=77.0), inputs, spoken)
    assert chosen.penalty in best
    assert abs(np.count_nonzero(best < chosen.penalty) - np.count_nonzero(best > chosen.penalty)) <= 1
    np.testing.assert_array_equal(chosen.stay, stay)


def test_frames_whose_most_probable_state_is_another_are_errors() -> None:
    scores = [np.zeros((3, 4)), np.zeros((2, 4))]
    scores[0][[0, 1, 2], [1, 2, 3]] = 1.0
    scores[1][[0, 1], [0, 3]] = 1.0
    paths = [np.array([1, 2, 0]), np.array([0, 3])]
    assert frame_error(Given(), scores, paths, np.zeros(4)) == pytest.approx(20.0)
    # State 0 is so frequent that it is the most probable one everywhere.
    assert frame_error(Given(), scores, paths, np.array([5.0, 0, 0, 0])) == pytest.approx(60.0)


def test_speed_in_scores_and_in_real_time_belong_together() -> None:
    speed = scoring_speed(Given(), [np.zeros((300, N_STATES)), np.zeros((200, N_STATES))])
    assert speed.scores_per_second > 0
    assert speed.scores_per_second / speed.times_real_time == pytest.approx(100 * N_STATES)


SAMPLES = np.zeros(10, dtype=np.float32)

CORPUS = Corpus(
    tuple(Recording(SAMPLES, digit, speaker, take) for digit in range(2) for speaker in (3, 5) for take in range(8)),
    8000,
)


def facts(recordings: tuple[Recording, ...]) -> set[tuple[int, int, int]]:
    return {(one.digit, one.speaker, one.take) for one in recordings}


@pytest.mark.parametrize("kind", ["takes", "left-out", "per-speaker"])
def test_no_recording_trains_and_tests(kind: str) -> None:
    for split in splits(CORPUS, kind):
        assert split.train
        assert split.test
        assert not facts(split.train) & facts(split.test)


def test_the_first_five_takes_of_all_speakers_test() -> None:
    (split,) = splits(CORPUS, "takes")
    assert split.name == "takes"
    assert facts(split.test) == {(d, s, t) for d in range(2) for s in (3, 5) for t in range(5)}
    assert facts(split.train) == {(d, s, t) for d in range(2) for s in (3, 5) for t in range(5, 8)}


def test_each_speaker_is_left_out_in_turn() -> None:
    found = list(splits(CORPUS, "left-out"))
    assert [split.name for split in found] == ["left-out 3", "left-out 5"]
    for split, speaker, other in zip(found, (3, 5), (5, 3), strict=True):
        assert {one.speaker for one in split.test} == {speaker}
        assert {one.speaker for one in split.train} == {other}
        assert len(split.train) == len(split.test) == 16


def test_each_speaker_alone() -> None:
    found = list(splits(CORPUS, "per-speaker"))
    assert [split.name for split in found] == ["per-speaker 3", "per-speaker 5"]
    for split, speaker in zip(found, (3, 5), strict=True):
        assert facts(split.test) == {(d, speaker, t) for d in range(2) for t in range(5)}
        assert facts(split.train) == {(d, speaker, t) for d in range(2) for t in range(5, 8)}


RATE = 8000

TEN = tuple(Recording(np.zeros(RATE, dtype=np.float32), digit, 3, take) for digit in range(10) for take in (0, 7))


@pytest.mark.parametrize(
    ("split", "said"),
    [
        (Split("takes", tuple(one for one in TEN if one.digit not in (4, 9)), TEN), "training recording is of 4, 9;"),
        (Split("left-out 3", (), TEN), "left-out needs two speakers or more"),
        (Split("takes", TEN, ()), "there is no test recording"),
        (
            Split("takes", TEN, (*TEN, replace(TEN[5], samples=np.zeros(400, dtype=np.float32)))),
            "digit 2, take 7 of speaker 3 has 400 samples, 50 ms: recordings must have 100 ms",
        ),
    ],
)
def test_splits_that_no_recogniser_can_be_trained_on_are_refused(split: Split, said: str) -> None:
    with pytest.raises(DataError, match=said) as caught:
        check(split, RATE)
    assert f"split {split.name}: " in str(caught.value)


def test_a_split_with_all_digits_is_fine() -> None:
    check(Split("takes", TEN, TEN[:1]), RATE)


class Late:
    """Emission scores that need something first."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, frames: np.ndarray) -> np.ndarray:
        sleep(self.seconds)
        self.seconds = 0.0
        return np.zeros((len(frames), N_STATES))


def test_what_a_model_makes_before_its_first_score_belongs_to_its_training() -> None:
    frames = (np.zeros((4, 39), dtype=np.float32),)
    digits = Utterances(((1,),), frames, frames, (np.zeros(4, dtype=np.intp),))
    model, seconds = trained(lambda: AcousticModel(Late(0.3), "frames", 1), digits)
    assert seconds >= 0.3
    started = perf_counter()
    model.emissions(frames[0])
    assert perf_counter() - started < seconds


def result(model: str, split: str, error: float) -> Result:
    return Result(model, split, error, 1.25, Words(200, 3, 2, 1), 20.0, 655, 12.3, Speed(2.5e6, 301.2))


def rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines() if "|" in line]


def test_a_table_of_one_split_shows_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    print_results([result("GMM", "takes", 40.06), result("OROLS", "takes", 30.0)])
    head, ruler, first, second = rows(capsys.readouterr().out)
    assert head == ["takes", *COLUMNS]
    assert set("".join(ruler)) <= set(":- ")
    assert first == ["GMM", "40.1", "1.25", "97.00", "3", "2", "1", "200", "655", "12", "2.5e+06", "301"]
    assert second[:2] == ["OROLS", "30.0"]


def test_a_table_of_speakers_shows_means_and_spreads(capsys: pytest.CaptureFixture[str]) -> None:
    results = [result("GMM", f"left-out {i}", error) for i, error in enumerate((30.0, 40.0, 50.0))]
    print_results([result("GMM", "takes", 10.0), *results])
    text = capsys.readouterr().out
    cells = {row[0]: row for row in rows(text)}
    assert "takes" in cells
    assert "left-out" in cells
    assert cells["GMM"][1] == "40.0 (10.0)"
    assert [row[1] for row in rows(text) if row[0] == "GMM"] == ["10.0", "40.0 (10.0)"]


def test_results_are_figures_that_json_takes() -> None:
    figures = json.loads(json.dumps(asdict(result("GMM", "takes", 40.0))))
    assert figures["strings"] == {"words": 200, "substitutions": 3, "insertions": 2, "deletions": 1}
    assert figures["speed"]["times_real_time"] == 301.2


def test_figures_are_written_anew_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    for errors in ([40.0], [40.0, 30.0]):
        write_results(path, [result("GMM", "takes", error) for error in errors])
        assert [one["frame_error"] for one in json.loads(path.read_text())] == errors
    assert list(tmp_path.iterdir()) == [path]


def in_the_way(folder: Path) -> Path:
    (folder / "figures.json.part").mkdir()
    (folder / "figures.json").write_text("before")
    return folder / "figures.json"


@pytest.mark.parametrize("place", [in_the_way, lambda folder: folder / "none" / "figures.json"])
def test_figures_that_cannot_be_written_leave_what_was_there(place: Callable[[Path], Path], tmp_path: Path) -> None:
    path = place(tmp_path)
    with pytest.raises(StoreError, match=r"figures\.json cannot be written: "):
        write_results(path, [result("GMM", "takes", 40.0)])
    assert not path.exists() or path.read_text() == "before"


def test_a_device_is_written_to_and_not_replaced() -> None:
    device = Path("/dev/full")
    if not device.is_char_device():
        pytest.skip("there is no device that is always full")
    with pytest.raises(StoreError, match="No space left"):
        write_results(device, [result("GMM", "takes", 40.0)])
    assert device.is_char_device()

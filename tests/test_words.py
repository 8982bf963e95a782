"""The words that the project does not use: in texts, comments and names of the code, and on its pages.

One meaning has one word, see ``docs/glossary.md``. The subject of a sentence is a driver, worker, block, run or user,
and its verb is a standard one: no verb of speech for data, no picture for a failure.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

CODE = ("distkern", "scheduler", "storage", "reproduction", "benchmarks", "examples", "tests")
PAGES = ("README.md", "CONTRIBUTING.md", "docs")
ITSELF = "tests/test_words.py"

RECORDED = {
    "scheduler/dashboard/colours.py": {"judge-candidates"},
    "scheduler/protocol/answers.py": {"race"},
    "scheduler/protocol/messages.py": {"Judge", "judge", "judge-candidates", "judged"},
    "scheduler/protocol/problems.py": {"n_race"},
}
"""Files to names of version 0.1 in runs and on dashboards, which resumed runs must use too."""

TEXT = {
    r"bef[ae]ll?s?": "incident, event",
    r"what\b[^.;:]*?\bc[ao]mes? to|came to": "result, summary",
    r"hush\w*": "silence",
    r"h[au]ngs? up|hanging up": "close, install",
    r"without a word": "disconnected",
    r"hears?|heard": "receive",
    r"tells?|told|telling": "report, send, return, distinguish",
    r"once it is so again": "when it is usable again",
    r"look(?:s|ed|ing)? after": "own",
    r"rehom\w+|(?:its|their|a|another|new) homes?": "reassign, owner",
    r"bodes?": "warn",
    r"is gone; waiting|go(?:es)? on with": "exited, resume",
    r"surroundings": "runtime arguments, environment, window",
    r"complain\w*": "message",
    r"errands?": "task chain",
    r"judg\w+": "check, compare, score",
    r"calm\w*": "converged",
    r"(?<!exponential )races?(?! condition)": "successive elimination",
    r"in turns|turn about|tak(?:e|es|ing) turns": "interleaved",
    r"asleep|awake|wakes?": "paused, resumed",
    r"speaks? for|ha(?:s|ve) no say|a say in": "decide, depend on",
}
"""Regular expressions of texts, to the words to write."""

NAMES = {
    "asleep", "awake", "befall", "befell", "bode", "calm", "complain", "complaint", "errand", "far", "gone", "hang",
    "hear", "heard", "home", "hung", "hush", "judge", "judged", "race", "rehome", "surrounding", "tell", "told", "turn",
    "wake",
}  # fmt: skip
"""Words that no function, class, parameter, attribute, variable or module has in its name, in the singular."""

NO_SUBJECT = re.compile(r"(?:What|How|Who|Whose|Those|Tell|Say)\b")
"""Beginnings of docstrings that are a clause without its sentence; a noun or a verb begins one."""

_TEXT = {re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE): word for pattern, word in TEXT.items()}
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def test_the_patterns_refuse_old_words_and_no_ordinary_english() -> None:
    refused = (
        "What befell the run.",
        "What it came to: a model.",
        "Tell which rows are covered.",
        "A worker looks after its blocks.",
        "Stops when lambda is calm.",
        "Settings race over the folds.",
        "A row's class has no say in it.",
    )
    for text in refused:
        assert list(old_words(text)), text
    accepted = (
        "Data far from the origin; the kernel falls off.",
        "An exponential race; a race condition.",
        "The worker returned to the pool in turn.",
        "The home directory of the user.",
        "The run resumes, and its summary comes last.",
    )
    for text in accepted:
        assert not list(old_words(text)), text
    assert list(old_names("hush_workers")) == ["hush"]
    assert list(old_names("LambdaCalm")) == ["calm"]
    assert not list(old_names("farthest_row"))
    assert not list(old_names("test_data_far_from_the_origin"))


def old_words(text: str) -> Iterator[str]:
    """Yield what a text must not hold, with what to write."""
    joined = " ".join(text.split())
    for pattern, word in _TEXT.items():
        for found in pattern.finditer(joined):
            yield f"{joined[max(0, found.start() - 30) : found.end() + 20]!r}: write {word}"


def old_names(name: str) -> Iterator[str]:
    """Yield the words of a name that no name may have; the name of a test is a sentence."""
    if name.startswith("test_"):
        yield from old_words(name.replace("_", " "))
        return
    for part in _PARTS.findall(name):
        word = part.lower()
        if {word, word.removesuffix("s")} & NAMES:
            yield word


def code_files() -> Iterator[Path]:
    for folder in CODE:
        for file in sorted((ROOT / folder).rglob("*.py")):
            name = file.relative_to(ROOT).as_posix()
            if not any(parent.is_symlink() for parent in file.parents) and name != ITSELF:
                yield file


def pages() -> Iterator[Path]:
    for name in PAGES:
        found = [ROOT / name] if name.endswith(".md") else sorted((ROOT / name).rglob("*.md"))
        # Design notes are a record of decisions, in the words of their time.
        yield from (page for page in found if not page.relative_to(ROOT).as_posix().startswith("docs/design"))


def texts_of(nodes: Iterable[ast.AST], source: str) -> Iterator[tuple[int, str]]:
    """Yield strings, docstrings and comments with their lines."""
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def docstrings_of(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield docstrings, those of constants and fields too, with their lines."""
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def names_of(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield the names that a module defines, with their lines."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


@pytest.mark.slow
def test_code_has_none_of_the_old_words_and_docstrings_have_subjects() -> None:
    wrong = []
    for file in code_files():
        name, source = file.relative_to(ROOT).as_posix(), file.read_text()
        nodes, kept = [*ast.walk(ast.parse(source))], RECORDED.get(name, ())
        wrong += [f"{name}: name {word}" for word in old_names(file.stem)]
        wrong += [
            f"{name}:{line} {word}"
            for line, text in texts_of(nodes, source)
            if text not in kept
            for word in old_words(text)
        ]
        wrong += [
            f"{name}:{line} {found}: {word}"
            for line, found in names_of(nodes)
            if found not in kept
            for word in old_names(found)
        ]
        wrong += [
            f"{name}:{line} {text.splitlines()[0]}"
            for line, text in docstrings_of(nodes)
            if NO_SUBJECT.match(text.strip())
        ]
    assert wrong == []


@pytest.mark.parametrize("page", [str(page.relative_to(ROOT)) for page in pages()])
def test_pages_have_none_of_the_old_words(page: str) -> None:
    assert list(old_words((ROOT / page).read_text())) == []

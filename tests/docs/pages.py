"""Code blocks of Markdown pages: found, run in order, and what they print held against what the page shows.

A page is run in a directory of its own. Python blocks share one namespace; `bash` and `console` blocks find the
``distkern`` command of this interpreter; a `text` block right after a block is what that block prints. Comments right
before a block say more:

* ``<!-- example: REASON -->``: it cannot be run here, only checked.
* ``<!-- file: NAME -->``: it is the content of a file that later blocks use.
* ``<!-- data: NAME -->``: later blocks need this published set; without it the page is not run.
* ``<!-- output: COMMAND -->``: it is a text block that shows what a command prints.
* ``<!-- command: NAME -->``: another test or ``.ci/run`` runs it, since it installs distkern.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]

SHELL = ("bash", "console")
CHECKED = ("toml", "yaml", "json", "math")
"""Languages that are no programs, and are parsed; LaTeX when the site is built."""

MARK = re.compile(r"<!-- (example|file|data|output|command): (.*?) -->")
NUMBER = re.compile(r"-?\d+(?:\.\d*)?(?:e[-+]?\d+)?")
VARYING = re.compile(r"^(seconds|peak memory)\b.*$", re.MULTILINE)
"""Lines whose numbers differ from run to run."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    line: int
    language: str
    text: str
    marks: dict[str, str]
    shown: str | None = None
    """Output that the page shows for it."""
    output_of: str | None = None
    """For a text block: the language of the block it belongs to."""

    @property
    def runs(self) -> bool:
        """Whether the block is a program that can be run here."""
        program = self.language in ("python", *SHELL) or "output" in self.marks
        return program and not self.marks.keys() & {"example", "command", "file"}

    def commands(self) -> list[tuple[str, str]]:
        """Return the commands of a console block, each with what it prints."""
        parts = re.split(r"^\$ ", self.text, flags=re.MULTILINE)
        assert not parts[0].strip(), f"line {self.line}: a console block starts with a command"
        found = []
        for part in parts[1:]:
            command, _, output = re.sub(r"\\\n", "\\\0", part).partition("\n")
            found.append((command.replace("\0", "\n"), output))
        return found

    def script(self) -> str:
        """Return the commands of a shell block."""
        return self.text if self.language == "bash" else "\n".join(command for command, _ in self.commands())


def blocks_of(page: Path) -> list[Block]:
    """Return all fenced blocks of a page, in order."""
    return _blocks_of(page.read_text())


@functools.cache
def _blocks_of(text: str) -> list[Block]:
    found: list[Block] = []
    marks: dict[str, str] = {}
    after: Block | None = None
    for token in MarkdownIt("commonmark").parse(text):
        if token.type == "html_block":
            marks |= dict(MARK.findall(token.content))
            after = None
        elif token.type == "fence":
            assert token.map is not None
            language = (token.info.split() or [""])[0]
            is_output = language == "text" and after is not None and not marks
            block = Block(
                line=token.map[0] + 1,
                language=language,
                text=token.content,
                marks=marks,
                output_of=after.language if is_output and after is not None else None,
            )
            if is_output and after is not None:
                found[-1] = Block(after.line, after.language, after.text, after.marks, shown=token.content)
            found.append(block)
            marks, after = {}, None if is_output or language not in ("python", "bash") else block
        else:
            marks, after = {}, None
    return found


def agree(printed: str, shown: str) -> bool:
    """Whether two outputs have the same words, and numbers that another processor may give.

    A line of three dots in `shown` stands for any lines.
    """
    lines = VARYING.sub(r"\1", printed).strip("\n").splitlines()
    parts = [
        part.strip("\n").splitlines() for part in re.split(r"^\.\.\.$", VARYING.sub(r"\1", shown), flags=re.MULTILINE)
    ]
    if len(parts) == 1:
        return _close("\n".join(lines), "\n".join(parts[0]))
    place = 0
    for number, part in enumerate(parts):
        starts = range(place, len(lines) - len(part) + 1)
        if number == 0:
            starts = starts[:1]
        elif number == len(parts) - 1 and part:
            starts = starts[-1:]
        matches = (start for start in starts if _close("\n".join(lines[start : start + len(part)]), "\n".join(part)))
        start = next(matches, None)
        if start is None:
            return False
        place = start + len(part)
    return True


def _close(printed: str, shown: str) -> bool:
    words, expected = ("".join(NUMBER.sub("#", text).split()) for text in (printed, shown))
    if words != expected:
        return False
    pairs = zip(NUMBER.findall(printed), NUMBER.findall(shown), strict=True)
    return all(abs(float(a) - float(b)) <= 0.03 + 0.3 * abs(float(b)) for a, b in pairs)


def run_page(page: Path, directory: Path) -> None:
    """Run the blocks of a page in order, with `directory` as the current one.

    Raises
    ------
    AssertionError
        A block fails, or prints something else than the page shows.
    """
    namespace: dict[str, Any] = {"__name__": page.stem}
    for block in blocks_of(page):
        if "file" in block.marks:
            path = directory / block.marks["file"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        elif block.runs:
            for printed, shown in outputs(block, page, directory, namespace):
                assert agree(printed, shown), (
                    f"{page}, line {block.line}, printed:\n{printed}\nthe page shows:\n{shown}"
                )


def outputs(block: Block, page: Path, directory: Path, namespace: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Run a block; yield what it printed and what the page shows."""
    if block.language == "python":
        with contextlib.redirect_stdout(io.StringIO()) as output:
            # Lines of the page, so that a traceback names them.
            exec(compile("\n" * block.line + block.text, str(page), "exec", dont_inherit=True), namespace)
        yield output.getvalue(), block.shown or ""
    elif "output" in block.marks:
        yield _shell(block.marks["output"], directory, fails=False), block.text
    elif block.language == "bash":
        printed = _shell(block.text, directory, fails=False)
        if block.shown is not None:
            yield printed, block.shown
    else:
        for command, shown in block.commands():
            yield _shell(command, directory, fails="distkern: error:" in shown), shown


def _shell(script: str, directory: Path, *, fails: bool) -> str:
    paths = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    modules = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=directory,
        env=os.environ | {"PATH": os.pathsep.join(paths), "PYTHONPATH": os.pathsep.join(filter(None, modules))},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode != 0) == fails, f"{script}\nexit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    printed = done.stdout + (done.stderr[done.stderr.index("distkern: error:") :] if fails else "")
    return printed.replace(f"{directory}{os.sep}", "")

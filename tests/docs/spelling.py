"""Checks of a block without running it: syntax, and names that the product must have."""

from __future__ import annotations

import ast
import contextlib
import inspect
import json
import shlex
import subprocess
import tomllib
from collections.abc import Iterator

import click
import yaml

import distkern
from distkern.cli.job.job_file import parse_job
from distkern.cli.main import cli
from tests.docs.pages import Block

OPERATORS = set("();<>|&")


def check(block: Block) -> None:
    """Check a block as far as that is possible without running it.

    Raises
    ------
    Exception
        Whatever the parser of the language says, or AssertionError with the name that does not exist.
    """
    if block.language == "python":
        check_python(block.text)
    elif block.language in ("bash", "console"):
        check_shell(block.script())
    elif block.language == "toml":
        check_job(block.text)
    elif block.language == "yaml":
        list(yaml.safe_load_all(block.text))
    elif block.language == "json":
        json.loads(block.text)


def check_python(source: str) -> None:
    """Check syntax, the public names of distkern that are used, and the names of their arguments."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "dk":
            assert hasattr(distkern, node.attr), f"distkern has no {node.attr}"
        if isinstance(node, ast.ImportFrom) and node.module == "distkern":
            for alias in node.names:
                assert hasattr(distkern, alias.name), f"distkern has no {alias.name}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            if isinstance(owner, ast.Name) and owner.id == "dk" and hasattr(distkern, node.func.attr):
                known = inspect.signature(getattr(distkern, node.func.attr)).parameters
                unknown = {keyword.arg for keyword in node.keywords if keyword.arg} - set(known)
                assert not unknown, f"{node.func.attr} has no parameter {unknown}"


def check_job(text: str) -> None:
    """Check a job file, or a part of one."""
    parse_job({"data": {"train": "train.zarr"}} | tomllib.loads(text))


def check_shell(script: str) -> None:
    """Check the syntax of a script, and commands and options of distkern in it."""
    done = subprocess.run(["bash", "-n", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for words in distkern_calls(script):
        check_call(words)


def distkern_calls(script: str) -> Iterator[list[str]]:
    """Yield the arguments of every call of distkern."""
    for line in script.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = []
        with contextlib.suppress(ValueError):  # a quotation that ends on another line
            words.extend(lexer)
        call: list[str] | None = None
        for word in words:
            if set(word) <= OPERATORS:
                if call is not None:
                    yield call
                call = None
            elif call is not None:
                call.append(word)
            elif word.rsplit("/", 1)[-1] == "distkern":
                call = []
        if call is not None:
            yield call


def check_call(words: list[str]) -> None:
    """Check that command and options exist."""
    words = [word.strip("[]") for word in words]
    names = [word for word in words if not word.startswith("-")]
    if not names:
        known = _options(cli)
    else:
        assert names[0] in cli.commands, f"distkern has no command {names[0]!r}"
        known = _options(cli) | _options(cli.commands[names[0]])
    for word in words:
        option = word.partition("=")[0] if word.startswith("--") else word[:2]
        if option.startswith("-") and len(option) > 1:
            assert option in known, f"distkern {' '.join(names[:1])} has no option {option}"


def _options(command: click.Command) -> set[str]:
    found = {"-h", "--help"}
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            found |= {*parameter.opts, *parameter.secondary_opts}
    return found

"""Options of the commands that read files of rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce, wraps
from typing import Any, TypeVar, cast

import click

Command = TypeVar("Command", bound=Callable[..., Any])

_NAMES = ("format", "part", "drop", "delimiter", "header", "index_base")


def file_options(command: Command) -> Command:
    """Add the options that say how files are read as the argument `reading` of a command, a dict of those given."""
    options = (
        click.option(
            "--format",
            type=click.Choice(["csv", "parquet", "npy", "npz", "svmlight"]),
            help="Format of files whose extension does not say it.",
        ),
        click.option(
            "--part", type=click.Choice(["train", "test"]), help="X_train, y_train or X_test, y_test of .npz files."
        ),
        click.option("--drop", metavar="COL", multiple=True, help="Column to leave out; may be repeated."),
        click.option("--delimiter", metavar="CHAR", help="Separator of the columns of text files."),
        click.option(
            "--header/--no-header",
            default=None,
            help="Whether text files begin with the names of the columns; without, columns are numbers from 0.",
        ),
        click.option(
            "--index-base",
            type=click.Choice(["0", "1", "auto"]),
            help="Number of the first feature of svmlight files; auto: 0 where a file has a feature 0.",
        ),
    )

    @wraps(command)
    def gathered(*arguments: Any, **named: Any) -> Any:
        values = {name: named.pop(name) for name in _NAMES}
        given = {name: value for name, value in values.items() if value not in (None, (), "auto")}
        if "index_base" in given:
            given["index_base"] = int(given["index_base"])
        if given.get("delimiter") == "\\t":
            given["delimiter"] = "\t"
        return command(*arguments, reading=given, **named)

    return cast(Command, reduce(lambda inner, option: option(inner), reversed(options), gathered))

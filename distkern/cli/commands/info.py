"""``distkern info``: the contents of a dataset store, a model store or a run directory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from ...text import byte_size
from ..console.output import pairs, print_json, print_table
from ..console.terminal import terminal_of, verbosity_options

_SIZES = ("bytes", "rss_driver", "rss_worker")


@click.command()
@click.argument("store", metavar="STORE|MODEL|RUN")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; with --follow one for each event.")
@click.option(
    "--follow",
    "followed",
    is_flag=True,
    help="Show a run while another process trains it, from its beginning until it ends.",
)
@verbosity_options
@click.pass_context
def info(context: click.Context, store: str, as_json: bool, followed: bool) -> None:
    """Describe a dataset store, a model store or a run directory.

    With --follow the exit code is 0 when the run has ended, 6 when its driver process has exited and no other process
    resumes it within a minute, and 130 after Ctrl-C, which does not change the run.
    """
    if followed:
        from .follow import follow

        context.exit(follow(store, terminal_of(context), as_json=as_json))
    from distkern.storage import describe

    description = describe(store)
    if as_json:
        print_json(description)
    else:
        print_table(pairs(_flat(description)))


def _flat(description: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield names and values; the name of a nested value begins with those of its mappings."""
    for name, value in description.items():
        # Names of features and columns stay as they are.
        named = prefix.endswith((".importances.", "columns."))
        full = f"{prefix}{name}" if named else f"{prefix}{name}".replace("_", " ")
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif name.endswith(_SIZES) and isinstance(value, int):
            yield full, byte_size(value)
        elif name == "metric_rounds" and isinstance(value, list):
            yield full, len(value)
        else:
            yield full, value

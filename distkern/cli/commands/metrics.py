"""``distkern metrics``: the figures of a run in the text format of Prometheus."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from ...errors import StoreError
from ..console.terminal import verbosity_options

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from ...monitoring.run_state import RunFigures


@click.command()
@click.argument("run", metavar="RUN")
@click.option(
    "--out",
    metavar="FILE",
    help="Write this file, in one step, instead of printing. The textfile collector of node_exporter needs a name that "
    "ends in .prom, in its directory.",
)
@verbosity_options
def metrics(run: str, out: str | None) -> None:
    """Export the figures of a run directory as Prometheus metrics.

    The names and values are those of /metrics of a dask scheduler on which the run is trained. The run may be in work.
    """
    from prometheus_client import generate_latest, write_to_textfile

    registry = _registry(run)
    if out is None:
        click.echo(generate_latest(registry).decode(), nl=False)
        return
    place = os.path.realpath(out)
    if os.path.lexists(place) and not _is_export(place):
        raise StoreError(
            f"{out} exists and holds no metrics, so it is not overwritten: name another file with --out, or print the "
            "metrics without --out",
            kind="foreign",
        )
    try:
        write_to_textfile(place, registry)
    except OSError as error:
        raise StoreError(
            f"cannot write {out}: {error.strerror}; name another file with --out", kind="not-writable"
        ) from error


def _is_export(place: str) -> bool:
    """Return whether a file is empty, or holds metrics in the text format."""
    if not os.path.isfile(place):
        return False
    try:
        with open(place, "rb") as stream:
            return stream.read(7) in (b"# HELP ", b"# TYPE ", b"")
    except OSError:
        return False


class _Collector:
    """The metrics of one run."""

    def __init__(self, run: str, title: str, figures: RunFigures) -> None:
        self._runs = [(run, title, figures)]

    def collect(self) -> Iterator[Any]:
        from ...monitoring.prometheus import families

        yield from families(self._runs)


def _registry(place: str) -> CollectorRegistry:
    """Return a registry with the metrics of a run directory only."""
    from prometheus_client import CollectorRegistry

    from distkern.storage import RunDirectory

    from ...monitoring.run_state import RunFigures

    directory = RunDirectory.open(place)
    figures = RunFigures.of_records(directory.events())
    summary, driver = directory.summary, directory.driver()
    if summary is not None:
        figures.conclude(summary)
    elif figures.stop_reason is None and driver is not None and driver.alive is False:
        figures.failure = figures.failure or "killed"
    name = directory.name
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(figures.run_id or name, name, figures))
    return registry

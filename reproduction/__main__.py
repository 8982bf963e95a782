"""The command ``python -m reproduction``: repeats tables and figures and prints published values beside ours."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from distkern.cli.console.terminal import verbosity_options
from distkern.cli.main import run_command
from distkern.errors import StoreError

if TYPE_CHECKING:
    from . import Entry, Report, Row, Study

logger = logging.getLogger("distkern.reproduction")

_HEADER = ("data", "method", "measure", "published", "ours", "as good", "centres", "evaluations", "published", "runs")


@click.command()
@click.argument("names", metavar="[NAME...|all]", nargs=-1)
@click.option("--data", metavar="DIR", help="Folder of the .npz files; else the environment variable DISTKERN_DATA.")
@click.option("--plot", metavar="DIR", help="Draw the figures into this directory (needs matplotlib).")
@click.option("--runs", type=click.IntRange(min=1), metavar="N", help="At most N partitions or repetitions.")
@click.option("--list", "listed", is_flag=True, help="List the names and which data are present, and do nothing.")
@click.option("--overwrite", is_flag=True, help="Replace figures that exist.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@verbosity_options
def reproduce(
    names: tuple[str, ...],
    data: str | None,
    plot: str | None,
    runs: int | None,
    listed: bool,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Repeat tables and figures of the published sources, published values beside ours.

    --list shows every NAME, such as paper-table-2, thesis-figure-5.1 or loo-heart. Each entry uses the published
    protocol and splits, and gives the same numbers each time. Sets that are not in the data folder are listed as
    absent.
    """
    if not names and not listed:
        raise click.UsageError("give the names of tables or figures, or all; --list shows the names")
    from . import ALL, Study, data_folder, find

    entries = find(names or (ALL,))
    if listed:
        _list(entries, data, as_json)
        return
    folder = data_folder(data) if any(entry.sets for entry in entries) else None
    figures = _figures(entries, plot, overwrite)
    study = Study(folder, runs, logger.info)
    started = perf_counter()
    records = []
    for entry in entries:
        report = entry.run(study)
        if entry.name in figures and report.panels:
            from .figures import draw

            draw(report.panels, figures[entry.name])
        records.append(_record(entry, report, study, figures))
        if not as_json:
            _show(entry, report, study, figures)
    if as_json:
        from distkern.cli.console.output import print_json

        print_json({"data": folder, "runs": runs, "seconds": perf_counter() - started, "entries": records})


def _figures(entries: list[Entry], plot: str | None, overwrite: bool) -> dict[str, Path]:
    """Return the file of each figure, after a check that figures can be drawn."""
    if plot is None:
        return {}
    from .figures import require_matplotlib

    require_matplotlib()
    files = {entry.name: Path(plot) / f"{entry.name}.png" for entry in entries if entry.is_figure}
    for file in files.values():
        if file.exists() and not overwrite:
            raise StoreError(f"{file} exists; --overwrite replaces it", kind="exists")
    try:
        Path(plot).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"--plot {plot} cannot be made: {error}", kind="unwritable") from error
    return files


def _list(entries: list[Entry], data: str | None, as_json: bool) -> None:
    from distkern.cli.console.output import columns, print_json, print_table
    from distkern.errors import DataError

    from . import Study, data_folder

    try:
        study = Study(data_folder(data))
    except DataError:
        if data is not None:
            raise
        study = Study(None)
    records = [
        {
            "name": entry.name,
            "title": entry.title,
            "present": [facts.file for facts in entry.sets if study.is_present(facts)],
            "absent": [facts.file for facts in entry.sets if not study.is_present(facts)],
        }
        for entry in entries
    ]
    if as_json:
        print_json({"entries": records})
        return
    rows = [(r["name"], r["title"], _counted(r["present"], r["absent"])) for r in records]
    print_table(columns("Tables and figures", ("name", "what", "data"), rows))


def _counted(present: Any, absent: Any) -> str:
    if not present and not absent:
        return "needs none"
    return f"{len(present)} of {len(present) + len(absent)} sets"


def _absent(entry: Entry, study: Study) -> list[str]:
    return [facts.file for facts in entry.sets if not study.is_present(facts)]


def _record(entry: Entry, report: Report, study: Study, figures: dict[str, Path]) -> dict[str, Any]:
    return {
        "name": entry.name,
        "title": entry.title,
        "rows": [row.record() for row in report.rows],
        "notes": list(report.notes),
        "absent": _absent(entry, study),
        "figure": figures.get(entry.name) if report.panels else None,
    }


def _show(entry: Entry, report: Report, study: Study, figures: dict[str, Path]) -> None:
    from distkern.cli.console.output import columns, print_table

    if report.rows:
        title = f"{entry.name}: {entry.title}"
        print_table(columns(title, _HEADER, [_cells(row) for row in report.rows]))
    else:
        click.echo(f"\n{entry.name}: {entry.title}")
    chosen = [f"{row.data}, {row.method}: {row.settings}" for row in report.rows if row.settings]
    for note in (*report.notes, *(["Chosen: " + "; ".join(chosen)] if chosen else [])):
        click.echo(f"  {note}")
    if absent := _absent(entry, study):
        click.echo(f"  Absent: {', '.join(absent)}")
    if entry.name in figures and report.panels:
        click.echo(f"  Drawn: {figures[entry.name]}")


def _cells(row: Row) -> tuple[str, ...]:
    as_good = row.verdict.as_good
    return (
        row.data,
        row.method,
        row.measure,
        _with_deviation(row.published, row.published_deviation),
        "absent" if row.ours is None else _with_deviation(row.ours, row.deviation),
        "-" if as_good is None else str(row.verdict),
        _count(row.centers),
        _count(row.evaluations),
        _count(row.published_evaluations),
        str(row.runs) if row.runs else "-",
    )


def _with_deviation(value: float | None, deviation: float | None) -> str:
    if value is None:
        return "-"
    shown = _number(value)
    return shown if deviation is None else f"{shown} ± {_number(deviation)}"


def _number(value: float) -> str:
    return f"{value:.2f}" if abs(value) >= 0.5 else f"{value:.3g}"


def _count(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 or value == round(value) else f"{value:.1f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code.

    Parameters
    ----------
    arguments : sequence of str, optional
        The names and options; those of the process by default.
    """
    return run_command(reproduce, "python -m reproduction", arguments)


if __name__ == "__main__":
    sys.exit(main())

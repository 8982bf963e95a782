"""Run a benchmark and print its table: ``python -m benchmarks accuracy``."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarks import accuracy, datasets, stop_rule, tables


@click.group(help="Benchmarks of distkern; each prints a Markdown table and may save it as JSON.")
def main() -> None:
    pass


_sets = click.option("--set", "names", multiple=True, help="Only this set; may be given several times.")
_json = click.option("--json", "path", type=click.Path(path_type=Path), help="Also save the rows here.")


@main.command("accuracy", help="Test error beside scikit-learn's SVC and Nystroem + ridge.")
@_sets
@_json
@click.option("--seeds", default=1, show_default=True, help="Row-draw seeds to average distkern over.")
def accuracy_command(names: tuple[str, ...], path: Path | None, seeds: int) -> None:
    rows = accuracy.run(datasets.present(names), tuple(range(seeds)))
    click.echo(tables.markdown(rows))
    tables.save(path, rows)


@main.command("stop-rule", help="The default stop rule beside the best model along the path.")
@_sets
@_json
@click.option("--seed", default=0, show_default=True)
def stop_rule_command(names: tuple[str, ...], path: Path | None, seed: int) -> None:
    rows = stop_rule.run(datasets.present(names), seed)
    click.echo(tables.markdown(rows))
    tables.save(path, rows)


if __name__ == "__main__":
    main()

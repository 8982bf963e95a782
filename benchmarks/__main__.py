"""Run a benchmark and print its table: ``python -m benchmarks accuracy``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from benchmarks import (
    accuracy,
    accuracy_time,
    compact_support,
    datasets,
    gemm_share,
    generated,
    large_model,
    large_table,
    losses,
    memory,
    methods,
    norm_refit,
    peers,
    probabilities,
    profiling,
    record_cost,
    reference_loop,
    scaling,
    single_widths,
    speech_size,
    stop_rule,
    tables,
    wide_table,
)
from benchmarks.cluster import many_workers, simulated
from benchmarks.faults import campaign as faults
from benchmarks.faults import soak
from benchmarks.faults_in_code import campaign
from benchmarks.faults_in_code.faults import load
from benchmarks.faults_in_code.selection import Coverage
from distkern.cli.console.interrupts import terminated_as_interrupted


@click.group(help="Benchmarks of distkern; each prints a Markdown table and may save it as JSON.")
def main() -> None:
    pass


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

_sets = click.option("--set", "names", multiple=True, help="Only this set; may be given several times.")
_json = click.option("--json", "path", type=click.Path(path_type=Path), help="Also save the rows here.")
_folder = click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of temporary stores; by default the system's.",
)
_dtype = click.option("--dtype", default="float64", show_default=True, type=click.Choice(["float64", "float32"]))


def _number(name: str, default: int, text: str | None = None) -> Decorator:
    return click.option(name, default=default, show_default=True, type=click.IntRange(min=0), help=text)


def _numbers(name: str, variable: str, default: tuple[int, ...], text: str | None = None) -> Decorator:
    several = "May be given several times."
    return click.option(
        name,
        variable,
        multiple=True,
        default=default,
        show_default=bool(default),
        type=click.IntRange(min=1),
        help=f"{text} {several}" if text else several,
    )


@main.command("accuracy", help="Test error beside scikit-learn's SVC and Nystroem + ridge.")
@_sets
@_json
@_number("--seeds", 1, "Row-draw seeds to average distkern over.")
def accuracy_command(names: tuple[str, ...], path: Path | None, seeds: int) -> None:
    tables.report(accuracy.run(datasets.present(names), tuple(range(seeds))), path)


@main.command("accuracy-time", help="Test error and fit time against centres, beside Nystroem, SVC and Falkon.")
@_sets
@_json
@_numbers("--centers", "centers", (), "Instead of an eighth, a quarter, a half and all of the set's number.")
@click.option("--fewer/--no-fewer", default=True, show_default=True, help="Rows with 0.6 of Nystroem's centres.")
def accuracy_time_command(names: tuple[str, ...], path: Path | None, centers: tuple[int, ...], fewer: bool) -> None:
    splits = datasets.present(names or accuracy_time.SETS)
    tables.report(accuracy_time.run(splits, centers, fewer=fewer), path)


_longer = click.option(
    "--longer",
    default=1,
    show_default=True,
    type=click.IntRange(min=1),
    help="Multiple of the set's number of centres that a path may have.",
)


@main.command("stop-rule", help="The stop rules beside the best model along the path.")
@_sets
@_json
@_number("--seed", 0)
@click.option(
    "--rule", "rules", multiple=True, default=stop_rule.RULES, show_default=True, help="May be given several times."
)
@_longer
def stop_rule_command(
    names: tuple[str, ...], path: Path | None, seed: int, rules: tuple[str, ...], longer: int
) -> None:
    tables.report(stop_rule.run(datasets.present(names), seed, rules, longer), path)


@main.command("norm-refit", help="refit='rkhs' and evidence beside the path's weights with lambda by GCV.")
@_sets
@_json
@_number("--seed", 0)
@_longer
def norm_refit_command(names: tuple[str, ...], path: Path | None, seed: int, longer: int) -> None:
    tables.report(norm_refit.run(datasets.present(names), seed, longer), path)


@main.command("probabilities", help="Log loss and Brier score of calibrated forms beside SVC(probability=True).")
@_sets
@_json
@_number("--seeds", 3, "Row-draw seeds to average distkern over.")
def probabilities_command(names: tuple[str, ...], path: Path | None, seeds: int) -> None:
    tables.report(probabilities.run(names, tuple(range(seeds))), path)


@main.command("losses", help="Logistic, quantile and Huber losses beside scikit-learn's linear models on Nystroem.")
@_sets
@_json
@_number("--seeds", 3, "Row-draw seeds to average over.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    default=("classes", "quantiles", "outliers"),
    show_default=True,
    type=click.Choice(["classes", "quantiles", "outliers"]),
    help="May be given several times.",
)
def losses_command(names: tuple[str, ...], path: Path | None, seeds: int, kinds: tuple[str, ...]) -> None:
    tables.report(losses.run(datasets.present(names), kinds, tuple(range(seeds))), path)


@main.command("methods", help="Every method on the same rows, with the same kernel width.")
@_sets
@_json
@click.option("--method", "chosen", multiple=True, type=click.Choice(list(methods.METHODS)), help="Only this one.")
def methods_command(names: tuple[str, ...], path: Path | None, chosen: tuple[str, ...]) -> None:
    rows: list[dict[str, Any]] = []
    measured = methods.run(datasets.present(names or methods.SETS), chosen or methods.METHODS)
    tables.report(methods.noted(measured, rows), path)
    click.echo("\n" + tables.markdown(methods.pivoted(rows)))


@main.command("compact-support", help="Wendland's kernel: predictions that skip far centres, by radius.")
@_sets
@_json
@_number("--centers", 500)
def compact_support_command(names: tuple[str, ...], path: Path | None, centers: int) -> None:
    tables.report(compact_support.run(names, centers), path)


@main.command("reference-loop", help="criterion='residual' beside a plain numpy loop, one centre at a time.")
@_json
@_number("--rows", 100_000)
@_number("--features", 10)
@_numbers("--centers", "centers", (400, 1000))
def reference_loop_command(path: Path | None, rows: int, features: int, centers: tuple[int, ...]) -> None:
    tables.report(reference_loop.run(rows, features, centers), path)


@main.command("gemm-share", help="Share of the machine's matrix-product rate that the selection reaches.")
@_json
@_number("--rows", 200_000)
@_number("--features", 20)
@_number("--centers", 1000)
@click.option("--dtype", "dtypes", multiple=True, default=("float64", "float32"), show_default=True)
@_number("--gemm-size", 4096, "Side of the square product that measures the machine.")
def gemm_share_command(
    path: Path | None, rows: int, features: int, centers: int, dtypes: tuple[str, ...], gemm_size: int
) -> None:
    tables.report(gemm_share.run(rows, features, centers, dtypes, gemm_size), path)


@main.command("scaling-workers", help="Training time from a store with one and with two worker processes.")
@_json
@_number("--rows", 1_000_000)
@_number("--features", 32)
@_number("--centers", 500)
@_numbers("--workers", "workers", (1, 2))
@_folder
def scaling_workers_command(
    path: Path | None, rows: int, features: int, centers: int, workers: tuple[int, ...], folder: Path | None
) -> None:
    tables.report(scaling.by_workers(rows, features, centers, workers, folder=folder), path)


@main.command("scaling-rows", help="Training time from stores of growing size at a fixed number of centres.")
@_json
@_numbers("--rows", "sizes", (125_000, 250_000, 500_000, 1_000_000))
@_number("--features", 32)
@_number("--centers", 300)
@_number("--workers", 2, "Worker processes; 0 is this process.")
@_folder
def scaling_rows_command(
    path: Path | None, sizes: tuple[int, ...], features: int, centers: int, workers: int, folder: Path | None
) -> None:
    tables.report(scaling.by_rows(sizes, features, centers, workers, folder=folder), path)


@main.command("memory", help="Planned and measured peaks of trainings through the command line.")
@_json
@_numbers("--rows", "sizes", (100_000, 200_000, 400_000))
@_number("--features", 32)
@_number("--centers", 300)
@_number("--workers", 2, "Worker processes; 0 is the command's own process, without a budget.")
@click.option(
    "--budget", "budgets", multiple=True, default=("1GiB", "2GiB"), show_default=True, help="Memory of a worker."
)
@_dtype
@_folder
def memory_command(
    path: Path | None,
    sizes: tuple[int, ...],
    features: int,
    centers: int,
    workers: int,
    budgets: tuple[str, ...],
    dtype: str,
    folder: Path | None,
) -> None:
    tables.report(memory.run(sizes, features, centers, workers, budgets if workers else (None,), dtype, folder), path)


@main.command(
    "large-table", help="Many rows of which few columns matter: a learnt metric beside XGBoost, from one store."
)
@_json
@_number("--rows", 20_000_000)
@_number("--features", 32)
@_number("--centers", 360)
@_number("--workers", 2)
@click.option("--memory", "budget", default="1GiB", show_default=True, help="Memory of a worker.")
@click.option("--target", default=0.109, show_default=True, help="Error at which XGBoost ends.")
@_folder
def large_table_command(
    path: Path | None,
    rows: int,
    features: int,
    centers: int,
    workers: int,
    budget: str,
    target: float,
    folder: Path | None,
) -> None:
    tables.report(large_table.run(rows, features, centers, workers, budget, target, folder), path)


@main.command(
    "large-model", help="Very many centres: drawn centres and conjugate gradients, beside fewer and random ones."
)
@_json
@_number("--rows", 1_000_000)
@_number("--features", 20)
@_number("--centers", 20_000)
@_number("--few", 2000, "Centres that are selected one after another.")
@_number("--workers", 2)
@click.option("--memory", "budget", default="3GiB", show_default=True, help="Memory of a worker.")
@_folder
def large_model_command(
    path: Path | None,
    rows: int,
    features: int,
    centers: int,
    few: int,
    workers: int,
    budget: str,
    folder: Path | None,
) -> None:
    tables.report(large_model.run(rows, features, centers, few, workers, budget, folder), path)


@main.command("wide-table", help="Many columns of which few matter, mixed: one width beside learnt metrics.")
@_json
@_number("--rows", 1_000_000)
@_number("--features", 500)
@_number("--centers", 600)
@_number("--workers", 2)
@click.option("--memory", "budget", default="2GiB", show_default=True, help="Memory of a worker.")
@_folder
def wide_table_command(
    path: Path | None, rows: int, features: int, centers: int, workers: int, budget: str, folder: Path | None
) -> None:
    tables.report(wide_table.run(rows, features, centers, workers, budget, folder), path)


@main.command("peers", help="Error, times, memory and model size beside Nystroem, trees and xRFM, each in a process.")
@_sets
@_json
@click.option("--method", "chosen", multiple=True, type=click.Choice(list(peers.METHODS)), help="Only this method.")
@_numbers("--centers", "sizes", (), "Centres, instead of those of each method.")
@_number("--seeds", 1, "Trainings of each size.")
def peers_command(
    names: tuple[str, ...], path: Path | None, chosen: tuple[str, ...], sizes: tuple[int, ...], seeds: int
) -> None:
    tables.report(peers.run(names, chosen, sizes, seeds), path)


@main.command("single-widths", help="A learnt metric with a kernel of its own beside the best single width of each.")
@_sets
@_json
@_number("--centers", 1500)
@_number("--seeds", 3, "Trainings of each kind.")
def single_widths_command(names: tuple[str, ...], path: Path | None, centers: int, seeds: int) -> None:
    tables.report(single_widths.run(datasets.present(names), centers, seeds), path)


@main.command("profile", help="Time of each phase of one training in this process.")
@_json
@_number("--rows", 100_000)
@_number("--features", 20)
@_number("--centers", 500)
@_dtype
@click.option("--criterion", default="error-reduction", show_default=True)
@_number("--top", 10, "Functions of the driver to list.")
def profile_command(
    path: Path | None, rows: int, features: int, centers: int, dtype: str, criterion: str, top: int
) -> None:
    tables.report(profiling.measure(rows, features, centers, dtype, criterion, top), path)


@main.command("speech-size", help="1.1 million rows of 144 overlapping classes on two workers of 2 GiB.")
@_json
@_number("--rows", 1_100_000)
@_number("--test-rows", 50_000)
@_number("--features", 39)
@_number("--classes", 144)
@_number("--components", 8, "Gaussians of a class.")
@_number("--centers", 1000)
@click.option("--sigma", default=speech_size.SIGMA, show_default=True)
@_number("--workers", 2)
@click.option("--memory", default="2GiB", show_default=True, help="Of a worker.")
@_number("--selection-rows", 100_000, "Rows to choose centres on; 0 omits this training.")
@click.option("--all-rows/--no-all-rows", default=True, show_default=True, help="Also choose centres on all rows.")
@_number("--seed", 0)
@_folder
def speech_size_command(
    path: Path | None,
    rows: int,
    test_rows: int,
    features: int,
    classes: int,
    components: int,
    centers: int,
    sigma: float,
    workers: int,
    memory: str,
    selection_rows: int,
    all_rows: bool,
    seed: int,
    folder: Path | None,
) -> None:
    mixture = generated.Mixture(classes, components, features, seed=seed)
    rows_of_table = speech_size.run(
        rows,
        test_rows,
        centers,
        mixture,
        sigma=sigma,
        workers=workers,
        memory=memory,
        selection_rows=selection_rows or None,
        all_rows=all_rows,
        folder=folder,
    )
    tables.report(rows_of_table, path)


@main.command("driver-time", help="The driver's own time and memory a round with many simulated workers.")
@_json
@_number("--workers", 1000)
@_number("--rows", 10**9)
@_number("--features", 20)
@_number("--centers", 500)
def driver_time_command(path: Path | None, workers: int, rows: int, features: int, centers: int) -> None:
    tables.report(simulated.run(workers, rows, features, centers), path)


@main.command("cluster", help="Dozens of small workers in network namespaces of this machine (needs root).")
@_json
@_numbers("--workers", "workers", (8, 16, 32, 48))
@_number("--rows", 38_400)
@_number("--centers", 128)
@click.option("--delay", default=1.0, show_default=True, help="Milliseconds that the network takes to a worker.")
@click.option("--rate", help="Bandwidth of what a worker sends, such as 200mbit; no limit by default.")
def cluster_command(
    path: Path | None, workers: tuple[int, ...], rows: int, centers: int, delay: float, rate: str | None
) -> None:
    tables.report(many_workers.run(workers, rows, centers, delay, rate), path)


@main.command("record-cost", help="Training with and without a run directory.")
@_json
@_folder
@_number("--rows", 200_000)
@_number("--features", 10)
@_number("--centers", 500)
@_number("--repeats", 3)
def record_cost_command(
    path: Path | None, folder: Path | None, rows: int, features: int, centers: int, repeats: int
) -> None:
    tables.report(record_cost.run(rows, features, centers, repeats, folder), path)


@main.command("faults", help="Runs with failures of all kinds, compared with undisturbed ones; or trainings for long.")
@_json
@_number("--runs", 200, "Runs.")
@_number("--seed", 0, "Seed of the first one; the others follow.")
@click.option(
    "--soak", "minutes", type=click.FloatRange(min=0), help="Trainings without faults for so long: memory of processes."
)
def faults_command(path: Path | None, runs: int, seed: int, minutes: float | None) -> None:
    if minutes is not None:
        tables.report(soak.run(minutes), path)
        return
    rows: list[dict[str, Any]] = []
    tables.report(methods.noted(faults.campaign(runs, seed), rows), path)
    click.echo("\n" + tables.markdown(faults.totals(rows)))


_file = click.Path(path_type=Path, exists=True, dir_okay=False)


@main.command("faults-in-code", help="Small faults planted in the code one at a time, and the test that catches each.")
@_json
@click.option("--only", multiple=True, metavar="ID", help="Only this fault; may be given several times.")
@click.option("--coverage", type=_file, help="Database of a test run with --cov-context=test: run what ran the lines.")
@click.option("--durations", type=_file, help="Report (--junitxml) of that run.")
@click.option("--slow/--no-slow", default=True, show_default=True, help="Slow tests where no fast one catches a fault.")
@click.option("--jobs", default=1, show_default=True, type=click.IntRange(min=1), help="Faults at a time.")
def faults_in_code_command(
    path: Path | None, only: tuple[str, ...], coverage: Path | None, durations: Path | None, slow: bool, jobs: int
) -> None:
    tests = None if coverage is None else Coverage(coverage, durations)
    rows: list[dict[str, Any]] = []
    found = campaign.run(load(only), coverage=tests, slow=slow, jobs=jobs, path=path)
    tables.report(methods.noted(found, rows), path)
    click.echo("\n" + tables.markdown(campaign.totals(rows)))


if __name__ == "__main__":
    # What a measurement has started ends with it, and its network namespaces are removed.
    with terminated_as_interrupted():
        main()

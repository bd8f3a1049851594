"""What a fit moved, as people read it."""

from __future__ import annotations

from rich.markup import escape

from costmodel.calibration.microbenchmarks.estimate import Estimate
from costmodel.calibration.microbenchmarks.learned import Learned
from planner.calibrating import Calibrated
from planner.cli.report import PipedConsole, figures_table

_SHOWN = 40
_NEARLY_ALL = 0.995


def print_calibrated(found: Calibrated, out: str, cluster_out: str | None = None) -> None:
    """Everything on stdout."""
    console = PipedConsole.on_stdout()
    if found.alone is not None:
        _print_alone(console, found.alone, found.base)
    if found.figures:
        _print_runs(console, found)
    console.print(f"Written to {out}: use it with --calibration.", soft_wrap=True, markup=False)
    if cluster_out is not None:
        console.print(f"Written to {cluster_out}: use it with --cluster.", soft_wrap=True, markup=False)
    elif found.alone is not None and found.alone.for_cluster_files:
        console.print(
            "Groups of a log's very shape are priced by the sweep in their cluster's file, else by a published one: "
            "--cluster-out writes such a file.",
            soft_wrap=True,
            markup=False,
        )


def _print_alone(console: PipedConsole, alone: Learned, base: str) -> None:
    """What kernels and collectives say."""
    console.print(f"measured alone; begun at {base}", soft_wrap=True, markup=False)
    for kind, count in alone.rows.items():
        before, after = alone.errors[kind]
        console.print(
            f"{count} {kind}: median error {before:.0%} before, {after:.0%} after", soft_wrap=True, markup=False
        )
    on = sorted({of.cluster.name for of in alone.sweeps})
    if on:
        console.print(f"collectives are taken to be of {' and '.join(on)}", soft_wrap=True, markup=False)
    if alone.moved:
        table = figures_table("parameter", "for", "before", "after", "+-", "rows", "sweeps", words=2)
        for of in alone.moved[:_SHOWN]:
            table.add_row(
                of.name,
                escape(_about(of)),
                *(f"{value:.4g}" for value in (of.prior.value, of.value, of.standard_error)),
                str(of.rows),
                str(of.sweeps),
            )
        console.print(table)
    for said, estimates in (
        ("confirmed where they were", alone.confirmed),
        ("not told, left as they were", alone.untold),
    ):
        if estimates:
            names = ", ".join(f"{of.name} ({_about(of)})" for of in estimates)
            console.print(f"{said}: {names}", soft_wrap=True, markup=False)


def _about(of: Estimate) -> str:
    return ", ".join(part for part in (of.accelerator, of.precision) if part)


def _disagreement(figure: str, share: float) -> str:
    if not share:
        return f"{figure}: left as it was: runs disagree, or repeats of one differ, by more than it would move"
    return f"{figure}: {share:.0%} of the move is made, as much as the runs agree on; they differ among themselves"


def _print_runs(console: PipedConsole, found: Calibrated) -> None:
    told = ", ".join(f"{count} with a measured {figure}" for figure, count in found.figures.items())
    begun = f"{found.base} and what was measured alone" if found.alone else found.base
    console.print(f"{found.runs} runs, {told}; begun at {begun}", soft_wrap=True, markup=False)
    if found.moved:
        table = figures_table("parameter", "for", "before", "after", "+-", "runs", "groups", words=2)
        for row in found.moved[:_SHOWN]:
            numbers = (f"{value:.4g}" for value in (row.before, row.after, row.standard_error))
            table.add_row(row.name, escape(row.about), *numbers, str(row.runs), str(row.groups))
        console.print(table)
    for figure, share in found.shares.items():
        if share < _NEARLY_ALL:
            console.print(_disagreement(figure, share), soft_wrap=True, markup=False)
    left = len(found.moved) - _SHOWN
    if left > 0:
        console.print(f"{left} more moved, see --json", soft_wrap=True)
    console.print(
        f"{len(found.moved)} moved by more than their error; {found.steady} that runs can't tell from where they "
        "began.",
        soft_wrap=True,
        markup=False,
    )

"""Figures of fidelity as people read them: one table of all predictors, one of studies, one of cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from costmodel.fidelity.exclusions import default_exclusions
from costmodel.fidelity.scores import Fidelity
from costmodel.fidelity.unseen import Unseen
from planner.cli.report import PipedConsole, figures_table
from planner.validation import Validation

_BASELINE_TITLES = {"constant_mfu": "constant 40 % MFU", "one_line": "one-line formula"}

_REASONS_SHOWN = 10
_REASONS_WARNED_OF = 3
_HELD_OUT = "Held out: every run is predicted by a calibration that was fitted without its group."
_IN_SAMPLE = "The calibration was fitted to these very runs, which flatters: --folds 5 has the errors on others."

_Show = Callable[[Any], str]


def _share(value: Any) -> str:
    return "-" if value is None else f"{value:.1%}"


def _signed(value: Any) -> str:
    return "-" if value is None else f"{value:+.1%}"


def _decimal(value: Any) -> str:
    return "-" if value is None else f"{value:.3f}"


_FIGURES: tuple[tuple[str, str, _Show], ...] = (
    ("scorable", "runs with a usable step time", str),
    ("coverage", "of these, predicted", _share),
    ("time_median_ape_macro", "time: median error, mean over studies", _share),
    ("time_mape_macro", "time: mean error, mean over studies", _share),
    ("time_median_ape_all", "time: median error, all runs", _share),
    ("time_bias_all", "time: bias, all runs", _signed),
    ("interval_coverage", "time: measured inside the interval", _share),
    ("interval_median_width", "time: median width of the interval", _share),
    ("mem_rows", "runs with memory measured and predicted", str),
    ("mem_median_ape_macro", "memory: median error, mean over studies", _share),
    ("mem_median_ape_all", "memory: median error, all runs", _share),
    ("mem_interval_coverage", "memory: measured inside the interval", _share),
    ("mem_interval_median_width", "memory: median width of the interval", _share),
    ("beyond_rows", "runs with a time beyond the calibrated range", str),
    ("beyond_coverage", "of these, measured inside the interval", _share),
    ("beyond_median_width", "of these, median width of the interval", _share),
    ("oom_rows", "runs that went out of memory", str),
    ("oom_recall", "of these, predicted not to fit", _share),
    ("fit_rows", "runs that fitted", str),
    ("fit_recall", "of these, predicted to fit", _share),
    ("cells", "cells of plans to rank", str),
    ("spearman_mean", "ranking: Spearman, mean over cells", _decimal),
    ("regret_top1_mean", "ranking: regret of the first, mean", _share),
    ("regret_top1_median", "ranking: regret of the first, median", _share),
    ("regret_top3_mean", "ranking: regret of the best of three, mean", _share),
)


def print_validation(validation: Validation) -> None:
    """Everything on stdout."""
    console = PipedConsole.on_stdout()
    console.print(f"{validation.runs} runs, calibration {validation.calibration}", soft_wrap=True, markup=False)
    console.print(_overview(validation))
    if validation.held_out:
        console.print(_HELD_OUT, soft_wrap=True)
    elif validation.in_sample:
        console.print(_IN_SAMPLE, soft_wrap=True)
    if validation.unseen:
        _tell_unseen(console, validation.unseen)
    shown = validation.shown
    console.print(f"By study, {'held out' if validation.held_out else 'planner'}", soft_wrap=True)
    console.print(_studies(shown))
    if shown.per_cell:
        console.print("By cell: the same model, devices, batch and sequence", soft_wrap=True)
        console.print(_cells(shown))
    _footnotes(console, validation)


def _tell_unseen(console: Console, found: Unseen) -> None:
    console.print("Whole studies left out, and three runs of each class of theirs given back", soft_wrap=True)
    table = figures_table("figure", "cold", "with three runs")
    table.add_row(f"time: median error, median of {found.studies} studies", _share(found.median), "")
    table.add_row("time: median error, 90th percentile of studies", _share(found.worst), "")
    table.add_row("time: median error, mean over classes", _share(found.time_before), _share(found.time_after))
    table.add_row("memory: median error, mean over classes", _share(found.mem_before), _share(found.mem_after))
    table.add_row("most that a class got worse", "", _signed(found.worst_step))
    console.print(table)


def none_judged(validation: Validation) -> str:
    """What to say when no run is judged on time or memory."""
    why = "; ".join(_counted(validation.not_judged, _REASONS_WARNED_OF))
    return f"none of {validation.runs} can be judged on time or memory: {why}"


def _overview(validation: Validation) -> Table:
    columns: dict[str, Fidelity] = {}
    if validation.held_out:
        columns["held out"] = validation.held_out
    columns["in sample" if validation.in_sample else "planner"] = validation.planner
    columns |= {_BASELINE_TITLES[name]: figures for name, figures in validation.baselines.items()}
    table = figures_table("figure", *columns)
    for name, title, show in _FIGURES:
        table.add_row(title, *(show(getattr(figures, name)) for figures in columns.values()))
    return table


def _studies(figures: Fidelity) -> Table:
    table = figures_table(
        "study", "runs", "predicted", "median", "mean", "bias", "interval", "memory runs", "median", "bias", "interval"
    )
    for name, study in figures.per_study.items():
        table.add_row(
            escape(name) or "(no group)",
            str(study.scorable),
            _share(study.coverage),
            _share(study.median_ape),
            _share(study.mean_ape),
            _signed(study.bias),
            _share(study.interval_coverage),
            str(study.mem_n),
            _share(study.mem_median_ape),
            _signed(study.mem_bias),
            _share(study.mem_interval_coverage),
        )
    return table


def _cells(figures: Fidelity) -> Table:
    table = figures_table("study, model", "devices", "batch", "seq", "plans", "Spearman", "regret of 1", "of best of 3")
    for ranked in figures.per_cell:
        cell = ranked.cell
        table.add_row(
            escape(f"{cell.study}, {cell.model_name}"),
            *("-" if size is None else str(size) for size in (cell.devices, cell.global_batch, cell.seq_len)),
            str(ranked.plans),
            _decimal(ranked.spearman),
            _share(ranked.regret_top1),
            _share(ranked.regret_top3),
        )
    return table


def _footnotes(console: Console, validation: Validation) -> None:
    _reasons(console, "Not predicted:", validation.planner.not_covered)
    _reasons(console, "Judged on neither time nor memory:", validation.not_judged)
    for exclusion in default_exclusions():
        count = validation.planner.excluded.get(exclusion.name, 0)
        if count:
            line = f"Left out of the time figures: {count} {exclusion.name}. {exclusion.reason}"
            console.print(line, soft_wrap=True, markup=False)


def _reasons(console: Console, title: str, counts: Mapping[str, int]) -> None:
    if not counts:
        return
    console.print(title, soft_wrap=True)
    for line in _counted(counts, _REASONS_SHOWN):
        console.print(f"  {line}", soft_wrap=True, markup=False)


def _counted(counts: Mapping[str, int], most: int) -> list[str]:
    """A line per reason; those beyond ``most`` in one."""
    lines = [f"{count} x {reason}" for reason, count in counts.items()]
    left = len(lines) - most
    return lines if left <= 0 else [*lines[:most], f"{left} more {'reason' if left == 1 else 'reasons'}, see --json"]

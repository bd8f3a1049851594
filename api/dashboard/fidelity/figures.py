"""The figures of ``planner validate`` as tables of texts, baselines beside each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean
from typing import Any

from costmodel.fidelity.scores import Fidelity
from planner.judging import Judged

_Show = Callable[[Any], str]

BASELINES = {"constant_mfu": "constant 40 % MFU", "one_line": "one-line formula"}
"""The rules of thumb that a cost model has to beat."""


def share(value: float | None) -> str:
    """Per cent with its sign."""
    return "" if value is None else f"{100 * value:.1f} %"


def signed(value: float | None) -> str:
    """Per cent, and in which direction."""
    return "" if value is None else f"{100 * value:+.1f} %"


def decimal(value: float | None) -> str:
    """Two decimals."""
    return "" if value is None else f"{value:.2f}"


def _count(value: int) -> str:
    return f"{value:,}"


# Name of the figure in ``planner validate --json``, what it is, and how it is shown.
_ROWS: tuple[tuple[str, tuple[tuple[str, str, _Show], ...]], ...] = (
    (
        "Step time",
        (
            ("scorable", "runs with a usable step time", _count),
            ("coverage", "of these, predicted", share),
            ("time_median_ape_macro", "median error, mean over studies", share),
            ("time_mape_macro", "mean error (MAPE), mean over studies", share),
            ("time_median_ape_all", "median error, all runs", share),
            ("time_bias_all", "bias, all runs", signed),
            ("interval_coverage", "measured inside the 90 % interval", share),
            ("interval_median_width", "median width of the interval", share),
        ),
    ),
    (
        "Memory",
        (
            ("mem_rows", "runs with memory measured and predicted", _count),
            ("mem_median_ape_macro", "median error, mean over studies", share),
            ("mem_interval_coverage", "measured inside the 90 % interval", share),
            ("oom_recall", "out of memory, and predicted so", share),
            ("fit_recall", "fitted, and predicted so", share),
        ),
    ),
    (
        "Ranking",
        (
            ("cells", "questions with five plans or more", _count),
            ("spearman_mean", "rank correlation (Spearman), mean", decimal),
            ("regret_top1_mean", "regret of the plan picked, mean", share),
            ("regret_top3_mean", "regret of the best of three, mean", share),
        ),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Block:
    """Figures that belong together: of each what it is, and a text per predictor."""

    name: str
    rows: list[tuple[str, tuple[str, ...]]]


def overview(predictors: list[Fidelity]) -> list[Block]:
    """Every figure of several predictors side by side."""
    return [
        Block(
            name=block,
            rows=[(title, tuple(show(getattr(of, name)) for of in predictors)) for name, title, show in rows],
        )
        for block, rows in _ROWS
    ]


@dataclass(frozen=True, kw_only=True)
class StudyRow:
    """A study, texts in the order of ``STUDY_COLUMNS``."""

    name: str
    cells: tuple[str, ...]


STUDY_COLUMNS = (
    ("runs", ""),
    ("median error", "%"),
    ("constant MFU", "%"),
    ("one-line", "%"),
    ("mean error", "%"),
    ("bias", "%"),
    ("inside", "%"),
    ("memory runs", ""),
    ("median error", "%"),
    ("inside", "%"),
    ("Spearman", ""),
    ("regret", "%"),
)


def studies(judged: Judged) -> list[StudyRow]:
    """Of each study of the runs, those with the most runs first."""
    figures, beside = judged.figures, judged.baseline_figures
    ranks: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for ranked in figures.per_cell:
        ranks[ranked.cell.study].append((ranked.spearman, ranked.regret_top1))
    rows: list[StudyRow] = []
    for name, study in sorted(figures.per_study.items(), key=lambda one: (-one[1].n - one[1].mem_n, one[0])):
        rivals = [of.per_study.get(name) for of in (beside[rival] for rival in BASELINES)]
        order = ranks.get(name, [])
        cells = (
            _count(study.n),
            _bare(study.median_ape),
            *(_bare(None if rival is None else rival.median_ape) for rival in rivals),
            _bare(study.mean_ape),
            "" if study.bias is None else f"{100 * study.bias:+.1f}",
            _bare(study.interval_coverage),
            _count(study.mem_n),
            _bare(study.mem_median_ape),
            _bare(study.mem_interval_coverage),
            decimal(mean(rank for rank, _ in order)) if order else "",
            _bare(mean(regret for _, regret in order)) if order else "",
        )
        rows.append(StudyRow(name=name, cells=cells))
    return rows


def _bare(value: float | None) -> str:
    """Per cent without its sign, which stands in the header."""
    return "" if value is None else f"{100 * value:.1f}"

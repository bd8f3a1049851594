"""The shipped runs judged under one calibration, and the part of them that a filter leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from costmodel.calibration.calibration import Calibration
from costmodel.catalog.framework_catalog import recognise_framework
from costmodel.catalog.spellings import recognise_accelerator
from costmodel.runs.carried import default_runs
from costmodel.runs.columns import Run
from costmodel.runs.predictions import predict_runs
from planner.judging import Judged


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """Which runs; empty is all."""

    accelerator: str = ""
    framework: str = ""
    source: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Work:
    """All runs under one calibration.

    Attributes:
        accelerators, frameworks, sources: of each run, as the catalog names them; sources are studies.
        offered: of those three, each value with how many runs of it are judged on time or memory, the most frequent
            first.
    """

    judged: Judged
    accelerators: tuple[str, ...]
    frameworks: tuple[str, ...]
    sources: tuple[str, ...]
    offered: dict[str, tuple[tuple[str, int], ...]]

    @classmethod
    def of(cls, calibration: Calibration) -> Work:
        """Predict them: takes seconds."""
        judged = Judged.of(default_runs(), predict_runs, calibration)
        observed = judged.observed
        counted = np.flatnonzero(observed.scorable | observed.memory_scorable).tolist()
        columns = {
            "accelerator": tuple(recognise_accelerator(run.accelerator).accelerator.name for run in judged.runs),
            "framework": tuple(_framework(run) for run in judged.runs),
            "source": tuple(str(name) for name in observed.studies.tolist()),
        }
        return cls(
            judged=judged,
            accelerators=columns["accelerator"],
            frameworks=columns["framework"],
            sources=columns["source"],
            offered={name: tuple(Counter(of[row] for row in counted).most_common()) for name, of in columns.items()},
        )

    def rows(self, chosen: Chosen) -> list[int]:
        """Places of the runs that are chosen."""
        wanted = (
            (chosen.accelerator, self.accelerators),
            (chosen.framework, self.frameworks),
            (chosen.source, self.sources),
        )
        return [row for row in range(len(self.judged.runs)) if all(not text or text == of[row] for text, of in wanted)]


@dataclass(frozen=True, kw_only=True, eq=False)
class View:
    """The runs that are chosen.

    Attributes:
        rows: their places among all.
    """

    work: Work
    rows: tuple[int, ...]
    judged: Judged

    @property
    def runs(self) -> Sequence[Run]:
        """In the order of ``rows``."""
        return self.judged.runs

    def kinds(self, name: str) -> list[str]:
        """Of each run its accelerator or its framework."""
        of = {"accelerator": self.work.accelerators, "framework": self.work.frameworks}[name]
        return [of[row] for row in self.rows]


@lru_cache(maxsize=16)
def view_of(work: Work, chosen: Chosen) -> View:
    """A part of the runs, with its figures."""
    rows = work.rows(chosen)
    judged = work.judged if len(rows) == len(work.judged.runs) else work.judged.only(rows)
    _ = judged.errors, judged.figures, judged.baseline_figures  # worked out once, and not by two readers at once
    return View(work=work, rows=tuple(rows), judged=judged)


def _framework(run: Run) -> str:
    framework, named = recognise_framework(run.framework)
    return framework.name if named else "other"

"""The measured runs that ship with the planner: complete, clean, and each with its source."""

from __future__ import annotations

from costmodel.fidelity.exclusions import default_exclusions, study_of
from costmodel.fidelity.observed import Observed
from costmodel.runs.carried import default_runs
from costmodel.runs.reader import problems_of


def test_every_row_is_readable_has_a_source_and_contradicts_nothing() -> None:
    runs = default_runs()
    assert len(runs) == 2972
    assert problems_of(runs) == []
    assert all(run.source and run.group.count("/") >= 2 for run in runs)
    assert len({run.id for run in runs}) == len(runs)


def test_every_exclusion_is_about_runs_there_are() -> None:
    studies = {study_of(run) for run in default_runs()}
    excluded = Observed.of(default_runs()).excluded
    for exclusion in default_exclusions():
        assert exclusion.study in studies
        assert excluded[exclusion.name] > 0

"""A rule only ever takes plans away: without any one of them the best plan is as fast or faster."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache

import pytest

from costmodel.catalog.framework_catalog import load_framework
from costmodel.rules import Rule, rules_for
from costmodel.spec.framework import FrameworkSpec
from planner.search.request import SearchRequest
from planner.search.solve import Search
from tests.scenarios import scenario_of
from tests.searches import request_of

CASES = {
    # 28 layers on 3 stages, under a release that lays none out unevenly.
    "stages": (("llama-3.2-3b", "dgx-h100", 6, 12, 4096), "0.9", ("pp=3", "tp=1", "mbs=1")),
    "experts": (("qwen3-30b-a3b", "dgx-h100", 16, 16, 4096), "0.16", ("pp=1", "ep=16", "mbs=1", "zero=1", "cp=1")),
}
# What a plan is, not what a framework takes: without these there are no layers, or no batch, to price.
_OF_THE_SPACE = frozenset(
    {"batch_divisible", "microbatches_fill_batch", "schedule_fits_chunks", "layout_has_no_empty_stage"}
)


@cache
def request(case: str) -> SearchRequest:
    asked, version, pins = CASES[case]
    framework = load_framework("megatron-core", version)
    return request_of(scenario_of(*asked).model_copy(update={"framework": framework}), pins, top=1)


def best(case: str) -> float:
    outcome = Search(request(case)).run()
    assert outcome.proven
    return outcome.best[0].objective if outcome.best else float("inf")


@cache
def best_under_all(case: str) -> float:
    return best(case)


def _names(case: str) -> list[str]:
    return [rule.name for rule in rules_for(request(case).scenario.framework) if rule.name not in _OF_THE_SPACE]


def _without(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def fewer(framework: FrameworkSpec) -> Sequence[Rule]:
        return tuple(rule for rule in rules_for(framework) if rule.name != name)

    for module in list(sys.modules.values()):
        if getattr(module, "rules_for", None) is rules_for and module.__name__.startswith(("planner.", "costmodel.")):
            monkeypatch.setattr(module, "rules_for", fewer)


@pytest.mark.parametrize("case", CASES)
def test_without_a_rule_the_best_is_never_slower(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = best_under_all(case)
    for name in _names(case):
        with monkeypatch.context() as patch:
            _without(patch, name)
            assert best(case) <= usual, name


def test_a_rule_that_costs_something_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the test above could not fail: stages of unlike depth are faster, and that release has none."""
    usual = best_under_all("stages")
    _without(monkeypatch, "layers_expressible")
    assert best("stages") < usual

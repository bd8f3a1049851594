"""Candidates of a study: the search's plans first, then legal variants of them."""

from __future__ import annotations

from functools import lru_cache

import pytest

from costmodel.checker import check_plan
from costmodel.errors import InvalidInput
from costmodel.spec.plan import Plan
from planner.search.request import SearchRequest
from planner.tuning.candidates import Candidate, candidates_of, variants_of
from tests.scenarios import scenario_of
from tests.searches import request_of


def request(*pins: str) -> SearchRequest:
    return request_of(scenario_of("llama-3.2-1b", "dgx-h100", 8, 32, 4096), pins, top=3)


@lru_cache(maxsize=1)
def found() -> tuple[Candidate, ...]:
    return tuple(candidates_of(request()))


def test_the_short_list_comes_first_and_no_plan_twice() -> None:
    origins = [candidate.origin for candidate in found()]
    assert origins == sorted(origins, key=["shortlist", "search", "variant"].index)
    assert origins[0] == "shortlist"
    assert "variant" in origins
    plans = [candidate.plan for candidate in found()]
    assert all(plan not in plans[:place] for place, plan in enumerate(plans))


def test_every_candidate_is_legal_and_priced() -> None:
    scenario = request().scenario
    for candidate in found():
        assert not check_plan(Plan.model_validate(candidate.plan), scenario)
        assert candidate.prediction["step_time_s"] > 0


def test_variants_heed_the_pins() -> None:
    pinned = request("recompute=none", "micro_batch_size=1,2")
    best = candidates_of(pinned)[0]
    changed = [variant.plan for variant in variants_of(pinned, best.plan)]
    assert changed
    assert {plan["recompute"] for plan in changed} == {"none"}
    assert {plan["micro_batch_size"] for plan in changed} <= {1, 2}
    assert {plan["offload"] for plan in changed} == {"none"}, "it was not allowed"


def test_no_variant_is_the_same_run_in_other_words() -> None:
    alone = candidates_of(request("tp=1", "pp=8", "cp=1"))
    assert {candidate.plan["dp"] for candidate in alone} == {1}
    for field in ("zero_stage", "gradient_sync", "reshard_after", "fsdp_prefetch", "tp_overlap"):
        assert len({candidate.plan[field] for candidate in alone}) == 1, field
    replicas = candidates_of(request("tp=1", "pp=1", "cp=1"))
    assert len({candidate.plan["zero_stage"] for candidate in replicas}) > 1
    assert {candidate.plan["tp_overlap"] for candidate in replicas} == {replicas[0].plan["tp_overlap"]}


def test_where_nothing_fits_there_is_nothing_to_tune() -> None:
    with pytest.raises(InvalidInput, match="no plan fits"):
        candidates_of(request_of(scenario_of("llama-3.1-405b", "dgx-h100", 8, 8, 4096)))

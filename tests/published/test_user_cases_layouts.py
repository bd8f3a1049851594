"""How people's layers fall on pipeline stages: what silently loses some, and the uneven splits that were wanted."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from costmodel.catalog.model_catalog import load_model
from costmodel.rules import broken
from costmodel.scenario import Scenario
from costmodel.spec.model import ModelSpec
from costmodel.stages import Layout, layers_per_chunk
from tests.plans import finished, slugs
from tests.published.user_cases import check_of, each, reported, scenario_for, verdict
from tests.scenarios import plan_row

OLDEST, BEFORE_LAYOUTS = "0.9", "0.12"


def with_layers(layers: int) -> ModelSpec:
    return load_model("llama-3-8b").model_copy(update={"name": f"{layers} layers", "num_layers": layers})


def judged(scenario: Scenario, layers: tuple[int, ...], vpp: int = 1, **changes: object) -> set[str]:
    """What the checker finds in a plan of Megatron with these layers on its stages."""
    pp = len(layers)
    row = plan_row(scenario.workload.global_batch_size, pp=pp, vpp=vpp)
    plan = finished(scenario, row, layers_per_stage=layers, **changes)
    if vpp > 1:
        plan = plan.model_copy(update={"layers_per_chunk": tuple((count // vpp,) * vpp for count in layers)})
    return slugs(plan, scenario)


@dataclass(frozen=True, kw_only=True)
class Lost:
    """Stages that hold ``found`` of a model's layers, and a split that holds all."""

    report: str
    layers: int
    found: tuple[int, ...]
    right: tuple[int, ...]
    fails: str = ""


@each(
    [
        Lost(report="uc-077", layers=80, found=(4,) * 16, right=(5,) * 16),
        Lost(report="uc-078", layers=30, found=(7, 7, 7, 7), right=(7, 8, 8, 7)),
        Lost(report="uc-079", layers=20, found=(1,), right=(20,)),
    ]
)
def test_layers_that_are_lost_are_found_missing(case: Lost) -> None:
    """Today any split can be said, so that only their number is wrong; once, no flags could say such a split either."""
    for version, wrong in ((None, {"layers_add_up"}), (OLDEST, {"layers_add_up", "layers_expressible"})):
        scenario = scenario_for(with_layers(case.layers), version=version, devices=len(case.found))
        assert judged(scenario, case.found) == wrong
        assert judged(scenario, case.right) == set()


@dataclass(frozen=True, kw_only=True)
class Uneven:
    """Layers that the stages don't divide, and the split with lighter ends that is legal all the same."""

    report: str
    model: str | ModelSpec
    pp: int
    right: tuple[int, ...]
    fails: str = ""


@each(
    [
        Uneven(report="uc-072", model="glm-4.5-air-106b-a12b", pp=4, right=(11, 12, 12, 11)),
        Uneven(report="uc-078", model=with_layers(30), pp=4, right=(7, 8, 8, 7)),
    ]
)
def test_layers_that_stages_do_not_divide_need_ends_of_their_own(case: Uneven) -> None:
    """Without flags for the ends Megatron only has equal stages; the plan's default layout is what they can say."""
    now = scenario_for(case.model, version=BEFORE_LAYOUTS, devices=case.pp)
    assert verdict(now, pp=case.pp) == set()
    assert finished(now, plan_row(64, pp=case.pp)).layers_per_stage == case.right
    assert judged(now, tuple(sorted(case.right))) == {"layers_expressible"}
    features = {name: since for name, since in now.framework.features.items() if "_ends" not in name}
    without_flags = now.model_copy(update={"framework": now.framework.model_copy(update={"features": features})})
    assert verdict(without_flags, pp=case.pp) == {"layers_expressible"}
    assert verdict(without_flags, pp=2) == set()


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A split that people asked for, and which of several in the report."""

    report: str
    model: str | ModelSpec
    framework: str
    split: list[int]
    vpp: int = 1
    fails: str = ""


GLM, GLM_AIR = check_of("uc-073")["value"]
VISION = check_of("uc-074")["value"]


@each(
    [
        Wanted(report="uc-073", model="glm-4.5-355b-a32b", framework="megatron-bridge", split=GLM),
        Wanted(report="uc-073", model="glm-4.5-air-106b-a12b", framework="megatron-bridge", split=GLM_AIR),
        Wanted(
            report="uc-074",
            model=with_layers(60),
            framework="megatron-bridge",
            split=VISION,
            vpp=4,
            fails="what a vision tower costs isn't modelled, so no layout is lighter at the front alone",
        ),
        Wanted(report="uc-075", model="qwen3-235b-a22b", framework="megatron-core", split=check_of("uc-075")["value"]),
    ]
)
def test_the_split_is_among_the_layouts_on_offer_and_legal(case: Wanted) -> None:
    pp = len(case.split)
    scenario = scenario_for(case.model, framework=case.framework, devices=pp)
    layouts = {
        layout: [sum(device) for device in chunks]
        for layout in Layout
        if (chunks := layers_per_chunk(scenario.model.num_layers, pp, case.vpp, layout))
    }
    assert case.split in layouts.values()
    layout = next(layout for layout, split in layouts.items() if split == case.split)
    assert verdict(scenario, pp=pp, vpp=case.vpp, layout=layout) == set()


@reported("uc-074")
def test_a_lighter_first_stage_is_legal_where_chunks_divide_it() -> None:
    scenario = scenario_for(with_layers(60), version=BEFORE_LAYOUTS, devices=8)
    assert judged(scenario, tuple(VISION), vpp=4) == set()
    row = plan_row(64, pp=8, vpp=4)
    assert {rule.name for rule, _ in broken(scenario, row)} == {"layers_expressible"}, "60 % 8 is not 0"


@reported("uc-075")
@pytest.mark.parametrize("model", ["qwen3-235b-a22b", "llama-3-70b"])
def test_sequence_parallelism_needs_tensor_parallelism(model: str) -> None:
    scenario = scenario_for(model, devices=16)
    for tp, broken_rules in ((1, {"sequence_parallel_follows_tp"}), (4, set())):
        plan = finished(scenario, plan_row(64, tp=tp, dp=16 // tp), sequence_parallel=True)
        assert slugs(plan, scenario) == broken_rules

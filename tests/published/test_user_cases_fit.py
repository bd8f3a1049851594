"""What people could and couldn't fit: verdicts on memory, with the state per device that the reason states."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import lcm
from typing import Any

import pytest

from costmodel.catalog.model_catalog import load_model
from planner.search.answer import answer_of
from planner.search.solve import Search
from tests.published.user_cases import GB, GIB, answered, check_of, each, reported
from tests.scenarios import scenario_of
from tests.searches import request_of

STATE = re.compile(r"([\d.]+) GiB of it parameters, gradients and optimizer")


def stated_state_bytes(answer: dict[str, Any]) -> float:
    """What the reason of an answer that memory decides says of the state on a device."""
    assert answer["status"] == "infeasible"
    conflict = answer["infeasibility"]["conflict"][0]
    assert conflict["rule"] == "memory"
    found = STATE.search(conflict["reason"])
    assert found, conflict["reason"]
    return float(found[1]) * GIB


@dataclass(frozen=True, kw_only=True)
class TooBig:
    """A question with nothing that fits, the state per device that its reason states, and what would fit."""

    report: str
    asked: dict[str, Any]
    state: tuple[float, float] | None
    fits: tuple[dict[str, Any], ...] = ()
    fails: str = ""


def band(report: str, key: str, unit: float) -> tuple[float, float]:
    low, high = check_of(report)[key]
    return low * unit, high * unit


SEVENTY_B = {"model": "llama-3.1-70b", "devices": 16, "global_batch_size": 16}
THIRTY_B = {"model": "qwen3-30b-a3b", "cluster": "dgx-h100", "devices": 8, "global_batch_size": 64}
SEVEN_B = {
    "model": "llama-2-7b",
    "cluster": "dgx-a100-40gb",
    "devices": 8,
    "global_batch_size": 8,
    "seq_len": 64,
    "framework_version": "0.9",
}
MPT_7B = {
    "model": "mpt-7b",
    "cluster": "a100-80gb-1",
    "devices": 1,
    "global_batch_size": 1,
    "seq_len": 2048,
    "framework": "llm-foundry",
}

TOO_BIG = [
    *(
        TooBig(
            report="uc-001",
            asked=SEVENTY_B | {"cluster": cluster, "framework_version": version},
            state=band("uc-001", "state_gib_per_gpu", GIB),
            fits=({"devices": 32, "global_batch_size": 32}, {"optimizer": "adamw-bf16-moments"}),
        )
        for cluster in ("dgx-a100-80gb", "dgx-h100")
        for version in ("0.9", "0.16")
    ),
    TooBig(
        report="uc-002",
        asked=THIRTY_B | {"framework_version": "0.15", "pins": ["ep=8", "dp=8", "zero_stage=1"]},
        state=band("uc-002", "state_gib_per_gpu", GIB),
        fits=({"devices": 16, "pins": ["ep=16", "dp=16", "zero_stage=1"]}, {"optimizer": "adamw-bf16-moments"}),
    ),
    TooBig(
        report="uc-005",
        asked=SEVEN_B | {"pins": ["tp=1", "pp=1", "dp=8", "zero_stage=0"]},
        state=band("uc-005", "state_gb", GB),
    ),
    TooBig(
        report="uc-005",
        asked=SEVEN_B | {"pins": ["tp=1", "pp=1", "dp=8", "zero_stage=1"]},
        state=(50.0 * GB, 51.0 * GB),
        fits=({"pins": ["tp=2", "pp=1", "zero_stage=1"]},),
    ),
    TooBig(report="uc-023", asked=MPT_7B, state=None),
    TooBig(
        report="uc-023",
        asked=MPT_7B,
        state=band("uc-023", "state_gb", GB),
        fails="the report counts 12 bytes of a nominal 7B; with its 4 bytes of gradients 6.65B parameters take 106 GB",
    ),
]


@each(TOO_BIG)
def test_nothing_fits_and_the_reason_states_the_state(case: TooBig) -> None:
    state = stated_state_bytes(answered(**case.asked))
    if case.state is not None:
        low, high = case.state
        assert low <= state <= high
    for change in case.fits:
        assert answered(**(case.asked | change))["status"] == "optimal", change


@reported("uc-001")
@pytest.mark.parametrize("wanted", ["offload", "moments", "devices"])
def test_what_would_make_it_fit_is_suggested(wanted: str) -> None:
    answer = answered(cluster="dgx-h100", **SEVENTY_B)
    changes = " ".join(relaxation["change"] for relaxation in answer["infeasibility"]["relaxations"])
    assert wanted in changes


@reported("uc-001")
@pytest.mark.parametrize("layers", [70, 80])
def test_seventy_layers_fit_where_eighty_do_not(layers: int) -> None:
    """Of the same model, at 16 tokens; the thread tried tp * pp = 16, and those plans have the most even stages."""
    model = load_model("llama-3.1-70b").model_copy(update={"num_layers": layers})
    scenario = scenario_of(model, "dgx-a100-80gb", devices=16, global_batch_size=16, seq_len=16, version="0.9")
    search = Search(request_of(scenario, pins=["dp=1"], top=1))
    answer = answer_of(search.request, search.facts, search.run())
    assert answer["status"] == ("optimal" if layers == 70 else "infeasible")


# PR 4016 replaced the preset of local batch 4, sequences of 4,096 and selective recompute (config_registry.py of then).
DEEPSEEK = {
    "model": "deepseek-v3",
    "cluster": "gb200-nvl72",
    "devices": 256,
    "global_batch_size": 4096,
    "framework": "torchtitan",
    "framework_version": "0.3",
}


@reported("uc-027")
def test_a_preset_without_a_pipeline_could_never_run() -> None:
    answer = answered(**DEEPSEEK, pins=["tp=1", "cp=1", "pp=1", "ep=2", "mbs=4", "recompute=selective"])
    stated_state_bytes(answer)
    found = re.search(r"needs ([\d.]+) GiB per device", answer["infeasibility"]["conflict"][0]["reason"])
    assert found
    assert float(found[1]) >= check_of("uc-027")["gib_min"]


@reported("uc-027")
def test_the_layout_that_replaced_it_fits() -> None:
    """What it recomputes isn't stated."""
    pins = ["tp=1", "cp=1", "pp=8", "ep=32", "vpp=4", "dp=32", "mbs=1"]
    answer = answered(**DEEPSEEK, pins=pins)
    assert answer["status"] == "optimal"
    # The search lays out 61 layers on 32 chunks by itself: three where dense layers or a lighter neighbour leave time.
    assert all(layers <= 3 for device in answer["plans"][0]["plan"]["layers_per_chunk"] for layers in device)


@reported("uc-028")
def test_a_sequence_of_131072_gets_a_plan_with_context_parallelism() -> None:
    check = check_of("uc-028")
    answer = answered(
        model="qwen3-32b", cluster="dgx-h100", devices=64, global_batch_size=64, seq_len=check["seq"], top=10
    )
    assert answer["plans"][0]["plan"]["cp"] >= check["must_have"]["cp_min"]
    for plan in (entry["plan"] for entry in answer["plans"]):
        if plan["cp"] > 1:
            assert check["seq"] % (plan["cp"] * lcm(2, plan["tp"])) == 0

"""The nearest plan: legal by the independent checker, fitting, and no farther than any plan of the whole space."""

from __future__ import annotations

from itertools import product
from math import log2
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from costmodel.catalog.cluster_catalog import load_cluster
from costmodel.catalog.model_catalog import load_model
from costmodel.checker import check_plan
from costmodel.plan_rows import plan_of
from costmodel.scenario import Scenario
from costmodel.spec.plan import CP_COMM_TYPES, RECOMPUTES, Plan
from costmodel.stages import Layout, layers_per_chunk
from tests.checks import checked, slugs, write_plan
from tests.scenarios import divisors, plan_row, priced, scenario_of

CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 6,
    "hidden_size": 2048,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 8192,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
    "max_position_embeddings": 8192,
}
BATCH, SEQ_LEN, DEVICES = 8, 4096, 8
CAPACITY = load_cluster("dgx-h100").accelerator.memory_bytes


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_plan(tmp_path_factory.mktemp("model"), CONFIG, "config.json")


@pytest.fixture(scope="module")
def scenario(model: str) -> Scenario:
    return scenario_of(load_model(model), devices=DEVICES, global_batch_size=BATCH, seq_len=SEQ_LEN)


@pytest.fixture(scope="module")
def space(scenario: Scenario) -> tuple[list[Plan], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Every legal plan of the space with its peak bytes and step time, by plain loops and the checker."""
    rows = []
    for tp, cp, pp, micro in product([1, 2, 4], [1, 2, 4], range(1, 7), divisors(BATCH)):
        dp, rest = divmod(DEVICES, tp * cp * pp)
        if rest or dp == 0 or BATCH % (dp * micro):
            continue
        shardings = [(0, dp, 1)]
        for shard in {dp, *[s for s in divisors(dp) if 1 < s < dp][-1:]} - ({1} if dp > 1 else set()):
            shardings += [(zero, dp // shard, shard) for zero in (1, 2, 3)]
        stages = [(1, layout) for layout in Layout] + [(v, y) for v in range(2, 9) for y in Layout if pp * v <= 8]
        for (zero, replicas, shard), recompute, (vpp, layout), kind in product(
            shardings, range(len(RECOMPUTES)), stages, range(len(CP_COMM_TYPES))
        ):
            if (pp == 1 and (vpp > 1 or layout)) or (cp == 1 and kind) or layers_per_chunk(6, pp, vpp, layout) is None:
                continue
            axes = {"tp": tp, "cp": cp, "pp": pp, "dp": dp, "vpp": vpp, "layout": int(layout), "recompute": recompute}
            axes |= {"zero_stage": zero, "dp_replicate": replicas, "dp_shard": shard, "cp_comm_type": kind}
            if CP_COMM_TYPES[kind] == "a2a+p2p":  # of four ranks, two trade heads
                axes["cp_a2a_degree"] = 2
            rows.append(plan_row(BATCH, micro_batch_size=micro, **axes))
    plans = [plan_of(scenario, row) for row in rows]
    legal = [index for index, plan in enumerate(plans) if not check_plan(plan, scenario)]
    prices = priced(scenario, *(rows[index] for index in legal))
    return [plans[index] for index in legal], prices.peak_bytes, prices.step_time_s


def far(old: dict[str, Any], new: dict[str, Any], *, zero_follows: bool) -> tuple[int, float]:
    """(axes, doublings) as docs/cli.md words the distance, for one pair of plans.

    Args:
        zero_follows: whether the old plan's stage 0 merely followed from having nothing to shard over.
    """
    degrees = ("tp", "cp", "pp", "vpp", "ep", "etp", "micro_batch_size")
    differ = [axis for axis in (*degrees, "recompute") if old[axis] != new[axis]]
    usual = new["zero_stage"] == 1 and new["dp"] * new["cp"] > 1
    if old["zero_stage"] != new["zero_stage"] and not (zero_follows and usual):
        differ.append("zero_stage")
    sharded_alike = old["dp_shard"] == new["dp_shard"] or old["dp_replicate"] == new["dp_replicate"]
    if new["zero_stage"] == 0:
        sharded_alike = True
    elif old["zero_stage"] == 0 and old["dp_shard"] == 1:
        sharded_alike = new["dp_shard"] == new["dp"]
    contradiction = old["dp_shard"] * old["dp_replicate"] != old["dp"] or (
        old["zero_stage"] == 0 and old["dp_shard"] > 1
    )
    both = (old["dp_shard"], old["dp_replicate"]) == (new["dp_shard"], new["dp_replicate"])
    if not sharded_alike or (contradiction and old["dp"] == new["dp"] and not both):
        differ.append("dp_shard")
    if (old["cp"] > 1) == (new["cp"] > 1) and old["cp_comm_type"] != new["cp_comm_type"]:
        differ.append("cp_comm_type")
    same_pipeline = old["vpp"] == new["vpp"] and (old["pp"] > 1) == (new["pp"] > 1)
    if same_pipeline and old["schedule"] != new["schedule"]:
        differ.append("schedule")
    layers = ("layers_per_stage", "layers_per_chunk")
    if (old["pp"], old["vpp"]) == (new["pp"], new["vpp"]) and any(old[name] != new[name] for name in layers):
        differ.append("layers_per_stage")
    if (old["tp"] > 1) == (new["tp"] > 1) and old["sequence_parallel"] != new["sequence_parallel"]:
        differ.append("sequence_parallel")
    if old["offload"] != new["offload"]:
        differ.append("offload")
    doublings = sum(abs(log2(new[axis] / old[axis])) for axis in differ if axis in (*degrees, "dp_shard"))
    units = [plan["tp"] * plan["cp"] * plan["pp"] for plan in (old, new)]
    used = min(units[0] * old["dp"], DEVICES)
    by_itself = [old["dp"]] if units[0] == units[1] else [max(used // units[1], 1), max(DEVICES // units[1], 1)]
    of_dp = min(abs(log2(new["dp"] / dp)) for dp in by_itself)
    return len(differ) + (of_dp > 0), round(doublings + of_dp, 6)


@pytest.mark.parametrize(
    "given",
    [
        {"tp": 3},
        {"tp": 8},
        {"pp": 8},
        {"tp": 1},
        {"tp": 2, "cp": 2, "cp_comm_type": "a2a", "pp": 2},
        {"tp": 2, "pp": 2, "micro_batch_size": 3},
        {"pp": 2, "tp": 2, "offload": "optimizer", "micro_batch_size": 2},
        {"tp": 2, "sequence_parallel": False, "micro_batch_size": 4},
        {"pp": 4, "vpp": 2, "schedule": "1f1b"},
        {"pp": 2, "layers_per_stage": [4, 2], "zero_stage": 0},
        {"tp": 4, "cp": 8},
        {"dp": 16},
        {"dp": 8, "dp_shard": 4, "dp_replicate": 4, "zero_stage": 2},
        {"tp": 2, "zero_stage": 0, "dp_replicate": 1},
        {"tp": 2, "dp": 2, "zero_stage": 0},
    ],
    ids=str,
)
@pytest.mark.parametrize("share", [0.05, 0.6], ids=["little memory", "much memory"])
def test_no_plan_is_nearer(
    tmp_path: Path,
    model: str,
    scenario: Scenario,
    space: tuple[list[Plan], np.ndarray[Any, Any], np.ndarray[Any, Any]],
    given: dict[str, Any],
    share: float,
) -> None:
    plans, peaks, steps = space
    usable = int(np.quantile(peaks, share))
    how = {"model": model, "devices": DEVICES, "global_batch_size": BATCH, "seq_len": SEQ_LEN}
    found = checked(tmp_path, given, min_free_gib=(CAPACITY - usable) / 2**30, **how)
    if found["status"] in ("fits", "at_risk"):
        assert found["nearest"] is None
        return
    nearest = found["nearest"]
    plan = Plan.model_validate(nearest["plan"])
    assert check_plan(plan, scenario) == ()
    assert nearest["prediction"]["memory"]["peak_bytes"] <= usable
    assert nearest["proven"]
    near_full = nearest["prediction"]["memory"]["peak_interval_bytes"][1] > usable
    assert nearest["status"] == ("at_risk" if near_full else "fits")
    follows = {entry["field"] for entry in found["derived"] if not entry["assumed"]}

    def distance(other: dict[str, Any]) -> tuple[int, float]:
        return far(found["plan"], other, zero_follows="zero_stage" in follows)

    fitting = [
        (round(sum(distance(other.model_dump(mode="json"))), 6), float(step))
        for other, peak, step in zip(plans, peaks, steps, strict=True)
        if peak <= usable - 2
    ]
    axes, doublings = distance(nearest["plan"])
    own = (round(axes + doublings, 6), nearest["prediction"]["step_time_s"])
    best = min(fitting)
    if nearest["plan"]["layers_per_stage"] == [4, 2] or "offload" in given:
        assert own <= best  # layers and an offload of the plan's own, which no enumeration of layouts has
    else:
        assert own == (best[0], pytest.approx(best[1], rel=1e-9))
    told = nearest["distance"]
    assert (told["axes"], round(told["doublings"], 6), round(told["steps"], 6)) == (axes, doublings, own[0])
    assert len(nearest["changes"]) == axes


def test_layers_of_ones_own_are_kept_where_the_pipeline_is(tmp_path: Path, model: str) -> None:
    how = {"model": model, "devices": DEVICES, "global_batch_size": BATCH, "seq_len": SEQ_LEN}
    plan = {"tp": 2, "pp": 2, "layers_per_stage": [4, 2], "micro_batch_size": 3}
    found = checked(tmp_path, plan, **how)
    assert slugs(found) == {"batch_divisible"}
    assert found["nearest"]["plan"]["layers_per_stage"] == [4, 2]
    assert [change["axis"] for change in found["nearest"]["changes"]] == ["micro_batch_size"]


@pytest.mark.parametrize(
    ("given", "how", "kept"),
    [
        # One axis a long way or several a short one: dp follows from the others and holds none of them in place.
        ({"tp": 8, "pp": 16, "vpp": 7, "micro_batch_size": 4}, {"seq_len": 131072}, {"tp", "pp", "vpp"}),
        ({"tp": 8, "pp": 16, "vpp": 7, "micro_batch_size": 1}, {"seq_len": 131072}, {"tp", "pp", "vpp"}),
    ],
)
def test_no_axis_jumps_to_keep_another(
    tmp_path: Path, given: dict[str, Any], how: dict[str, Any], kept: set[str]
) -> None:
    size = {"model": "llama-3.1-405b", "devices": 16384, "global_batch_size": 2048}
    nearest = checked(tmp_path, given, **size, **how)["nearest"]
    assert {axis for axis in kept if nearest["plan"][axis] == given[axis]} == kept
    assert nearest["distance"]["doublings"] <= 4
    assert "dp" not in {change["axis"] for change in nearest["changes"]}
    assert nearest["plan"]["devices_used"] == 16384


@pytest.mark.parametrize(
    ("given", "axis"),
    [
        ({"tp": 4, "zero_stage": 0, "dp_replicate": 1}, "zero_stage"),
        ({"tp": 2, "devices_used": 8, "dp": 8}, "devices_used"),
        ({"tp": 2, "seq_len": 8192}, "seq_len"),
        ({"tp": 2, "dp": 8, "dp_shard": 4, "dp_replicate": 4}, "dp_replicate"),
        ({"pp": 2, "recompute": "none", "recomputed_layers_per_stage": [1, 0]}, "recomputed_layers_per_stage"),
    ],
)
def test_what_contradicts_the_plan_is_what_changes(tmp_path: Path, given: dict[str, Any], axis: str) -> None:
    found = checked(tmp_path, given)
    assert found["status"] == "illegal"
    assert [change["axis"] for change in found["nearest"]["changes"]] == [axis]


def test_what_was_searched_is_said(tmp_path: Path) -> None:
    searched = checked(tmp_path, {"tp": 8}, model="llama-3.1-405b")["searched"]
    assert (list(searched["tp"]), searched["own"]) == ([1, 2, 4, 8, 16][: len(searched["tp"])], {})
    beyond = checked(tmp_path, {"tp": 16, "pp": 4, "micro_batch_size": 3}, model="llama-3.1-70b", devices=64)
    assert beyond["searched"]["own"] == {"tp": 16}
    assert 16 in beyond["searched"]["tp"]
    pair = {"tp": 4, "ep": 2, "etp": 2, "micro_batch_size": 3}
    kept = checked(tmp_path, pair, model="mixtral-8x7b", devices=64)
    assert kept["searched"]["own"] == {"etp": 2}
    assert kept["nearest"]["plan"]["etp"] == 2


def test_pins_are_kept(tmp_path: Path) -> None:
    free = checked(tmp_path, {"tp": 3, "pp": 2})["nearest"]
    assert (free["plan"]["tp"], free["plan"]["pp"]) == (4, 2)
    pinned = checked(tmp_path, {"tp": 3, "pp": 2}, pins=["tp=8"], forbids=["pp=2"])["nearest"]
    assert pinned["plan"]["tp"] == 8
    assert pinned["plan"]["pp"] != 2


def test_values_outside_the_default_space_are_kept(tmp_path: Path) -> None:
    # tp beyond the NVLink domain: nothing is searched there by itself.
    plan = {"tp": 16, "pp": 4, "micro_batch_size": 3}
    nearest = checked(tmp_path, plan, model="llama-3.1-70b", devices=64)["nearest"]
    assert nearest["plan"]["tp"] == 16
    assert [(change["axis"], change["to"]) for change in nearest["changes"]] == [("micro_batch_size", 4)]


def test_a_search_that_is_cut_says_so(tmp_path: Path) -> None:
    found = checked(tmp_path, {"tp": 3}, max_seconds=1e-9)
    assert any("--max-seconds cut the search for the nearest plan" in warning for warning in found["warnings"])
    assert found["nearest"] is None


def axes_of(changes: list[dict[str, Any]]) -> dict[str, tuple[Any, Any]]:
    return {change["axis"]: (change["from"], change["to"]) for change in changes}


HYBRID = {"cp": 16, "cp_comm_type": "a2a+p2p"}


@pytest.mark.parametrize(
    ("given", "pin", "told"),
    [
        ({"zero_stage": 1, "gradient_sync": "microbatch"}, "gradient_sync=step", ("microbatch", "step")),
        ({"zero_stage": 2, "gradient_sync": "step"}, "gradient_sync=microbatch", ("step", "microbatch")),
        ({"zero_stage": 1}, "gradient_sync=microbatch", ("step", "microbatch")),
        ({**HYBRID, "cp_a2a_degree": 2}, "cp_a2a_degree=4", (2, 4)),
        ({**HYBRID, "cp_a2a_degree": 2}, "cp_a2a_degree=8", (2, 8)),
    ],
)
def test_an_unusual_option_that_changes_is_a_change(
    tmp_path: Path, given: dict[str, Any], pin: str, told: tuple[Any, Any]
) -> None:
    axis = pin.partition("=")[0]
    plan = {"tp": 1, "micro_batch_size": 3, "recompute": "full", "zero_stage": 1, **given}
    found = checked(tmp_path, plan, pins=[pin, f"zero_stage={plan['zero_stage']}"])
    changes = axes_of(found["nearest"]["changes"])
    assert set(changes) == {"micro_batch_size", axis}
    assert changes[axis] == told
    assert found["nearest"]["distance"]["axes"] == 2


@pytest.mark.parametrize(
    ("given", "pin", "axis", "follows"),
    [
        ({"zero_stage": 1}, "zero_stage=2", "zero_stage", ("gradient_sync", ("step", "microbatch"))),
        ({**HYBRID}, "cp_comm_type=p2p", "cp_comm_type", ("cp_a2a_degree", (4, 1))),
        ({**HYBRID, "cp_a2a_degree": 2}, "cp_comm_type=p2p", "cp_comm_type", ("cp_a2a_degree", (2, 1))),
        ({"recompute": "none"}, "recompute=selective", "recompute", ("recompute_modules", ([], ["layernorm"]))),
    ],
)
def test_what_is_usual_follows_and_is_told(
    tmp_path: Path, given: dict[str, Any], pin: str, axis: str, follows: tuple[str, Any]
) -> None:
    found = checked(tmp_path, {"tp": 2, "micro_batch_size": 3, **given}, pins=[pin], devices=32)["nearest"]
    assert axis in axes_of(found["changes"])
    assert follows[0] not in axes_of(found["changes"])
    assert axes_of(found["follows"])[follows[0]] == follows[1]


def test_modules_in_another_order_or_gone_with_their_policy_are_no_change(tmp_path: Path) -> None:
    plan = {"tp": 2, "micro_batch_size": 3, "recompute": "selective", "recompute_modules": ["mlp", "layernorm"]}
    kept, gone = (checked(tmp_path, plan, pins=[pin])["nearest"] for pin in ("recompute=selective", "recompute=none"))
    assert set(kept["plan"]["recompute_modules"]) == {"mlp", "layernorm"}
    for nearest in (kept, gone):
        assert "recompute_modules" not in axes_of([*nearest["changes"], *nearest["follows"]])
    assert axes_of(gone["changes"])["recompute"] == ("selective", "none")


def test_a_dispatcher_that_is_not_the_first_of_its_framework_is_kept(tmp_path: Path) -> None:
    plan = {"ep": 8, "micro_batch_size": 3, "zero_stage": 2, "moe_dispatcher": "deduplicated"}
    found = checked(tmp_path, plan, model="mixtral-8x7b", devices=64, framework="deepspeed")
    assert "moe_dispatcher" not in axes_of(found["nearest"]["changes"])
    assert found["nearest"]["plan"]["moe_dispatcher"] == "deduplicated"

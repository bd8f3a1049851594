"""Plans that a framework refuses, or takes, as people found out: each verdict has to come from the rule that they name.

A report often says no more than a rule and the degrees that break it. The rest is the smallest scenario in which that
rule decides, for several models where it is about any: the broken plan breaks it alone, and the plan with the rule
satisfied is legal.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from costmodel.catalog.model_catalog import load_model
from costmodel.spec.model import ModelSpec
from tests.published.user_cases import each, reported, scenario_for, verdict, world

DENSE = ("llama-3-8b", "qwen2.5-7b", "llama-2-70b")
EXPERTS = ("qwen3-30b-a3b", "glm-4.5-355b-a32b")


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A plan that breaks ``rule`` alone, and changes that make it legal. ``seq_len`` and ``batch`` go with the axes."""

    report: str
    rule: str
    breaks: dict[str, int]
    legal: tuple[dict[str, int], ...]
    models: tuple[str, ...] = DENSE
    framework: str = "megatron-core"
    versions: tuple[str | None, ...] = (None,)
    legal_versions: tuple[str | None, ...] = ()
    fails: str = ""


REFUSED = (
    Refused(
        report="uc-062",
        rule="sequence_divisible_by_tp",
        versions=("0.9", "0.13", None),
        breaks={"tp": 4, "dp": 2, "seq_len": 8190},
        legal=({"seq_len": 8192}, {"seq_len": 8188}, {"tp": 2}),
    ),
    Refused(
        report="uc-062",
        rule="sequence_divisible_by_tp",
        versions=("0.13",),
        breaks={"tp": 4, "cp": 2, "dp": 2, "seq_len": 8204},
        legal=({"seq_len": 8200}, {"tp": 2}),
    ),
    Refused(
        report="uc-063",
        rule="sequence_divisible_by_cp_and_tp",
        framework="torchtitan",
        versions=("0.2", "0.3"),
        breaks={"tp": 4, "dp": 2, "zero_stage": 3, "seq_len": 8190},
        legal=({"seq_len": 8192},),
    ),
    Refused(
        report="uc-064",
        rule="sequence_divisible_by_tp",
        versions=("0.9", None),
        breaks={"tp": 4, "dp": 2, "seq_len": 50341},
        legal=({"seq_len": 50016},),
    ),
    Refused(
        report="uc-065",
        rule="kv_heads_divisible_by_tp",
        framework="torchtitan",
        versions=("0.2", "0.3", "2026-08", "2026-09"),
        models=("llama-3.1-8b",),
        breaks={"tp": 16, "zero_stage": 3},
        legal=({"tp": 8, "dp": 2},),
    ),
    Refused(
        report="uc-065",
        rule="kv_heads_divisible_by_tp",
        versions=("0.9", "0.15"),
        legal_versions=("0.16", "0.17"),
        models=("llama-3.1-8b",),
        breaks={"tp": 16},
        legal=({"tp": 8, "dp": 2},),
    ),
    Refused(
        report="uc-066",
        rule="kv_heads_divisible_by_tp",
        versions=("0.10", "0.15"),
        legal_versions=("0.16", "0.17"),
        models=("qwen2.5-3b", "qwen3-30b-a3b"),  # two KV heads, as the report's model, and four
        breaks={"tp": 8},
        legal=({"tp": 2, "dp": 4},),
    ),
    Refused(
        report="uc-077",
        rule="layers_expressible",
        versions=("0.9", "0.12"),
        models=("llama-3-70b",),
        breaks={"pp": 16, "vpp": 2},
        legal=({"vpp": 5}, {"vpp": 1}),
    ),
    Refused(
        report="uc-082",
        rule="microbatches_divisible_by_pp",
        versions=("0.13", None),
        breaks={"pp": 4, "vpp": 2, "dp": 2, "batch": 12},
        legal=({"batch": 16}, {"vpp": 1}),
        models=("llama-3-8b", "llama-2-70b"),
    ),
    Refused(
        report="uc-086",
        rule="expert_mesh_divides_world",
        models=("qwen3-30b-a3b", "moonlight-16b-a3b"),
        breaks={"pp": 2, "ep": 8, "dp": 4},
        legal=({"dp": 8}, {"pp": 1, "dp": 8}, {"ep": 4}),
    ),
    Refused(
        report="uc-090",
        rule="experts_divisible_by_ep",
        framework="torchtitan",
        versions=("2026-08",),
        models=EXPERTS,
        breaks={"dp": 6, "tp": 2, "ep": 3, "zero_stage": 3},
        legal=({"ep": 4},),
    ),
    Refused(
        report="uc-091",
        rule="ep_covers_tp",
        framework="torchtitan",
        versions=("2026-09",),
        legal_versions=("2026-08", "0.3"),
        models=EXPERTS,
        breaks={"tp": 4, "dp": 2, "ep": 2, "zero_stage": 3},
        legal=({"ep": 4}, {"ep": 8}),
    ),
    *(
        Refused(
            report="uc-095",
            rule="batch_divisible",
            framework=framework,
            breaks={"dp": 8, "zero_stage": 3, "batch": 4, "num_microbatches": 1},
            legal=({"batch": 8}, {"dp": 4, other: 2}),
        )
        for framework, other in (
            ("deepspeed", "tp"),
            ("torchtitan", "tp"),
            ("megatron-core", "pp"),
            ("accelerate", "cp"),
        )
    ),
    Refused(
        report="uc-096",
        rule="sequence_divisible_by_cp",
        framework="accelerate",
        versions=("1.10", "1.15"),
        breaks={"cp": 2, "dp": 4, "zero_stage": 3, "seq_len": 16386},
        legal=({"seq_len": 16384}, {"seq_len": 16388}),
    ),
    Refused(
        report="uc-096",
        rule="context_parallelism_is_sharded",  # FSDP2 only
        framework="accelerate",
        breaks={"cp": 2, "zero_stage": 0, "seq_len": 16384},
        legal=({"zero_stage": 3},),
    ),
)


def judged(case: Refused, model: str | ModelSpec, version: str | None, axes: dict[str, int]) -> set[str]:
    """The rules that the axes break on as many devices as they need."""
    mesh = {name: value for name, value in axes.items() if name not in ("seq_len", "batch")}
    scenario = scenario_for(
        model,
        framework=case.framework,
        version=version,
        devices=world(mesh),
        batch=axes.get("batch", 16 * mesh.get("dp", 1)),
        seq_len=axes.get("seq_len", 8192),
    )
    return verdict(scenario, **mesh)


@each(REFUSED)
def test_the_framework_refuses_what_breaks_the_rule_and_takes_what_does_not(case: Refused) -> None:
    for model in case.models:
        for version in case.versions:
            assert judged(case, model, version, case.breaks) == {case.rule}, (model, version)
            for change in case.legal:
                assert judged(case, model, version, case.breaks | change) == set(), (model, version, change)
        for version in case.legal_versions:
            assert judged(case, model, version, case.breaks) == set(), (model, version)


@reported("uc-090")
def test_torchtitan_folds_experts_over_whole_shard_groups() -> None:
    """8 ranks can't hold groups of 3, whatever the experts: this model's divide by 3."""
    base = load_model("qwen3-30b-a3b")
    assert base.moe is not None
    model = base.model_copy(update={"moe": base.moe.model_copy(update={"num_experts": 96})})
    scenario = scenario_for(model, framework="torchtitan", version="2026-08", devices=8)
    assert verdict(scenario, tp=2, dp=4, ep=3, zero_stage=3) == {"expert_mesh_divides_shards"}
    assert verdict(scenario, tp=2, dp=4, ep=2, zero_stage=3) == set()
    wider = scenario_for(model, framework="torchtitan", version="2026-08", devices=12, batch=48)
    assert verdict(wider, tp=2, dp=6, ep=3, zero_stage=3) == set()


@reported("uc-094")
def test_seven_devices_never_make_a_batch_of_256() -> None:
    nearest = []
    for batch in range(240, 281):
        scenario = scenario_for("llama-3-8b", framework="deepspeed", devices=7, batch=batch)
        found = {
            accumulate: verdict(scenario, dp=7, zero_stage=3, micro_batch_size=2, num_microbatches=accumulate)
            for accumulate in range(1, 41)
        }
        if set() in found.values():
            nearest.append(batch)
        if batch == 256:
            assert found[18] == {"batch_divisible"}
    assert nearest == [252, 266, 280]


@reported("uc-098", fails="a cluster has no torus: that an axis has to factor over it is no rule yet")
def test_an_axis_of_64_can_not_be_laid_on_a_torus_of_4_by_4_by_8() -> None:
    scenario = scenario_for("llama-2-7b", framework="maxtext", cluster="tpu-v4", devices=128, batch=128)
    if verdict(scenario, dp=128, dp_replicate=4, dp_shard=32, zero_stage=3):
        pytest.fail("32 fits the topology")
    assert verdict(scenario, dp=128, dp_replicate=2, dp_shard=64, zero_stage=3) != set()

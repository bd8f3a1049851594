"""The independent checker: against the vectorised rules on random plans, and on plans that people have run."""

from __future__ import annotations

from collections import Counter
from itertools import product
from random import Random
from typing import Any

import pytest

from costmodel.catalog.framework_catalog import framework_names, load_framework
from costmodel.catalog.model_catalog import load_model
from costmodel.checker import check_plan, source_of
from costmodel.errors import UnknownName
from costmodel.rules import broken, broken_by, rules_for
from costmodel.rules.rule import as_columns
from costmodel.rules.selection import RULE_SETS
from costmodel.scenario import Scenario
from costmodel.schedules import placement_of
from costmodel.spec.model import ModelSpec
from costmodel.spec.options import OFFLOADS, usual_options
from costmodel.spec.plan import CP_COMM_TYPES, SCHEDULES, Plan
from costmodel.stages import Layout, layers_per_chunk
from costmodel.table import BASE_AXES, PlanTable
from tests import scenarios
from tests.plans import finished, slugs

INTERLEAVED = SCHEDULES.index("interleaved_1f1b")
ONE_F_ONE_B, DUALPIPE = SCHEDULES.index("1f1b"), SCHEDULES.index("dualpipe")
IN_A_V = [SCHEDULES.index(name) for name in ("zb_v", "dualpipe_v")]

# Megatron's GPT of a trillion parameters (Narayanan 2021, arXiv 2104.04473, table 1).
GPT_1T = ModelSpec(
    name="gpt-1t",
    num_layers=128,
    hidden_size=25600,
    num_heads=160,
    num_kv_heads=160,
    head_dim=160,
    ffn_hidden_size=102400,
    vocab_size=51200,
    gated_mlp=False,
    tie_word_embeddings=True,
)

# Numbers that few degrees divide, so that every rule of divisibility gets to speak.
ODD = ModelSpec(
    name="odd",
    num_layers=14,
    hidden_size=1152,
    num_heads=12,
    num_kv_heads=6,
    head_dim=96,
    ffn_hidden_size=3080,
    vocab_size=5000,
    tie_word_embeddings=False,
)


def scenario_of(
    model: ModelSpec,
    devices: int,
    batch: int,
    seq_len: int,
    version: str = "0.16",
    cluster: str = "dgx-h100",
    **how: Any,
) -> Scenario:
    """A question under one version of Megatron-Core; rules need no calibration."""
    return scenarios.scenario_of(
        model, cluster, devices, batch, seq_len, version=version, calibration=scenarios.UNCALIBRATED, **how
    )


def row_of(scenario: Scenario, **axes: int) -> dict[str, int]:
    """A row from the axes that matter; the rest follows from them."""
    row = dict.fromkeys(BASE_AXES, 1) | {"cp_comm_type": 0, "layout": 0, "recompute": 0, "schedule": 1, "zero_stage": 1}
    row |= axes
    row.setdefault("dp", scenario.devices // (row["tp"] * row["cp"] * row["pp"]))
    row["dp_shard"] = row["dp"] // row["dp_replicate"]
    if "num_microbatches" not in axes:
        row["num_microbatches"] = scenario.workload.global_batch_size // (row["micro_batch_size"] * row["dp"])
    return {axis: int(code) for axis, code in usual_options(as_columns(row)).items()} | row


MODELS = {
    "odd": ODD,
    # Fewer KV heads than ranks, and heads of an odd width.
    "narrow": ODD.model_copy(update={"name": "narrow", "num_heads": 9, "num_kv_heads": 3, "head_dim": 7}),
    **{
        name: load_model(name)
        for name in (
            "llama-3-8b",
            "llama-3.2-1b",
            "mixtral-8x7b",
            "deepseek-v3",
            "qwen3-30b-a3b",
            "qwen3-next-80b-a3b",
            "nemotron-h-56b",
        )
    },
}


def questions(rng: Random, framework: str) -> Scenario:
    offers: dict[str, Any] = {}
    kind = rng.randint(0, 9)
    if kind < 2:
        offers = {"zero_stages": (0, 1), "cp_comm_types": ("p2p",), "selective_modules": ()}
    elif kind == 2:
        offers = {"tensor_parallel": False, "expert_parallel": False}
    # One draw, since two of them leave some pairs out.
    version, model = rng.choice(list(product(load_framework(framework).versions, sorted(MODELS))))
    spec = load_framework(framework, version)
    scenario = scenario_of(
        MODELS[model],
        devices=rng.choice([8, 12, 32, 64, 96]),
        batch=rng.choice([48, 64, 96]),
        seq_len=rng.choice([1536, 4096, 4100, 4104]),
        cluster=rng.choice(["dgx-h100"] * 10 + ["tpu-v5p"] * 5 + ["dgx1-v100-32gb"]),
        optimizer=rng.choice(["adamw", "adamw", "muon"]),
    )
    cluster = (
        scenario.cluster.model_copy(update={"host_bandwidth_bytes_per_s": None}) if kind == 3 else scenario.cluster
    )
    return scenario.model_copy(update={"framework": spec.model_copy(update=offers), "cluster": cluster})


def mostly(usual: list[int], odd: list[int]) -> list[int]:
    return usual * (6 * len(odd) // len(usual) + 1) + odd


def row_drawn(rng: Random, scenario: Scenario) -> dict[str, int]:
    """Plans close to legal: most axes follow from the others, then one or two may be changed."""
    tp, cp, pp = (
        rng.choice(mostly([1, 2, 4], [3, 8])),
        rng.choice(mostly([1, 2], [3, 4, 8])),
        rng.choice(mostly([1, 2, 4], [3, 7, 16, 64])),
    )
    simple = rng.random() < 0.3
    if simple:
        tp = cp = pp = 1
    dp = max(scenario.devices // (tp * cp * pp), 1)
    vpp = rng.choice(mostly([1, 2], [3, 32])) if pp > 1 else 1
    zero = rng.choice(scenario.framework.zero_stages) if simple else rng.randint(0, 3)
    replicate = dp if zero == 0 else rng.choice([n for n in (1, 1, 2, 4) if dp % n == 0])
    size = rng.choice([1, 1, 2])
    moe = scenario.model.moe is not None
    row = {
        "tp": tp,
        "cp": cp,
        "cp_comm_type": rng.randint(0, 3) if cp > 1 else 0,
        "ep": rng.choice(mostly([1, 2, 4, 8], [3])) if moe else 1,
        "etp": rng.choice(mostly([1, 2], [3])) if moe else 1,
        "dp": dp,
        "dp_replicate": replicate,
        "dp_shard": dp // replicate,
        "pp": pp,
        "vpp": vpp,
        "layout": rng.randint(0, 2),
        "zero_stage": zero,
        "micro_batch_size": size,
        "num_microbatches": max(scenario.workload.global_batch_size // (size * dp), 1),
        "recompute": rng.randint(0, 2),
        "schedule": rng.choice(mostly([INTERLEAVED], IN_A_V) if vpp > 1 else mostly([ONE_F_ONE_B], [DUALPIPE])),
        "offload": rng.choice(mostly([0], [1, 2, 3])),
        "recompute_interval": rng.choice(mostly([1], [4])),
    }
    row["recompute_modules"] = rng.choice([0, 1, 2, 14, 80, 384]) if row["recompute"] == 1 else 0
    seldom = rng.randint(0, 15)
    row |= {"cp_balanced": int(seldom != 7), "tp_overlap": int(seldom != 8)}
    if row["cp_comm_type"] == CP_COMM_TYPES.index("a2a+p2p"):
        row["cp_a2a_degree"] = rng.choice([2, 2, 3, 4])
    if simple:
        return row | {"ep": 1, "etp": 1, "layout": 0, "recompute": 0, "recompute_modules": 0, "offload": 0}
    for axis in rng.sample(BASE_AXES, rng.randint(0, 2)):
        limits = {
            "cp_comm_type": (0, 3),
            "layout": (0, 2),
            "recompute": (0, 2),
            "schedule": (0, 6),
            "zero_stage": (0, 3),
        }
        row[axis] = rng.randint(*limits.get(axis, (1, 9)))
    return row


@pytest.mark.parametrize("framework", framework_names())
def test_the_checker_and_the_rules_agree_on_random_plans(framework: str) -> None:
    seen: Counter[str] = Counter()
    # Frameworks under another one's rules, or under none of their own, add little.
    examples = 300 if framework in RULE_SETS else 80

    for example in range(examples):
        rng = Random(f"{framework} {example}")
        scenario = questions(rng, framework)
        drawn = [row_drawn(rng, scenario) for _ in range(40)]
        by_rule = broken_by(scenario, PlanTable.of_rows(drawn))
        for index, row in enumerate(drawn):
            expected = {name for name, where in by_rule.items() if where[index]}
            seen.update(expected or {"legal"})
            # A layout that can't be made is no plan; the checker never sees one.
            shape = scenario.model.num_layers, row["pp"], row["vpp"], Layout(row["layout"])
            if layers_per_chunk(*shape, placement_of(SCHEDULES[row["schedule"]])) is None:
                assert expected & {"layout_feasible", "pipeline_within_layers", "chunks_within_layers"}
                continue
            seen["compared"] += 1
            found = slugs(finished(scenario, row), scenario)
            assert found == expected, (scenario.model.name, scenario.framework.version, row)

    assert seen["compared"] > 15 * examples
    assert seen["legal"] > examples
    spec = load_framework(framework)
    at_any_version = {rule.name for version in spec.versions for rule in rules_for(spec.at(version))}
    # A layout that can't be made has exactly two chunks more than layers: too rare to be drawn, test_rules.py has it.
    # Neither is one model at one version, which has a test below.
    # Precisions of 8 bits are not drawn: test_rules_fp8_recompute.py has their rule.
    rare = {"layout_feasible", "latent_attention_without_tensor_parallelism", "fp8_norms_run_once"}
    if not spec.selective_modules:
        rare |= {"recompute_modules_known", "recompute_modules_in_model"}
    if "recompute_uniform" in spec.features:
        rare |= {"recompute_interval_known"}
    if len(spec.known_offloads() or ()) == len(OFFLOADS) - 1:
        rare |= {"offload_known"}
    # What is gathered, reduced and quantised when is drawn by test_checker_sharding.py, and how tokens reach their
    # experts by test_checker_experts.py.
    drawn_elsewhere = {"reshard_after", "fsdp_prefetch", "gradient_sync", "zero_plus"}
    drawn_elsewhere |= {"moe_dispatcher", "ep_overlap", "moe_capacity_factor"}
    rules = [rule for version in spec.versions for rule in rules_for(spec.at(version))]
    rare |= {rule.name for rule in rules if drawn_elsewhere & set(rule.axes)}
    if framework in RULE_SETS:
        assert at_any_version - set(seen) <= rare, "rules that no plan broke"


@pytest.mark.parametrize(("version", "tp", "refused"), [("0.10", 1, False), ("0.10", 2, True), ("0.11", 2, False)])
def test_latent_attention_was_once_whole_on_every_rank(version: str, tp: int, refused: bool) -> None:
    scenario = scenario_of(load_model("deepseek-v3"), 32, 64, 4096)
    scenario = scenario.model_copy(update={"framework": load_framework("megatron-core", version)})
    row = row_of(scenario, tp=tp)
    names = {rule.name for rule, _ in broken(scenario, row)}
    assert names == slugs(finished(scenario, row), scenario)
    assert ("latent_attention_without_tensor_parallelism" in names) == refused


LLAMA = scenario_of(load_model("llama-3.1-405b"), 16384, 2048, 8192)
DEEPSEEK = scenario_of(load_model("deepseek-v3"), 2048, 15360, 4096, cluster="h800-8x400g")
TRILLION = scenario_of(GPT_1T, 3072, 3072, 2048, "0.9", "dgx-a100-80gb")


def at(scenario: Scenario, version: str) -> Scenario:
    return scenario.model_copy(update={"framework": load_framework("megatron-core", version)})


@pytest.mark.parametrize(
    ("scenario", "row", "layers"),
    [
        # arXiv 2407.21783, table 4 and section 3.3.2, by each of Megatron's three ways to say it.
        (LLAMA, {"tp": 8, "pp": 16}, (7, *[8] * 14, 7)),
        (at(LLAMA, "0.9"), {"tp": 8, "pp": 16}, (7, *[8] * 14, 7)),
        (at(LLAMA, "0.12"), {"tp": 8, "pp": 16, "layout": 2}, (7, *[8] * 14, 7)),
        (at(LLAMA, "0.12"), {"tp": 8, "pp": 16, "layout": 2, "vpp": 8, "schedule": INTERLEAVED}, (7, *[8] * 14, 7)),
        # arXiv 2412.19437, section 3.2, with 1f1b in place of DualPipe: ep 64 inside dp 128.
        (DEEPSEEK, {"tp": 1, "pp": 16, "ep": 64}, None),
        # arXiv 2104.04473, table 1.
        (TRILLION, {"tp": 8, "pp": 64}, (2,) * 64),
        (TRILLION, {"tp": 8, "pp": 64, "vpp": 2, "schedule": INTERLEAVED}, (2,) * 64),
    ],
)
def test_published_plans_are_legal(scenario: Scenario, row: dict[str, int], layers: tuple[int, ...] | None) -> None:
    whole = row_of(scenario, dp=scenario.devices // (row["tp"] * row["pp"]), **row)
    plan = finished(scenario, whole)
    assert broken(scenario, whole) == ()
    assert check_plan(plan, scenario) == ()
    assert Plan.model_validate(plan.model_dump()) == plan
    if layers is not None:
        assert plan.layers_per_stage == layers


def test_the_published_degrees_are_those_of_the_papers() -> None:
    assert row_of(LLAMA, tp=8, pp=16, dp=128)["num_microbatches"] == 16
    assert row_of(TRILLION, tp=8, pp=64, dp=6)["num_microbatches"] == 512


def test_folk_rules_that_are_false() -> None:
    mixtral = scenario_of(load_model("mixtral-8x7b"), 32, 48, 4096)
    # EP may exceed DP: experts fold over tp as well (dp 4, ep 8 on 8 ranks of a stage).
    wide = row_of(mixtral, tp=2, pp=4, dp=4, ep=8)
    # The number of micro-batches needn't be a multiple of pp * vpp: 12 % (4 * 2) = 4.
    interleaved = wide | {"vpp": 2, "schedule": INTERLEAVED}
    assert interleaved["num_microbatches"] == 12
    # A node isn't a limit of tp: slow, but legal.
    across_nodes = row_of(mixtral, tp=16, dp=2, ep=8)
    for row in (wide, interleaved, across_nodes):
        assert broken(mixtral, row) == ()
        assert check_plan(finished(mixtral, row), mixtral) == ()


@pytest.mark.parametrize(
    ("changes", "slug", "numbers"),
    [
        ({"layers_per_stage": (8, 8, 8, 9)}, "layers_add_up", ("33", "32")),
        ({"layers_per_stage": (16, 16)}, "layers_add_up", ("2", "4")),
        ({"vpp": 2}, "chunks_add_up", ("2",)),
        ({"layers_per_chunk": ((8,), (8,), (7,), (9,))}, "chunks_add_up", ("7", "8")),
        ({"layers_per_chunk": ((4, 4),) * 4}, "chunks_add_up", ("vpp 1",)),
        ({"recompute": "full", "recomputed_layers_per_stage": (9, 8, 8, 8)}, "recomputed_within_layers", ("9", "8")),
        ({"recompute": "full", "recomputed_layers_per_stage": (8,)}, "recomputed_within_layers", ("8",)),
        ({"recomputed_layers_per_stage": (1, 0, 0, 0)}, "recomputed_within_layers", ("1",)),
        ({"devices_used": 65}, "devices_used_is_the_mesh", ("65", "64")),
        ({"global_batch_size": 96}, "plan_matches_scenario", ("96", "48")),
        ({"framework_version": "0.15"}, "plan_matches_scenario", ("0.15", "0.16")),
        ({"sequence_parallel": False}, "sequence_parallel_follows_tp", ("2",)),
    ],
)
def test_what_only_a_finished_plan_can_get_wrong(changes: dict[str, Any], slug: str, numbers: tuple[str, ...]) -> None:
    scenario = scenario_of(load_model("mixtral-8x7b"), 64, 48, 4096)
    row = row_of(scenario, tp=2, pp=4, dp=8, ep=8)
    assert check_plan(finished(scenario, row), scenario) == ()
    found = [
        violation for violation in check_plan(finished(scenario, row, **changes), scenario) if violation.rule == slug
    ]
    assert found
    assert all(number in found[0].reason for number in numbers)


MIXTRAL, DEEPSEEK_V3 = load_model("mixtral-8x7b"), load_model("deepseek-v3")
LLAMA_8B = load_model("llama-3-8b")


@pytest.mark.parametrize(
    ("framework", "model", "changes", "slug"),
    [
        ("megatron-core", LLAMA_8B, {"recompute_modules": ("layernorm", "mlp")}, None),
        ("megatron-core", LLAMA_8B, {"recompute_modules": ("attention",)}, "recompute_modules_known"),
        ("megatron-core 0.11", LLAMA_8B, {"recompute_modules": ("layernorm",)}, "recompute_modules_known"),
        ("megatron-core 0.11", LLAMA_8B, {"recompute_modules": ("core_attn",)}, None),
        ("megatron-core 0.13", DEEPSEEK_V3, {"recompute_modules": ("shared_experts",)}, "recompute_modules_known"),
        ("megatron-core 0.14", DEEPSEEK_V3, {"recompute_modules": ("shared_experts",)}, None),
        ("megatron-core", MIXTRAL, {"recompute_modules": ("shared_experts",)}, "recompute_modules_in_model"),
        ("megatron-core", LLAMA_8B, {"recompute_modules": ("mla_up_proj",)}, "recompute_modules_in_model"),
        ("megatron-core", DEEPSEEK_V3, {"recompute_modules": ("mla_up_proj", "moe_act")}, None),
        ("megatron-core", LLAMA_8B, {"recompute_modules": ("moe_act",)}, "recompute_modules_in_model"),
        ("megatron-core", MIXTRAL, {"recompute_modules": ("moe_act", "moe")}, None),
        (
            "megatron-core",
            LLAMA_8B,
            {"recompute": "none", "recompute_modules": ("layernorm",)},
            "recompute_modules_are_selective",
        ),
        ("torchtitan", LLAMA_8B, {"recompute_modules": ("mlp",)}, "recompute_modules_known"),
        ("deepspeed", LLAMA_8B, {"recompute_modules": ("layernorm",)}, "recompute_known"),
    ],
)
def test_modules_to_recompute_are_the_framework_s_and_the_model_s(
    framework: str, model: ModelSpec, changes: dict[str, Any], slug: str | None
) -> None:
    scenario = scenario_of(model, 8, 48, 4096).model_copy(update={"framework": load_framework(*framework.split())})
    plan = finished(scenario, row_of(scenario, dp=8, zero_stage=1), **({"recompute": "selective"} | changes))
    found = {name for name in slugs(plan, scenario) if name.startswith("recompute")}
    assert found == ({slug} if slug else set())


@pytest.mark.parametrize(
    ("framework", "offload", "changes", "slug"),
    [
        ("megatron-core", "activations", {}, None),
        ("megatron-core", "activations", {"recompute": "full"}, "activation_offload_without_recompute"),
        ("megatron-core", "activations", {"pp": 2, "dp": 4}, "activation_offload_without_pipeline"),
        ("megatron-core", "optimizer", {}, None),
        ("megatron-core 0.11", "optimizer", {}, "offload_known"),
        ("megatron-core 0.12", "optimizer", {}, None),
        ("megatron-core", "optimizer", {"zero_stage": 0}, "optimizer_offload_is_precision_aware"),
        ("megatron-core", "parameters", {}, "offload_known"),
        ("nemo", "parameters", {}, "offload_known"),
        ("nanotron", "optimizer", {}, "offload_known"),
        ("deepspeed", "optimizer", {"zero_stage": 0}, "optimizer_offload_is_sharded"),
        ("deepspeed", "optimizer", {"zero_stage": 1}, None),
        ("deepspeed", "parameters", {"zero_stage": 2}, "parameter_offload_is_sharded"),
        ("deepspeed", "parameters", {"zero_stage": 3}, None),
        ("deepspeed", "activations", {"recompute": "none"}, "activation_offload_of_checkpoints"),
        ("deepspeed", "activations", {"recompute": "full"}, None),
        ("torchtitan", "parameters", {"zero_stage": 3}, None),
        ("torchtitan 0.2", "parameters", {"zero_stage": 0}, "parameter_offload_is_sharded"),
        ("torchtitan", "optimizer", {"zero_stage": 3}, "offload_known"),
        ("accelerate", "parameters", {"zero_stage": 3}, None),
        ("accelerate", "parameters", {"zero_stage": 0}, "parameter_offload_is_sharded"),
        ("llm-foundry", "parameters", {"zero_stage": 3}, "offload_known"),
        ("llm-foundry", "activations", {"zero_stage": 3}, None),
        # Nobody looked, so nothing is refused.
        ("colossalai", "parameters", {"zero_stage": 3}, None),
    ],
)
def test_what_may_live_in_host_memory(framework: str, offload: str, changes: dict[str, Any], slug: str | None) -> None:
    scenario = scenario_of(LLAMA_8B, 8, 48, 4096).model_copy(update={"framework": load_framework(*framework.split())})
    row = row_of(scenario, **({"dp": 8} | {axis: value for axis, value in changes.items() if axis in BASE_AXES[:-2]}))
    policy = {axis: value for axis, value in changes.items() if axis == "recompute"}
    plan = finished(scenario, row, offload=offload, **policy)
    assert {name for name in slugs(plan, scenario) if "offload" in name} == ({slug} if slug else set())
    # It is the framework that refuses, and its source says where.
    assert slug is None or source_of(scenario.framework.rules, slug)


def test_an_offloaded_optimizer_of_megatron_s_is_adam() -> None:
    scenario = scenario_of(LLAMA_8B, 8, 48, 4096, optimizer="muon")
    plan = finished(scenario, row_of(scenario, dp=8), offload="optimizer")
    assert "optimizer_offload_is_precision_aware" in slugs(plan, scenario)


def test_sequence_parallelism_needs_ranks_to_split_over() -> None:
    scenario = scenario_of(load_model("llama-3-8b"), 8, 48, 4096)
    plan = finished(scenario, row_of(scenario, dp=8), sequence_parallel=True)
    assert "sequence_parallel_follows_tp" in slugs(plan, scenario)


def test_recomputed_layers_up_to_all_are_fine() -> None:
    scenario = scenario_of(load_model("llama-3-8b"), 8, 48, 4096)
    plan = finished(scenario, row_of(scenario, dp=8, recompute=2), recomputed_layers_per_stage=(32,))
    assert check_plan(plan, scenario) == ()


def test_a_rule_set_that_nobody_knows_is_refused() -> None:
    scenario = scenario_of(load_model("llama-3-8b"), 8, 48, 4096, rules="nobody-s")
    with pytest.raises(UnknownName, match="framework"):
        check_plan(finished(scenario, row_of(scenario, dp=8)), scenario)

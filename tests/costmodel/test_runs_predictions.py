"""Rows of runs as predictions: the same cost model as for plans, and a reason for whatever is assumed or missing."""

from __future__ import annotations

import random
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from costmodel.catalog.framework_catalog import load_framework
from costmodel.runs.columns import Run, columns
from costmodel.runs.prediction import RunPrediction
from costmodel.runs.predictions import predict_runs
from costmodel.table import PlanTable, stage_table_of
from costmodel.terms.activations import RECOMPUTE_FULL as FULL
from tests.scenarios import plan_row, priced, scenario_of

LLAMA = Run(
    id="llama",
    group="study/llama-3.1-8b/H100",
    framework="megatron",
    task="pretrain",
    model_name="Llama 3.1 8B",
    layers=32,
    hidden=4096,
    ffn_hidden=14336,
    heads=32,
    kv_heads=8,
    head_dim=128,
    vocab=128256,
    seq_len=8192,
    swiglu=True,
    tied_embeddings=False,
    accelerator="H100-80GB",
    devices=64,
    devices_per_node=8,
    precision="bf16",
    tp=2,
    sp=True,
    pp=2,
    vpp=1,
    cp=1,
    dp=16,
    zero_stage="distopt",
    micro_batch=1,
    global_batch=128,
    recompute="none",
)


PLAN = plan_row(128, tp=2, pp=2, dp=16, zero_stage=1)


def predicted(**changes: Any) -> RunPrediction:
    return predict_runs([replace(LLAMA, **changes)])[0]


def test_a_row_is_priced_as_the_plan_that_it_names() -> None:
    plan = priced(scenario_of("llama-3.1-8b", "dgx-h100", 64, 128, 8192), PLAN)
    found = predicted()
    assert found.step_time_s == pytest.approx(float(plan.step_time_s[0]), rel=1e-12)
    assert found.peak_mem_gb == pytest.approx(float(plan.peak_bytes[0]) / 2**30, rel=1e-12)
    assert found.feasible is True
    assert found.reason == ""
    assert found.step_time_low_s < found.step_time_s < found.step_time_high_s


def test_a_row_says_what_it_rests_on_where_that_is_less_than_runs_of_its_own() -> None:
    assert "gemm_efficiency of hopper in bf16" in predicted(accelerator="H800").reason
    assert "no run on h800-sxm5-80gb" in predicted(accelerator="H800").reason
    assert "general values for gemm_efficiency" in predicted(accelerator="RTX 4090").reason
    assert "beyond the calibrated range: devices 65536" in predicted(devices=65536, dp=16384, global_batch=16384).reason


@pytest.mark.parametrize("framework", ["megatron-core 0.15", "NeMo 2", "Megatron-Bridge"])
@pytest.mark.parametrize("changes", [{"sp": False}, {"precision": "fp16"}])
def test_a_framework_of_today_is_priced_as_it_is(framework: str, changes: dict[str, Any]) -> None:
    found = predicted(framework=framework, **changes)
    plan = scenario_of("llama-3.1-8b", "dgx-h100", 64, 128, 8192, precision=changes.get("precision", "bf16"))
    plan = plan.model_copy(update={"sequence_parallel": changes.get("sp", True)})
    assert found.step_time_s == pytest.approx(float(priced(plan, PLAN).step_time_s[0]), rel=1e-12)
    assert "2020-22" not in found.reason


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({"recompute": "full, every 4 layers"}, {"recompute": FULL, "recompute_interval": 4}),
        ({"recompute": "full"}, {"recompute": FULL}),
        ({"zero_stage": "3, ZeRO++ qwZ"}, {"zero_stage": 3, "zero_plus": 1, "gradient_sync": 1}),
        ({"zero_stage": "", "framework": "deepspeed ZeRO++"}, {"zero_stage": 3, "zero_plus": 7, "gradient_sync": 1}),
        ({"zero_stage": "3", "overlap_notes": "hpZ 8"}, {"zero_stage": 3, "zero_plus": 2, "gradient_sync": 1}),
    ],
    ids=lambda value: " ".join(map(str, value.values())),
)
def test_what_a_row_says_of_options_is_priced(changes: dict[str, Any], options: dict[str, int]) -> None:
    given = {"framework": "deepspeed", "pp": 1, "dp": 32, **changes}
    scenario = scenario_of("llama-3.1-8b", "dgx-h100", 64, 128, 8192)
    scenario = scenario.model_copy(update={"framework": load_framework("deepspeed")})
    plan = plan_row(128, tp=2, dp=32, zero_stage=1) | options
    assert predicted(**given).step_time_s == pytest.approx(float(priced(scenario, plan).step_time_s[0]), rel=1e-12)


def test_zero_plus_outside_of_its_stage_and_a_copy_over_other_ranks_are_said() -> None:
    assert "ZeRO++ goes with ZeRO-3, not with ZeRO-1" in predicted(zero_stage="1", overlap_notes="qgZ").reason
    assert "hpZ over 16 ranks is priced as over the 8" in predicted(zero_stage="3", overlap_notes="hpZ 16").reason
    assert "one checkpoint for every 4 layers" in predicted(recompute="full, every 4 layers").reason


@pytest.mark.parametrize("framework", ["megatron", "NVIDIA/Megatron-LM"])
@pytest.mark.parametrize("changes", [{"sp": False}, {"precision": "fp16"}])
def test_a_name_that_two_eras_share_is_told_by_how_it_trained(framework: str, changes: dict[str, Any]) -> None:
    old = {"framework": framework, "accelerator": "A100-80GB", "zero_stage": "0"}
    assert "is priced as Megatron-LM of 2020-22" in predicted(**old, **changes).reason
    assert "2020-22" not in predicted(**old).reason


@pytest.mark.parametrize(
    ("changes", "title"),
    [
        ({"zero_stage": "0"}, "Megatron-LM of 2020-22"),
        ({"zero_stage": "1"}, "Megatron-DeepSpeed of 2021-22"),
        ({"zero_stage": "", "dist_opt": True}, "Megatron-DeepSpeed of 2021-22"),
        ({"zero_stage": "", "dist_opt": False}, "Megatron-LM of 2020-22"),
        ({"zero_stage": "0", "framework": "Megatron-DeepSpeed"}, "Megatron-DeepSpeed of 2021-22"),
        ({"zero_stage": "1", "framework": "NVIDIA/Megatron-LM"}, "Megatron-LM of 2020-22"),
    ],
)
def test_what_sharded_its_optimizer_then_was_deepspeed(changes: dict[str, Any], title: str) -> None:
    old = {"framework": "megatron", "accelerator": "A100-80GB", "sp": False}
    assert f"is priced as {title}" in predicted(**old | changes).reason


@pytest.mark.parametrize(
    ("stated", "same"), [(300, True), (600, True), (150, True), (295, True), (32, False), (200, False)]
)
def test_links_of_a_board_are_counted_both_ways_or_by_half(stated: float, same: bool) -> None:
    row = {"accelerator": "A100-80GB", "pp": 1, "dp": 32}
    usual, found = (predicted(**row, intra_node_bw_gbs=rate).step_time_s for rate in (None, stated))
    assert usual is not None
    assert found is not None
    assert (found == usual) == same
    assert same or found > usual


@pytest.mark.parametrize(
    "changes",
    [
        {"sp": False},
        {"precision": "fp16"},
        {"sp": False, "precision": "fp8"},
        {"accelerator": "V100-32GB", "precision": "bf16"},
        {"accelerator": "A100-80GB", "sp": False, "experts": 8, "top_k": 2, "moe_ffn_hidden": 14336, "ep": 8},
    ],
)
def test_what_that_era_did_not_have_is_of_today(changes: dict[str, Any]) -> None:
    found = predicted(framework="megatron", model_name="mine", **changes)
    assert found.step_time_s is not None
    assert "2020-22" not in found.reason


def test_rows_that_ask_the_same_are_priced_once_and_answered_each() -> None:
    rows = [replace(LLAMA, id=str(n), tp=None, pp=None, dp=None, micro_batch=None, recompute="") for n in range(500)]
    found = predict_runs(rows)
    assert [prediction.id for prediction in found] == [str(n) for n in range(500)]
    assert len({(prediction.step_time_s, prediction.reason) for prediction in found}) == 1


def test_what_is_feasible_fits_as_it_is_shown() -> None:
    usable = scenario_of("llama-3.1-8b", "dgx-h100", 64, 128, 8192).usable_bytes / 2**30
    for seq_len in (8192, 16384, 32768, 65536):
        found = predicted(recompute="", micro_batch=None, seq_len=seq_len, mem_kind="allocated")
        assert found.feasible == (found.peak_mem_gb <= usable)  # type: ignore[operator]


def test_one_row_in_one_row_out_in_order() -> None:
    rows = [replace(LLAMA, id=f"row {n}", global_batch=None if n % 3 == 1 else 128) for n in range(20)]
    found = predict_runs(rows)
    assert [prediction.id for prediction in found] == [row.id for row in rows]
    assert [prediction.step_time_s is None for prediction in found] == [n % 3 == 1 for n in range(20)]
    assert all(prediction.reason for n, prediction in enumerate(found) if n % 3 == 1)


def test_rows_do_not_depend_on_their_neighbours() -> None:
    rows = [replace(LLAMA, id=str(n), tp=tp, dp=32 // tp, seq_len=4096 * tp) for n, tp in enumerate((1, 2, 4, 8))]
    together = predict_runs(rows)
    alone = [predict_runs([row])[0] for row in rows]
    for one, other in zip(together, alone, strict=True):
        assert one.step_time_s == pytest.approx(other.step_time_s, rel=1e-12)
        assert one.peak_mem_gb == pytest.approx(other.peak_mem_gb, rel=1e-12)


def test_an_empty_list_has_no_predictions() -> None:
    assert predict_runs([]) == []


def test_an_id_alone_keeps_its_row_and_says_what_is_missing() -> None:
    found = predict_runs([Run(id="only")])[0]
    assert found == RunPrediction(id="only", reason=found.reason)
    for column in ("seq_len", "global_batch", "devices"):
        assert column in found.reason


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"accelerator": "Quantum9000"}, "Quantum9000"),
        ({"framework": "my own trainer"}, "my own trainer"),
        ({"precision": "int3"}, "int3"),
        ({"recompute": "as in the yaml"}, "as in the yaml"),
        ({"zero_stage": "some"}, "some"),
        ({"mem_kind": "what the fan says"}, "what the fan says"),
        ({"offload": "somewhere"}, "somewhere"),
        ({"framework": "nanotron", "recompute": "selective"}, "whole layers or nothing"),
        ({"dp": 7}, "dp 7 contradicts"),
        ({"micro_batch": 3}, "no multiple"),
        ({"ep": 8}, "without experts"),
        ({"ffn_hidden": None, "model_name": "mine"}, "ffn_hidden blank"),
        ({"framework": "nanotron", "precision": "fp8", "recompute": "selective:core_attn"}, "fp8 gradients"),
        ({"n_params_b": 80.0, "model_name": "mine", "ffn_hidden": 14000}, "n_params_b says 80"),
    ],
)
def test_what_is_not_known_falls_back_and_is_said(changes: dict[str, Any], said: str) -> None:
    found = predicted(**changes)
    assert found.step_time_s is not None
    assert said in found.reason


def test_what_a_row_leaves_open_is_what_the_device_can_hold_fastest() -> None:
    """8B on 4 GPUs with long sequences: without recompute it can't be held, so it must have been recomputed."""
    small = {"devices": 4, "tp": 4, "pp": 1, "dp": 1, "global_batch": 4}
    open_ = predicted(recompute="", seq_len=131072, **small)
    full, none = (predicted(recompute=text, seq_len=131072, **small) for text in ("full", "none"))
    assert none.feasible is False
    assert open_.step_time_s == full.step_time_s
    assert "isn't stated" in open_.reason
    short = predicted(recompute="", **small)
    assert short.step_time_s == predicted(recompute="none", **small).step_time_s


@pytest.mark.parametrize("left_out", [("tp",), ("pp",), ("dp",), ("tp", "pp"), ("tp", "pp", "dp"), ("devices",)])
def test_degrees_that_are_not_stated_follow_or_are_chosen(left_out: tuple[str, ...]) -> None:
    found = predicted(**dict.fromkeys(left_out))
    assert found.step_time_s is not None
    if len(left_out) == 1:
        assert found.step_time_s == pytest.approx(predicted().step_time_s, rel=1e-12)
    else:
        assert "not stated" in found.reason


def test_sharding_over_part_of_data_parallelism_needs_more_memory() -> None:
    whole = predicted(pp=1, dp=32)
    part = predicted(pp=1, dp=32, overlap_notes="zero1 group size 4")
    assert part.peak_mem_gb > whole.peak_mem_gb


def test_exchanges_that_overlap_with_nothing_are_exposed_where_the_framework_has_the_switch() -> None:
    sharded = {"tp": 8, "dp": None, "sp": True}
    usual, off = (predicted(**sharded, overlap_notes=text).step_time_s for text in ("", "TP_COMM_OVERLAP=False"))
    assert usual is not None
    assert off is not None
    assert off > 1.01 * usual
    fsdp = sharded | {"framework": "pytorch fsdp"}
    assert predicted(**fsdp, overlap_notes="no overlap").step_time_s == predicted(**fsdp).step_time_s


def test_what_torch_compile_saves_is_about_what_torchtune_publishes() -> None:
    """Llama 3.2 3B on an A100, packed to 4,096: 7,075 tokens/s, compiled 8,998 (torchtune README @bd2a0fc7c3)."""
    shape = {
        "model_name": "Llama 3.2 3B",
        "layers": 28,
        "hidden": 3072,
        "ffn_hidden": 8192,
        "heads": 24,
        "tp": 1,
        "pp": 1,
    }
    run = shape | {"devices": 1, "dp": 1, "seq_len": 4096, "micro_batch": 2, "global_batch": 2, "accelerator": "A100"}
    run |= {"framework": "torchtune", "precision": "bf16-true", "tied_embeddings": True, "zero_stage": "ddp"}
    compiled, eager = (predicted(**run, compile=compile).step_time_s for compile in (True, False))
    assert compiled is not None
    assert eager is not None
    assert eager / compiled == pytest.approx(8998 / 7075, rel=0.12)
    assert predicted(**run).step_time_s == compiled
    assert predicted(**run, compile=False, notes="Liger-Kernel").step_time_s == compiled


def test_kernels_of_a_framework_s_own_need_no_torch_compile() -> None:
    assert predicted(compile=False).step_time_s == predicted().step_time_s


def test_memory_is_the_quantity_that_the_row_prints() -> None:
    """The last stage has the logits; rank 0 has not. nvidia-smi counts the context too."""
    deep = {"tp": 1, "pp": 4, "dp": 16, "global_batch": 16}
    first, allocated, device, reserved = (
        predicted(mem_kind=kind, **deep).peak_mem_gb
        for kind in ("rank 0", "max_memory_allocated", "nvidia-smi", "max_memory_reserved")
    )
    assert first < allocated < reserved < device
    assert predicted(mem_kind="rank 0", **deep).feasible == predicted(mem_kind="nvidia-smi", **deep).feasible


def test_chunks_come_out_even_where_embedding_and_loss_take_slots() -> None:
    """Llama 3.1 405B on 16 stages of 8 chunks: 126 layers and two slots are 128 chunks of one."""
    shape = {"layers": 126, "hidden": 16384, "ffn_hidden": 53248, "heads": 128, "model_name": "Llama 3.1 405B"}
    big = predicted(**shape, devices=16384, tp=8, pp=16, vpp=8, dp=128, global_batch=2048)
    row = plan_row(2048, tp=8, pp=16, vpp=8, dp=128, zero_stage=1, layout=2)
    plan = priced(scenario_of("llama-3.1-405b", "dgx-h100", 16384, 2048, 8192), row)
    assert big.step_time_s == pytest.approx(float(plan.step_time_s[0]), rel=1e-12)


def test_experts_and_latent_attention_come_from_columns_and_catalog() -> None:
    moe = predicted(
        model_name="DeepSeek-V3",
        layers=61,
        hidden=7168,
        ffn_hidden=18432,
        heads=128,
        kv_heads=128,
        head_dim=None,
        vocab=129280,
        experts=256,
        top_k=8,
        n_shared_experts=1,
        moe_ffn_hidden=2048,
        moe_dense_layers="first 3",
        mla=True,
        devices=512,
        tp=1,
        pp=8,
        ep=64,
        dp=64,
        seq_len=4096,
        global_batch=4096,
    )
    assert moe.step_time_s is not None
    assert 10 < moe.step_time_s < 100
    assert moe.reason == "" or "GiB" in moe.reason


def test_no_row_is_an_error() -> None:
    """Any column can hold anything that the reader lets through."""
    draw = random.Random(0)
    texts = ["", "none", "fp8", "ZeRO-3 group size 0", "first 99999", "zero1 group size 999999999", "TPU", "é\x00", "1"]
    rows = []
    for number in range(400):
        changes: dict[str, Any] = {}
        for name in draw.sample(sorted(set(columns()) - {"id"}), k=draw.randint(1, 12)):
            column = columns()[name]
            if column.kind == "text":
                changes[name] = draw.choice(texts)
            elif column.kind == "flag":
                changes[name] = draw.choice([None, True, False])
            elif column.kind == "count":
                most = int(column.most)
                changes[name] = draw.choice([None, max(int(column.least), 1), 2, 3, 5, 7, 16, 1000, most])
            else:
                changes[name] = draw.choice([None, 1e-3, 1.0, column.most])
        changes = {name: value for name, value in changes.items() if value != 0 or name != "id"}
        rows.append(replace(LLAMA, id=str(number), **changes))
    found = predict_runs(rows)
    assert len(found) == len(rows)
    for prediction in found:
        assert prediction.step_time_s is None or (
            np.isfinite(prediction.step_time_s) and prediction.step_time_s > 0 and np.isfinite(prediction.peak_mem_gb)  # type: ignore[arg-type]
        ), prediction
        assert prediction.step_time_s is not None or prediction.reason


def test_every_column_of_the_contract_is_an_attribute() -> None:
    assert {field.name for field in fields(Run)} - {"line", "problems"} == set(columns())


MAXTEXT: dict[str, Any] = {
    "framework": "MaxText",
    "accelerator": "TPU v5p",
    "tp": 1,
    "pp": 1,
    "dp": 64,
    "zero_stage": "3",
    "micro_batch": 2,
}


@pytest.mark.parametrize(
    "changes",
    [
        {"recompute": "selective", "overlap_notes": "FSDP over ICI, custom remat"},
        {"recompute": "selective", "notes": "custom remat: qkv remat"},
        {"recompute": "offload"},
    ],
)
def test_a_policy_of_one_s_own_keeps_as_good_as_nothing(changes: dict[str, Any]) -> None:
    found, full = predicted(**MAXTEXT, **changes), predicted(**MAXTEXT, recompute="full")
    assert found.peak_mem_gb is not None
    assert full.peak_mem_gb is not None
    assert found.peak_mem_gb < full.peak_mem_gb
    # What it takes is that of the policy that it states.
    stated = predicted(**MAXTEXT, recompute="selective") if changes["recompute"] == "selective" else full
    assert found.step_time_s == stated.step_time_s


@pytest.mark.parametrize(("framework", "expected"), [("nanotron", [18, 14]), ("megatron-core", [16, 16])])
def test_runs_of_nanotron_have_its_own_layers(framework: str, expected: list[int]) -> None:
    """The head of Llama 3 8B costs as much as 2.2 layers: half of all is 17.1, and the layer beyond stays."""
    scenario = scenario_of("llama-3.1-8b").model_copy(update={"framework": load_framework(framework)})
    stages = stage_table_of([scenario], np.array([0]), PlanTable.of_rows([PLAN]))
    assert stages.dense_layers[0].tolist() == expected


def test_runs_in_fp8_keep_what_the_recipes_of_their_frameworks_keep() -> None:
    """Published runs of Megatron in FP8 are those of NeMo and Megatron-Bridge, whose recipes quantise parameters."""
    plain, recipe = (predicted(framework=name, precision="fp8").peak_mem_gb for name in ("megatron", "NeMo"))
    assert plain == recipe

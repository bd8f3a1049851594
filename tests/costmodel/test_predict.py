"""One model in two forms: they agree, on one row or many, on one scenario or columns of them, and parts add up."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
import pytest

from costmodel.arrays import Num, num
from costmodel.catalog.framework_catalog import load_optimizer, load_precision
from costmodel.catalog.model_catalog import load_model, model_names
from costmodel.facts import Facts
from costmodel.flops import attention_flops_per_token, model_flops_per_token, recomputed_flops_per_token
from costmodel.memory import MEMORY_TERMS
from costmodel.plan_rows import encode, plan_of
from costmodel.predict import PredictionTable, StagePrediction, predict, predict_stages
from costmodel.scenario import Scenario
from costmodel.spec.plan import Plan
from costmodel.stages import Layout, layers_per_chunk, stage_kinds
from costmodel.table import AXES, BASE_AXES, PlanTable, StageTable, layer_counts, stage_table, virtual_stages
from costmodel.term_outputs import TERMS, evaluate_terms
from costmodel.terms.attention import ATTENTION
from costmodel.terms.communication import TENSOR_PARALLEL
from costmodel.terms.term import Axes, Term
from tests.scenarios import (
    axes_of,
    broken_down,
    ideal,
    lossless,
    plan_row,
    priced,
    random_legal_plans,
    recalibrated,
    scenario_of,
)

SCENARIOS = {
    "dense": lambda: scenario_of("llama-3-8b", "dgx-h100", 64, 256, 8192),
    "tied": lambda: scenario_of("qwen2.5-3b", "dgx-a100-80gb", 32, 256, 4096),
    "moe": lambda: scenario_of("mixtral-8x7b", "gb200-nvl72", 144, 576, 4096),
    "dense layers first, mtp": lambda: scenario_of("deepseek-v3", "dgx-h100", 512, 2048, 4096),
    "windows, tied": lambda: scenario_of("gemma-2-9b", "mi300x-8x400g", 64, 256, 8192),
    "three tiers": lambda: scenario_of("llama-3.1-405b", "meta-llama3-h100", 16384, 8192, 8192),
}
any_scenario = pytest.mark.parametrize("name", sorted(SCENARIOS))


@cache
def legal_plans(name: str) -> tuple[Scenario, Facts, PlanTable]:
    scenario = SCENARIOS[name]()
    return scenario, Facts.of(scenario), random_legal_plans(scenario, 1000, seed=7)


@cache
def both_forms(name: str) -> tuple[PredictionTable, StagePrediction]:
    scenario, facts, table = legal_plans(name)
    ranking = predict(facts, table, stage_table(scenario, table))
    return ranking, predict_stages(facts, table, stage_table(scenario, table, every_stage=True))


@any_scenario
def test_the_random_plans_cover_what_plans_can_be(name: str) -> None:
    """Or the tests below would say little."""
    scenario, _, table = legal_plans(name)
    assert len(table) >= 700
    for axis in ("tp", "cp", "pp", "vpp", "zero_stage", "micro_batch_size", "recompute", "layout"):
        assert len(set(table[axis].tolist())) >= 2, axis
    if scenario.model.moe is not None:
        assert len(set(table["ep"].tolist())) >= 2
        assert len(set(table["etp"].tolist())) >= 2


@any_scenario
def test_ranking_form_equals_the_full_breakdown(name: str) -> None:
    """The stages that can be the worst against every stage."""
    ranking, full = both_forms(name)
    np.testing.assert_allclose(ranking.step_time_s, full.step_time_s, rtol=1e-12)
    np.testing.assert_allclose(ranking.peak_bytes, full.peak_bytes, rtol=1e-12)


@any_scenario
def test_parts_of_time_are_not_negative_and_sum_to_the_step(name: str) -> None:
    _, full = both_forms(name)
    np.testing.assert_allclose(sum(full.time.values()), full.step_time_s, rtol=1e-12)
    for part, seconds in full.time.items():
        assert np.min(seconds) >= -1e-9, part


@any_scenario
def test_memory_terms_are_not_negative_and_sum_to_the_peak(name: str) -> None:
    _, full = both_forms(name)
    assert set(full.memory) == set(MEMORY_TERMS)
    for term, held in full.memory.items():
        assert np.min(held) >= 0, term
    stages: Num = sum(full.memory.values(), start=np.zeros(()))
    np.testing.assert_allclose(stages.max(axis=-1), full.peak_bytes, rtol=1e-12)


@any_scenario
def test_a_table_gives_what_its_rows_give_one_by_one(name: str) -> None:
    scenario, facts, table = legal_plans(name)
    ranking, full = both_forms(name)
    for index in range(0, len(table), 25):
        alone = table.take(np.array([index]))
        once = predict(facts, alone, stage_table(scenario, alone))
        assert once.step_time_s[0] == pytest.approx(ranking.step_time_s[index], rel=1e-12)
        assert once.peak_bytes[0] == pytest.approx(ranking.peak_bytes[index], rel=1e-12)
        details = predict_stages(facts, alone, stage_table(scenario, alone, every_stage=True))
        for part, seconds in full.time.items():
            shown = details.time.get(part, num(0))  # a part that no row of the table has is not listed
            assert float(shown.sum()) == pytest.approx(float(np.broadcast_to(seconds, len(table))[index]), abs=1e-9)


def test_tables_longer_than_a_block_are_priced_alike() -> None:
    scenario, facts, table = legal_plans("dense")
    many = PlanTable.concatenate([table] * 10)
    ranking, _ = both_forms("dense")
    found = predict(facts, many, stage_table(scenario, many))
    np.testing.assert_array_equal(found.step_time_s, np.tile(ranking.step_time_s, 10))
    np.testing.assert_array_equal(found.peak_bytes, np.tile(ranking.peak_bytes, 10))


def test_columns_of_scenarios_agree_with_each_scenario_alone() -> None:
    """Rows of different models, clusters, sequences and recipes in one pass."""
    cases: list[tuple[Scenario, PlanTable]] = []
    for name in SCENARIOS:
        scenario, _, table = legal_plans(name)
        cases += [(scenario, table.take(np.array([index]))) for index in range(3, len(table), 100)]
    fp8 = scenario_of("llama-3.1-70b", "dgx-b200", 64, 64, 4096, precision="fp8", optimizer="muon")
    single = scenario_of("gpt2", "rtx4090-1", 1, 8, 1024)
    cases.append((fp8, PlanTable.of_rows([plan_row(64, tp=8, dp=2, pp=4, vpp=2)])))
    cases.append((single, PlanTable.of_rows([plan_row(8)])))

    facts = Facts.columns([scenario for scenario, _ in cases])
    table = PlanTable.concatenate([row for _, row in cases])
    shapes, chunks = [], []
    for scenario, row in cases:
        pipeline = int(row["pp"][0]), int(row["vpp"][0]), Layout(int(row["layout"][0]))
        shape = stage_kinds(*layer_counts(scenario), *pipeline)
        assert shape is not None
        shapes.append(shape)
        chunks.append(layers_per_chunk(scenario.model.num_layers, *pipeline))
    virtual = virtual_stages(chunks, [scenario.model.dense_layers for scenario, _ in cases])
    stages = StageTable.of(shapes).with_chunks(virtual)
    together = predict_stages(facts, table, stages)
    ranked = predict(facts, table, stages)
    np.testing.assert_array_equal(ranked.step_time_s, together.step_time_s)

    for index, (scenario, row) in enumerate(cases):
        alone = predict(Facts.of(scenario), row, stage_table(scenario, row))
        assert together.step_time_s[index] == pytest.approx(alone.step_time_s[0], rel=1e-12)
        assert together.peak_bytes[index] == pytest.approx(alone.peak_bytes[0], rel=1e-12)
    np.testing.assert_allclose(sum(together.time.values()), together.step_time_s, rtol=1e-12)


class RecordingAxes(Axes):
    """Notes which axes a term reads."""

    __slots__ = ("read",)

    def __init__(self, columns: Mapping[str, Num]) -> None:
        super().__init__(columns)
        self.read: set[str] = set()

    def __getattr__(self, name: str) -> Num:
        self.read.add(name)
        return super().__getattr__(name)


@pytest.mark.parametrize("term", TERMS, ids=lambda term: term.name)
def test_a_term_reads_the_axes_it_declares_and_no_other(term: Term) -> None:
    scenario, _, table = legal_plans("dense layers first, mtp")
    # Of a recipe and an optimizer for which every term has something to do.
    recipes = {"precision": load_precision("fp8"), "optimizer": load_optimizer("muon")}
    workload = scenario.workload.model_copy(update=recipes)
    facts = Facts.of(scenario.model_copy(update={"workload": workload}))
    everything = RecordingAxes({axis: num(table[axis]) for axis in AXES})
    term.evaluate(facts, everything)
    assert everything.read == set(term.axes)
    assert set(term.axes) <= set(AXES)


def test_reading_an_undeclared_axis_is_an_error() -> None:
    with pytest.raises(AttributeError, match="does not declare the axis 'vpp'"):
        _ = Axes({"tp": num(1)}).vpp


@any_scenario
def test_terms_give_every_row_its_own_value_however_they_are_grouped(name: str) -> None:
    """Evaluated on distinct tuples and gathered, or on every row."""
    _, facts, table = legal_plans(name)
    gathered = evaluate_terms(facts, table)
    for term in TERMS:
        direct = term.evaluate(facts, Axes({axis: num(table[axis]) for axis in term.axes}))
        assert set(direct) <= set(gathered)
        assert set(direct) <= set(term.gives)
        for output, values in direct.items():
            np.testing.assert_array_equal(gathered[output], np.broadcast_to(values, len(table)), err_msg=output)


def test_names_of_outputs_are_unique_over_all_terms() -> None:
    outputs = [name for term in TERMS for name in term.gives]
    assert len(outputs) == len(set(outputs))


@pytest.mark.parametrize(
    "axes", [{"tp": 8}, {"tp": 4, "pp": 4, "vpp": 2}, {"tp": 2, "cp": 2, "zero_stage": 3}], ids=str
)
def test_every_further_micro_batch_takes_as_long(axes: dict[str, int]) -> None:
    scenario = scenario_of("llama-3-8b", devices=64)
    rows = [plan_row(0, dp=1, **axes, num_microbatches=m) for m in (8, 16, 24)]
    first, second, third = priced(scenario, *rows).step_time_s
    assert second - first == pytest.approx(third - second, rel=1e-9)


def test_the_step_ends_with_the_slowest_device() -> None:
    """A layer more on a stage, or a head of many logits, sets the pace of all."""
    scenario = scenario_of("gemma-2-9b", devices=4, global_batch_size=64, seq_len=4096)
    even = broken_down(scenario, plan_row(64, pp=4))
    assert even.critical_stage[0] == 3 or even.time["head"][0] == 0
    counted = broken_down(scenario, plan_row(64, pp=4, layout=int(Layout.LOSS_COUNTS)))
    assert counted.step_time_s[0] < even.step_time_s[0]


@pytest.mark.parametrize("layout", list(Layout))
def test_the_bubble_is_the_mean_devices_work(layout: Layout) -> None:
    """``(p - 1)/v`` times a micro-batch of the average device, so it does not grow with how uneven the stages are."""
    scenario = scenario_of("llama-3.1-70b", devices=4, global_batch_size=16)
    uneven = broken_down(scenario, plan_row(16, pp=4, layout=int(layout)))
    even = broken_down(scenario, plan_row(16, pp=4))
    assert uneven.time["bubble"] == pytest.approx(even.time["bubble"])
    assert broken_down(scenario, plan_row(16, pp=4, vpp=2)).time["bubble"] < even.time["bubble"]


def test_a_row_survives_the_table() -> None:
    rows = [plan_row(256, tp=2, dp=8, pp=4, vpp=2), plan_row(256, dp=16, cp=4, zero_stage=0, recompute=2)]
    table = PlanTable.of_rows(rows)
    back = [table.row(index) for index in range(len(table))]
    assert [{axis: found[axis] for axis in BASE_AXES} for found in back] == [
        {axis: row[axis] for axis in BASE_AXES} for row in rows
    ]
    # An option that a row leaves out is the usual one.
    assert [found["tp_overlap"] for found in back] == [1, 1]
    assert table.devices_used.tolist() == [64, 64]
    swapped = PlanTable.concatenate([table.take(np.array([1])), table.take(np.array([True, False]))])
    assert [swapped.row(0), swapped.row(1)] == [table.row(1), table.row(0)]


def test_a_plan_becomes_the_row_that_prices_it() -> None:
    plan = Plan(
        tp=2,
        pp=4,
        vpp=2,
        cp=2,
        cp_comm_type="all_gather",
        dp=4,
        dp_replicate=2,
        dp_shard=2,
        zero_stage=1,
        sequence_parallel=True,
        micro_batch_size=2,
        num_microbatches=16,
        global_batch_size=128,
        seq_len=8192,
        devices_used=64,
        schedule="interleaved_1f1b",
        layers_per_stage=(8, 8, 8, 8),
        layers_per_chunk=((4, 4),) * 4,
        recompute="selective",
        recompute_modules=("layernorm",),
        recomputed_layers_per_stage=(0, 0, 0, 0),
        precision="bf16",
        optimizer="adamw",
        framework="megatron-core",
        framework_version="0.16",
    )
    scenario = scenario_of("llama-3-8b", devices=64, global_batch_size=128, seq_len=8192)
    row = encode(scenario, plan, Layout.EVEN)
    assert plan_of(scenario, row) == plan
    expected = plan_row(
        128, tp=2, pp=4, vpp=2, cp=2, cp_comm_type=1, dp=4, dp_replicate=2, micro_batch_size=2, recompute=1
    )
    assert row == expected


def test_stages_of_an_impossible_layout_are_refused() -> None:
    scenario = scenario_of("llama-3.1-405b", devices=128)
    table = PlanTable.of_rows([plan_row(256, pp=16, vpp=8, layout=int(Layout.LOSS_COUNTS))])
    with pytest.raises(ValueError, match="126 layers have no LOSS_COUNTS layout on pp 16, vpp 8"):
        stage_table(scenario, table)


def test_zero_3_exposes_what_the_layers_compute_does_not_hide() -> None:
    """With endless overlap the step's first gather and last reduction; with none, two gathers and a reduction of
    every layer and micro-batch.
    """
    scenario = scenario_of("llama-3-8b", devices=64, global_batch_size=512)
    row = plan_row(512, dp=64, zero_stage=3)
    hidden = recalibrated(Facts.of(scenario), fsdp_overlap_share=1e6)
    bare = recalibrated(Facts.of(scenario), fsdp_overlap_share=0)
    first_and_last = float(broken_down(scenario, row, facts=hidden).time["dp_comm"][0])
    assert 0 < first_and_last < 0.01
    exposed = broken_down(scenario, row, facts=bare).time["dp_comm"][0]
    layers = scenario.model.num_layers * scenario.model.params.dense_layer
    network = Facts.of(scenario).hardware.tier_bandwidth[1] * bare.cal.scale_out_efficiency
    # Two gathers and a reduction a micro-batch; of 64 ranks in nodes of 8, seven eighths cross over eight rails.
    crossing = layers * (2 * bare.cal.parameter_wire_bytes + bare.cal.gradient_wire_bytes) * 7 / 8 / 8 / network
    in_node = layers * (2 * bare.cal.parameter_wire_bytes + bare.cal.gradient_wire_bytes) * 63 / 64
    in_node = in_node / (bare.hardware.tier_bandwidth[0] * bare.cal.scale_up_efficiency)
    latency = exposed - 8 * max(float(crossing), float(in_node))
    assert 0 < latency < 0.5 * exposed


def test_padding_of_short_pipelines_changes_nothing() -> None:
    """Rows of 1 and 8 stages share a table: what pads the short one repeats a stage of its own."""
    scenario = scenario_of("llama-3-8b", devices=64)
    short, long = plan_row(256, dp=64, zero_stage=1), plan_row(256, dp=8, pp=8)
    together = broken_down(scenario, short, long)
    for index, row in enumerate((short, long)):
        alone = broken_down(scenario, row)
        assert together.step_time_s[index] == alone.step_time_s[0]
        assert together.peak_bytes[index] == alone.peak_bytes[0]


@pytest.mark.parametrize("name", [name for name in model_names() if not load_model(name).num_mtp_layers])
def test_on_ideal_hardware_a_step_takes_its_flops(name: str) -> None:
    """At the peak, with all else free: 6 N and attention, whose backward runs its scores again (3.5 times, not 3)."""
    scenario = scenario_of(name, "dgx-h100", 1, 4, 4096)
    model, tokens = scenario.model, scenario.workload.tokens_per_step
    attention = attention_flops_per_token(model, 4096)
    needed = model_flops_per_token(model, 4096) + 0.5 * attention
    executed = needed + recomputed_flops_per_token(model, 4096, share=1.0)
    peak = scenario.cluster.accelerator.peak("bf16")
    found = priced(scenario, plan_row(4), plan_row(4, recompute=2), facts=ideal(Facts.of(scenario))).step_time_s
    assert found[0] == pytest.approx(needed * tokens / peak, rel=5e-3)
    assert found[1] == pytest.approx(executed * tokens / peak, rel=5e-3)


@pytest.mark.parametrize(
    "axes",
    [
        {"tp": 8, "dp": 8},
        {"pp": 8, "dp": 8},
        {"tp": 2, "cp": 4, "pp": 4, "vpp": 5, "dp": 2},
        {"dp": 64, "zero_stage": 3},
    ],
    ids=str,
)
def test_on_ideal_hardware_the_work_is_shared_by_all_devices(axes: dict[str, int]) -> None:
    """Whatever the mesh, the mean device does its share; what is left over is the bubble and an uneven head."""
    scenario = scenario_of("llama-3.1-70b", "dgx-h100", 64, 256, 4096)
    found = broken_down(scenario, plan_row(256, **axes), facts=ideal(Facts.of(scenario)))
    flops = model_flops_per_token(scenario.model, 4096) + 0.5 * attention_flops_per_token(scenario.model, 4096)
    fair = flops * scenario.workload.tokens_per_step / scenario.cluster.accelerator.peak("bf16") / 64
    work = found.step_time_s - found.time["bubble"] - found.time["head"]
    head = 6 * scenario.model.params.head * scenario.workload.tokens_per_step
    head_share = head / scenario.cluster.accelerator.peak("bf16") / 64
    assert work == pytest.approx(fair - head_share, rel=2e-3)


def end_of_step(zero_stage: int, overlap: float, **axes: int) -> float:
    """Exposed data-parallel seconds of Llama 3 8B on eight devices of a node, at rated links."""
    scenario = scenario_of("llama-3-8b", devices=8, global_batch_size=64)
    facts = recalibrated(lossless(Facts.of(scenario)), dp_overlap_share=overlap, fsdp_overlap_share=1e6)
    return float(
        broken_down(scenario, plan_row(64, dp=8, zero_stage=zero_stage, **axes), facts=facts).time["dp_comm"][0]
    )


@pytest.mark.parametrize(
    ("zero_stage", "sends", "of_one_layer"),
    [
        (0, "all-reduce", ""),
        (1, "reduce-scatter and gather", ""),
        (2, "gather", "reduce"),
        (3, "", "gather and reduce"),
    ],
)
def test_what_data_parallelism_sends_at_the_end_of_a_step(zero_stage: int, sends: str, of_one_layer: str) -> None:
    """Rajbhandari 2019 (arXiv 1910.02054), section 7: as much with ZeRO-1 as without; all of it when nothing overlaps,
    and the last bucket, which holds the table of embeddings, when everything else does. What ZeRO-2/3 send layer by
    layer hides under each layer, but for the first gather and the last reduction.
    """
    scenario = scenario_of("llama-3-8b", devices=8)
    cal, params = Facts.of(scenario).cal, scenario.model.params.total
    ring = 7 / 8 / 450e9 * params
    gradients, parameters = ring * float(cal.gradient_wire_bytes), ring * float(cal.parameter_wire_bytes)
    expected = {
        "all-reduce": 2 * gradients,
        "reduce-scatter and gather": gradients + parameters,
        "gather": parameters,
        "": 0.0,
    }[sends]
    one_layer = {"": 0.0, "reduce": gradients, "gather and reduce": gradients + parameters}[of_one_layer] / 32
    last = 1 / 32 if zero_stage == 2 else scenario.model.params.embedding / params
    assert end_of_step(zero_stage, overlap=0) == pytest.approx(expected + one_layer, rel=1e-3)
    assert end_of_step(zero_stage, overlap=1e6) == pytest.approx(expected * last + one_layer, rel=1e-3)


@pytest.mark.parametrize(("zero_stage", "owned"), [(0, 1.0), (1, 1 / 8), (3, 1 / 8)])
def test_the_optimizer_passes_over_what_a_rank_owns(zero_stage: int, owned: float) -> None:
    scenario = scenario_of("llama-3-8b", devices=8, global_batch_size=8)
    facts = Facts.of(scenario)
    rate = facts.hardware.memory_bandwidth * facts.cal.pointwise_efficiency
    found = broken_down(scenario, plan_row(8, dp=8, zero_stage=zero_stage)).time["optimizer"]
    expected = scenario.model.params.total * owned * facts.cal.optimizer_traffic_bytes / rate
    assert found == pytest.approx(expected, rel=1e-3)


def test_replicas_of_shards_reduce_once_more_between_them() -> None:
    """Hybrid sharding: the shards inside, then the shard alone across (primer, "FSDP1 vs FSDP2, HSDP")."""
    scenario = scenario_of("llama-3-8b", devices=64, global_batch_size=64)
    facts = recalibrated(lossless(Facts.of(scenario)), dp_overlap_share=0)
    row = plan_row(64, dp=64, dp_replicate=8)
    found = broken_down(scenario, row, facts=facts).time["dp_comm"]
    params, cal = scenario.model.params.total, facts.cal
    inside = params * 7 / 8 / 450e9 * (cal.gradient_wire_bytes + cal.parameter_wire_bytes)
    across = params / 8 * 2 * 7 / 8 / 50e9 * cal.gradient_wire_bytes
    assert found == pytest.approx(inside + across, rel=1e-3)


@pytest.mark.parametrize("model", ["llama-3-8b", "deepseek-v3", "gemma-2-9b"])
@pytest.mark.parametrize(("pp", "vpp"), [(4, 1), (8, 2)])
def test_the_mean_device_does_the_whole_models_work_over_the_stages(model: str, pp: int, vpp: int) -> None:
    """Ends and multi-token prediction included: waiting is ``(p - 1)/v`` of that mean."""
    scenario = scenario_of(model, devices=pp, global_batch_size=4 * pp)
    silent = {
        "pp_exposed_share": 0.0,
        "pp_exposed_share_interleaved": 0.0,
        "fixed_microbatch_s": 0.0,
        "fixed_chunk_s": 0.0,
    }
    facts = recalibrated(Facts.of(scenario), **silent)
    one, two = (plan_row(0, dp=1, num_microbatches=m) for m in (1, 2))
    once, twice = priced(scenario, one, two, facts=facts).step_time_s
    found = broken_down(scenario, plan_row(4 * pp, pp=pp, vpp=vpp), facts=facts)
    assert found.time["bubble"] == pytest.approx((pp - 1) / vpp * (twice - once) / pp, rel=1e-9)


def test_the_host_works_once_a_step_a_micro_batch_and_a_chunk() -> None:
    scenario = scenario_of("llama-3-8b", devices=8, global_batch_size=64)
    facts = recalibrated(Facts.of(scenario), fixed_step_s=0.25, fixed_microbatch_s=0.125, fixed_chunk_s=0.0625)
    assert broken_down(scenario, plan_row(64, dp=8), facts=facts).time["host"] == pytest.approx(
        0.25 + 8 * (0.125 + 0.0625)
    )


def test_passes_go_twice_as_long_backward() -> None:
    """They read what was saved and the gradient, and write a gradient."""
    scenario = scenario_of("llama-3-8b", devices=1, global_batch_size=4)
    facts = Facts.of(scenario)
    forward = ATTENTION.evaluate(facts, axes_of(tp=1, cp=1, micro_batch_size=1, cp_balanced=1, cp_a2a_degree=1))
    found = broken_down(scenario, plan_row(4)).time["norms"]
    assert found == pytest.approx(4 * 32 * 3 * float((forward["norm_s"] + forward["residual_s"])[0]))


def test_gathered_keys_and_values_travel_twice_as_far_backward() -> None:
    """They are gathered again, and their gradients reduced (Llama 3, arXiv 2407.21783, section 3.3.2)."""
    scenario = scenario_of("llama-3-8b", devices=8, global_batch_size=4)
    facts = lossless(Facts.of(scenario))
    found = broken_down(scenario, plan_row(4, cp=8, cp_comm_type=1), facts=facts).time["cp_comm"]
    assert found == pytest.approx(4 * 32 * 3 * 7 * (8192 / 8) * 2 * 1024 * 2 / 450e9)


def test_a_ring_rescales_its_output_after_every_hop_but_the_first() -> None:
    """Liu 2023 (arXiv 2310.01889), section 3: in 32 bits, read twice and written once; links cost nothing here."""
    scenario = scenario_of("llama-3-8b", devices=8, global_batch_size=4)
    facts = recalibrated(lossless(Facts.of(scenario)), scale_up_efficiency=1e9)
    found = broken_down(scenario, plan_row(4, cp=8), facts=facts).time["cp_comm"]
    rate = facts.hardware.memory_bandwidth * facts.cal.pointwise_efficiency
    merge = 7 * (8192 / 8 * 4096 * 3 * 4 / rate + facts.cal.gemm_launch_s)
    assert found == pytest.approx(4 * 32 * 2 * float(merge))


def test_the_optimizer_passes_over_the_experts_too() -> None:
    scenario = scenario_of("mixtral-8x7b", devices=8, global_batch_size=8)
    facts = Facts.of(scenario)
    rate = facts.hardware.memory_bandwidth * facts.cal.pointwise_efficiency
    found = broken_down(scenario, plan_row(8, dp=8, ep=8)).time["optimizer"]
    # Every parameter of the model is owned by one of the eight.
    expected = scenario.model.params.total / 8 * facts.cal.optimizer_traffic_bytes / rate
    assert found == pytest.approx(expected, rel=1e-3)


def test_exchanging_keys_and_values_needs_buffers() -> None:
    """Llama 2 7B at 128k tokens over eight ranks: all K/V of a layer, 2 * 4096 elements a token, and their gradient."""
    scenario = scenario_of("llama-2-7b", devices=8, global_batch_size=1, seq_len=131072)
    rows = [plan_row(1, cp=8, cp_comm_type=kind, recompute=2) for kind in range(3)]
    ring, gathered, exchanged = broken_down(scenario, *rows).memory["cp_buffers"][:, 0]
    assert gathered == 2 * 131072 * 2 * 4096 * 2
    assert ring == pytest.approx(gathered / 4)
    assert exchanged == pytest.approx(131072 / 8 * 4 * 4096 * 2)
    assert broken_down(scenario, plan_row(8, dp=8, num_microbatches=1)).memory["cp_buffers"] == 0


def test_tensor_parallelism_over_pcie_hides_nothing() -> None:
    """No switched domain, no overlap: the whole exchange is paid, and it is longer than the products beside it."""
    scenario = scenario_of("llama-3-8b", "l40s-8", 8, 64, 4096)
    facts = Facts.of(scenario)
    row = plan_row(64, tp=8)
    raw = TENSOR_PARALLEL.evaluate(facts, axes_of(tp=8, cp=1, ep=1, etp=1, micro_batch_size=1))["tp_block_s"]
    assert broken_down(scenario, row).time["tp_comm"] == pytest.approx(64 * 32 * 4 * float(raw[0]))


def test_expert_and_data_traffic_take_turns_on_the_same_links() -> None:
    """Neither hides under the other: what the NICs carry in a step is no longer than the step."""
    scenario = scenario_of("deepseek-v2", "p4d.24xlarge", 128, 256, 4096)
    facts = Facts.of(scenario)
    row = plan_row(256, ep=16, dp=128, zero_stage=3, recompute=2)
    outputs = evaluate_terms(facts, PlanTable.of_rows([row]))
    layers = scenario.model.num_layers - 1
    experts = float(outputs["expert_layer_params"][0])
    wire = 2 * float(facts.cal.parameter_wire_bytes) * float(outputs["expert_gather_s_per_byte"][0])
    wire += float(facts.cal.gradient_wire_bytes) * float(outputs["expert_reduce_s_per_byte"][0])
    on_the_nics = 2 * layers * (3 * float(outputs["ep_exchange_s"][0]) + experts * wire)
    assert broken_down(scenario, row).step_time_s > on_the_nics

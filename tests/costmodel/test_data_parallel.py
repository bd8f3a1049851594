"""Data parallelism against closed forms: what DDP, ZeRO, FSDP, HSDP and ZeRO++ send, expose and keep."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest

from costmodel.arrays import num
from costmodel.catalog.framework_catalog import load_framework
from costmodel.facts import Facts
from costmodel.scenario import Scenario
from costmodel.spec.options import BY_NAME, RESHARD_AFTER
from tests.scenarios import broken_down, lossless, plan_row, recalibrated, scenario_of

FORWARD, BACKWARD, STEP = range(len(RESHARD_AFTER))
ONCE, EACH = 0, 1
NODE = 8
NVLINK, NETWORK = 450e9, 50e9
ENDLESS = num(1e30)


@lru_cache
def scenario_under(framework: str, devices: int, batch: int) -> Scenario:
    scenario = scenario_of("llama-2-7b", devices=devices, global_batch_size=batch, seq_len=4096)
    return scenario.model_copy(update={"framework": load_framework(framework)})


def facts_of(scenario: Scenario, *, hides: float, within_nodes_free: bool = False) -> Facts:
    """Rated links without latency, two bytes a gradient and a parameter; ``hides`` is what compute hides."""
    facts = recalibrated(
        lossless(Facts.of(scenario)),
        dp_overlap_share=hides,
        fsdp_overlap_share=hides,
        gradient_wire_bytes=2,
        parameter_wire_bytes=2,
        all_to_all_factor=1,
    )
    if not within_nodes_free:
        return facts
    rates = (ENDLESS, *facts.hardware.tier_bandwidth[1:])
    return replace(facts, hardware=replace(facts.hardware, tier_bandwidth=rates))


def exchanged(framework: str, *, devices: int = NODE, m: int = 1, hides: float = 0.0, **how: Any) -> float:
    """Exposed data-parallel seconds of Llama 2 7B, one sequence a micro-batch."""
    scenario = scenario_under(framework, devices, devices * m)
    facts = facts_of(scenario, hides=hides, within_nodes_free=how.pop("within_nodes_free", False))
    return float(broken_down(scenario, plan_row(devices * m, dp=devices, **how), facts=facts).time["dp_comm"][0])


def held(framework: str, term: str, *, devices: int = NODE, m: int = 1, **how: Any) -> float:
    """Bytes of one term of memory."""
    scenario = scenario_under(framework, devices, devices * m)
    return float(broken_down(scenario, plan_row(devices * m, dp=devices, **how)).memory[term][0, 0])


MODEL = scenario_under("deepspeed", NODE, NODE).model
PARAMS, TABLE, LAYER = MODEL.params.total, MODEL.params.embedding, MODEL.params.dense_layer
PASS = 7 / 8 * 2 / NVLINK  # seconds a parameter of one ring pass of 16 bits inside a node


@pytest.mark.parametrize(("zero_stage", "passes"), [(0, 2), (1, 2), (2, 2), (3, 3)])
def test_stages_1_and_2_send_as_much_as_plain_data_parallelism_and_stage_3_half_more(
    zero_stage: int, passes: int
) -> None:
    """Rajbhandari 2019 (arXiv 1910.02054), section 7: 2 M, 2 M and 3 M. The backward pass needs no table of inputs."""
    volume = passes * PARAMS - (TABLE if zero_stage == 3 else 0)
    assert exchanged("deepspeed", zero_stage=zero_stage) == pytest.approx(volume * PASS, rel=1e-3)


def test_dealt_tensors_are_all_reduced_and_broadcast_under_nothing() -> None:
    """InternEvo's hybrid_zero_optim.py: an all-reduce of gradients, and all of the parameters past each rank once."""
    reduction, broadcasts = 2 * PARAMS * PASS, PARAMS * 2 / NVLINK
    assert exchanged("internevo", zero_stage=1) == pytest.approx(reduction + broadcasts, rel=1e-3)
    assert exchanged("internevo", zero_stage=0) == pytest.approx(reduction, rel=1e-3)
    alone = exchanged("internevo", zero_stage=1, hides=1) - exchanged("internevo", zero_stage=0, hides=1)
    assert alone == pytest.approx(broadcasts, rel=1e-3)


@pytest.mark.parametrize(
    ("tp", "devices", "of_a_node", "of_all"),
    [
        (1, 128, 3928, 3571),
        (1, 256, 3920, 3209),
        (1, 512, 3835, 2861),
        (1, 1024, 3625, 2271),
        (2, 512, 3589, 2992),
        (2, 1024, 3486, 2785),
    ],
)
def test_broadcasts_over_all_ranks_cost_what_internevo_publishes(
    tp: int, devices: int, of_a_node: int, of_all: int
) -> None:
    """Tokens per second and device of 7B on A100 with 4 x 100 Gb/s a node, the optimizer dealt to the ranks of a node
    and to all: InternLM/InternEvo c628a8c874, doc/en/train_performance.md. What it adds to the step, within a half."""
    tokens, sequences, dp = 4 * 2 * 2048, 8 * devices, devices // tp
    scenario = scenario_of("llama-2-7b", "dgx-a100-80gb", devices=devices, global_batch_size=sequences, seq_len=2048)
    scenario = scenario.model_copy(update={"framework": load_framework("internevo")})
    facts = Facts.of(scenario)
    rates = (facts.hardware.tier_bandwidth[0], num(50e9 / NODE), num(50e9 / NODE))
    facts = replace(facts, hardware=replace(facts.hardware, tier_bandwidth=rates))

    def step_s(group: int) -> float:
        axes = {"dp_shard": group, "dp_replicate": dp // group, "micro_batch_size": 2 * tp, "zero_stage": 1}
        return float(broken_down(scenario, plan_row(sequences, tp=tp, dp=dp, **axes), facts=facts).step_time_s[0])

    published = tokens / of_all - tokens / of_a_node
    assert step_s(dp) - step_s(NODE // tp) == pytest.approx(published, rel=0.5)


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
def test_no_sync_reduces_once_a_step_however_many_micro_batches(zero_stage: int) -> None:
    m = 4
    each, once = (exchanged("deepspeed", m=m, zero_stage=zero_stage, gradient_sync=sync) for sync in (EACH, ONCE))
    reduction = PARAMS * PASS * (2 if zero_stage == 0 else 1)
    assert each - once == pytest.approx((m - 1) * reduction, rel=1e-3)


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
def test_no_sync_accumulates_whole_gradients(zero_stage: int) -> None:
    each, once = (held("deepspeed", "gradients", zero_stage=zero_stage, gradient_sync=sync) for sync in (EACH, ONCE))
    whole = PARAMS * 4
    assert once == pytest.approx(whole, rel=1e-3)
    assert each == pytest.approx(whole / (NODE if zero_stage >= 2 else 1), rel=1e-3)


@pytest.mark.parametrize("zero_stage", [0, 1])
def test_a_backward_pass_that_reduces_ends_with_its_last_bucket(zero_stage: int) -> None:
    """However much compute hides, every micro-batch that synchronises waits for one (Li 2020, arXiv 2006.15704)."""
    m = 4
    each, once = (
        exchanged("deepspeed", m=m, hides=1e6, zero_stage=zero_stage, gradient_sync=sync) for sync in (EACH, ONCE)
    )
    last = 500e6 * PASS * (2 if zero_stage == 0 else 1)
    assert each - once == pytest.approx((m - 1) * last, rel=1e-2)


@pytest.mark.parametrize(("after", "gathers"), [(FORWARD, 2), (BACKWARD, 1)])
def test_parameters_are_gathered_once_or_twice_a_micro_batch(after: int, gathers: int) -> None:
    """Primer: reshard_after_forward=False removes the second all-gather at the cost of memory."""
    m = 4
    volume = gathers * PARAMS + PARAMS - (TABLE if after == FORWARD else 0)
    found = exchanged("pytorch-fsdp", m=m, zero_stage=3, reshard_after=after)
    assert found == pytest.approx(m * volume * PASS, rel=1e-3)


def test_parameters_kept_to_the_end_of_the_step_send_what_zero_2_sends() -> None:
    """What Llama 3 did (arXiv 2407.21783, section 3.3.2): optimizer and gradients sharded, parameters not resharded."""
    kept = exchanged("deepspeed", m=4, zero_stage=3, reshard_after=STEP)
    assert kept == pytest.approx(exchanged("deepspeed", m=4, zero_stage=2), rel=1e-9)
    assert kept == pytest.approx((PARAMS + 4 * PARAMS) * PASS, rel=1e-3)


def test_kept_parameters_lie_whole_on_their_stage() -> None:
    by_layer, to_backward, to_step = (
        held("pytorch-fsdp", "gathered_parameters", zero_stage=3, reshard_after=after)
        for after in (FORWARD, BACKWARD, STEP)
    )
    assert by_layer == pytest.approx(2 * LAYER * 2, rel=1e-3)
    assert to_backward == to_step == pytest.approx(PARAMS * 2, rel=1e-3)


def test_fsdp_s_stage_2_is_stage_3_that_keeps_parameters_to_the_backward_pass() -> None:
    """SHARD_GRAD_OP, reshard_after_forward=False: shards are 32-bit, what is gathered 16-bit and whole."""
    kept = {"zero_stage": 3, "reshard_after": BACKWARD}
    assert exchanged("pytorch-fsdp", m=4, zero_stage=2) == exchanged("pytorch-fsdp", m=4, **kept)
    for term in ("parameters", "gathered_parameters", "gradients", "optimizer"):
        assert held("pytorch-fsdp", term, zero_stage=2) == held("pytorch-fsdp", term, **kept)


@pytest.mark.parametrize("ahead", [0, 1, 2, 5])
def test_what_is_fetched_ahead_is_held(ahead: int) -> None:
    found = held("pytorch-fsdp", "gathered_parameters", zero_stage=3, fsdp_prefetch=ahead)
    assert found == pytest.approx((ahead + 1) * LAYER * 2, rel=1e-3)


def test_without_prefetch_every_gather_is_waited_for() -> None:
    """However much compute there is; with prefetch it hides all but the step's first gather and last reduction."""
    m = 4
    bare, ahead, further = (
        exchanged("pytorch-fsdp", m=m, hides=1e6, zero_stage=3, fsdp_prefetch=layers) for layers in (0, 1, 3)
    )
    last = PARAMS / 32 * PASS
    assert bare == pytest.approx(m * (2 * PARAMS - TABLE) * PASS + last, rel=1e-3)
    assert ahead == further == pytest.approx(2 * last, rel=1e-3)


def collectives_of(framework: str, ranks: int, zero_stage: int) -> float:
    """How many collectives a step has: links that send at once, and a second to start each."""
    scenario = scenario_under(framework, ranks, ranks)
    facts = recalibrated(facts_of(scenario, hides=0), scale_up_latency_s=1, scale_out_latency_s=1)
    rates = tuple(ENDLESS for _ in facts.hardware.tier_bandwidth)
    facts = replace(facts, hardware=replace(facts.hardware, tier_bandwidth=rates))
    return float(
        broken_down(scenario, plan_row(ranks, dp=ranks, zero_stage=zero_stage), facts=facts).time["dp_comm"][0]
    )


@pytest.mark.parametrize("framework", ["nanotron", "accelerate"])
def test_a_bucket_of_ddp_is_25_mib_and_the_last_one_is_exposed(framework: str) -> None:
    """Li 2020 (arXiv 2006.15704), section 3.2: latency is paid once a bucket, and nothing hides the last, which has the
    table of embeddings, one tensor.
    """
    assert collectives_of(framework, NODE, 0) == pytest.approx(-(-PARAMS * 2 // (25 * 2**20)))
    assert exchanged(framework, zero_stage=0, hides=1e6) == pytest.approx(2 * TABLE * PASS, rel=1e-3)


@pytest.mark.parametrize(("ranks", "bucket"), [(8, 40e6), (64, 64e6)])
def test_a_bucket_of_megatron_grows_with_the_ranks(ranks: int, bucket: float) -> None:
    """max(40M, 1M a rank) parameters (distributed_data_parallel.py): as many reductions, and as many gathers."""
    assert collectives_of("megatron-core", ranks, 1) == pytest.approx(2 * -(-PARAMS // bucket))


@pytest.mark.parametrize("zero_stage", [1, 3])
def test_hybrid_shards_cross_nodes_with_an_all_reduce_of_gradients_alone(zero_stage: int) -> None:
    """Primer: shards inside a node, copies across; gathers stay on fast links."""
    nodes = 4
    found = exchanged(
        "accelerate" if zero_stage == 3 else "megatron-core",
        devices=nodes * NODE,
        zero_stage=zero_stage,
        dp_replicate=nodes,
        within_nodes_free=True,
    )
    shard = PARAMS * 2 / NODE
    assert found == pytest.approx(2 * (nodes - 1) / nodes * shard / NETWORK, rel=1e-3)


def crossing(*parts: str) -> float:
    """Seconds over the network of stage 3 on four nodes, with parts of ZeRO++; quantising itself takes none."""
    code = BY_NAME["zero_plus"].encode(parts)
    return exchanged("deepspeed", devices=32, zero_stage=3, zero_plus=code, within_nodes_free=True)


def test_zero_plus_sends_a_quarter_of_what_zero_3_sends_across_nodes() -> None:
    """Wang 2023 (arXiv 2306.10209), section 3: 3 M comes down to 0.75 M. Here the backward pass gathers no table."""
    once = PARAMS * 2 / NODE / NETWORK  # seconds of all bytes over the network, on the rails of a node
    table = TABLE / PARAMS
    ring, exchange = 31 / 32, 3 / 4  # a rank's own share stays; of an exchange, the node's
    assert crossing() / once == pytest.approx((3 - table) * ring, rel=1e-3)
    assert crossing("qwz") / once == pytest.approx((1 + (2 - table) / 2) * ring, rel=1e-3)
    assert crossing("hpz") / once == pytest.approx(2 * ring, rel=1e-3)
    assert crossing("qgz") / once == pytest.approx((2 - table) * ring + exchange / 4, rel=1e-3)
    assert crossing("qwz", "hpz", "qgz") / once == pytest.approx(ring / 2 + exchange / 4, rel=1e-3)
    assert crossing("qwz", "hpz", "qgz") < crossing() / 4


def test_the_second_copy_takes_its_share_of_every_parameter() -> None:
    """2 M / 8 bytes beside the shards, in 16 bits: partition_parameters.py:1912, tensor_size // ranks of the node."""
    without, with_copy = (
        held("deepspeed", "gathered_parameters", devices=32, zero_stage=3, zero_plus=code) for code in (0, 2)
    )
    assert with_copy - without == pytest.approx(PARAMS * 2 / NODE, rel=1e-3)


def test_quantising_takes_passes_over_memory() -> None:
    """A gather is read narrow and written wide; a reduction is read wide, written narrow, and read once more."""
    scenario = scenario_under("deepspeed", 32, 32)
    facts = facts_of(scenario, hides=0)
    rate = float(facts.hardware.memory_bandwidth * facts.cal.pointwise_efficiency)
    times = {
        code: broken_down(scenario, plan_row(32, dp=32, zero_stage=3, zero_plus=code), facts=facts).time
        for code in (0, 1, 4)
    }
    assert "quantisation" not in times[0]
    gathers = (2 * PARAMS - TABLE) * 3.0 / rate * float(facts.cal.compute_multiplier)
    reduction = PARAMS * (2.5 + 0.5 + 1 / NODE) / rate * float(facts.cal.compute_multiplier)
    assert float(times[1]["quantisation"][0]) == pytest.approx(gathers, rel=0.03)
    assert float(times[4]["quantisation"][0]) == pytest.approx(reduction, rel=0.03)


def test_deepspeed_s_pipelines_refuse_zero_3_in_the_search_and_in_the_check() -> None:
    from costmodel.checker import check_plan
    from costmodel.plan_rows import plan_of
    from planner.search.answer import answer_to
    from tests.searches import request_of

    scenario = scenario_under("deepspeed", 32, 32)
    answer = answer_to(request_of(scenario, ["pp=4", "zero_stage=3"]))
    assert answer["status"] == "infeasible"
    assert answer["eliminated"]["pipeline_needs_zero_below_2"] > 0
    plan = plan_of(scenario, plan_row(32, dp=8, pp=4, zero_stage=3))
    assert "pipeline_needs_zero_below_2" in {violation.rule for violation in check_plan(plan, scenario)}


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_what_comes_once_a_step_does_not_hide_under_compute_that_hides_gathers(micro_batches: int) -> None:
    """Faster devices never make a step slower, and at one micro-batch both ways to reduce send the same."""
    batch = 8 * micro_batches
    scenario = scenario_of("llama-3.2-3b", "rtx4090-8", devices=8, global_batch_size=batch, seq_len=4096)
    scenario = scenario.model_copy(update={"framework": load_framework("deepspeed")})
    facts = Facts.of(scenario)

    def seconds(speed: float, sync: int) -> float:
        hardware = replace(
            facts.hardware,
            peak_flops=facts.hardware.peak_flops * speed,
            attention_peak_flops=facts.hardware.attention_peak_flops * speed,
            memory_bandwidth=facts.hardware.memory_bandwidth * speed,
        )
        row = plan_row(batch, dp=8, zero_stage=3, gradient_sync=sync)
        return float(broken_down(scenario, row, facts=replace(facts, hardware=hardware)).step_time_s[0])

    for sync in (0, 1):
        steps = [seconds(speed, sync) for speed in (1, 1.5, 2, 4)]
        assert steps == sorted(steps, reverse=True)
    if micro_batches == 1:
        assert seconds(1, 0) == pytest.approx(seconds(1, 1), rel=0.10)

"""Laws between two predictions, over random legal plans of many models, clusters, frameworks and precisions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from costmodel.arrays import Bools, Num
from costmodel.facts import Facts
from costmodel.predict import StagePrediction, predict, predict_stages
from costmodel.recompute_modules import modules_code
from costmodel.rules import legal_mask
from costmodel.spec.plan import CP_COMM_TYPES, RECOMPUTES, SCHEDULES
from costmodel.stages import Layout
from costmodel.table import PlanTable, stage_table
from tests.pools import NAMES, Pool, changed, pool

ROUNDING = 1 + 1e-12
NONE, SELECTIVE, FULL = map(RECOMPUTES.index, ("none", "selective", "full"))
RING = CP_COMM_TYPES.index("p2p")
PLAIN, INTERLEAVED = map(SCHEDULES.index, ("1f1b", "interleaved_1f1b"))
STATE = ("parameters", "weight_copies", "gradients", "optimizer")
COMPUTE = ("attention", "mlp", "experts", "norms", "quantisation")
FUSED = [name for name in NAMES if pool(name).scenario.fused_attention]
CHUNKS = (2, 3, 4, 5)
INTERLEAVING = [
    name
    for name in NAMES
    if "interleaved_1f1b" in pool(name).scenario.framework.schedules
    and any(pool(name).scenario.model.num_layers % (2 * chunks) == 0 for chunks in CHUNKS)
]
EXPERTS = [name for name in NAMES if pool(name).scenario.model.moe is not None]


def in_full(case: Pool, table: PlanTable, facts: Facts | None = None) -> StagePrediction:
    stages = stage_table(case.scenario, table, every_stage=True)
    return predict_stages(facts or case.facts, table, stages)


def state(prediction: StagePrediction) -> Num:
    return np.asarray(sum(prediction.memory[term] for term in STATE))


def faster(facts: Facts, what: str, factor: float) -> Facts:
    """The same devices and links, better in one respect."""
    hardware = facts.hardware
    if what.startswith("tier"):
        rates = list(hardware.tier_bandwidth)
        tier = int(what[-1])
        rates[tier] = rates[tier] * factor
        return replace(facts, hardware=replace(hardware, tier_bandwidth=tuple(rates)))
    fields = {
        "peak": ("peak_flops", "attention_peak_flops", "head_peak_flops", "vector_peak_flops"),
        "memory": ("memory_bandwidth",),
        "host link": ("host_bandwidth",),
    }[what]
    return replace(facts, hardware=replace(hardware, **{name: getattr(hardware, name) * factor for name in fields}))


@pytest.mark.parametrize("name", NAMES)
def test_faster_hardware_never_slows_a_plan(name: str) -> None:
    case = pool(name)
    stages = stage_table(case.scenario, case.table)
    now = predict(case.facts, case.table, stages).step_time_s
    for what in ("peak", "memory", "host link", "tier 0", "tier 1", "tier 2"):
        for factor in (1.05, 2.0, 100.0):
            then = predict(faster(case.facts, what, factor), case.table, stages).step_time_s
            assert (then <= now * ROUNDING).all(), (what, factor)


def test_a_faster_host_link_speeds_up_what_waits_for_it() -> None:
    """Where the link is slower than a device's share of its host's memory."""
    case = pool("dense-torus")
    stages = stage_table(case.scenario, case.table)
    now, then = (
        predict(faster(case.facts, "host link", factor), case.table, stages).step_time_s for factor in (1.0, 2.0)
    )
    assert (then < now)[case.table["offload"] > 0].any()
    assert (then == now)[case.table["offload"] == 0].all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("times", [2, 3, 7])
def test_more_micro_batches_never_raise_the_share_of_the_bubble(name: str, times: int) -> None:
    case = pool(name)
    more = changed(case.table, num_microbatches=case.table["num_microbatches"] * times)
    few, many = (found.time["bubble"] / found.step_time_s for found in (in_full(case, case.table), in_full(case, more)))
    assert (many <= few + 1e-12).all()
    assert (many < few)[few > 0].all()
    assert not few[case.table["pp"] == 1].any()
    # DualPipe on two stages doesn't wait.
    assert few[(case.table["pp"] > 2)].all()


@pytest.mark.parametrize("name", NAMES)
def test_twice_the_tensor_parallelism_never_raises_state(name: str) -> None:
    case = pool(name)
    once, twice = (state(in_full(case, changed(case.table, tp=case.table["tp"] * times))) for times in (1, 2))
    assert (twice <= once * ROUNDING).all()
    assert (twice < once).any()


@pytest.mark.parametrize("name", FUSED)
@pytest.mark.parametrize("times", [2, 4])
def test_sequence_and_ring_grown_together_keep_activations(name: str, times: int) -> None:
    """Not so where whole rows of scores are kept: these grow with the sequence, on however many ranks."""
    case = pool(name)
    table = case.table.take(case.table["cp_comm_type"] == RING)
    longer = replace(case.facts, work=replace(case.facts.work, seq_len=case.facts.work.seq_len * times))
    once = in_full(case, table).memory
    grown = in_full(case, changed(table, cp=table["cp"] * times), longer).memory
    for term in ("activations", "recompute_workspace", "logits", "dispatch_buffers", "hot_experts"):
        np.testing.assert_allclose(grown[term], once[term], rtol=1e-12, atol=1.0, err_msg=term)
    # A rank without a ring has no buffers for one.
    rings = table["cp"] > 1
    np.testing.assert_allclose(grown["cp_buffers"][rings], once["cp_buffers"][rings], rtol=1e-12)


@pytest.mark.parametrize("name", INTERLEAVING)
def test_interleaving_never_lowers_the_peak(name: str) -> None:
    """Of layers that split evenly either way: more micro-batches of smaller chunks are alive."""
    case, seen = pool(name), 0
    layers = case.scenario.model.num_layers
    piped = case.table.take((case.table["pp"] > 1) & (case.table["schedule"] == PLAIN))
    for vpp in CHUNKS:
        even = (layers % (piped["pp"] * vpp) == 0) & (piped["num_microbatches"] % piped["pp"] == 0)
        # A checkpoint ends with its chunk, so that smaller chunks may share fewer layers.
        table = changed(piped.take(even & (piped["recompute_interval"] == 1)), layout=int(Layout.EVEN), vpp=1)
        if len(table):
            whole = in_full(case, table).peak_bytes
            chunked = in_full(case, changed(table, vpp=vpp, schedule=INTERLEAVED)).peak_bytes
            assert (chunked >= whole / ROUNDING).all()
            assert (chunked > whole).any()
        seen += len(table)
    assert seen


@pytest.mark.parametrize("name", FUSED)
def test_running_a_fused_attention_core_again_saves_nothing(name: str) -> None:
    """Flash attention keeps no scores (Dao 2022, arXiv 2205.14135)."""
    case = pool(name)
    table = changed(case.table, recompute_interval=1)
    none = in_full(case, changed(table, recompute=NONE))
    core = in_full(case, changed(table, recompute=SELECTIVE, recompute_modules=modules_code(("core_attn",))))
    np.testing.assert_allclose(core.peak_bytes, none.peak_bytes, rtol=1e-9)
    np.testing.assert_allclose(core.memory["activations"], none.memory["activations"], rtol=1e-9)


def legal(case: Pool, table: PlanTable, **columns: int) -> Bools:
    return np.asarray(legal_mask(case.scenario, changed(table, **columns)))


@pytest.mark.parametrize("name", NAMES)
def test_full_recompute_costs_a_forward_pass_of_what_is_bound_by_compute(name: str) -> None:
    """2 N on 6 N, less on what is neither; more than a third only of what is communicated again."""
    case = pool(name)
    table = changed(case.table.take(case.table["offload"] == 0), recompute_interval=1)
    table = table.take(legal(case, table, recompute=NONE) & legal(case, table, recompute=FULL))
    none, full = (in_full(case, changed(table, recompute=policy)) for policy in (NONE, FULL))
    computes = sum(none.time[part] for part in COMPUTE if part in none.time) / none.step_time_s
    # Chunks of unlike times wait for each other, and longer backward passes make that more than in proportion.
    alike = (table["vpp"] == 1) | (case.scenario.model.num_layers % (table["pp"] * table["vpp"]) == 0)
    ratio = (full.step_time_s / none.step_time_s)[(computes > 0.85) & alike]
    assert ((ratio > 1.15) & (ratio < 1.35)).all()
    # State alone may fill the fullest moment.
    assert (full.peak_bytes <= none.peak_bytes * ROUNDING).all()
    assert (full.peak_bytes < none.peak_bytes).mean() > 0.9
    assert len(ratio) or name in {"dense-pcie", "dense-first-stage", "experts-fp8", "experts-fsdp", "latent"}


@pytest.mark.parametrize("name", EXPERTS)
def test_state_of_experts_is_cut_by_their_own_mesh(name: str) -> None:
    """Over ep * etp; what ZeRO shards also over the data parallelism that these leave of a stage's ranks."""
    case = pool(name)
    moe, work = case.scenario.model.moe, case.facts.work
    assert moe is not None
    ranks, cut_over = (case.table[a] * case.table[b] for a, b in (("tp", "cp"), ("ep", "etp")))
    folds = ranks * case.table["dp"] % cut_over == 0
    of_one_shard = (case.table["dp_replicate"] == 1) | (case.table["zero_stage"] == 0)
    table = case.table.take(folds & of_one_shard & (case.table["offload"] == 0))
    doubled = replace(case.facts, model=replace(case.facts.model, expert_params=2 * case.facts.model.expert_params))
    once, twice = in_full(case, table).memory, in_full(case, table, doubled).memory
    stages = stage_table(case.scenario, table, every_stage=True)
    mtp = stages.has_head * case.scenario.model.num_mtp_layers
    layers = (stages.moe_layers + mtp) * case.facts.model.mlp_share
    held = layers * moe.num_experts * case.scenario.model.params.per_expert
    held = held / (table["ep"] * table["etp"])[:, np.newaxis]
    replicas = table["tp"] * table["cp"] * table["dp"] // (table["ep"] * table["etp"])
    cut = np.where(table["zero_stage"] > 0, 1 / replicas, 1.0)[:, np.newaxis]
    np.testing.assert_allclose(twice["optimizer"] - once["optimizer"], held * cut * work.optimizer_bytes, rtol=1e-6)
    assert (table["ep"] > 1).any()
    assert (table["etp"] > 1).any()
    assert (replicas > 1).any()
    whole = table["zero_stage"] <= 1
    each = work.gradient_bytes + np.where(
        (table["zero_stage"] == 0) & (table["dp"] > 1), work.unsharded_copy_bytes, 0.0
    )
    each = each + work.gradient_copy_bytes
    gradients = (twice["gradients"] - once["gradients"])[whole]
    np.testing.assert_allclose(gradients, (held * np.broadcast_to(each, len(table))[:, np.newaxis])[whole], rtol=1e-6)

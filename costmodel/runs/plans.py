"""The plans that a run may have been: what a row states, and every usual value of what it leaves open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import gcd

from costmodel.runs import words
from costmodel.runs.columns import Run
from costmodel.scenario import Scenario
from costmodel.spec.options import BY_NAME
from costmodel.spec.plan import CP_COMM_TYPES, SCHEDULES, ZeroPlus
from costmodel.stages import Layout
from costmodel.usual_options import usual_options_in

PlanRow = dict[str, int]

# What searches try, too.
_LARGEST_MICRO_BATCH = 64
# Some frameworks let stages be empty; beyond this, a row is a mistake.
_MOST_CHUNKS_PER_LAYER = 4
# What ZeRO++ is a part of.
_ZERO_PLUS_STAGE = 3


def plans_of(
    run: Run, scenario: Scenario, devices: int, policies: Sequence[int], notes: list[str]
) -> Iterator[PlanRow]:
    """Every plan that a run may have been, over the axes of ``costmodel.table``; what is assumed goes to ``notes``."""
    batch = scenario.workload.global_batch_size
    cp, ep, etp = run.cp or 1, run.ep or 1, run.etp or 1
    if scenario.model.moe is None and ep * etp > 1:
        notes.append(f"ep {ep} and etp {etp} mean nothing for a model without experts")
        ep = etp = 1
    if scenario.model.moe is not None and scenario.model.moe.num_experts % ep:
        notes.append(f"ep {ep} doesn't divide {scenario.model.moe.num_experts} experts")
    for tp, pp in _model_parallel(run, scenario, devices, cp, notes):
        if pp * (run.vpp or 1) > _MOST_CHUNKS_PER_LAYER * (scenario.model.num_layers + 2):
            notes.append(f"pp {pp} * vpp {run.vpp or 1} are far more chunks than {scenario.model.num_layers} layers")
            continue
        dp = run.dp if run.dp is not None and run.dp * tp * pp * cp == devices else devices // (tp * pp * cp)
        if dp < 1:
            continue
        if tp * cp * dp % (ep * etp):
            notes.append(f"ep {ep} * etp {etp} don't fold over tp {tp} * cp {cp} * dp {dp}")
        if dp * tp * pp * cp != devices:
            notes.append(f"tp {tp} * pp {pp} * cp {cp} don't divide devices {devices}: dp {dp} taken")
        elif run.dp is not None and run.dp != dp:
            notes.append(f"dp {run.dp} contradicts devices {devices} = tp {tp} * pp {pp} * cp {cp} * dp: dp {dp} taken")
        micro_batches = _micro_batches(run, batch, dp, notes)
        mesh = {
            "tp": tp,
            "cp": cp,
            "cp_comm_type": _cp_comm(run, scenario, cp),
            "ep": ep,
            "etp": etp,
            **_products(run, scenario, tp),
            **_dispatch(run, scenario, ep),
            "dp": dp,
            "pp": pp,
            **_sharding(run, scenario, dp, notes),
            **_stages(run, scenario, pp, notes),
        }
        for micro, recompute in product(micro_batches, policies):
            yield {
                **mesh,
                "micro_batch_size": micro,
                "num_microbatches": _num_microbatches(batch, micro, dp),
                "recompute": recompute,
            }


def _num_microbatches(batch: int, micro_batch: int, dp: int) -> int:
    return max(round(batch / (micro_batch * dp)), 1)


def _powers(most: int) -> list[int]:
    return [1 << exponent for exponent in range(most.bit_length())]


def _model_parallel(run: Run, scenario: Scenario, devices: int, cp: int, notes: list[str]) -> list[tuple[int, int]]:
    """(tp, pp): as stated; from the others when one is blank; else what people would try."""
    if run.tp is not None and run.pp is not None:
        return [(run.tp, run.pp)]
    if run.dp is not None and (run.tp is not None or run.pp is not None):
        known = (run.tp or 1) * (run.pp or 1) * cp * run.dp
        rest = devices // known if devices % known == 0 else 1
        return [(run.tp or rest, run.pp or rest)]
    node = scenario.cluster.devices_per_node
    model = scenario.model
    tps = [run.tp] if run.tp else [tp for tp in _powers(min(node, devices)) if model.num_heads % tp == 0]
    pps = [run.pp] if run.pp else _powers(min(devices, model.num_layers))
    if run.dp is not None:
        pairs = [(tp, pp) for tp, pp in product(tps, pps) if tp * pp * cp * run.dp == devices]
    else:
        pairs = [(tp, pp) for tp, pp in product(tps, pps) if devices % (tp * pp * cp) == 0]
    # What nobody stated is a plan that could run: whole groups of experts fold over the ranks of a stage.
    experts = (run.ep or 1) * (run.etp or 1) if model.moe else 1
    pairs = [(tp, pp) for tp, pp in pairs if devices // pp % experts == 0] or pairs
    blank = " and ".join(name for name in ("tp", "pp") if getattr(run, name) is None)
    notes.append(f"{blank} not stated: the fastest that fits is taken")
    return pairs


def _micro_batches(run: Run, batch: int, dp: int, notes: list[str]) -> list[int]:
    if run.micro_batch is not None:
        if batch % (run.micro_batch * dp):
            notes.append(
                f"global_batch {batch} is no multiple of micro_batch {run.micro_batch} * dp {dp}: "
                f"{_num_microbatches(batch, run.micro_batch, dp)} micro-batches taken"
            )
        return [run.micro_batch]
    per_replica = max(batch // dp, 1)
    notes.append("micro_batch not stated: the fastest that fits is taken")
    return [size for size in _powers(min(per_replica, _LARGEST_MICRO_BATCH)) if per_replica % size == 0]


def _sharding(run: Run, scenario: Scenario, dp: int, notes: list[str]) -> PlanRow:
    stated, hybrid, said = words.sharding_of(run.zero_stage)
    notes += said
    parts = _zero_plus(run)
    if stated is not None:
        stage = stated
    elif parts:
        stage = _ZERO_PLUS_STAGE
    elif run.dist_opt is not None:
        stage = 1 if run.dist_opt else 0
    else:
        stage = scenario.framework.usual_zero_stage
    if stage == 0:
        return {"zero_stage": 0, "dp_shard": 1, "dp_replicate": dp}
    group = words.shard_group_of(run.overlap_notes) or words.shard_group_of(run.zero_stage)
    if group is None and hybrid:
        group = scenario.cluster.devices_per_node
    shard = gcd(dp, group) if group is not None else dp
    sharded = {"zero_stage": stage, "dp_shard": shard, "dp_replicate": dp // shard}
    if parts and stage != _ZERO_PLUS_STAGE:
        notes.append(f"ZeRO++ goes with ZeRO-{_ZERO_PLUS_STAGE}, not with ZeRO-{stage}: left out")
    elif parts:
        _tell_second_copy(run, scenario, notes)
        sharded["zero_plus"] = BY_NAME["zero_plus"].encode(parts)
    return sharded


def _zero_plus(run: Run) -> tuple[ZeroPlus, ...]:
    """The parts of ZeRO++ in use, by the first column that names any."""
    return next((parts for text in _sharding_texts(run) if (parts := words.zero_plus_of(text))), ())


def _tell_second_copy(run: Run, scenario: Scenario, notes: list[str]) -> None:
    ranks = next((ranks for text in _sharding_texts(run) if (ranks := words.second_copy_of(text))), None)
    domain = scenario.cluster.scale_up_devices
    if ranks is not None and ranks != domain:
        notes.append(f"hpZ over {ranks} ranks is priced as over the {domain} of a scale-up domain")


def _sharding_texts(run: Run) -> tuple[str, ...]:
    return run.zero_stage, run.framework, run.overlap_notes


def _stages(run: Run, scenario: Scenario, pp: int, notes: list[str]) -> PlanRow:
    """Chunks, schedule, and which of the model's ends take layers' places so that the chunks come out even."""
    vpp = (run.vpp or 1) if pp > 1 else 1
    layers = scenario.model.num_layers
    if pp > layers:
        notes.append(f"pp {pp} for {layers} layers: some stages hold none")
    layouts = (Layout.EVEN, Layout.EMBEDDING_AND_LOSS_COUNT, Layout.LOSS_COUNTS, Layout.MTP_AND_LOSSES_COUNT)
    slots = {layout: layers + layout.places for layout in layouts}
    even = (layout for layout in layouts if slots[layout] % (pp * vpp) == 0 and slots[layout] >= 2 * pp)
    layout = next(even, Layout.EVEN)
    schedule = "interleaved_1f1b" if vpp > 1 else "1f1b"
    return {"vpp": vpp, "layout": int(layout), "schedule": SCHEDULES.index(schedule)}


def _products(run: Run, scenario: Scenario, tp: int) -> PlanRow:
    """Whether exchanges overlap with products, where the framework can be told and the run says."""
    told = tp > 1 and scenario.framework.has("tp_overlap")
    return {"tp_overlap": int(words.overlaps_products(run.overlap_notes))} if told else {}


def _dispatch(run: Run, scenario: Scenario, ep: int) -> PlanRow:
    """How tokens reach their experts; what the run doesn't say is the framework's usual way, without overlap."""
    if ep == 1:
        return {}
    option = BY_NAME["moe_dispatcher"]
    usual = option.decode(usual_options_in(scenario).get("moe_dispatcher", option.codes[0]))
    dispatcher = words.moe_dispatcher_of(run.overlap_notes, usual)
    overlaps = words.overlaps_experts(run.overlap_notes)
    return {"moe_dispatcher": option.encode(dispatcher), "ep_overlap": int(overlaps)}


def _cp_comm(run: Run, scenario: Scenario, cp: int) -> int:
    if cp == 1:
        return 0
    return CP_COMM_TYPES.index(words.cp_comm_of(run.overlap_notes, scenario.framework.cp_comm_types))

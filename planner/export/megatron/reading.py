"""Settings of Megatron-Core as fields of a plan, whatever they were spelled in."""

from __future__ import annotations

from costmodel.spec.base import MOST_LAYERS
from planner.export.megatron.mesh import CP_COMM_TYPES, STRATEGIES
from planner.export.megatron.numbers import BF16_MOMENTS
from planner.export.megatron.reading_layers import read_layers, read_recompute
from planner.export.megatron.settings import Settings
from planner.export.numbers import factor, whole_number

_CP_WORDS = {said: ours for ours, said in CP_COMM_TYPES.items()}
_STAGES = {"no_shard": 0, "optim": 1} | {said: stage for stage, said in STRATEGIES.items()}
_RECIPES = {"delayed": "fp8", "tensorwise": "fp8-current", "blockwise": "fp8-blockwise", "mxfp8": "mxfp8"}
_FSDP = ("use_megatron_fsdp", "use_custom_fsdp")
_DISPATCHERS = {"allgather": "all_gather", "alltoall": "all_to_all", "alltoall_seq": "all_to_all"}
_FLEX = "deduplicated"


def read_plan(settings: Settings, *, layers: int | None, has_experts: bool) -> None:
    """Every field of a plan that the settings have something to say on.

    Args:
        layers: decoder layers of the model; None where nobody says.
    """
    if layers is not None and not 1 <= layers <= MOST_LAYERS:
        settings.fail("num_layers", f"from 1 to {MOST_LAYERS} are expected")
        layers = None
    has_experts = has_experts or "num_moe_experts" in settings.unknown
    _read_mesh(settings, has_experts=has_experts)
    chunks = read_layers(settings, layers)
    read_recompute(settings, chunks)
    _read_sharding(settings)
    if has_experts:
        _read_experts(settings)
    _read_numbers(settings)
    _read_offload(settings, layers)


def _read_mesh(s: Settings, *, has_experts: bool) -> None:
    tp = s.number("tensor_model_parallel_size", 1) or 1
    cp = s.number("context_parallel_size", 1) or 1
    s.say("tp", tp, "tensor_model_parallel_size")
    s.say("cp", cp, "context_parallel_size")
    parallel = s.on("sequence_parallel") and tp > 1
    overlap = s.on("tp_comm_overlap")
    s.say("sequence_parallel", parallel, "sequence_parallel", after=("sequence_parallel", "tensor_model_parallel_size"))
    if tp > 1:
        s.say("tp_overlap", overlap, "tp_comm_overlap")
    _read_exchange(s, cp)
    ep, etp = s.number("expert_model_parallel_size", 1), s.number("expert_tensor_parallel_size")
    if has_experts:
        s.say("ep", ep or 1, "expert_model_parallel_size")
        follows = "expert_tensor_parallel_size" if etp else "tensor_model_parallel_size"
        s.say("etp", etp or tp, "expert_tensor_parallel_size", after=("expert_tensor_parallel_size", follows))
        if not etp and tp > 1:
            s.notes.append(f"expert_tensor_parallel_size is not set, so it is that of everything else, {tp}")
    for ours, name in (
        ("micro_batch_size", "micro_batch_size"),
        ("global_batch_size", "global_batch_size"),
        ("seq_len", "seq_length"),
    ):
        value = s.number(name)
        if value:
            s.say(ours, value, name)


def _read_exchange(s: Settings, cp: int) -> None:
    kinds = s.get("cp_comm_type", "p2p")
    distinct = {str(one) for one in kinds} if isinstance(kinds, list) else {str(kinds)}
    kind = _CP_WORDS.get(next(iter(distinct))) if len(distinct) == 1 else None
    sizes = s.get("hierarchical_context_parallel_sizes")
    if kind is None:
        s.fail("cp_comm_type", f"one of {', '.join(_CP_WORDS)} for all layers is expected")
    elif cp > 1:
        s.say("cp_comm_type", kind, "cp_comm_type")
    counts = [whole_number(size) for size in sizes] if isinstance(sizes, list) else []
    if kind == "a2a+p2p" and len(counts) == 2 and counts[0] is not None and counts[1] is not None:
        s.say("cp_a2a_degree", counts[0], "hierarchical_context_parallel_sizes")
    elif sizes is not None and cp > 1:
        s.fail("hierarchical_context_parallel_sizes", "two sizes beside a2a+p2p are expected")


def _read_sharding(s: Settings) -> None:
    fsdp = True in [s.on(name) for name in _FSDP]  # all of them are looked at
    strategy = s.get("data_parallel_sharding_strategy", "no_shard")
    instances, outer = s.number("num_distributed_optimizer_instances"), s.get("outer_dp_sharding_strategy", "no_shard")
    distributed = s.on("use_distributed_optimizer")
    names = ("use_distributed_optimizer", *_FSDP, "data_parallel_sharding_strategy")
    stage = 1 if distributed else 0
    if fsdp:
        stage = _STAGES.get(str(strategy), -1)
        if stage < 0:
            s.fail("data_parallel_sharding_strategy", f"one of {', '.join(_STAGES)} is expected")
            return
    if s.on("use_torch_fsdp2"):
        stage = 3
        s.fail("use_torch_fsdp2", "plans shard parameters by Megatron-FSDP: it is judged as if it were that")
    s.say("zero_stage", stage, *names)
    if stage:
        s.say("dp_replicate", instances or 1, "num_distributed_optimizer_instances")
    if outer != "no_shard":
        s.fail("outer_dp_sharding_strategy", "plans keep whole copies on the replicas")


def _read_experts(s: Settings) -> None:
    kind, ep = s.get("moe_token_dispatcher_type", "allgather"), s.plan.get("ep", 1)
    s.on("moe_enable_deepep")
    s.get("moe_flex_dispatcher_backend")
    ours = _FLEX if kind == "flex" else _DISPATCHERS.get(str(kind))
    if ours is None:
        s.fail("moe_token_dispatcher_type", f"one of {', '.join(_DISPATCHERS)}, flex is expected")
    elif ep > 1 or ours == "all_gather":
        s.say("moe_dispatcher", ours, "moe_token_dispatcher_type", "moe_flex_dispatcher_backend", "moe_enable_deepep")
    given = s.get("moe_expert_capacity_factor")
    capacity = factor(given)
    padded = s.on("moe_pad_expert_input_to_capacity")
    if given is not None and capacity is None:
        s.fail("moe_expert_capacity_factor", "a number of at least 0 is expected")
    elif capacity:
        s.say("moe_capacity_factor", capacity, "moe_expert_capacity_factor")
        if not padded:
            s.notes.append("experts are not padded to their capacity, so they take less than the plan reckons")
    s.say("ep_overlap", s.on("overlap_moe_expert_parallel_comm"), "overlap_moe_expert_parallel_comm")


def _read_numbers(s: Settings) -> None:
    wide = "bf16" if s.on("bf16") else "fp16" if s.on("fp16") else "fp32"
    fp8, fp4, recipe = s.get("fp8"), s.get("fp4"), s.get("fp8_recipe", "delayed")
    s.get("fp4_recipe")
    names = ("bf16", "fp16", "fp8", "fp8_recipe", "fp4", "fp4_recipe")
    precision: str | None = wide
    if fp4:
        precision = "nvfp4"
    elif fp8:
        precision = _RECIPES.get(str(recipe))
    if precision is None:
        s.fail("fp8_recipe", f"one of {', '.join(_RECIPES)} is expected")
    else:
        s.say("precision", precision, *names)
    reduced = s.get("grad_reduce_in_fp32")
    usual = wide != "fp16"
    in_fp32 = usual if reduced is None else reduced is True
    s.say("gradient_dtype", "fp32" if in_fp32 or wide == "fp32" else wide, "grad_reduce_in_fp32")
    _read_optimizer(s)


def _read_optimizer(s: Settings) -> None:
    name = str(s.get("optimizer", "adam"))
    moments = {str(s.get(moment, "fp32")) for moment in ("exp_avg_dtype", "exp_avg_sq_dtype")}
    s.get("use_precision_aware_optimizer")
    names = ("optimizer", "use_precision_aware_optimizer", "exp_avg_dtype", "exp_avg_sq_dtype")
    ours = {"adam": "adamw"}.get(name, name)
    if name not in ("adam", "adamw", "sgd", "muon", "lion"):
        s.fail("optimizer", "adam, sgd, muon or lion is expected")
        return
    if moments == {"bf16"} and ours == "adamw":
        ours = BF16_MOMENTS
    elif moments != {"fp32"}:
        s.fail("exp_avg_dtype", "both moments in fp32 or both in bf16 are expected")
    s.say("optimizer", ours, *names)


def _read_offload(s: Settings, layers: int | None) -> None:
    fraction = s.get("optimizer_offload_fraction", 1.0)
    activations = s.number("cpu_offloading_num_layers", 0)
    if s.on("optimizer_cpu_offload"):
        s.say("offload", "optimizer", "optimizer_cpu_offload", "optimizer_offload_fraction")
        if fraction != 1.0:
            s.fail("optimizer_offload_fraction", "plans offload all of the optimizer's state")
    elif activations:
        s.say("offload", "activations", "cpu_offloading_num_layers")
        if layers is not None and activations != layers - 1:
            s.fail("cpu_offloading_num_layers", "plans offload the activations of all layers but the one at work")

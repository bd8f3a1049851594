"""How ranks are cut, what data parallelism shards, and how tokens reach experts."""

from __future__ import annotations

from costmodel.spec.layers import Moe
from planner.export.megatron.core import Core

CP_COMM_TYPES = {"p2p": "p2p", "all_gather": "allgather", "a2a": "a2a", "a2a+p2p": "a2a+p2p"}
STRATEGIES = {2: "optim_grads", 3: "optim_grads_params"}
_FSDP, _FSDP_BEFORE = "use_megatron_fsdp", "use_custom_fsdp"
_IN_TURN = "the sequence is cut into twice as many pieces as ranks, an early and a late one for each"


def uses_fsdp(core: Core) -> bool:
    """Whether gradients or parameters are sharded, which is Megatron-FSDP's."""
    return core.plan.zero_stage >= 2


def say_mesh(core: Core) -> None:
    """Tensor, context, expert and data parallelism; the pipeline is apart."""
    plan, sheet = core.plan, core.sheet
    core.put("tensor_model_parallel_size", plan.tp, "tp")
    if plan.tp == 1:
        sheet.only("sequence_parallel", False, why="it is turned off where tp is 1")
        sheet.follows("tp_overlap")
    else:
        core.put("sequence_parallel", plan.sequence_parallel, "sequence_parallel")
        _say_tp_overlap(core)
    _say_context(core)
    _say_sharding(core)
    if core.model.moe is None:
        for field, neutral in (("ep", 1), ("etp", 1), ("ep_overlap", False), ("moe_capacity_factor", None)):
            sheet.only(field, neutral, why="the model has no experts")
        sheet.follows("moe_dispatcher")
    else:
        _say_experts(core, core.model.moe)
    _say_batch(core)


def _say_tp_overlap(core: Core) -> None:
    plan = core.plan
    if plan.tp_overlap and not plan.sequence_parallel:
        core.sheet.refuse("tp_overlap", True, "tensor parallel overlap needs sequence parallelism")
    else:
        core.put("tp_comm_overlap", plan.tp_overlap, "tp_overlap")


def _say_context(core: Core) -> None:
    plan, sheet = core.plan, core.sheet
    core.put("context_parallel_size", plan.cp, "cp")
    sheet.only("cp_balanced", True, why=_IN_TURN)
    if plan.cp == 1:
        sheet.only("cp_comm_type", "p2p", why="cp is 1")
        sheet.only("cp_a2a_degree", 1, why="cp is 1")
        return
    if plan.cp_comm_type == "p2p" and not core.has("cp_comm_type", "p2p"):
        sheet.follows("cp_comm_type")
    else:
        core.put("cp_comm_type", CP_COMM_TYPES[plan.cp_comm_type], "cp_comm_type")
    if plan.cp_comm_type == "a2a+p2p":
        outer, rest = divmod(plan.cp, plan.cp_a2a_degree)
        if rest:
            sheet.refuse("cp_a2a_degree", plan.cp_a2a_degree, f"it has to divide cp {plan.cp}")
        core.put("hierarchical_context_parallel_sizes", [plan.cp_a2a_degree, outer], "cp_a2a_degree")
    else:
        degree = plan.cp if plan.cp_comm_type == "a2a" else 1
        sheet.only("cp_a2a_degree", degree, why=f"{plan.cp_comm_type} exchanges heads among {degree} ranks")


def _say_sharding(core: Core) -> None:
    plan, sheet = core.plan, core.sheet
    sheet.follows("dp")
    if plan.zero_stage == 0:
        core.put("use_distributed_optimizer", False, "zero_stage")
        sheet.only("dp_shard", 1, why="nothing is sharded without the distributed optimizer")
        sheet.only("dp_replicate", plan.dp, why="nothing is sharded without the distributed optimizer")
    else:
        core.put("use_distributed_optimizer", True, "zero_stage")
        if uses_fsdp(core):
            core.put(_FSDP if core.has(_FSDP) else _FSDP_BEFORE, True, "zero_stage")
            core.put("data_parallel_sharding_strategy", STRATEGIES[plan.zero_stage], "zero_stage")
            # Without it a fused kernel of older Transformer Engines adds up gradients where Megatron-FSDP has none.
            core.put("gradient_accumulation_fusion", False)
        if plan.dp_replicate > 1:
            core.put("num_distributed_optimizer_instances", plan.dp_replicate, "dp_replicate")
        sheet.follows("dp_replicate", "dp_shard")
    each = "microbatch" if uses_fsdp(core) else "step"
    sheet.only("gradient_sync", each, why=f"with zero_stage {plan.zero_stage} gradients are reduced once a {each}")
    sheet.only("reshard_after", "forward", why="gathered parameters are dropped after a layer's pass")
    sheet.only("fsdp_prefetch", 1, why="how far to gather ahead has no setting that counts layers")
    sheet.only("zero_plus", (), why="ZeRO++ is DeepSpeed's")


def _say_experts(core: Core, moe: Moe) -> None:
    plan, sheet = core.plan, core.sheet
    core.put("expert_model_parallel_size", plan.ep, "ep")
    if core.has("expert_tensor_parallel_size", 1):
        # Said also where it is 1: left out it is tp.
        core.put("expert_tensor_parallel_size", plan.etp, "etp")
    else:
        sheet.only("etp", plan.tp, why="experts are cut as everything else is")
    _say_dispatcher(core)
    if plan.moe_capacity_factor is None:
        sheet.follows("moe_capacity_factor")
    else:
        core.put("moe_expert_capacity_factor", plan.moe_capacity_factor, "moe_capacity_factor")
        core.put("moe_pad_expert_input_to_capacity", True, "moe_capacity_factor")
    core.put("overlap_moe_expert_parallel_comm", plan.ep_overlap, "ep_overlap")


def _say_dispatcher(core: Core) -> None:
    """The flex dispatcher sends a token once to each node; with one rank for all experts nothing is sent."""
    plan = core.plan
    if plan.moe_dispatcher == "all_gather":
        core.put("moe_token_dispatcher_type", "allgather", "moe_dispatcher")
    elif plan.moe_dispatcher == "all_to_all" or plan.ep == 1:
        core.put("moe_token_dispatcher_type", "alltoall", "moe_dispatcher")
    elif core.has("moe_flex_dispatcher_backend", ""):
        core.put("moe_token_dispatcher_type", "flex", "moe_dispatcher")
        # DeepEP drops no tokens.
        backend = "deepep" if plan.moe_capacity_factor is None else "hybridep"
        core.put("moe_flex_dispatcher_backend", backend, "moe_dispatcher")
    elif plan.moe_capacity_factor is not None:
        core.sheet.refuse("moe_dispatcher", plan.moe_dispatcher, "DeepEP has no capacity of experts")
    elif core.has("moe_enable_deepep"):
        core.put("moe_token_dispatcher_type", "flex", "moe_dispatcher")
        core.put("moe_enable_deepep", True, "moe_dispatcher")
    else:
        why = core.lacking("moe_enable_deepep")
        core.sheet.refuse("moe_dispatcher", plan.moe_dispatcher, why)


def _say_batch(core: Core) -> None:
    plan, job = core.plan, core.job
    core.put("micro_batch_size", plan.micro_batch_size, "micro_batch_size")
    core.put("global_batch_size", plan.global_batch_size, "global_batch_size")
    core.put("seq_length", plan.seq_len, "seq_len")
    core.sheet.follows("num_microbatches")
    if job.nodes * job.devices_per_node == plan.devices_used:
        core.sheet.follows("devices_used")
    else:
        why = f"{job.nodes} nodes of {job.devices_per_node} processes are not as many"
        core.sheet.refuse("devices_used", plan.devices_used, why)

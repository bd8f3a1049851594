"""What a plan asks of the user's script, which DeepSpeed's file can't say."""

from __future__ import annotations

from planner.export.deepspeed import pipelines
from planner.export.job import Job


def notes(job: Job, script: str) -> tuple[str, ...]:
    """A sentence each."""
    plan, model = job.plan, job.model
    found = [
        f"{script} is yours: it builds {model.name}, gives sequences of {plan.seq_len} tokens, and calls "
        "deepspeed.initialize; learning rate and schedule go into optimizer.params and scheduler"
    ]
    if plan.optimizer == "muon":
        found.append("Muon is used for parameters with use_muon = True, which the script has to set")
    if plan.recompute == "full" and plan.pp == 1:
        found.append(
            "every layer is recomputed: call model.gradient_checkpointing_enable() (Hugging Face) or "
            "deepspeed.checkpointing.checkpoint, which activation_checkpointing configures"
        )
    if plan.offload == "activations":
        found.append("only deepspeed.checkpointing.checkpoint moves activations to the hosts")
    if plan.cp > 1:
        found.append(
            "Ulysses is switched on in the script: UlyssesSPAttentionHF.register_with_transformers"
            f"(sequence_parallel_size={plan.cp}), whose groups go to deepspeed.initialize as mpu"
        )
    if plan.ep > 1:
        found.append(
            "AutoEP finds the experts of mixtral, qwen2_moe, qwen3_moe, deepseek_v2 and deepseek_v3; others need "
            "expert_parallel.moe_layer_pattern and its companions"
        )
    if plan.zero_stage == 3 and plan.dp_replicate > 1:
        found.append("shards of fewer than all ranks (MiCS) need the model to be built under deepspeed.zero.MiCS_Init")
    if model.num_mtp_layers:
        found.append(
            f"the plan counts multi-token prediction (layers: {model.num_mtp_layers}), which Hugging Face's classes "
            "leave out"
        )
    return (*found, *pipelines.notes(job))

"""Small jobs for the probe, one for each way to cut a model."""

from __future__ import annotations

from typing import Any

from costmodel.calibration.calibration import load_calibration
from costmodel.catalog.cluster_catalog import load_cluster
from costmodel.catalog.framework_catalog import load_framework, load_optimizer, load_precision
from costmodel.scenario import Scenario
from costmodel.schedules import placement_of
from costmodel.spec.model import ModelSpec
from costmodel.spec.plan import Plan
from costmodel.spec.workload import Workload
from costmodel.stages import Layout, layers_per_chunk
from planner.profiling.probe.job import ProbeJob

BATCH, TOKENS = 8, 16

_LLAMA = {
    "name": "tiny",
    "num_layers": 4,
    "hidden_size": 32,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 8,
    "ffn_hidden_size": 64,
    "vocab_size": 64,
    "tie_word_embeddings": False,
}
_GPT = _LLAMA | {
    "num_kv_heads": 4,
    "gated_mlp": False,
    "learned_position_embeddings": True,
    "max_position_embeddings": 32,
    "tie_word_embeddings": True,
    "qkv_bias": True,
    "attention_out_bias": True,
    "mlp_bias": True,
    "norm_bias": True,
    "embedding_norm": True,
    "vocab_size": 62,
}
_MOE = _LLAMA | {
    "moe": {
        "num_experts": 4,
        "top_k": 2,
        "expert_ffn_hidden_size": 16,
        "num_dense_layers": 1,
        "shared_expert_ffn_hidden_size": 16,
        "shared_expert_gate": True,
    },
    "qk_norm": "full",
    "norms_per_layer": 4,
}
_QWEN = _LLAMA | {"qk_norm": "head", "tie_word_embeddings": True}
_FALCON = _LLAMA | {"norms_per_layer": 1, "norm_bias": True, "head_bias": True}
MODELS = {"llama": _LLAMA, "gpt": _GPT, "moe": _MOE, "qwen": _QWEN, "falcon": _FALCON}


def job(
    *, model: str = "llama", optimizer: str = "sgd", precision: str = "fp32", framework: str = "torchtitan", **axes: Any
) -> ProbeJob:
    """A job of a tiny model; what isn't named follows, as one device would train it in one micro-batch."""
    spec = ModelSpec.model_validate(MODELS[model])
    pp, vpp, zero = axes.get("pp", 1), axes.get("vpp", 1), axes.get("zero_stage", 0)
    schedule = axes.get("schedule", "1f1b")
    learning_rate = 0.5 if optimizer == "sgd" else 1e-3
    tp, cp, dp = axes.get("tp", 1), axes.get("cp", 1), axes.get("dp", 1)
    micro = axes.get("micro_batch_size", BATCH // dp)
    chunks = axes.pop("chunks", None) or layers_per_chunk(spec.num_layers, pp, vpp, Layout.EVEN, placement_of(schedule))
    assert chunks is not None
    of_stage = tuple(sum(device) for device in chunks)
    recompute = axes.get("recompute", "none")
    workload = Workload(
        global_batch_size=BATCH,
        seq_len=TOKENS,
        precision=load_precision(precision),
        optimizer=load_optimizer(optimizer),
    )
    scenario = Scenario(
        model=spec,
        cluster=load_cluster("dgx-h100"),
        devices=8,
        workload=workload,
        framework=load_framework(framework),
        calibration=load_calibration(),
    )
    plan = {
        "tp": tp,
        "pp": pp,
        "dp": dp,
        "dp_replicate": 1 if zero else dp,
        "dp_shard": dp if zero else 1,
        "zero_stage": zero,
        "sequence_parallel": tp > 1,
        "micro_batch_size": micro,
        "num_microbatches": BATCH // dp // micro,
        "global_batch_size": BATCH,
        "seq_len": TOKENS,
        "devices_used": tp * cp * dp * pp,
        "schedule": schedule,
        "layers_per_stage": of_stage,
        "layers_per_chunk": chunks if vpp > 1 else None,
        "recompute": recompute,
        "recomputed_layers_per_stage": of_stage if recompute == "full" else (0,) * pp,
        "gradient_sync": "microbatch" if zero >= 2 else "step",
        "precision": precision,
        "optimizer": optimizer,
        "gradient_dtype": "bf16" if precision == "bf16-pure" else "fp32",
        "framework": framework,
        "framework_version": load_framework(framework).version,
    }
    return ProbeJob(
        scenario=scenario, plan=Plan(**(plan | axes)), layers=spec.num_layers, seed=3, learning_rate=learning_rate
    )


JOBS: dict[str, dict[str, Any]] = {
    "dp": {"dp": 4, "micro_batch_size": 1},
    "dp-microbatch": {"dp": 2, "micro_batch_size": 2, "gradient_sync": "microbatch"},
    "zero1": {"dp": 2, "zero_stage": 1, "micro_batch_size": 2},
    "zero2": {"dp": 4, "zero_stage": 2, "micro_batch_size": 1},
    "zero3": {"dp": 4, "zero_stage": 3, "micro_batch_size": 1, "fsdp_prefetch": 2},
    "zero3-step": {"dp": 2, "zero_stage": 3, "micro_batch_size": 2, "reshard_after": "step", "gradient_sync": "step"},
    "hsdp": {"dp": 4, "zero_stage": 3, "dp_replicate": 2, "dp_shard": 2},
    "tp": {"tp": 2},
    "tp-plain": {"tp": 2, "sequence_parallel": False},
    "tp-dp": {"tp": 2, "dp": 2, "micro_batch_size": 2},
    "tp-zero3": {"tp": 2, "dp": 2, "zero_stage": 3, "micro_batch_size": 2},
    "gpipe": {"pp": 2, "micro_batch_size": 4, "schedule": "gpipe"},
    "1f1b": {"pp": 2, "micro_batch_size": 2},
    "1f1b-dp": {"pp": 2, "dp": 2, "micro_batch_size": 1},
    "pp-uneven": {"pp": 2, "micro_batch_size": 2, "chunks": ((1,), (3,))},
    "1f1b-zero3": {"pp": 2, "dp": 2, "zero_stage": 3, "micro_batch_size": 1},
    "1f1b-tp": {"pp": 2, "tp": 2, "micro_batch_size": 2},
    "1f1b-tp-dp": {"pp": 2, "tp": 2, "dp": 2, "micro_batch_size": 1},
    "1f1b-tp-zero3": {"pp": 2, "tp": 2, "dp": 2, "zero_stage": 3, "micro_batch_size": 1},
    "1f1b-zero1": {"pp": 2, "dp": 2, "zero_stage": 1, "micro_batch_size": 1},
    "interleaved": {"pp": 2, "vpp": 2, "micro_batch_size": 2, "schedule": "interleaved_1f1b"},
    "interleaved-dp": {"pp": 2, "vpp": 2, "dp": 2, "micro_batch_size": 1, "schedule": "interleaved_1f1b"},
    "interleaved-zero2": {
        "pp": 2,
        "vpp": 2,
        "dp": 2,
        "zero_stage": 2,
        "micro_batch_size": 1,
        "schedule": "interleaved_1f1b",
    },
    "loop": {"pp": 2, "vpp": 2, "micro_batch_size": 4, "schedule": "gpipe"},
    "zbv": {"pp": 2, "vpp": 2, "micro_batch_size": 2, "schedule": "zb_v"},
    "zbv-zero3": {
        "pp": 2,
        "vpp": 2,
        "dp": 2,
        "zero_stage": 3,
        "micro_batch_size": 1,
        "schedule": "zb_v",
        "reshard_after": "step",
    },
    "zbv-zero2": {"pp": 2, "vpp": 2, "dp": 2, "zero_stage": 2, "micro_batch_size": 1, "schedule": "zb_v"},
    "zbv-tp": {"pp": 2, "vpp": 2, "tp": 2, "micro_batch_size": 2, "schedule": "zb_v"},
    "dualpipev-zero2": {"pp": 2, "vpp": 2, "dp": 2, "zero_stage": 2, "micro_batch_size": 1, "schedule": "dualpipe_v"},
    "cp-a2a-tp": {"model": "gpt", "cp": 2, "cp_comm_type": "a2a", "cp_a2a_degree": 2, "tp": 2},
    "cp-pp": {"cp": 2, "cp_comm_type": "all_gather", "pp": 2, "micro_batch_size": 2},
    "dualpipev": {"pp": 2, "vpp": 2, "micro_batch_size": 2, "schedule": "dualpipe_v"},
    "cp-gather": {"cp": 2, "cp_comm_type": "all_gather"},
    "cp-gather-plain": {"cp": 2, "cp_comm_type": "all_gather", "cp_balanced": False},
    "cp-a2a": {"cp": 2, "cp_comm_type": "a2a", "cp_a2a_degree": 2},
    "cp-zero3": {"cp": 2, "cp_comm_type": "all_gather", "dp": 2, "zero_stage": 3},
    "cp-tp": {"cp": 2, "cp_comm_type": "all_gather", "tp": 2},
    "full": {"recompute": "full", "dp": 2, "zero_stage": 3},
    "full-some": {"recompute": "full", "pp": 2, "micro_batch_size": 2, "recomputed_layers_per_stage": (1, 2)},
    "full-interval": {"recompute": "full", "recompute_interval": 2, "dp": 2},
    "products": {"recompute": "selective", "recompute_modules": ("layernorm",), "tp": 2},
    "modules": {"recompute": "selective", "recompute_modules": ("core_attn", "mlp"), "dp": 2},
    "adamw": {"optimizer": "adamw", "dp": 2, "zero_stage": 3},
    "gpt-tp": {"model": "gpt", "tp": 2, "dp": 2},
    "gpt-pp": {"model": "gpt", "pp": 2, "dp": 2, "micro_batch_size": 1},
    "gpt-pp-zero3": {"model": "gpt", "pp": 2, "dp": 2, "micro_batch_size": 1, "zero_stage": 3},
    "gpt-zbv": {"model": "gpt", "pp": 2, "vpp": 2, "micro_batch_size": 2, "schedule": "zb_v"},
    "moe-zero3": {"model": "moe", "dp": 2, "zero_stage": 3},
    "moe-modules": {"model": "moe", "dp": 2, "recompute": "selective", "recompute_modules": ("moe",)},
    "qwen-tp": {"model": "qwen", "tp": 2},
    "qwen-tp-zero2": {"model": "qwen", "tp": 2, "dp": 2, "zero_stage": 2},
    "falcon-tp": {"model": "falcon", "tp": 2},
    "bf16": {"precision": "bf16", "dp": 2, "zero_stage": 3},
    "bf16-tp": {"precision": "bf16", "tp": 2, "dp": 2},
    "bf16-tp-alone": {"precision": "bf16", "tp": 2},
    "bf16-pp": {"precision": "bf16", "pp": 2, "micro_batch_size": 2},
    "bf16-pure": {"precision": "bf16-pure", "dp": 2, "zero_stage": 3},
}

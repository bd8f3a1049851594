"""Asks Megatron-Core itself about plans. Runs in a process of its own: ``megatron_probe.py CASES.json VERDICTS.json``.

Each plan goes through Megatron's own checks as a training script would meet them, in a world of PyTorch's ``fake``
process groups: process groups, configuration, micro-batches, batch and sequence cut over ranks, one layer of each kind,
the interleaved schedule. The wheel has no ``training/arguments.py``; what only that file checks is not asked here.

What a CPU lacks is put aside, no check with it: CUDA streams and devices, and norms under sequence parallelism
(Apex or Transformer Engine), the core of latent attention (Transformer Engine). Layers are built with cp 1, since
attention over cp is Transformer Engine's.
"""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch

warnings.simplefilter("ignore")

from megatron.core import num_microbatches_calculator as microbatches  # noqa: E402
from megatron.core import parallel_state  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # noqa: E402
from megatron.core.pipeline_parallel import schedules  # noqa: E402
from megatron.core.tensor_parallel.mappings import scatter_to_sequence_parallel_region  # noqa: E402
from megatron.core.transformer import MLATransformerConfig, TransformerConfig, multi_latent_attention  # noqa: E402
from megatron.core.transformer.enums import LayerType  # noqa: E402
from megatron.core.transformer.identity_op import IdentityOp  # noqa: E402
from megatron.core.transformer.moe.token_dispatcher import MoEAlltoAllTokenDispatcher  # noqa: E402
from megatron.core.transformer.spec_utils import build_module  # noqa: E402
from megatron.core.transformer.transformer_block import get_num_layers_to_build  # noqa: E402
from megatron.core.utils import get_batch_on_this_cp_rank  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

Case = dict[str, Any]


class Reached(Exception):
    """A step was reached behind the check in question."""


def groups(case: Case) -> None:
    """``initialize_model_parallel``; the world is the devices in use."""
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=case["tp"],
        pipeline_model_parallel_size=case["pp"],
        virtual_pipeline_model_parallel_size=case["vpp"] if case["vpp"] > 1 else None,
        context_parallel_size=case["cp"],
        expert_model_parallel_size=case["ep"],
        expert_tensor_parallel_size=case["etp"],
        num_distributed_optimizer_instances=case["dp_replicate"] if case["zero_stage"] else 1,
        create_gloo_process_groups=False,
    )


def config_of(case: Case, **changes: Any) -> TransformerConfig:
    """The configuration of the model under the plan, with the plan's layers as a layout list."""
    model = case["model"]
    moe, mla = model["moe"], model["mla"]
    settings: dict[str, Any] = {
        "num_layers": model["num_layers"],
        "hidden_size": model["hidden_size"],
        "ffn_hidden_size": model["ffn_hidden_size"],
        "num_attention_heads": model["num_heads"],
        "num_query_groups": model["num_kv_heads"],
        "kv_channels": model["head_dim"],
        "gated_linear_unit": True,
        "add_bias_linear": False,
        "tensor_model_parallel_size": case["tp"],
        "sequence_parallel": case["tp"] > 1,
        "context_parallel_size": case["cp"],
        "pipeline_model_parallel_size": case["pp"],
        "expert_model_parallel_size": case["ep"],
        "expert_tensor_parallel_size": case["etp"],
        "pipeline_dtype": torch.bfloat16,
        "params_dtype": torch.bfloat16,
        "bf16": True,
        "use_cpu_initialization": True,
        "perform_initialization": False,
    }
    if case["pp"] > 1:
        settings["virtual_pipeline_model_parallel_size"] = case["vpp"] if case["vpp"] > 1 else None
        settings["pipeline_model_parallel_layout"] = layout(case["chunks"])
    if moe:
        settings |= {
            "num_moe_experts": moe["num_experts"],
            "moe_router_topk": moe["top_k"],
            "moe_ffn_hidden_size": moe["expert_ffn_hidden_size"],
            "moe_shared_expert_intermediate_size": moe["shared_expert_ffn_hidden_size"] or None,
            "moe_token_dispatcher_type": "alltoall",
        }
    if mla:
        settings |= {
            "q_lora_rank": mla["q_lora_rank"],
            "kv_lora_rank": mla["kv_lora_rank"],
            "qk_head_dim": mla["qk_nope_head_dim"],
            "qk_pos_emb_head_dim": mla["qk_rope_head_dim"],
            "v_head_dim": mla["v_head_dim"],
            "rope_type": "rope",
        }
        # Latent attention has no query groups.
        del settings["num_query_groups"]
    return (MLATransformerConfig if mla else TransformerConfig)(**(settings | changes))


def layout(chunks: list[list[int]]) -> list[list[str]]:
    """Layer names of every virtual stage in the order in which a micro-batch meets them."""
    stages = [["decoder"] * device[turn] for turn in range(len(chunks[0])) for device in chunks]
    stages[0].insert(0, "embedding")
    stages[-1].append("loss")
    return stages


def batch(case: Case) -> None:
    """The number of micro-batches that the calculator finds is the plan's."""
    microbatches.init_num_microbatches_calculator(
        rank=1,
        rampup_batch_size=None,
        global_batch_size=case["global_batch_size"],
        micro_batch_size=case["micro_batch_size"],
        data_parallel_size=case["dp"],
    )
    found = microbatches.get_num_microbatches()
    if found != case["num_microbatches"]:
        raise ValueError(f"Megatron makes {found} micro-batches")


def sequence(case: Case) -> None:
    """A batch cut over cp, and what is left of it over tp."""
    cut = get_batch_on_this_cp_rank({"tokens": torch.zeros(1, case["seq_len"], dtype=torch.uint8)})["tokens"]
    if case["tp"] > 1:
        scatter_to_sequence_parallel_region(torch.zeros(cut.shape[1], 1, 1))


def layers(case: Case) -> None:
    """One layer of each kind that the model has, as the first rank would build it."""
    moe = case["model"]["moe"]
    kinds = [None] if moe is None else [moe["num_experts"]] + [None] * (moe["num_dense_layers"] > 0)
    for experts in kinds:
        config = config_of(case, context_parallel_size=1)
        spec = get_gpt_layer_local_spec(
            num_experts=experts, moe_grouped_gemm=False, multi_latent_attention=bool(case["model"]["mla"])
        )
        if case["model"]["mla"]:
            spec.submodules.self_attention.submodules.core_attention = IdentityOp
        spec.submodules.input_layernorm = spec.submodules.pre_mlp_layernorm = IdentityOp
        build_module(spec, config=config, layer_number=1, vp_stage=0 if case["vpp"] > 1 else None)


def schedule(case: Case) -> None:
    """The interleaved schedule up to where its checks are done."""
    if case["schedule"] != "interleaved_1f1b" or case["pp"] == 1:
        return
    model = torch.nn.Linear(1, 1)
    model.config = config_of(case)
    zeros = torch.zeros
    with (
        mock.patch.object(torch, "zeros", lambda *size, device=None, **how: zeros(*size, **how)),
        mock.patch.object(schedules, "get_model_type", side_effect=Reached),
        contextlib.suppress(Reached),
    ):
        schedules.forward_backward_pipelining_with_interleaving(
            forward_step_func=lambda *_: None,
            data_iterator=[iter(())] * case["vpp"],
            model=[model] * case["vpp"],
            num_microbatches=case["num_microbatches"],
            seq_length=case["seq_len"],
            micro_batch_size=case["micro_batch_size"],
        )


def placed_layers(case: Case) -> list[list[int]]:
    """What Megatron puts on every chunk."""
    placed = config_of(case).pipeline_model_parallel_layout
    if placed is None:
        return [[case["model"]["num_layers"]]]
    return [[stage.count(LayerType.decoder) for stage in device] for device in placed.layout]


CHECKS: tuple[Callable[[Case], Any], ...] = (groups, config_of, batch, sequence, layers, schedule)


def verdict(case: Case) -> dict[str, Any]:
    """Which step refuses the plan and why; where none does, the layers of every chunk."""
    torch.distributed.init_process_group("fake", world_size=case["world"], rank=0, store=FakeStore())
    try:
        for check in CHECKS:
            try:
                check(case)
            except Exception as error:
                return {"refused_by": check.__name__, "why": f"{type(error).__name__}: {error}"}
        return {"refused_by": None, "chunks": placed_layers(case)}
    finally:
        parallel_state.destroy_model_parallel()
        microbatches.destroy_num_microbatches_calculator()
        torch.distributed.destroy_process_group()


def splits_by_flags(question: Case) -> list[list[list[int]]]:
    """Every split of the layers over chunks that some setting of the flags gives, without a layout."""
    count, pp, vpp = question["num_layers"], question["pp"], question["vpp"]
    settings: list[dict[str, Any]] = [
        {"account_for_embedding_in_pipeline_split": embedding, "account_for_loss_in_pipeline_split": loss}
        for embedding in (False, True)
        for loss in (False, True)
    ]
    ends = [None, *range(1, count)]
    settings += [
        {"num_layers_in_first_pipeline_stage": first, "num_layers_in_last_pipeline_stage": last}
        for first in ends
        for last in ends
        if first or last
    ]
    found = []
    for flags in settings:
        try:
            config = TransformerConfig(
                num_layers=count,
                hidden_size=8,
                num_attention_heads=1,
                pipeline_model_parallel_size=pp,
                virtual_pipeline_model_parallel_size=vpp if vpp > 1 else None,
                pipeline_dtype=torch.bfloat16,
                **flags,
            )
            turns = range(vpp) if vpp > 1 else [None]
            found.append([[get_num_layers_to_build(config, turn, rank) for turn in turns] for rank in range(pp)])
        except (AssertionError, ValueError):
            continue
    return found


def main() -> None:
    MoEAlltoAllTokenDispatcher.cuda_dtoh_stream = object()
    torch.cuda.current_device = lambda: "cpu"
    # A name that is None without Transformer Engine, and that a layer is compared with all the same.
    multi_latent_attention.TELinear = type("TELinear", (), {})
    asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    answers = {
        "plans": [verdict(case) for case in asked["plans"]],
        "splits": [splits_by_flags(question) for question in asked.get("splits", ())],
    }
    Path(sys.argv[2]).write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    main()

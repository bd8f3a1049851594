"""Asks Megatron-Core itself about plans. Runs in a process of its own: ``megatron_probe.py CASES.json VERDICTS.json``.

Any version from 0.9 on will do; ``megatron_words.py`` knows what it calls things. Each plan goes through Megatron's own
checks as a training script would meet them, in a world of PyTorch's ``fake`` process groups: process groups,
configuration, micro-batches, batch and sequence cut over ranks, one layer of each kind, the interleaved schedule.
The wheel has no ``training/arguments.py``; what only that file checks is not asked here.

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
from megatron.core import (  # noqa: E402
    parallel_state,
    transformer,
    utils,
)
from megatron.core.models.gpt import gpt_layer_specs  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # noqa: E402
from megatron.core.pipeline_parallel import schedules  # noqa: E402
from megatron.core.tensor_parallel.mappings import scatter_to_sequence_parallel_region  # noqa: E402
from megatron.core.transformer import enums  # noqa: E402
from megatron.core.transformer.identity_op import IdentityOp  # noqa: E402
from megatron.core.transformer.moe.token_dispatcher import MoEAlltoAllTokenDispatcher  # noqa: E402
from megatron.core.transformer.spec_utils import build_module  # noqa: E402
from megatron_config import bare_config, config_of  # noqa: E402
from megatron_words import Case, NoWord, flag_settings, parameters, said, sharding, split  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402


class Reached(Exception):
    """A step was reached behind the check in question."""


def groups(case: Case) -> None:
    """``initialize_model_parallel``; the world is the devices in use."""
    settings = {
        "tensor_model_parallel_size": case["tp"],
        "pipeline_model_parallel_size": case["pp"],
        "virtual_pipeline_model_parallel_size": case["vpp"] if case["vpp"] > 1 else None,
        "context_parallel_size": case["cp"],
        "expert_model_parallel_size": case["ep"],
        "expert_tensor_parallel_size": case["etp"],
        "num_distributed_optimizer_instances": case["dp_replicate"] if case["zero_stage"] else 1,
        "create_gloo_process_groups": False,
    }
    # Without a size of their own experts are cut as everything else is.
    alone = {"expert_tensor_parallel_size": case["tp"] if case["model"]["moe"] else 1}
    alone |= {"num_distributed_optimizer_instances": 1, "create_gloo_process_groups": False}
    known = parameters(parallel_state.initialize_model_parallel)
    parallel_state.initialize_model_parallel(**said(known, settings, alone))


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
    length = case["seq_len"] // case["cp"]
    # Before 0.11 the training script cuts the batch.
    if hasattr(utils, "get_batch_on_this_cp_rank"):
        tokens = torch.zeros(1, case["seq_len"], dtype=torch.uint8)
        length = utils.get_batch_on_this_cp_rank({"tokens": tokens})["tokens"].shape[1]
    if case["tp"] > 1:
        scatter_to_sequence_parallel_region(torch.zeros(length, 1, 1))


def layers(case: Case) -> None:
    """One layer of each kind that the model has, as the first rank would build it."""
    moe = case["model"]["moe"]
    kinds = [None] if moe is None else [moe["num_experts"]] + [None] * (moe["num_dense_layers"] > 0)
    for experts in kinds:
        config = config_of(case, context_parallel_size=1)
        flags = {
            "num_experts": experts,
            "moe_grouped_gemm": False,
            "multi_latent_attention": bool(case["model"]["mla"]),
        }
        known = parameters(get_gpt_layer_local_spec)
        spec = get_gpt_layer_local_spec(**said(known, flags, {"multi_latent_attention": False}))
        if case["model"]["mla"]:
            spec.submodules.self_attention.submodules.core_attention = IdentityOp
        spec.submodules.input_layernorm = spec.submodules.pre_mlp_layernorm = IdentityOp
        stage = {"vp_stage": 0 if case["vpp"] > 1 else None} if "vp_stage" in parameters(spec.module.__init__) else {}
        build_module(spec, config=config, layer_number=1, **stage)


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
    config = config_of(case)
    placed = getattr(config, "pipeline_model_parallel_layout", None)
    if placed is None:
        return split(config) if case["pp"] > 1 else [[case["model"]["num_layers"]]]
    return [[stage.count(enums.LayerType.decoder) for stage in device] for device in placed.layout]


CHECKS: tuple[Callable[[Case], Any], ...] = (groups, sharding, config_of, batch, sequence, layers, schedule)


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
    ends = [None, *range(1, count)]
    found = []
    for flags in flag_settings(ends, ends):
        try:
            chunks = split(bare_config({"num_layers": count, "num_mtp_layers": 0}, pp, vpp, flags))
        except (AssertionError, NoWord, ValueError, ZeroDivisionError):
            continue
        # Old versions drop the layers that don't fit and say nothing; their training script refuses that.
        if sum(map(sum, chunks)) == count:
            found.append(chunks)
    return found


def main() -> None:
    MoEAlltoAllTokenDispatcher.cuda_dtoh_stream = object()
    torch.cuda.current_device = lambda: "cpu"
    # A name that is None without Transformer Engine, and that a layer is compared with all the same.
    if hasattr(transformer, "multi_latent_attention"):
        transformer.multi_latent_attention.TELinear = type("TELinear", (), {})
    # More of those, which 0.10 looks up without Transformer Engine.
    for kind in ("ColumnParallelGrouped", "RowParallelGrouped", "ColumnParallel", "RowParallel"):
        vars(gpt_layer_specs).setdefault(f"TE{kind}Linear", None)
    torch.cuda.Stream = mock.Mock()
    torch.Tensor.cuda = lambda tensor, *_, **__: tensor
    tensor = torch.tensor
    torch.tensor = lambda data, pin_memory=False, **how: tensor(data, **how)
    new_group = torch.distributed.new_group
    # Old versions want groups of gloo beside those of the default backend.
    torch.distributed.new_group = lambda *ranks, backend=None, **how: new_group(*ranks, **how)
    asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    answers = {
        "plans": [verdict(case) for case in asked["plans"]],
        "splits": [splits_by_flags(question) for question in asked.get("splits", ())],
    }
    Path(sys.argv[2]).write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    main()

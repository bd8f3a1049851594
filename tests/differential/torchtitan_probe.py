"""Asks torchtitan itself about plans. Runs in a process of its own: ``torchtitan_probe.py CASES.json VERDICTS.json``.

Each plan is the configuration of torchtitan's ``Trainer``, whose constructor runs in full up to the model being
parallelised, in a world of PyTorch's ``fake`` process groups (torchtitan's own ``fake_backend``): meshes, sequence
length, model, batch, pipeline stages and schedule, sharding.

What a CPU lacks is put aside, no check with it: Triton kernels of one token dispatcher, the device's memory monitor,
and CUDA as the device.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import torch

warnings.simplefilter("ignore")


class Placeholder(ModuleType):
    """A module whose every public name is there and does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return mock.MagicMock()


_KERNELS = "torchtitan.distributed.minimal_async_ep.kernels"
sys.modules[_KERNELS] = Placeholder(_KERNELS)

from torchtitan.tools import utils  # noqa: E402

utils.device_type, utils.device_module = "cpu", torch.cpu
utils.get_local_device = lambda: torch.device("cpu")

from torchtitan import trainer  # noqa: E402
from torchtitan.components import metrics  # noqa: E402
from torchtitan.models import llama3, qwen3  # noqa: E402
from torchtitan.models.common import ComplexRoPE, CosSinRoPE, Embedding, Linear, RMSNorm  # noqa: E402
from torchtitan.models.llama3.config_registry import llama3_debugmodel  # noqa: E402

Case = dict[str, Any]

SCHEDULES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved_1f1b": "Interleaved1F1B"}


class Reached(Exception):
    """The constructor got behind everything that looks at the plan."""


def model_config(model: dict[str, Any]) -> Any:
    """The model in torchtitan's words: Llama 3 without experts, Qwen 3 with them."""
    width, vocabulary, longest = model["hidden_size"], model["vocab_size"], 1 << 20
    shape = {
        "n_layers": model["num_layers"],
        "dim": width,
        "n_heads": model["num_heads"],
        "n_kv_heads": model["num_kv_heads"],
        "attn_backend": "flex",
        "fuse_qkv": True,
    }
    if model["moe"] is None:
        build, family = llama3._build_llama3_layers, llama3.Llama3Model
        shape |= {
            "hidden_dim": model["ffn_hidden_size"],
            "rope": ComplexRoPE.Config(dim=model["head_dim"], max_seq_len=longest),
        }
    else:
        build, family = qwen3._build_qwen3_moe_layers, qwen3.Qwen3Model
        shape |= {
            "head_dim": model["head_dim"],
            "moe_hidden_dim": model["moe"]["expert_ffn_hidden_size"],
            "num_experts": model["moe"]["num_experts"],
            "top_k": model["moe"]["top_k"],
            "rope": CosSinRoPE.Config(dim=model["head_dim"], max_seq_len=longest),
            "moe_comm_backend": "standard",
        }
    start = {"weight": torch.nn.init.ones_}
    return family.Config(
        dim=width,
        vocab_size=vocabulary,
        enable_weight_tying=model["tie_word_embeddings"],
        tok_embeddings=Embedding.Config(num_embeddings=vocabulary, embedding_dim=width, param_init=start),
        norm=RMSNorm.Config(normalized_shape=width, param_init=start),
        lm_head=Linear.Config(in_features=width, out_features=vocabulary, param_init=start),
        layers=build(**shape),
    )


def stages(case: Case) -> list[list[str]]:
    """Module names of every virtual stage in the order in which a micro-batch meets them."""
    names = [f"layers.{index}" for index in range(case["model"]["num_layers"])]
    turns = range(len(case["chunks"][0]))
    found = [[names.pop(0) for _ in range(device[turn])] for turn in turns for device in case["chunks"]]
    found[0].insert(0, "tok_embeddings")
    found[-1] += ["norm", "lm_head"]
    return found


def trainer_config(case: Case) -> Any:
    """The plan in torchtitan's words."""
    config = llama3_debugmodel()
    registry = qwen3 if case["model"]["moe"] else llama3
    config.model_spec = registry.model_registry("debugmodel_moe" if case["model"]["moe"] else "debugmodel")
    config.model_spec.model = model_config(case["model"])
    config.comm.mode = "fake_backend"
    training, parallelism = config.training, config.parallelism
    training.disable_cuda_graphs = True
    training.seq_len = case["seq_len"]
    training.global_batch_size = case["global_batch_size"]
    training.local_batch_size = case["micro_batch_size"]
    # The default, spmd_types, needs a newer FSDP than that of the PyTorch release.
    parallelism.spmd_backend = "full_dtensor"
    parallelism.data_parallel_replicate_degree = case["dp_replicate"]
    parallelism.data_parallel_shard_degree = case["dp_shard"]
    parallelism.fsdp_reshard_after_forward = "always" if case["zero_stage"] == 3 else "never"
    parallelism.tensor_parallel_degree = case["tp"]
    parallelism.context_parallel_degree = case["cp"]
    parallelism.expert_parallel_degree = case["ep"]
    parallelism.pipeline_parallel_degree = case["pp"]
    if case["pp"] > 1:
        training.local_batch_size *= case["num_microbatches"]
        parallelism.pipeline_parallel_microbatch_size = case["micro_batch_size"]
        parallelism.pipeline_parallel_schedule = SCHEDULES[case["schedule"]]
        parallelism.module_fqns_per_model_part = stages(case)
    return config


def verdict(case: Case) -> dict[str, Any]:
    """Where the constructor stops, unless it gets to the end of what looks at the plan."""
    os.environ["NGPU"] = os.environ["WORLD_SIZE"] = str(case["world"])
    try:
        trainer.Trainer(trainer_config(case))
    except Reached:
        return {"refused_by": None}
    except Exception as error:
        return {"refused_by": type(error).__name__, "why": f"{type(error).__name__}: {error}"}
    raise RuntimeError("the constructor ended before the step that was to stop it")


def main() -> None:
    logging.disable(logging.CRITICAL)
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0"}
    metrics.build_device_memory_monitor = lambda: mock.Mock(device_name="cpu")
    # The model's memory is made once it is split into stages and parallelised.
    torch.nn.Module.to_empty = mock.Mock(side_effect=Reached)
    asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    # A process for every plan, as caches of PyTorch outlive the process groups that they hold.
    with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=1) as workers:
        answers = {"plans": workers.map(verdict, asked["plans"], chunksize=1)}
    Path(sys.argv[2]).write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    main()

"""Asks Megatron about exported arguments. Runs in a process of its own: ``megatron_probe.py CASES.json VERDICTS.json``.

From 0.17 on the wheel has ``megatron.training``: its parser reads the arguments, its ``validate_args`` checks them, and
its ``core_transformer_config_from_args`` makes the configuration. Older wheels have the configuration classes alone, so
there every setting has to be a field of one of them, and they have to accept the values.

A CPU stands in for the device: its compute capability, and that Transformer Engine is a new one, are put in.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

warnings.simplefilter("ignore")

import torch  # noqa: E402
from megatron.core import transformer  # noqa: E402
from megatron.core.distributed import DistributedDataParallelConfig  # noqa: E402
from megatron.core.optimizer import OptimizerConfig  # noqa: E402
from megatron.core.transformer import TransformerConfig, enums, transformer_config  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[1] / "differential"))
from megatron_words import split  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

try:
    from megatron.training import arguments as real
except ImportError:
    real = None

Case = dict[str, Any]

CONFIGS = (DistributedDataParallelConfig, OptimizerConfig)
BEFORE = {
    "num_layers_in_first_pipeline_stage": "first_pipeline_num_layers",
    "num_layers_in_last_pipeline_stage": "last_pipeline_num_layers",
}
# What the training script makes of its own arguments: no field of a configuration.
OF_THE_SCRIPT = {
    "micro_batch_size", "global_batch_size", "seq_length", "max_position_embeddings", "position_embedding_type",
    "vocab_size", "group_query_attention", "share_embeddings_and_output_weights", "ckpt_format",
    "num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank",
}  # fmt: skip
# Rotary embeddings of Transformer Engine, which a configuration wants to see.
ROPE = "megatron.core.models.common.embeddings.rope_utils"
FUSED = dict.fromkeys(("fused_apply_rotary_pos_emb", "fused_apply_rotary_pos_emb_thd"), object())
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def parsed(case: Case) -> TransformerConfig:
    """Through Megatron-LM's own command line."""
    parser = real.add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))
    args = parser.parse_args(case["arguments"])
    args.rank, args.world_size = 0, case["world"]
    arch = 10 if case["blackwell"] else 9
    with (
        mock.patch.dict(os.environ, case["environment"]),
        mock.patch.object(real, "get_device_arch_version", return_value=arch),
        mock.patch.object(torch.cuda, "get_device_capability", return_value=(arch, 0)),
        mock.patch.object(real, "print_rank_0"),
        mock.patch.object(real, "warn_rank_0"),
        mock.patch.object(real, "_print_args"),
        mock.patch.object(real, "is_te_min_version", return_value=True),
    ):
        args = real.validate_args(args)
        assert args.data_parallel_size == case["dp"], args.data_parallel_size
        config = real.core_transformer_config_from_args(args)
    for kind in CONFIGS:
        known = {field.name for field in dataclasses.fields(kind)}
        kind(**{name: value for name, value in vars(args).items() if name in known})
    return config


def by_fields(case: Case) -> TransformerConfig:
    """Through the configuration classes alone."""
    kinds = [TransformerConfig, *CONFIGS]
    if case["settings"].get("multi_latent_attention"):
        kinds[0] = transformer.MLATransformerConfig
    fields = [{field.name for field in dataclasses.fields(kind)} for kind in kinds]
    given: list[dict[str, Any]] = [{} for _ in kinds]
    for name, value in case["settings"].items():
        places = [place for place, known in enumerate(fields) if {name, BEFORE.get(name, name)} & known]
        assert places or name in OF_THE_SCRIPT, f"no configuration has {name}"
        for place in places:
            given[place][name if name in fields[place] else BEFORE[name]] = made(name, value)
    if given[0].get("gated_linear_unit"):
        given[0]["activation_func"] = torch.nn.functional.silu
    given[0] |= {"use_cpu_initialization": True, "pipeline_dtype": torch.bfloat16, "params_dtype": torch.bfloat16}
    given[0] |= virtual_stages(case)
    for kind, settings in zip(kinds[1:], given[1:], strict=True):
        kind(**settings)
    return kinds[0](**given[0])


def made(name: str, value: Any) -> Any:
    if name.endswith("_dtype"):
        return DTYPES[value]
    if name == "cp_comm_type":
        return value[0]
    if name == "moe_layer_freq" and isinstance(value, str):
        return eval(value, {"__builtins__": {}})  # as arguments.py does with this very text
    return value


def virtual_stages(case: Case) -> dict[str, Any]:
    return {"virtual_pipeline_model_parallel_size": case["vpp"]} if case["vpp"] > 1 else {}


def placed(config: TransformerConfig, case: Case) -> list[list[int]]:
    """What Megatron puts on every chunk of every device."""
    layout = getattr(config, "pipeline_model_parallel_layout", None)
    if layout is not None:
        return [[stage.count(enums.LayerType.decoder) for stage in device] for device in layout.layout]
    return split(config) if config.pipeline_model_parallel_size > 1 else [[config.num_layers]]


def verdict(case: Case) -> dict[str, Any]:
    try:
        with (
            mock.patch.object(transformer_config, "is_te_min_version", return_value=True, create=True),
            mock.patch.multiple(ROPE, **FUSED, create=True) if real else contextlib.nullcontext(),
        ):
            config = (parsed if real else by_fields)(case)
            return {"refused": None, "chunks": placed(config, case), "parsed": real is not None}
    except (Exception, SystemExit) as error:
        return {"refused": f"{type(error).__name__}: {error}"}


def main() -> None:
    cases = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    torch.distributed.init_process_group("fake", world_size=1, rank=0, store=FakeStore())
    answers = [verdict(case) for case in cases]
    Path(sys.argv[2]).write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    main()

"""Asks Megatron-Bridge about exported overrides. Runs in a process of its own: ``... CASES.json VERDICTS.json``.

Its own parser puts them into a configuration as a recipe makes it, ``runtime_config_update`` resolves precision and
validates, and the model's provider is finished: a ``TransformerConfig`` of the Megatron-Core installed.

What reads models, data and tokenizers needs Transformer Engine and Hugging Face's packages: it is stood in for.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import sys
import types
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

warnings.simplefilter("ignore")

import torch  # noqa: E402
import torch._dynamo  # noqa: E402
from megatron.core.transformer import enums, transformer_config  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[1] / "differential"))
from megatron_words import split  # noqa: E402

BRIDGE = "megatron.bridge"
# Of its models those that hold configurations; of the rest of it the training's.
REAL = ("models.gpt_provider", "models.mla_provider", "models.model_provider", "models.transformer_config")
STOOD_IN = ("models", "peft", "data", "training.tokenizers")
OUTSIDE = ("transformer_engine", "transformers", "datasets", "huggingface_hub", "wandb", "nvidia_resiliency_ext")


class _Anything(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls


class Anything(metaclass=_Anything):
    """A class that may be called, named and subscripted as one likes."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __class_getitem__(cls, _: Any) -> type:
        return cls


class StandIn(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        # A class for each name: what inherits from one is no instance of another.
        setattr(self, name, type(name, (Anything,), {}))
        return getattr(self, name)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        part = name.removeprefix(f"{BRIDGE}.") if name.startswith(f"{BRIDGE}.") else None
        inside = part is not None and part.startswith(STOOD_IN) and part not in REAL
        if name == BRIDGE or inside or name.split(".")[0] in OUTSIDE:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> StandIn:
        return StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        import megatron

        inner = module.__name__.split(".")[1:]
        module.__path__ = [str(Path(folder).joinpath(*inner)) for folder in megatron.__path__]
        module.__version__ = "9.9"


sys.meta_path.insert(0, Finder())

from megatron.bridge.training import config as bridge  # noqa: E402
from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides  # noqa: E402

# As attributes of their package they would be stood in for.
gpt_provider, mla_provider = (importlib.import_module(f"{BRIDGE}.{name}") for name in REAL[:2])


def recipe(case: dict[str, Any]) -> Any:
    """As recipes make it, with settings of another model and plan."""
    kind = mla_provider.MLAModelProvider if case["latent"] else gpt_provider.GPTModelProvider
    more: dict[str, Any] = {"num_moe_experts": 2} if case["experts"] else {}
    model = kind(num_layers=2, hidden_size=64, num_attention_heads=4, activation_func=torch.nn.functional.silu, **more)
    model.recompute_granularity, model.recompute_modules = "selective", ["core_attn"]
    return bridge.ConfigContainer(
        train=bridge.TrainingConfig(train_iters=10, micro_batch_size=1, global_batch_size=8),
        model=model,
        optimizer=bridge.OptimizerConfig(lr=1e-4),
        ddp=bridge.DistributedDataParallelConfig(overlap_grad_reduce=True),
        scheduler=bridge.SchedulerConfig(lr_decay_iters=10, lr_warmup_iters=1),
        dataset=bridge.GPTDatasetConfig(
            seq_length=128,
            random_seed=1,
            reset_position_ids=False,
            reset_attention_mask=False,
            eod_mask_loss=False,
            num_dataset_builder_threads=1,
        ),
        logger=bridge.LoggerConfig(),
        tokenizer=Tokenizer(),
        checkpoint=bridge.CheckpointConfig(),
        mixed_precision=bridge.get_mixed_precision_config("bf16_mixed"),
        comm_overlap=bridge.CommOverlapConfig(tp_comm_overlap=False),
    )


@dataclasses.dataclass
class Tokenizer:
    tokenizer_type: str = "NullTokenizer"
    vocab_size: int = 512
    hf_tokenizer_kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)


def verdict(case: dict[str, Any]) -> dict[str, Any]:
    environment = case["environment"] | {"WORLD_SIZE": str(case["world"]), "RANK": "0"}
    try:
        with (
            mock.patch.dict(os.environ, environment),
            mock.patch.object(transformer_config, "is_te_min_version", return_value=True),
            mock.patch.object(torch.cuda, "get_device_capability", return_value=(9, 0)),
            mock.patch.object(torch.cuda, "get_device_properties", return_value=mock.Mock(major=9, minor=0)),
            mock.patch.object(bridge, "get_world_size_safe", return_value=case["world"]),
        ):
            config = process_config_with_overrides(recipe(case), cli_overrides=case["overrides"])
            bridge.runtime_config_update(config)
        model, layout = config.model, config.model.pipeline_model_parallel_layout
        if layout is not None:
            chunks = [[stage.count(enums.LayerType.decoder) for stage in device] for device in layout.layout]
        else:
            chunks = split(model) if model.pipeline_model_parallel_size > 1 else [[model.num_layers]]
        return {
            "refused": None,
            "chunks": chunks,
            "dp": config.data_parallel_size,
            "sharded": config.ddp.use_distributed_optimizer and config.optimizer.use_distributed_optimizer,
            "reduced_in_fp32": config.ddp.grad_reduce_in_fp32,
            "fp8": model.fp8 and model.fp8_recipe,
            "overlapped": config.ddp.overlap_grad_reduce,
        }
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {error}"}


def main() -> None:
    cases = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    torch.distributed.init_process_group("fake", world_size=1, rank=0, store=FakeStore())
    Path(sys.argv[2]).write_text(json.dumps([verdict(case) for case in cases]), encoding="utf-8")


if __name__ == "__main__":
    main()

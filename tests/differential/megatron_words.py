"""What a plan is called in the version of Megatron-Core at hand; what has no word there is refused."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallelConfig
from megatron.core.transformer import TransformerConfig, transformer_block

Case = dict[str, Any]
Chunks = list[list[int]]

_OLD_NAMES = {
    "num_layers_in_first_pipeline_stage": "first_pipeline_num_layers",
    "num_layers_in_last_pipeline_stage": "last_pipeline_num_layers",
}


class NoWord(Exception):
    """The version has no setting for it."""


def parameters(call: Callable[..., Any]) -> set[str]:
    """Keywords that the function takes."""
    return set(inspect.signature(call).parameters)


def said(known: set[str], settings: dict[str, Any], silent: dict[str, Any]) -> dict[str, Any]:
    """The settings that have a name; one without may be left out only at the value that silence means."""
    found = {}
    for name, value in settings.items():
        name = name if name in known else _OLD_NAMES.get(name, name)
        if name in known:
            found[name] = value
        elif name not in silent or silent[name] != value:
            raise NoWord(f"{name} {value}")
    return found


def config_fields(config: type) -> set[str]:
    return {field.name for field in dataclasses.fields(config)}


def sharding(case: Case) -> None:
    """Shards of gradients and parameters are Megatron-FSDP's."""
    if case["zero_stage"] >= 2:
        strategy = {2: "optim_grads", 3: "optim_grads_params"}[case["zero_stage"]]
        known = config_fields(DistributedDataParallelConfig)
        DistributedDataParallelConfig(**said(known, {"data_parallel_sharding_strategy": strategy}, {}))


def layers_to_build(config: TransformerConfig, turn: int | None, rank: int) -> int:
    """The layers of one chunk; versions before 0.15 ask the process groups which one that is."""
    known = parameters(transformer_block.get_num_layers_to_build)
    if "pp_rank" in known:
        return transformer_block.get_num_layers_to_build(config, turn, rank)
    before = parallel_state.get_pipeline_model_parallel_rank, parallel_state.get_pipeline_model_parallel_world_size
    parallel_state.get_pipeline_model_parallel_rank = lambda: rank
    parallel_state.get_pipeline_model_parallel_world_size = lambda: config.pipeline_model_parallel_size
    parallel_state.set_virtual_pipeline_model_parallel_rank(turn)
    parallel_state.set_virtual_pipeline_model_parallel_world_size(config.virtual_pipeline_model_parallel_size)
    try:
        stage = {"vp_stage": turn} if "vp_stage" in known else {}
        return transformer_block.get_num_layers_to_build(config, **stage)
    finally:
        parallel_state.get_pipeline_model_parallel_rank, parallel_state.get_pipeline_model_parallel_world_size = before
        parallel_state.set_virtual_pipeline_model_parallel_rank(None)
        parallel_state.set_virtual_pipeline_model_parallel_world_size(None)


def split(config: TransformerConfig) -> Chunks:
    """The layers of every chunk of every device without a layout."""
    vpp = config.virtual_pipeline_model_parallel_size
    turns = [None] if vpp is None else list(range(vpp))
    ranks = range(config.pipeline_model_parallel_size)
    return [[layers_to_build(config, turn, rank) for turn in turns] for rank in ranks]


def flag_settings(firsts: list[int | None], lasts: list[int | None]) -> Iterator[dict[str, Any]]:
    """Every way to set the flags on the layers of the ends, nothing at all first."""
    yield {}
    for embedding, loss in ((False, True), (True, False), (True, True)):
        yield {"account_for_embedding_in_pipeline_split": embedding, "account_for_loss_in_pipeline_split": loss}
    for first in firsts:
        for last in lasts:
            ends = {"num_layers_in_first_pipeline_stage": first, "num_layers_in_last_pipeline_stage": last}
            if first or last:
                yield {name: count for name, count in ends.items() if count}


def flags_for(case: Case, build: Callable[[dict[str, Any]], TransformerConfig]) -> dict[str, Any]:
    """The flags that give the plan's chunks where there is no layout."""
    chunks: Chunks = [list(device) for device in case["chunks"]]
    for flags in flag_settings([None, sum(chunks[0])], [None, sum(chunks[-1])]):
        try:
            if split(build(flags)) == chunks:
                return flags
        except (AssertionError, NoWord, ValueError, ZeroDivisionError):
            continue
    raise NoWord(f"no flags give {chunks}")

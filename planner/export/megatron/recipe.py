"""What targets share that override a recipe built on Megatron-Core, Megatron-Bridge and NeMo: writing."""

from __future__ import annotations

from collections.abc import Sequence

from planner.export.job import Job
from planner.export.launch import Launch, LaunchFile, Program
from planner.export.megatron.core import Core
from planner.export.megatron.layers import say_pipeline
from planner.export.megatron.memory import say_offload, say_recompute
from planner.export.megatron.model import say_model
from planner.export.megatron.script import argument_lines, launch_script

_LAUNCH, _OVERRIDES = "train.sh", "overrides.txt"


def launch_of_overrides(
    target: str, version: str | None, job: Job, started: Program, header: Sequence[str], recipe: str
) -> Launch:
    """The launch script first, then its overrides alone, then what the program has of its own.

    Args:
        recipe: the words by which people name a recipe, for the command that they copy.
    """
    return Launch(
        target=target,
        version=version,
        files=(
            LaunchFile(name=_LAUNCH, text=launch_script(job, started, header), executable=True),
            LaunchFile(name=_OVERRIDES, text=argument_lines(started)),
            *started.files,
        ),
        command=f"NODE_RANK=0 MASTER_ADDR=host0 ./{_LAUNCH} {recipe}",
        notes=started.notes,
    )


def say_stages(core: Core) -> None:
    """The pipeline, with virtual stages where it has them."""
    plan = core.plan
    say_pipeline(core)
    if plan.pp == 1 or plan.vpp == 1:
        core.sheet.follows("vpp")
        return
    core.put("virtual_pipeline_model_parallel_size", plan.vpp, "vpp")
    # As their own overlap of communication sets them for interleaved pipelines, which is off so that overrides hold.
    core.put("overlap_p2p_comm", True)
    core.put("batch_p2p_comm", False)


def say_sizes(core: Core) -> None:
    """The model, as far as a recipe of it doesn't have it anyway."""
    model, seq_len = core.model, core.plan.seq_len
    say_model(core)
    if model.mla is None:
        core.put("num_query_groups", model.num_kv_heads)
    if model.learned_position_embeddings and model.max_position_embeddings != seq_len:
        core.refuse_model("max_position_embeddings", f"positions are as many as tokens, {seq_len}")


def say_memory(core: Core, offloading: str) -> None:
    """Recompute and offload.

    Args:
        offloading: the setting that switches the offload of activations on.
    """
    sheet, plan = core.sheet, core.plan
    if say_recompute(core) is not None:
        again = plan.recomputed_layers_per_stage
        sheet.refuse("recomputed_layers_per_stage", again, "a recipe is told one number for all stages")
    say_offload(core)
    if plan.offload == "activations":
        sheet.put(offloading, True)


def other_version(core: Core) -> list[str]:
    """A note where the plan is for another version than the overrides."""
    own, written = core.plan.framework_version, core.sheet.version
    return [] if own == written else [f"The plan is for version {own}, these overrides for {written}."]

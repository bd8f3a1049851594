"""A plan as overrides of a Megatron-Bridge recipe."""

from __future__ import annotations

from planner.export.job import Job
from planner.export.launch import Launch, Program
from planner.export.megatron.core import Core
from planner.export.megatron.environment import environment_of
from planner.export.megatron.mesh import say_mesh, uses_fsdp
from planner.export.megatron.numbers import ADAM, say_optimizer, say_overlap
from planner.export.megatron.recipe import launch_of_overrides, other_version, say_memory, say_sizes, say_stages
from planner.export.megatron_bridge.keys import NEUTRAL, PRECISIONS, override, spelled
from planner.export.sheet import Sheet
from planner.export.words import Words, words_of

NAME = "megatron-bridge"
_SCRIPT = "scripts/training/run_recipe.py"
_OPEN = (
    "Give the recipe of the model, --recipe llama3_8b_pretrain_config say, behind the script's name: data, tokenizer, "
    "learning rate, checkpoints and what changes no count of parameters (activation, rotary base) are its own.",
)


def words() -> Words:
    return words_of(__package__)


def write(job: Job, version: str | None) -> Launch:
    """The launch script first, then its overrides alone.

    Raises:
        Inexpressible: Megatron-Bridge can't be told all of the plan.
        UnknownName: no such version is known.
    """
    started, written = program(job, version), words().version_of(version, job.plan.framework_version)
    recipe = "--recipe llama3_8b_pretrain_config"
    return launch_of_overrides(NAME, written, job, started, _header(job, written), recipe)


def program(job: Job, version: str | None) -> Program:
    """What every node runs, in the folder of a checkout of Megatron-Bridge; errors as for ``write``."""
    sheet = Sheet(job, NAME, words(), words().version_of(version, job.plan.framework_version))
    core = Core(sheet, spelled)
    sheet.follows("framework", "framework_version")
    for key, value in NEUTRAL.items():
        if sheet.has(key):
            sheet.put(key, value)
    say_mesh(core)
    sheet.put("dataset.sequence_length", job.plan.seq_len)
    sheet.put("optimizer.use_distributed_optimizer", job.plan.zero_stage > 0)
    say_stages(core)
    say_sizes(core)
    say_memory(core, "model.cpu_offloading")
    _say_numbers(core)
    if uses_fsdp(core):
        sheet.put("dist.use_megatron_fsdp", True)
        core.put("ckpt_format", "fsdp_dtensor")
    return Program(
        launcher="torchrun",
        script=_SCRIPT,
        arguments=tuple(override(key, value) for key, value in sheet.finish().items()),
        environment=environment_of(job),
        notes=_notes(core),
    )


def _say_numbers(core: Core) -> None:
    plan, sheet = core.plan, core.sheet
    named = PRECISIONS.get(plan.precision)
    if named is None:
        sheet.refuse("precision", plan.precision, f"it has recipes for {', '.join(PRECISIONS)}")
        sheet.follows("gradient_dtype")
    else:
        sheet.put("mixed_precision", named, "precision")
        dtype = "fp16" if plan.precision == "fp16" else "fp32"
        sheet.only("gradient_dtype", dtype, why=f"its recipe {named} reduces gradients in {dtype}")
    if plan.optimizer in (*ADAM, "sgd"):
        say_optimizer(core)
    else:
        sheet.refuse("optimizer", plan.optimizer, "adam and sgd can be named in an override")
    say_overlap(core)


def _notes(core: Core) -> tuple[str, ...]:
    plan, found = core.plan, [*_OPEN, *other_version(core)]
    if plan.precision == "fp8-current":
        found.append("Its recipe for current scaling keeps the first and the last layer in 16 bits; the plan has none.")
    if plan.tp > 1 and plan.tp_overlap:
        found.append("model.tp_comm_overlap needs a Transformer Engine with userbuffers.")
    return tuple(found)


def _header(job: Job, version: str | None) -> list[str]:
    stored = f", plan {job.plan_id}" if job.plan_id else ""
    return [
        f"{job.name}: {job.model.name} on {job.plan.devices_used} devices with Megatron-Bridge {version}{stored}.",
        "Run it on every node in the folder of a checkout of Megatron-Bridge, with NODE_RANK and MASTER_ADDR set, and",
        "with --recipe and overrides of your own behind it.",
    ]

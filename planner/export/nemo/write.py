"""A plan as overrides of a NeMo recipe."""

from __future__ import annotations

from importlib import resources

from planner.export.job import Job
from planner.export.launch import Launch, LaunchFile, Program
from planner.export.megatron.core import Core
from planner.export.megatron.environment import environment_of
from planner.export.megatron.mesh import say_mesh
from planner.export.megatron.numbers import ADAM, BF16_MOMENTS, say_optimizer, say_overlap
from planner.export.megatron.recipe import launch_of_overrides, other_version, say_memory, say_sizes, say_stages
from planner.export.nemo.keys import (
    CALLBACKS,
    LACKING,
    NEUTRAL,
    PRECISIONS,
    overlap_callback,
    override,
    precision_settings,
    spelled,
)
from planner.export.sheet import Sheet
from planner.export.words import Words, words_of

NAME = "nemo"
_SCRIPT = "pretrain.py"
_OPTIMIZERS = (*ADAM, BF16_MOMENTS, "sgd")
_OPEN = (
    "Give the recipe of the model, --factory llama3_8b say, behind the script's name: data, tokenizer, learning rate, "
    "checkpoints and what changes no count of parameters (activation, rotary base) are its own.",
    "The recipe's callbacks are taken away, as they may overlap in their own way; give trainer.callbacks for others.",
)


def words() -> Words:
    return words_of(__package__)


def write(job: Job, version: str | None) -> Launch:
    """The launch script first, then its overrides alone, then what it starts.

    Raises:
        Inexpressible: NeMo can't be told all of the plan.
        UnknownName: no such version is known.
    """
    started, written = program(job, version), words().version_of(version, job.plan.framework_version)
    return launch_of_overrides(NAME, written, job, started, _header(job, written), "--factory llama3_8b")


def program(job: Job, version: str | None) -> Program:
    """What every node runs where NeMo is installed; errors as for ``write``."""
    sheet = Sheet(job, NAME, words(), words().version_of(version, job.plan.framework_version))
    core = Core(sheet, spelled)
    sheet.follows("framework", "framework_version")
    for key, value in NEUTRAL.items():
        if job.model.moe is not None or "moe" not in key:
            sheet.put(key, value)
    sheet.put("trainer.num_nodes", job.nodes)
    sheet.put("trainer.devices", job.devices_per_node)
    _refuse_what_is_uncertain(core)
    say_mesh(core)
    sheet.put("data.seq_length", job.plan.seq_len)
    say_stages(core)
    _refuse_later_settings(core)
    say_sizes(core)
    say_memory(core, "model.config.cpu_offloading")
    _say_numbers(core)
    settings = sheet.finish()
    if settings[CALLBACKS]:
        settings[CALLBACKS] = overlap_callback(settings)
        del settings["model.config.tp_comm_overlap"]  # the callback's
    return Program(
        launcher="torchrun",
        script=_SCRIPT,
        arguments=tuple(override(key, value) for key, value in settings.items()),
        environment=environment_of(job),
        files=(_script(),),
        notes=_notes(core),
    )


def _script() -> LaunchFile:
    text = (resources.files(__package__) / "pretrain.txt").read_text(encoding="utf-8")
    return LaunchFile(name=_SCRIPT, text=text)


def _refuse_what_is_uncertain(core: Core) -> None:
    plan, sheet = core.plan, core.sheet
    if plan.zero_stage >= 2:
        why = "its fsdp=megatron sets use_custom_fsdp, which Megatron-Core 0.14 has renamed and no longer looks at"
        sheet.refuse("zero_stage", plan.zero_stage, why)
    if plan.ep_overlap:
        sheet.refuse("ep_overlap", True, "its forward step makes none of the schedule plans that the overlap needs")
    if plan.moe_dispatcher == "deduplicated" and plan.ep > 1 and plan.moe_capacity_factor is not None:
        sheet.refuse("moe_dispatcher", plan.moe_dispatcher, "DeepEP has no capacity of experts")


def _refuse_later_settings(core: Core) -> None:
    model = core.model
    for field, setting in LACKING.items():
        owner, _, name = field.rpartition(".")
        part = model.moe if owner else model
        if part is not None and getattr(part, name):
            core.refuse_model(field, f"{setting} is there in later versions of Megatron-Core")


def _say_numbers(core: Core) -> None:
    plan, sheet = core.plan, core.sheet
    if plan.precision in PRECISIONS:
        for key, value in precision_settings(plan.precision).items():
            sheet.put(key, value, "precision")
        usual = ("fp32", "fp16" if plan.precision == "fp16" else "bf16")
        sheet.only("gradient_dtype", *usual, why=f"with {plan.precision} they are {' or '.join(usual)}")
        core.put("grad_reduce_in_fp32", plan.gradient_dtype == "fp32", "gradient_dtype")
    else:
        sheet.refuse("precision", plan.precision, f"it has recipes for {', '.join(PRECISIONS)}")
        sheet.follows("gradient_dtype")
    if plan.optimizer in _OPTIMIZERS:
        say_optimizer(core)
    else:
        sheet.refuse("optimizer", plan.optimizer, "adam and sgd can be named in an override")
    say_overlap(core)


def _notes(core: Core) -> tuple[str, ...]:
    plan, model, found = core.plan, core.model, [*_OPEN, *other_version(core)]
    if model.mla is not None or model.moe is not None:
        found.append("The recipe has to be of such a model: a dense one's has no keys of latent attention.")
    if plan.tp > 1 and plan.tp_overlap:
        found.append("Tensor parallel overlap needs a Transformer Engine with userbuffers.")
    if plan.ep > 1 and plan.moe_dispatcher == "deduplicated":
        found.append("The flex dispatcher needs DeepEP to be installed.")
    return tuple(found)


def _header(job: Job, version: str | None) -> list[str]:
    stored = f", plan {job.plan_id}" if job.plan_id else ""
    return [
        f"{job.name}: {job.model.name} on {job.plan.devices_used} devices with NeMo {version}{stored}.",
        f"Run it on every node where NeMo is installed, beside {_SCRIPT}, with NODE_RANK and MASTER_ADDR set, and with",
        "--factory and overrides of your own behind it.",
    ]

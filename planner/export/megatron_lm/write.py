"""A plan as the arguments of Megatron-LM's ``pretrain_gpt.py`` and a script that starts it."""

from __future__ import annotations

from importlib import resources

from planner.export.job import Job
from planner.export.launch import Launch, LaunchFile, Program
from planner.export.megatron.core import Core
from planner.export.megatron.environment import environment_of
from planner.export.megatron.layers import LAYOUT, Split, say_pipeline
from planner.export.megatron.memory import Blocks, say_offload, say_recompute
from planner.export.megatron.mesh import say_mesh, uses_fsdp
from planner.export.megatron.model import say_model
from planner.export.megatron.numbers import say_numbers
from planner.export.megatron.script import argument_lines, launch_script
from planner.export.megatron_lm.flags import spelled
from planner.export.megatron_lm.flags import words_of as flag_words
from planner.export.sheet import Sheet
from planner.export.words import Words, words_of

NAME = "megatron-lm"
OF_STAGES = "recompute-num-layers-of-stages"
_SCRIPT, _BY_STAGE = "pretrain_gpt.py", "by_stage.py"
_LAUNCH, _ARGUMENTS = "train.sh", "arguments.txt"
_OPEN = (
    "The plan leaves data, tokenizer, learning rate, number of steps and checkpoints to you: give --data-path, "
    "--tokenizer-type, --lr, --train-iters, --save and the like after the script's name.",
    "What changes no count of a model's parameters is not in a plan: activation function, rotary base and scaling, "
    "epsilons, how routers score and balance. Take those from the model's own configuration.",
)


def words() -> Words:
    return words_of(__package__)


def _version(job: Job, asked: str | None) -> str | None:
    return words().version_of(asked, job.plan.framework_version)


def write(job: Job, version: str | None) -> Launch:
    """The launch script first, then its arguments alone.

    Raises:
        Inexpressible: Megatron-LM can't say all of the plan.
        UnknownName: no such version is known.
    """
    started = program(job, version)
    target = _version(job, version)
    files = (
        LaunchFile(name=_LAUNCH, text=launch_script(job, started, _header(job, target)), executable=True),
        LaunchFile(name=_ARGUMENTS, text=argument_lines(started)),
        *started.files,
    )
    command = f"NODE_RANK=0 MASTER_ADDR=host0 ./{_LAUNCH} --data-path ..."
    return Launch(target=NAME, version=target, files=files, command=command, notes=started.notes)


def program(job: Job, version: str | None) -> Program:
    """What every node runs, in the folder of a checkout of Megatron-LM; errors as for ``write``."""
    known = words()
    sheet = Sheet(job, NAME, known, _version(job, version))
    core = Core(sheet, spelled)
    sheet.follows("framework", "framework_version")
    say_mesh(core)
    _say_virtual_stages(core, say_pipeline(core))
    say_model(core)
    if "num-query-groups" in sheet.settings:
        core.put("group_query_attention", True)
    blocks = say_recompute(core)
    say_offload(core)
    say_numbers(core)
    if uses_fsdp(core) and core.has("fsdp_dtensor checkpoints"):
        core.put("ckpt_format", "fsdp_dtensor")
    settings = sheet.finish()
    arguments = [word for flag, value in settings.items() for word in flag_words(flag, value)]
    return Program(
        launcher="torchrun",
        script=_SCRIPT if blocks is None else _BY_STAGE,
        arguments=(*_of_stages(blocks), *arguments),
        environment=environment_of(job),
        files=() if blocks is None else (_by_stage(),),
        notes=_notes(core, blocks),
    )


def _say_virtual_stages(core: Core, split: Split | None) -> None:
    plan = core.plan
    if split is None or plan.pp == 1 or plan.vpp == 1 or LAYOUT in split.settings:
        core.sheet.follows("vpp")
    elif split.layers_per_virtual_stage is not None:
        core.put("num_layers_per_virtual_pipeline_stage", split.layers_per_virtual_stage, "vpp")
    else:
        core.put("num_virtual_stages_per_pipeline_rank", plan.vpp, "vpp")


def _of_stages(blocks: Blocks | None) -> tuple[str, ...]:
    if blocks is None:
        return ()
    return f"--{OF_STAGES}", ",".join(map(str, blocks.counts)), _SCRIPT


def _by_stage() -> LaunchFile:
    text = (resources.files(__package__) / "by_stage.txt").read_text(encoding="utf-8")
    return LaunchFile(name=_BY_STAGE, text=text)


def _notes(core: Core, blocks: Blocks | None) -> tuple[str, ...]:
    plan, found = core.plan, [*_OPEN]
    if blocks is not None:
        found.append(
            f"Stages recompute different numbers of layers, and a rank takes --recompute-num-layers from its own "
            f"command line: {_BY_STAGE} gives each rank that of its stage."
        )
    if plan.tp > 1 and plan.tp_overlap:
        found.append("--tp-comm-overlap needs a Transformer Engine with userbuffers.")
    if "moe-flex-dispatcher-backend" in core.sheet.settings or "moe-enable-deepep" in core.sheet.settings:
        found.append("The flex dispatcher needs DeepEP (or HybridEP) to be installed.")
    if plan.zero_stage >= 2 and not core.has("fsdp_dtensor checkpoints"):
        found.append("Which --ckpt-format FSDP takes differs among patches of this version; none is given.")
    return tuple(found)


def _header(job: Job, version: str | None) -> list[str]:
    plan, stored = job.plan, f", plan {job.plan_id}" if job.plan_id else ""
    return [
        f"{job.name}: {job.model.name} on {plan.devices_used} devices with Megatron-LM {version}{stored}.",
        "Run it on every node in the folder of a checkout of Megatron-LM, with NODE_RANK and MASTER_ADDR set.",
        "Arguments of your own (data, tokenizer, learning rate) go behind it and win over those here.",
    ]

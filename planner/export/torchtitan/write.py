"""A plan as what torchtitan is started with: a TOML file, or a recipe."""

from __future__ import annotations

from typing import Any

from planner.export import shell
from planner.export.allocator import allocator_of
from planner.export.by_hand import by_hand
from planner.export.job import Job
from planner.export.launch import Launch, LaunchFile, Program
from planner.export.torchtitan.flavours import Flavour
from planner.export.torchtitan.recipe import recipe_of
from planner.export.torchtitan.settings import LAST_OF_TOML, NAME, settings_of
from planner.export.torchtitan.toml import toml_of

_TRAIN = "torchtitan.train"
_TOML = "torchtitan.toml"
_MODULE, _FUNCTION = "torchtitan_plan", "planned"
_OWN = ("bf16", "bf16-pure", "fp32")
_SPLIT_BACKWARD = ("zb_v", "dualpipe_v")


def program(job: Job, version: str | None = None) -> Program:
    """What each node runs.

    Raises:
        UnknownName: no such version.
        Inexpressible: torchtitan can't say all of the plan.
    """
    flavour, written_for, settings = settings_of(job, version)
    about = shell.comment(f"{job.name}: {job.model.name} on {job.plan.devices_used} devices, torchtitan {written_for}")
    if written_for == LAST_OF_TOML:
        text = f"# {about}\n\n" + toml_of({name: value for name, value in settings.items() if value is not None})
        unsaid = [word for name, value in settings.items() if value is None for word in (f"--{name}", "None")]
        file = LaunchFile(name=_TOML, text=text)
        arguments = ("--job.config_file", _TOML, *unsaid)
    else:
        file = LaunchFile(name=f"{_MODULE}.py", text=recipe_of(flavour, settings, _FUNCTION, about))
        arguments = ("--module", _MODULE, "--config", _FUNCTION)
    return Program(
        launcher="torchrun",
        script=_TRAIN,
        module=True,
        arguments=arguments,
        environment=allocator_of(job),  # run_train.sh of both versions has it
        files=(file,),
        notes=tuple(_notes(job, flavour, written_for, settings)),
    )


def write(job: Job, version: str | None = None) -> Launch:
    """The files, and the command that starts them on one node.

    Raises: as for ``program``.
    """
    found = program(job, version)
    _, written_for, _ = settings_of(job, version)
    return Launch(target=NAME, version=written_for, files=found.files, command=by_hand(found, job), notes=found.notes)


def _notes(job: Job, flavour: Flavour, version: str | None, settings: dict[str, Any]) -> list[str]:
    plan = job.plan
    if version == LAST_OF_TOML:
        left = "data, tokenizer (model.hf_assets_path), learning rate and checkpoints are yours to add"
    else:
        theirs = f"those of torchtitan's {flavour.recipe}"
        left = (
            f"data, tokenizer (hf_assets_path), learning rate and checkpoints are {theirs}: set your own in the recipe"
        )
    found = [left]
    if plan.framework_version != version:
        found.append(f"the plan is for torchtitan {plan.framework_version}; this is written for {version}")
    if settings["compile.enable"] and plan.pp > 1 and plan.schedule in _SPLIT_BACKWARD:
        found.append(
            f"PyTorch doesn't support {plan.schedule}'s split backward pass with torch.compile: it runs, but compiled "
            "layers run their backward pass twice; compile.enable false avoids that"
        )
    if plan.precision not in _OWN:
        found.append("quantised layers need torchao and an accelerator that has such products")
    if (
        settings.get("model_registry.moe_comm_backend", settings.get("parallelism.expert_parallel_comm_backend"))
        == "deepep"
    ):
        found.append("experts are reached by DeepEP, which has to be installed")
    return found

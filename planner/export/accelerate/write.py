"""A plan as a configuration file for ``accelerate launch``, and as the environment that it would set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from planner.export import shell
from planner.export.accelerate.settings import NAME, settings_of
from planner.export.allocator import allocator_of
from planner.export.dotted import nested
from planner.export.job import Job
from planner.export.launch import Launch, LaunchFile, Program

FILE = "accelerate.yaml"
_SCRIPT = "run_clm.py"
_SHAPE = "the model is the script's"


def program(job: Job, version: str | None = None) -> Program:
    """What each node runs: torchrun, with the variables that ``accelerate launch`` would set from the file.

    Raises:
        UnknownName: no such version.
        Inexpressible: Accelerate can't say all of the plan.
    """
    written_for, settings = settings_of(job, version)
    arguments = tuple(word for name, value in settings.items() if name.startswith("--") for word in (name, str(value)))
    keys = {name: value for name, value in settings.items() if not name.startswith("--")}
    about = shell.comment(f"{job.name}: {job.model.name} on {job.plan.devices_used} devices, Accelerate {written_for}")
    # A file of Accelerate has no place for what the script is told; whoever reads it finds it here.
    told = " ".join([_SCRIPT, *(shell.quoted(word) for word in arguments)])
    text = f"# {about}\n# {told}\n" + yaml.safe_dump(nested(keys), sort_keys=False)
    return Program(
        launcher="torchrun",
        script=_SCRIPT,
        arguments=arguments,
        environment=environment_of(keys) | allocator_of(job),
        files=(LaunchFile(name=FILE, text=text),),
        notes=tuple(_notes(job, written_for)),
    )


def write(job: Job, version: str | None = None) -> Launch:
    """The file, and the command that starts it on a node.

    Raises: as for ``program``.
    """
    found = program(job, version)
    written_for, _ = settings_of(job, version)
    where = []
    if job.nodes > 1:
        where = ['--machine_rank "$NODE_RANK"', '--main_process_ip "$MASTER_ADDR"']
    port = '--main_process_port "${MASTER_PORT:-29500}"'
    start = shell.command(
        ["accelerate launch", f"--config_file {FILE}", *where, port, shell.quoted(found.script), '"${ARGS[@]}" "$@"']
    )
    lines = [*shell.exports(allocator_of(job)), *shell.array("ARGS", found.arguments), *start]
    return Launch(target=NAME, version=written_for, files=found.files, command="\n".join(lines), notes=found.notes)


def environment_of(keys: Mapping[str, Any]) -> dict[str, str]:
    """What ``accelerate launch`` sets from these keys of its file (accelerate/utils/launch.py, prepare_multi_gpu_env).

    Schedulers start a job by torchrun, which reads no such file.
    """
    found = {"ACCELERATE_MIXED_PRECISION": str(keys["mixed_precision"])}
    if "dynamo_config.dynamo_backend" in keys:
        found["ACCELERATE_DYNAMO_BACKEND"] = str(keys["dynamo_config.dynamo_backend"])
    if keys["distributed_type"] == "FSDP":
        found["ACCELERATE_USE_FSDP"] = "true"
    if any(name.startswith("parallelism_config.") for name in keys):
        found["ACCELERATE_USE_PARALLELISM_CONFIG"] = "true"
    for name, value in keys.items():
        section, _, key = name.partition(".")
        if section == "fp8_config":
            found[f"ACCELERATE_{key.upper()}"] = str(value)
        elif section in ("fsdp_config", "parallelism_config"):
            found[key.upper()] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


def _notes(job: Job, version: str | None) -> list[str]:
    plan = job.plan
    found = [
        f"{_SHAPE}: it has to build {job.model.name}, and data, tokenizer and learning rate are its arguments too",
        f"{_SCRIPT} is that of Transformers' examples; any script that reads TrainingArguments and cuts text into "
        f"blocks of {plan.seq_len} tokens will do",
    ]
    if plan.tp > 1:
        found.append(f"the script has to load the model with tp_size {plan.tp}")
    if plan.framework_version != version:
        found.append(f"the plan is for Accelerate {plan.framework_version}; this is written for {version}")
    if plan.precision.startswith("fp8"):
        needed = "Transformer Engine" if plan.precision == "fp8" else "torchao"
        found.append(f"{plan.precision} needs {needed}")
    return found

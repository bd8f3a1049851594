"""A task for SkyPilot: machines of some cloud, each of which starts the program."""

from __future__ import annotations

from typing import Any

from planner.export.job import Job
from planner.export.launch import Launch, LaunchFile, Program
from planner.export.schedulers.devices import device_names, needed
from planner.export.schedulers.started import about, environment_of, program_of, restarts_of
from planner.export.schedulers.texts import yaml_of
from planner.export.shell import array, plain_name, torchrun, words_of
from planner.export.target import Target

NAME, TITLE = "skypilot", "SkyPilot"
FILE = "task.yaml"
_PORT = 29500


def write(job: Job, version: str | None) -> Launch:
    """The task, and what the program reads beside it."""
    program = program_of(job, version, NAME)
    accelerator = job.scenario.cluster.accelerator
    name = needed(device_names().skypilot.get(accelerator.name), job, NAME)
    return Launch(
        target=NAME,
        version=None,
        files=(LaunchFile(name=FILE, text=yaml_of([_task(job, program, name)], about(job))), *program.files),
        command=f"sky jobs launch {FILE}",
        notes=(*program.notes, *_notes(job)),
    )


def _task(job: Job, program: Program, accelerator: str) -> dict[str, Any]:
    options = job.scheduler
    resources: dict[str, Any] = {"accelerators": {accelerator: job.devices_per_node}}
    if options.image is not None:
        resources["image_id"] = f"docker:{options.image}"
    if job.nodes > 1:
        # The fastest network that the cloud has for such machines.
        resources["network_tier"] = "best"
    resources["job_recovery"] = {"max_restarts_on_errors": restarts_of(job)}
    envs = dict(environment_of(job, program))
    return {
        "name": _name(job.name),
        "num_nodes": job.nodes,
        "workdir": ".",
        "resources": resources,
        **({"envs": envs} if envs else {}),
        "run": "\n".join(_run(job, program)) + "\n",
    }


def _name(name: str) -> str:
    """A name as SkyPilot has them, a letter first."""
    plain = plain_name(name)
    return plain if plain[0].isalpha() else f"train-{plain}"


def _run(job: Job, program: Program) -> list[str]:
    return [
        "set -euo pipefail",
        'MASTER_ADDR=$(printf "%s\\n" "$SKYPILOT_NODE_IPS" | head -n 1)',
        *array("ARGS", words_of(program)[1:]),
        *torchrun(
            program,
            nodes='"$SKYPILOT_NUM_NODES"',
            per_node=job.devices_per_node,
            rank='"$SKYPILOT_NODE_RANK"',
            address='"$MASTER_ADDR"',
            port=str(_PORT),
        ),
    ]


def _notes(job: Job) -> list[str]:
    notes = [
        "What else the program needs goes into ARGS of the task's run.",
        "The folder that the task is launched from is copied to every machine: the program and these files have to "
        "be in it, or in the image.",
    ]
    if job.scheduler.image is None:
        notes.append("No image is given: the machines need the framework, by an image or a setup of the task.")
    return notes


TARGET = Target(
    name=NAME,
    aliases=("sky",),
    title=TITLE,
    kind="scheduler",
    options=("image", "restarts"),
    write=write,
    verified="SkyPilot 0.14.1's own schemas of tasks and resources, and its names of accelerators; its script is run",
)

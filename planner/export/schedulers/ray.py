"""A script for Ray: a placement group with a bundle for each node, in each of which the program is started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner.export.job import Job
from planner.export.launch import Launch, LaunchFile, Program
from planner.export.schedulers.devices import needed, resource_of
from planner.export.schedulers.started import about, environment_of, program_of
from planner.export.shell import launcher, plain_name, rows, words_of
from planner.export.target import Target

NAME, TITLE = "ray", "Ray"
FILE = "launch_ray.py"
_NOTES = (
    f"What stands behind {FILE} goes to the program as well.",
    "The folder that the job is submitted from goes to every node, these files with it.",
)

_SCRIPT = '''\
#!/usr/bin/env python3
# {about}
"""Starts the job on a Ray cluster: {command} [arguments of the program]."""

import os
import socket
import subprocess
import sys

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

NODES = {nodes}
BUNDLE = {bundle}
ENVIRONMENT = {environment}
PROGRAM = {program}


def start(rank, address, port):
    """The words that start a node's part of the program."""
    return [
{start}
    ]


def meeting_place():
    """Address of the node, and a port that is free on it."""
    with socket.socket() as listener:
        listener.bind(("", 0))
        return ray.util.get_node_ip_address(), listener.getsockname()[1]


def run(rank, address, port, arguments):
    """Run a node's part; its exit code."""
    words = [*start(rank, address, port), *PROGRAM, *arguments]
    process = subprocess.Popen(words, env={{**os.environ, **ENVIRONMENT}})
    try:
        return process.wait()
    finally:
        # Also when the task is cancelled.
        process.terminate()
        process.wait()


def main():
    ray.init()
    group = placement_group([BUNDLE] * NODES, strategy="STRICT_SPREAD", name={name})
    ray.get(group.ready())

    def on(bundle, function):
        return ray.remote(function).options(
            num_cpus=BUNDLE["CPU"],
            {resource},
            max_retries=0,
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle),
        )

    places = ray.get([on(bundle, meeting_place).remote() for bundle in range(NODES)])
    # Neighbours in rank are neighbours in address: groups that span nodes lie close together.
    order = sorted(range(NODES), key=lambda bundle: [part.zfill(4) for part in places[bundle][0].split(".")])
    address, port = places[order[0]]
    runs = [on(bundle, run).remote(rank, address, port, sys.argv[1:]) for rank, bundle in enumerate(order)]
    while runs:
        done, runs = ray.wait(runs)
        code = ray.get(done[0])
        if code != 0:
            # The others wait for one that is gone.
            for other in runs:
                ray.cancel(other)
            if runs:
                ray.wait(runs, num_returns=len(runs), timeout=60)
            sys.exit(code if code > 0 else 1)


if __name__ == "__main__":
    main()
'''


def write(job: Job, version: str | None) -> Launch:
    """The script, and what the program reads."""
    program = program_of(job, version, NAME)
    resource = needed(resource_of(job, "ray"), job, NAME)
    command = f"ray job submit --working-dir . -- python {FILE}"
    text = _SCRIPT.format(
        about=about(job),
        command=command,
        nodes=job.nodes,
        bundle=repr({resource: job.devices_per_node, "CPU": job.devices_per_node}),
        environment=_mapping(environment_of(job, program)),
        program=_words(words_of(program)),
        start=_start(job, program),
        name=repr(plain_name(job.name)),
        resource=_asked(resource),
    )
    return Launch(
        target=NAME,
        version=None,
        files=(LaunchFile(name=FILE, text=text, executable=True), *program.files),
        command=command,
        notes=(*program.notes, *_NOTES),
    )


def _asked(resource: str) -> str:
    """How a task asks for its bundle's devices."""
    if resource == "GPU":
        return 'num_gpus=BUNDLE["GPU"]'
    return f'resources={{"{resource}": BUNDLE["{resource}"]}}'


def _mapping(values: Mapping[str, object]) -> str:
    """The values in Python, one on a line."""
    return "{\n" + "".join(f"    {name!r}: {value!r},\n" for name, value in values.items()) + "}" if values else "{}"


def _words(words: Sequence[str]) -> str:
    """The words as a list in Python, a flag with its values on each line."""
    return "[\n" + "".join(f"    {', '.join(map(repr, line))},\n" for line in rows(words)) + "]"


def _start(job: Job, program: Program) -> str:
    """The launcher's words in Python, in terms of ``rank``, ``address`` and ``port``."""
    names = {"rank": "{rank}", "address": "{address}", "port": "{port}"}
    words = " ".join(launcher(program, nodes=str(job.nodes), per_node=job.devices_per_node, **names)).split()
    lines = [", ".join(f'f"{word}"' if "{" in word else f'"{word}"' for word in line) for line in rows(words)]
    return "\n".join(f"        {line}," for line in lines)


TARGET = Target(
    name=NAME,
    title=TITLE,
    kind="scheduler",
    write=write,
    verified="run on a real Ray 2.60.0 of two nodes",
)

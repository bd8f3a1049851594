"""A batch script for Slurm.

One task on each node starts the program. Slurm starts the whole job again when a node fails (``--requeue``), and the
script asks for that itself when the time is nearly over: the batch shell gets USR1, passes TERM on to the training,
which is the signal that frameworks write a checkpoint on, waits for it, and has the job queued again under its own id.
The signal goes to the shell alone, as USR1 would kill what doesn't expect it.
"""

from __future__ import annotations

from planner.export.job import Job
from planner.export.launch import Launch, LaunchFile, Program
from planner.export.schedulers.devices import resource_of
from planner.export.schedulers.started import about, domain_nodes, environment_of, program_of
from planner.export.shell import array, command, exports, launcher, plain_name, quoted, words_of
from planner.export.target import Target

NAME, TITLE = "sbatch", "Slurm"
FILE = "train.sbatch"
_BEFORE_THE_END_S = 300
# Below those that Linux gives to clients (from 32768 on), and by job, as nodes may be shared.
_FIRST_PORT, _PORTS = 15000, 15000

_SHELL = f"""\
set -euo pipefail

# All nodes meet on the first one.
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=$(({_FIRST_PORT} + SLURM_JOB_ID % {_PORTS}))
export MASTER_ADDR MASTER_PORT"""

_ENDING = f"""\
# Slurm sends USR1 to this shell {_BEFORE_THE_END_S} s before the time is over.
ending=""
on_usr1() {{
    ending=yes
    scancel --signal=TERM "$SLURM_JOB_ID" # to the steps, not to this shell
}}
trap on_usr1 USR1
"""

_WAITING = """\
step=$!
status=0
wait "$step" || status=$?
if [ -n "$ending" ]; then
    wait "$step" || status=$?
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status\""""


def write(job: Job, version: str | None) -> Launch:
    """The script, and what the program reads."""
    program = program_of(job, version, NAME)
    whole = job.devices_per_node == job.scenario.cluster.devices_per_node
    gres = resource_of(job, "gres")
    environment = dict(environment_of(job, program))
    # Torchrun gives its processes half a minute by itself, less than what a checkpoint of a large model takes.
    if program.launcher == "torchrun":
        environment.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(_BEFORE_THE_END_S))
    script, *arguments = words_of(program)
    lines = [
        "#!/bin/bash",
        f"# {about(job)}",
        *(f"#SBATCH --{setting}" for setting in _settings(job, gres, whole=whole)),
        "",
        _SHELL,
        *exports(environment),
        "",
        *array("ARGS", arguments),
        "",
        _ENDING,
        *_step(job, program, script),
        _WAITING,
    ]
    return Launch(
        target=NAME,
        version=None,
        files=(LaunchFile(name=FILE, text="\n".join(lines) + "\n", executable=True), *program.files),
        command=f"sbatch {FILE}",
        notes=(*program.notes, *_notes(job, gres, whole=whole)),
    )


def _settings(job: Job, gres: str | None, *, whole: bool) -> list[str]:
    """Options of sbatch."""
    options = job.scheduler
    given = {
        "job-name": plain_name(job.name),
        "partition": options.partition,
        "account": options.account,
        "nodes": job.nodes,
        "ntasks-per-node": 1,
        "gpus-per-node": job.devices_per_node if gres == "gpu" else None,
        "time": None if options.time_limit_s is None else _clock(options.time_limit_s),
        "comment": None if job.plan_id is None else quoted(f"planner plan {job.plan_id}"),
        "output": "%x-%j.out",
        "open-mode": "append",
        "signal": f"B:USR1@{_BEFORE_THE_END_S}",
    }
    flags = ["requeue", *(["exclusive"] if whole else [])]
    return [f"{name}={value}" for name, value in given.items() if value is not None] + flags


def _step(job: Job, program: Program, script: str) -> list[str]:
    """The step that runs on all nodes, in the background, so that the shell hears its signal."""
    start = launcher(
        program,
        nodes='"$SLURM_NNODES"',
        per_node=job.devices_per_node,
        rank='"$SLURM_NODEID"',
        address='"$MASTER_ADDR"',
        port='"$MASTER_PORT"',
    )
    # Each node has its own SLURM_NODEID, so a shell of the node puts it in; the words of the user go around that shell.
    inner = command(["exec " + start[0], *start[1:], '"$@"'])
    options = ["srun", "--kill-on-bad-exit=1 --cpu-bind=none"]
    if job.scheduler.image is not None:
        options.append(f"--container-image={quoted(job.scheduler.image)}")
        options.append('--container-mounts="$PWD:$PWD" --container-workdir="$PWD"')
    lines = command([*options, "bash -c '"])
    return [*lines, *("    " + line for line in inner), f'\' {NAME} {quoted(script)} "${{ARGS[@]}}" "$@" &']


def _notes(job: Job, gres: str | None, *, whole: bool) -> list[str]:
    notes = [
        f"What stands behind the script goes to the program as well: sbatch {FILE} --load ...",
        f"{_BEFORE_THE_END_S} s before the time is over the training gets SIGTERM and the job is queued again: the "
        "program has to write a checkpoint on that signal, and to load the newest when it starts.",
    ]
    if job.scheduler.time_limit_s is None:
        notes.append("No time limit is given: the partition's holds.")
    if job.scheduler.image is not None:
        notes.append("The container image needs Slurm's plugin Pyxis.")
    if gres != "gpu" and whole:
        notes.append("The nodes are asked for whole, without a count of their devices: sites name these as they like.")
    if not whole:
        notes.append(f"The job takes {job.devices_per_node} of a node's devices and leaves the others to other jobs.")
        notes.append(
            f"Slurm gives the {job.devices_per_node} processes of a shared node one processor unless the partition "
            f"says otherwise: add #SBATCH --cpus-per-task, {job.devices_per_node} times what a process takes."
        )
    joined = domain_nodes(job)
    if joined > 1 and job.nodes > 1:
        notes.append(
            f"{joined} neighbouring nodes have to lie in one scale-up domain; with Slurm's topology/block plugin that "
            f"is --segment={min(joined, job.nodes)}."
        )
    return notes


def _clock(seconds: int) -> str:
    """D-HH:MM:SS."""
    days, rest = divmod(seconds, 86400)
    hours, rest = divmod(rest, 3600)
    return f"{days}-{hours:02}:{rest // 60:02}:{rest % 60:02}"


TARGET = Target(
    name=NAME,
    aliases=("slurm",),
    title=TITLE,
    kind="scheduler",
    options=("partition", "account", "time_limit_s", "image"),
    write=write,
    verified="submitted to a real one-node Slurm and run there, with signal and requeue; sbatch --test-only",
)

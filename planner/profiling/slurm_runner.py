"""The runner ``slurm``: each trial a job of its own, several at once; it outlives the worker that submitted it.

A job is found again by its name, which is the trial's key, so a worker that died between submitting and storing the id
costs nothing. Accounting may be off: how a job ended is in a file that its script writes, ``squeue`` knows the rest.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from costmodel.errors import PlannerError
from costmodel.spec.base import Frozen
from planner.export.job import Job
from planner.profiling.probe.can import check_can
from planner.profiling.probing import probe_words, torchrun_words
from planner.profiling.processes import MARK
from planner.profiling.runner import CantStart, RunnerAway, State, TrialJob
from planner.profiling.template import Template

_ANSWER_S = 60.0
_TRIES = 5
_BETWEEN_S = 2.0
_WAITING = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "SUSPENDED", "RESIZING", "REQUEUE_HOLD"})
_RENDEZVOUS = '--node-rank "$SLURM_NODEID" --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT"'
# What squeue says of a job that slurmctld has forgotten.
_UNKNOWN = "Invalid job id"


# What its commands say when slurmctld does not answer.
_AWAY = ("Unable to contact", "Connection refused", "timed out", "Zero Bytes", "Socket timed out", "Unexpected message")
_OVER = frozenset(
    ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE", "PREEMPTED")
)


class SlurmFailed(PlannerError):
    """Slurm refuses a job, or says what nobody understands."""


class SlurmSettings(Frozen):
    """How trials are submitted: ``[slurm]`` of the user's launch file.

    Attributes:
        at_once: trials that may be submitted at a time.
        options: further words for sbatch, ``--partition=gpu``, one each.
        gpus: whether devices are asked for as GPUs; CPUs otherwise.
        setup: lines of shell that come first in the job, to load an environment. They are the user's own.
    """

    at_once: int = 2
    options: tuple[str, ...] = ()
    gpus: bool = True
    setup: tuple[str, ...] = ()


class SlurmRunner:
    """Trials as Slurm jobs.

    Args:
        template: the user's own launch command, started by one task on each node; None runs the probe.
    """

    name = "slurm"
    outlives_worker = True

    def __init__(self, settings: SlurmSettings, template: Template | None = None) -> None:
        self._settings, self._template, self.at_once = settings, template, settings.at_once

    def check(self, job: Job) -> None:
        if self._template is None:
            check_can(job.scenario, job.plan)
        else:
            self._template.check(job)

    def start(self, trial: TrialJob) -> str:
        trial.folder.mkdir(parents=True, exist_ok=True)
        script = trial.folder / "job.sh"
        script.write_text(self._script(trial), encoding="utf-8")
        job = trial.job
        resources = [f"--gpus-per-node={job.devices_per_node}"] if self._settings.gpus else []
        options = [
            *("--parsable", f"--job-name={trial.key}", f"--nodes={job.nodes}", "--ntasks-per-node=1"),
            *("--no-requeue", f"--output={trial.log}", f"--error={trial.log}", "--open-mode=append"),
            *(f"--chdir={trial.folder}", *resources, *self._settings.options),
        ]
        try:
            said = _asked(["sbatch", *options, str(script)])
        except SlurmFailed as error:
            raise CantStart(str(error)) from None
        number = said.strip().splitlines()[-1].partition(";")[0] if said.strip() else ""
        if not number.isdigit():
            raise SlurmFailed(f"sbatch answers {said.strip()!r}, a job id is expected")
        return number

    def find(self, trial: TrialJob) -> str | None:
        try:
            found = _asked(["squeue", "--noheader", f"--name={trial.key}", "--format=%i"]).split()
        except SlurmFailed as error:
            raise CantStart(str(error)) from None
        return found[0] if found else None

    def state(self, handle: str, trial: TrialJob) -> State:
        if trial.exit_code.exists():
            return _over(trial)
        state = self._in_queue(handle)
        if state is None:
            # Its last words may still be on their way over the network's file system.
            time.sleep(_BETWEEN_S)
            return _over(trial)
        return "waiting" if state in _WAITING else "running"

    def stop(self, handle: str, trial: TrialJob) -> None:
        if not trial.exit_code.exists():
            # So that nobody takes the exit code of a job that was cancelled for that of its plan.
            _stopped(trial).touch()
        if self._in_queue(handle) is None:
            return
        _asked(["scancel", handle])
        until = time.monotonic() + _ANSWER_S
        while self._in_queue(handle) is not None:
            if time.monotonic() > until:
                raise SlurmFailed(f"job {handle} is still there {_ANSWER_S:g} s after scancel")
            time.sleep(_BETWEEN_S / 4)

    def _in_queue(self, handle: str) -> str | None:
        """Its state; None once it is in the queue no more."""
        try:
            found = _asked(["squeue", "--noheader", f"--jobs={handle}", "--format=%T"]).split()
        except SlurmFailed as error:
            if _UNKNOWN in str(error):
                return None
            raise
        return found[0] if found and found[0] not in _OVER else None

    def _script(self, trial: TrialJob) -> str:
        """The job: on every node one task, which runs ``node.sh``."""
        node = trial.folder / "node.sh"
        node.write_text(f"exec {self._command(trial)}\n", encoding="utf-8")
        environment = self._template.environment(trial) if self._template else {"OMP_NUM_THREADS": "1"}
        exports = [f"export {name}={shlex.quote(value)}" for name, value in {**environment, MARK: trial.key}.items()]
        code = shlex.quote(str(trial.exit_code))
        return "\n".join(
            [
                "#!/bin/bash",
                # Also when it is told to end: what it ran is over then as well.
                f"leave() {{ code=$?; echo $code > {code}.new && mv {code}.new {code}; }}",
                "trap leave EXIT",
                "trap 'exit 143' TERM",
                *exports,
                *self._settings.setup,
                'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
                "export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))",
                f"srun --kill-on-bad-exit=1 bash {shlex.quote(str(node))} &",
                # Bash runs a trap only between commands, so what is waited for has to be waited for.
                "wait $!",
                "exit $?",
                "",
            ]
        )

    def _command(self, trial: TrialJob) -> str:
        """What a node runs, in shell: the user's words as they are, or the probe on each of its devices."""
        if self._template is not None:
            return shlex.join(self._template.words(trial))
        job = trial.job
        launcher = torchrun_words("--nnodes", str(job.nodes), "--nproc-per-node", str(job.devices_per_node))
        return f"{shlex.join(launcher)} {_RENDEZVOUS} {shlex.join(probe_words(trial))}"


def _stopped(trial: TrialJob) -> Path:
    """There once a job was told to end."""
    return trial.folder / "stopped"


def _over(trial: TrialJob) -> State:
    """How a job stands that is in the queue no more, or has written how it ended."""
    return "done" if trial.exit_code.exists() and not _stopped(trial).exists() else "gone"


def _asked(words: Sequence[str]) -> str:
    """What a command of Slurm answers. A controller that is away for a moment is asked again.

    Raises:
        RunnerAway: it is away for longer.
        SlurmFailed: it refuses.
    """
    said = ""
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(_BETWEEN_S)
        try:
            done = subprocess.run(
                list(words), capture_output=True, text=True, timeout=_ANSWER_S, check=False, env=dict(os.environ)
            )
        except FileNotFoundError:
            raise SlurmFailed(f"Slurm's commands are expected on this machine, and {words[0]} isn't there") from None
        except subprocess.TimeoutExpired:
            said = f"no answer in {_ANSWER_S:g} s"
            continue
        if done.returncode == 0:
            return done.stdout
        said = " ".join((done.stderr or done.stdout).split())
        if not any(word in said for word in _AWAY):
            raise SlurmFailed(f"{words[0]}: {said}")
    raise RunnerAway(f"{words[0]}: {said}")

"""The runner ``local``: the probe on this machine, by torchrun: gloo on CPUs, NCCL on GPUs."""

from __future__ import annotations

from importlib.util import find_spec

from costmodel.errors import InvalidInput
from planner.export.job import Job
from planner.profiling.local import OnThisMachine
from planner.profiling.probe.can import check_can
from planner.profiling.probing import probe_words, torchrun_words
from planner.profiling.runner import TrialJob

_MOST_PROCESSES = 64
# Ranks share the cores; threads of their own would only stand in each other's way.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1"}


class LocalRunner(OnThisMachine):
    """One trial at a time, each a process for every device of its plan."""

    name = "local"

    def __init__(self) -> None:
        """A runner, for trials of any number of studies.

        Raises:
            InvalidInput: PyTorch is missing.
        """
        if find_spec("torch") is None:
            raise InvalidInput("runner", self.name, "it needs PyTorch: pip install 'parallelism-planner[profiling]'")
        super().__init__()

    def check(self, job: Job) -> None:
        """Accept what the probe can run with as many processes as a machine should have."""
        if job.plan.devices_used > _MOST_PROCESSES:
            raise InvalidInput("devices", job.plan.devices_used, f"at most {_MOST_PROCESSES} processes on one machine")
        check_can(job.scenario, job.plan)

    def start(self, trial: TrialJob) -> str:
        processes = str(trial.job.plan.devices_used)
        words = torchrun_words("--standalone", "--nproc-per-node", processes, *probe_words(trial))
        return self._guarded.start(trial, words, _ENVIRONMENT)

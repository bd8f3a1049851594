"""What is exported: a legal plan with its scenario, and what a scheduler may be told beside it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import Any

from costmodel.errors import InvalidInput
from costmodel.scenario import Scenario
from costmodel.spec.model import ModelSpec
from costmodel.spec.plan import Plan

# No more digits than can be computed with: a number of any length is no time.
_CLOCK = re.compile(r"(?:(\d{1,9})-)?(\d{1,9}):(\d\d)(?::(\d\d))?", re.ASCII)
_AMOUNT = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*([smhd])", re.ASCII)
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}

# Names that go into files of schedulers. What they may hold is narrower than what the schedulers take: nothing in them
# means anything to a shell, to YAML or to the lines that sbatch reads.
_SLURM_NAME = (re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+,-]*"), "letters, digits and _ . @ + , - are expected")
_IMAGE = (re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./:@#+-]*"), "a container image, registry/name:tag, is expected")
# A DNS name: no label of it is empty, begins or ends with a dash.
_DNS = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*"
_KUBERNETES_NAME = (
    re.compile(r"(?=.{1,63}\Z)" + _DNS),
    "at most 63 small letters, digits, dots and dashes are expected, as Kubernetes has it (user-queue, team.a)",
)
_NODE_LABEL = (
    re.compile(rf"(?:{_DNS}/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]{{0,61}}[A-Za-z0-9])?"),
    "the key of a node label is expected, cloud.provider.com/topology-rack say",
)
_LONGEST = 512
_MOST_RESTARTS = 1000
_MOST_DAYS = 366

USUAL_RESTARTS = 3
"""Where the scheduler counts restarts and nobody says how many."""


@dataclass(frozen=True, kw_only=True)
class SchedulerOptions:
    """What people tell a scheduler beside the plan. All of it is optional: what is not given is left out.

    The job's name is ``Job.name``. ``Target.options`` says which of them a target takes; what it has no word for is
    refused (planner/launching.py).

    Attributes:
        partition, account: of Slurm.
        time_limit_s: seconds that the job may take; ``time_limit_of`` reads them from text.
        image: of the container: of the pods (JobSet), of the machines (SkyPilot), of the step (Slurm with Pyxis).
        queue: Kueue's LocalQueue.
        topology: key of the node label that names the units of network in one of which the whole job had best lie.
        domain_topology: key of the node label that names scale-up domains larger than a node (NVL72).
        restarts: how often the whole job is started again after a failure, where the scheduler counts; without a
            word ``USUAL_RESTARTS``.

    Raises:
        InvalidInput: a value holds what its scheduler has no names with.
    """

    partition: str | None = None
    account: str | None = None
    time_limit_s: int | None = None
    image: str | None = None
    queue: str | None = None
    topology: str | None = None
    domain_topology: str | None = None
    restarts: int | None = None

    def __post_init__(self) -> None:
        _check("partition", self.partition, _SLURM_NAME)
        _check("account", self.account, _SLURM_NAME)
        _check("image", self.image, _IMAGE)
        _check("queue", self.queue, _KUBERNETES_NAME)
        _check("topology", self.topology, _NODE_LABEL)
        _check("domain-topology", self.domain_topology, _NODE_LABEL)
        limit = self.time_limit_s
        if limit is not None and not _UNITS_S["m"] <= limit <= _MOST_DAYS * _UNITS_S["d"]:
            raise InvalidInput("time-limit", limit, f"a minute to {_MOST_DAYS} days are expected, in seconds")
        if self.restarts is not None and not 0 <= self.restarts <= _MOST_RESTARTS:
            raise InvalidInput("restarts", self.restarts, f"0 to {_MOST_RESTARTS} are expected")

    def given(self) -> dict[str, Any]:
        """What was said, by the names of the flags."""
        told = {option.name: getattr(self, option.name) for option in fields(self)}
        return {flag_of(name): value for name, value in told.items() if value is not None}


def flag_of(option: str) -> str:
    """What people call an option: ``time-limit`` is ``time_limit_s``."""
    return option.removesuffix("_s").replace("_", "-")


def time_limit_of(text: str) -> int:
    """Seconds of a time limit: ``36h``, ``90m``, ``2d``, or as Slurm has it, ``12:00:00`` and ``1-12:00:00``.

    Raises:
        InvalidInput: it is none of these.
    """
    clock, amount = _CLOCK.fullmatch(text.strip()), _AMOUNT.fullmatch(text.strip().lower())
    if amount is not None:
        return round(float(amount[1]) * _UNITS_S[amount[2]])
    if clock is None:
        raise InvalidInput("time-limit", text, "36h, 90m, 2d, HH:MM:SS or D-HH:MM:SS are expected")
    days, first, second, third = (int(part or 0) for part in clock.groups())
    # Slurm reads a day before two numbers as hours and minutes, and two numbers alone as minutes and seconds.
    if clock[4] is None and clock[1] is None:
        return first * 60 + second
    return days * _UNITS_S["d"] + first * 3600 + second * 60 + third


@dataclass(frozen=True, kw_only=True)
class Job:
    """A plan to launch.

    Attributes:
        name: of the job, as the user has it: any text. Targets make of it what they allow.
        plan_id: of the stored plan; None for one from a file.
        scheduler: what a scheduler is told beside the plan; frameworks don't look at it.
    """

    scenario: Scenario
    plan: Plan
    name: str = "train"
    plan_id: str | None = None
    scheduler: SchedulerOptions = field(default_factory=SchedulerOptions)

    @property
    def model(self) -> ModelSpec:
        return self.scenario.model

    @property
    def devices_per_node(self) -> int:
        """Processes that a node runs: of a job smaller than a node all that it has."""
        return min(self.plan.devices_used, self.scenario.cluster.devices_per_node)

    @property
    def nodes(self) -> int:
        return -(-self.plan.devices_used // self.devices_per_node)


def _check(field_name: str, value: str | None, allowed: tuple[re.Pattern[str], str]) -> None:
    pattern, expected = allowed
    if value is not None and (len(value) > _LONGEST or pattern.fullmatch(value) is None):
        raise InvalidInput(field_name, value, expected)

"""What every scheduler starts: the program of the plan's framework, on whole nodes, with the plan's id in reach."""

from __future__ import annotations

from collections.abc import Mapping

from costmodel.errors import InvalidInput
from planner.export.errors import Inexpressible, Refusal
from planner.export.job import USUAL_RESTARTS, Job
from planner.export.launch import Program
from planner.export.shell import comment

PLAN_ID = "PLANNER_PLAN_ID"
"""The variable in which a job finds the plan that it runs, to report what it measured."""


def program_of(job: Job, version: str | None, target: str) -> Program:
    """What the framework's own target starts.

    Args:
        version: of the framework's words, as its target has it.
        target: the scheduler, for the error.

    Raises:
        InvalidInput: no target runs plans of this framework.
        Inexpressible: the framework can't say the plan, or the nodes are not all alike.
    """
    # The table of targets holds the schedulers as well.
    from planner.export import targets

    found = targets.target_of(job.plan.framework)
    if found is None or found.program is None:
        runs = sorted({name for known in targets.TARGETS if known.program for name in known.frameworks})
        expected = f"a plan of {' or '.join(runs)} is expected: nothing here starts those of {job.plan.framework}"
        raise InvalidInput("target", target, expected)
    if job.plan.devices_used % job.devices_per_node:
        why = f"each node starts a process for each of its {job.devices_per_node} devices"
        raise Inexpressible(target, None, [Refusal(field="devices_used", value=job.plan.devices_used, why=why)])
    return found.program(job, version)


def restarts_of(job: Job) -> int:
    """How often the whole job is started again."""
    return USUAL_RESTARTS if job.scheduler.restarts is None else job.scheduler.restarts


def environment_of(job: Job, program: Program) -> Mapping[str, str]:
    """Variables of every process."""
    return dict(program.environment) | ({PLAN_ID: job.plan_id} if job.plan_id is not None else {})


def about(job: Job) -> str:
    """The job in one line, whatever its model is called."""
    plan, nodes = job.plan, job.nodes
    of = f"plan {job.plan_id}" if job.plan_id is not None else "a plan"
    shape = f"{nodes} node{'s' * (nodes > 1)} of {job.devices_per_node} devices"
    mesh = f"tp {plan.tp}, cp {plan.cp}, pp {plan.pp}, dp {plan.dp}, ep {plan.ep}"
    return comment(f"{job.model.name} on {job.scenario.cluster.name}: {of} for {shape} ({mesh})")


def domain_nodes(job: Job) -> int:
    """Nodes that one scale-up domain joins: 1 where a domain is a node or less."""
    return max(job.scenario.cluster.scale_up_devices // job.scenario.cluster.devices_per_node, 1)

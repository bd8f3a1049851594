"""What launches a plan, as each target says it: files and a command, or the whole list of reasons why not."""

from __future__ import annotations

from dataclasses import dataclass

from api.dashboard.plans.stored import Priced
from costmodel.errors import InvalidInput
from planner.check.complete import Completion
from planner.export.errors import Inexpressible, Refusal
from planner.export.job import Job
from planner.export.launch import Launch, LaunchFile
from planner.export.target import Target
from planner.export.targets import TARGETS, load_target, target_of
from planner.launching import launch_of, legal_job


@dataclass(frozen=True, kw_only=True)
class Launching:
    """A target's words for a plan.

    Attributes:
        version: whose words they are; empty where the target has none that matter.
        offered: targets that take plans of this framework.
        launch: None where it refuses.
        refusals: all that it can't say: a field, its value, and why.
        reason: of any other refusal.
    """

    target: Target
    version: str
    offered: tuple[Target, ...]
    launch: Launch | None = None
    refusals: tuple[tuple[str, str, str], ...] = ()
    reason: str = ""


def launching(priced: Priced, name: str | None, version: str | None) -> Launching:
    """The plan in the words of a target; None of the framework's own, in the version of the plan.

    Raises:
        InvalidInput: there is no such target or version.
    """
    framework = priced.plan.framework
    offered = tuple(
        target for target in TARGETS if target.kind != "picture" and framework in (target.frameworks or (framework,))
    )
    target = load_target(name) if name else target_of(framework) or offered[0]
    asked = version or ""
    try:
        launch = launch_of(_job(priced), target.name, version)
    except Inexpressible as error:
        return Launching(target=target, version=asked, offered=offered, refusals=tuple(map(_told, error.refusals)))
    except InvalidInput as error:
        if version is not None and version not in target.versions:
            raise
        return Launching(target=target, version=asked, offered=offered, reason=str(error))
    return Launching(target=target, version=launch.version or "", offered=offered, launch=launch)


def file_of(priced: Priced, target: str, name: str, version: str | None) -> LaunchFile | None:
    """One file of a target; None where it writes none of that name.

    Raises:
        InvalidInput: there is no such target, or it can't say the plan.
    """
    launch = launch_of(_job(priced), load_target(target).name, version)
    return next((file for file in launch.files if file.name == name), None)


def _told(refusal: Refusal) -> tuple[str, str, str]:
    value = refusal.value
    text = ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
    return refusal.field, text, refusal.why


def _job(priced: Priced) -> Job:
    completion = Completion(plan=priced.plan, derived=(), has_layers=True, normalised=())
    return legal_job(priced.scenario, completion, plan_id=priced.id)

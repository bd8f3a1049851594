"""What is exported: a legal plan with its scenario."""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.scenario import Scenario
from costmodel.spec.model import ModelSpec
from costmodel.spec.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Job:
    """A plan to launch.

    Attributes:
        name: of the job, as the user has it: any text. Targets make of it what they allow.
        plan_id: of the stored plan; None for one from a file.
    """

    scenario: Scenario
    plan: Plan
    name: str = "train"
    plan_id: str | None = None

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

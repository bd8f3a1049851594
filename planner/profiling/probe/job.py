"""What the probe is told to run: ``job.json``.

    {"scenario": {...}, "plan": {...}, "layers": 4, "seed": 0, "learning_rate": 0.001}

Scenario and plan are ``Scenario`` and ``Plan`` as pydantic dumps them; the last three may be absent.
"""

from __future__ import annotations

import json
from pathlib import Path

from costmodel.catalog.documents import read_mapping
from costmodel.scenario import Scenario
from costmodel.spec.base import Frozen, NonNegativeInt, PositiveFloat, PositiveInt
from costmodel.spec.plan import Plan
from costmodel.spec.validation import build
from planner.profiling.reduced import reduced


class ProbeJob(Frozen):
    """A scenario and a plan of it.

    Attributes:
        layers: decoder layers that are run; None for the fewest, one for each chunk of the plan.
        seed: of parameters and data: equal seeds train equally, however the work is cut.
    """

    scenario: Scenario
    plan: Plan
    layers: PositiveInt | None = None
    seed: NonNegativeInt = 0
    learning_rate: PositiveFloat = 1e-3

    def at_depth(self) -> ProbeJob:
        """The same job for the scenario that really runs.

        Raises:
            InvalidInput: there can't be so many layers.
        """
        scenario, plan = reduced(self.scenario, self.plan, self.layers)
        return self.model_copy(update={"scenario": scenario, "plan": plan, "layers": plan_layers(plan)})


def plan_layers(plan: Plan) -> int:
    """Decoder layers of a plan."""
    return sum(plan.layers_per_stage)


def read_job(path: str) -> ProbeJob:
    """The job of a file.

    Raises:
        UnreadableFile: it is absent or no JSON.
        InvalidInput: a field is wrong; the message names it.
    """
    return build(ProbeJob, read_mapping(Path(path), "job"), "job")


def job_text(job: ProbeJob) -> str:
    """The job as its file has it."""
    return json.dumps(job.model_dump(mode="json")) + "\n"

"""Every target, by name."""

from __future__ import annotations

from costmodel.errors import UnknownName
from planner.export import accelerate, deepspeed, maxtext, megatron_bridge, megatron_lm, nanotron, nemo, torchtitan
from planner.export.schedulers import jobset, ray, sbatch, skypilot
from planner.export.target import Target
from planner.export.trace import write as trace

TARGETS: tuple[Target, ...] = (
    megatron_lm.TARGET,
    megatron_bridge.TARGET,
    nemo.TARGET,
    torchtitan.TARGET,
    deepspeed.TARGET,
    accelerate.TARGET,
    nanotron.TARGET,
    maxtext.TARGET,
    sbatch.TARGET,
    jobset.TARGET,
    skypilot.TARGET,
    ray.TARGET,
    trace.TARGET,
)

_BY_NAME = {target.name: target for target in TARGETS}
_BY_ALIAS = _BY_NAME | {alias: target for target in TARGETS for alias in target.aliases}


def load_target(name: str, field: str = "target") -> Target:
    """The target of this name.

    Args:
        field: what the user calls it.

    Raises:
        UnknownName: there is none.
    """
    found = _BY_ALIAS.get(name.strip().lower())
    if found is None:
        raise UnknownName(field, name, _BY_NAME, because="known are")
    return found


def target_of(framework: str) -> Target | None:
    """The target that runs plans of a framework of the catalog; None where there is none."""
    for target in TARGETS:
        if target.kind == "framework" and framework in target.frameworks:
            return target
    return None

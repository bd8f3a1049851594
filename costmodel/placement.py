"""Where the groups of a plan lie in the network: the groups and tiers that its communication is priced by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from costmodel.arrays import num
from costmodel.collectives.tiers import rate, spans
from costmodel.facts import Facts
from costmodel.plan_rows import encode
from costmodel.scenario import Scenario
from costmodel.spec.plan import Plan
from costmodel.stages import Layout
from costmodel.terms import groups
from costmodel.terms.groups import Group
from costmodel.terms.term import Axes


@dataclass(frozen=True, kw_only=True)
class Crossed:
    """A tier that a group crosses.

    Attributes:
        tier: position in ``cluster.tiers``, innermost first.
        members: of the group inside one unit of it.
        reached_bytes_per_s: of one device, as large messages reach it.
    """

    tier: int
    members: int
    reached_bytes_per_s: float


@dataclass(frozen=True, kw_only=True)
class PlacedGroup:
    """The ranks of one group are ``range(0, size * stride, stride)``, and those of the others lie as far apart.

    Attributes:
        name: the axis, or what of it: ``tp``, ``cp``, ``ep``, ``etp``, ``dp``, ``dp_replicate``, ``expert_dp``,
            ``expert_dp_replicate``, ``pp``.
        crossed: innermost first; empty where one device has no network.
    """

    name: str
    size: int
    stride: int
    crossed: tuple[Crossed, ...]


def placement_of(scenario: Scenario, facts: Facts, plan: Plan) -> list[PlacedGroup]:
    """The groups of more than one rank, the most talkative axis first."""
    row = encode(scenario, plan, Layout.EVEN)
    x = Axes({axis: num([value]) for axis, value in row.items()})
    return [
        PlacedGroup(
            name=name, size=_whole(group.size), stride=_whole(group.stride), crossed=tuple(_crossed(facts, group))
        )
        for name, group in _groups(scenario, plan, x)
        if _whole(group.size) > 1
    ]


def _groups(scenario: Scenario, plan: Plan, x: Axes) -> Iterator[tuple[str, Group]]:
    yield "tp", groups.tensor(x)
    yield "cp", groups.context(x)
    if scenario.model.moe is not None:
        yield "etp", groups.expert_tensor(x)
        yield "ep", groups.experts(x)
    yield from _replicas("dp", plan, groups.shards(x), groups.replicas(x))
    if scenario.model.moe is not None and plan.ep * plan.etp > 1:
        yield from _replicas("expert_dp", plan, groups.expert_shards(x), groups.expert_replicas(x))
    yield "pp", groups.pipeline(x)


def _replicas(name: str, plan: Plan, shards: Group, replicas: Group) -> Iterator[tuple[str, Group]]:
    """Without shards one collective goes over all of them."""
    if plan.zero_stage == 0:
        yield name, Group(shards.size * replicas.size, shards.stride)
    else:
        yield name, shards
        yield f"{name}_replicate", replicas


def _crossed(facts: Facts, group: Group) -> Iterator[Crossed]:
    for tier, inner, units, _ in spans(facts, group.size, group.stride):
        reached = float(np.ravel(rate(facts, tier))[0])
        yield Crossed(tier=tier, members=_whole(inner * units), reached_bytes_per_s=reached)


def _whole(value: np.typing.NDArray[np.float64]) -> int:
    return round(float(np.ravel(value)[0]))

"""What the judge finds, and the few sizes that all its parts count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from costmodel.scenario import Scenario
from costmodel.spec.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Violation:
    """One rule that the plan breaks, and the numbers that show it."""

    rule: str
    reason: str


Findings: TypeAlias = Iterator[tuple[str, str]]
Judge: TypeAlias = Callable[[Plan, Scenario], Findings]


def mesh_size(plan: Plan) -> int:
    """Devices of the dense mesh; ``devices_used`` is one of the facts that are judged."""
    return plan.tp * plan.cp * plan.dp * plan.pp


def too_many_chunks(plan: Plan, scenario: Scenario) -> bool:
    """More chunks than layers, embedding and loss; what they would hold is then no further question."""
    return plan.vpp > 1 and plan.pp * plan.vpp > scenario.model.num_layers + 2


def chunks_of(plan: Plan) -> tuple[tuple[int, ...], ...]:
    """For each device the layers of its chunks."""
    return plan.layers_per_chunk or tuple((layers,) for layers in plan.layers_per_stage)


def hybrid_heads(plan: Plan, scenario: Scenario) -> Findings:
    """Heads that can't be shared out among the ranks which exchange them under ``a2a+p2p``."""
    ranks, model = plan.tp * plan.cp_a2a_degree, scenario.model
    if model.num_heads % ranks:
        yield "hybrid_cp_heads_divisible", f"{model.num_heads} heads over {ranks} ranks"
    if model.mla is None and model.num_kv_heads % ranks:
        yield "hybrid_cp_kv_heads_divisible", f"{model.num_kv_heads} KV heads over {ranks} ranks"

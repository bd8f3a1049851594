"""What the rules of several frameworks divide and refuse alike; each framework brings its own source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from costmodel.arrays import Bools
from costmodel.rules.rule import Count, PlanColumns, Row, Rule, always, divisible_rule
from costmodel.scenario import Scenario
from costmodel.spec.plan import CP_COMM_TYPES

P2P = CP_COMM_TYPES.index("p2p")
A2A = CP_COMM_TYPES.index("a2a")

# A number with the name that reasons call it by.
TP: tuple[str, Count] = ("tp", lambda _, columns: columns["tp"])
CP: tuple[str, Count] = ("cp", lambda _, columns: columns["cp"])
TWO_CP: tuple[str, Count] = ("(2 * cp)", lambda _, columns: 2 * columns["cp"])
TP_CP: tuple[str, Count] = ("(tp * cp)", lambda _, columns: columns["tp"] * columns["cp"])
EP_ETP: tuple[str, Count] = ("(ep * etp)", lambda _, columns: columns["ep"] * columns["etp"])
STAGE_RANKS: tuple[str, Count] = ("tp * cp * dp", lambda _, columns: columns["tp"] * columns["cp"] * columns["dp"])
HEADS: tuple[str, Count] = ("num_heads", lambda scenario, _: scenario.model.num_heads)
KV_HEADS: tuple[str, Count] = ("num_kv_heads", lambda scenario, _: scenario.model.num_kv_heads)
SEQ_LEN: tuple[str, Count] = ("seq_len", lambda scenario, _: scenario.workload.seq_len)
NUM_MICROBATCHES: tuple[str, Count] = ("num_microbatches", lambda _, columns: columns["num_microbatches"])


def has_experts(scenario: Scenario) -> bool:
    """Whether some layers hold experts."""
    return scenario.model.moe is not None


def has_latent_attention(scenario: Scenario) -> bool:
    """Whether one latent is expanded to the full number of heads on every rank."""
    return scenario.model.mla is not None


def has_dense_mlp(scenario: Scenario) -> bool:
    """Whether some layers have an MLP without experts."""
    return scenario.model.num_dense_layers > 0


def uses_a2a(columns: PlanColumns) -> Bools:
    """Where context parallelism exchanges heads for tokens (Ulysses)."""
    return np.asarray((columns["cp"] > 1) & (columns["cp_comm_type"] == A2A))


def heads_divisible_by_tp(source: str) -> Rule:
    """Attention is cut by heads."""
    return divisible_rule(name="heads_divisible_by_tp", axes=("tp",), dividend=HEADS, divisor=TP, source=source)


def kv_heads_divisible_by_tp(source: str, **versions: Any) -> Rule:
    """Every rank holds as many KV heads as the next; latent attention has none of its own."""
    return divisible_rule(
        name="kv_heads_divisible_by_tp",
        axes=("tp",),
        dividend=KV_HEADS,
        divisor=TP,
        when=lambda scenario, _: not has_latent_attention(scenario),
        source=source,
        **versions,
    )


def ffn_divisible_by_tp(source: str) -> Rule:
    """Linear layers are cut along the width of the MLP."""
    return divisible_rule(
        name="ffn_divisible_by_tp",
        axes=("tp",),
        dividend=("ffn_hidden_size", lambda scenario, _: scenario.model.ffn_hidden_size),
        divisor=TP,
        when=lambda scenario, _: has_dense_mlp(scenario),
        source=source,
    )


def sequence_divisible_by_pairs(source: str, when: Count = always, axes: tuple[str, ...] = ("cp",)) -> Rule:
    """Every rank of context parallelism takes a chunk from the front and one from the back."""
    return divisible_rule(
        name="sequence_divisible_by_cp",
        axes=axes,
        dividend=SEQ_LEN,
        divisor=TWO_CP,
        when=lambda scenario, columns: (columns["cp"] > 1) & when(scenario, columns),
        source=source,
    )


def sequence_divisible_by_tp(source: str) -> Rule:
    """Sequence parallelism is on whenever tp > 1."""
    return divisible_rule(
        name="sequence_divisible_by_tp",
        axes=("tp", "cp"),
        dividend=SEQ_LEN,
        divisor=TP_CP,
        when=lambda _, columns: columns["tp"] > 1,
        source=source,
    )


def a2a_heads_divisible_by_cp(source: str) -> Rule:
    """Each rank trades its tokens for a share of the heads."""
    return divisible_rule(
        name="a2a_heads_divisible_by_cp",
        axes=("tp", "cp", "cp_comm_type"),
        dividend=HEADS,
        divisor=TP_CP,
        when=lambda _, columns: uses_a2a(columns),
        source=source,
    )


def a2a_kv_heads_divisible_by_cp(source: str) -> Rule:
    """As for the query heads, where KV heads can't be repeated."""
    return divisible_rule(
        name="a2a_kv_heads_divisible_by_cp",
        axes=("tp", "cp", "cp_comm_type"),
        dividend=KV_HEADS,
        divisor=TP_CP,
        when=lambda scenario, columns: uses_a2a(columns) & (not has_latent_attention(scenario)),
        source=source,
    )


def a2a_kv_heads_match_cp(source: str) -> Rule:
    """As for the query heads, where KV heads can be repeated."""

    def holds(scenario: Scenario, columns: PlanColumns) -> Bools:
        heads, ranks = scenario.model.num_kv_heads, columns["tp"] * columns["cp"]
        fits = (heads % ranks == 0) | (ranks % heads == 0)
        return np.asarray(~uses_a2a(columns) | has_latent_attention(scenario) | fits)

    def reason(scenario: Scenario, row: Row) -> str:
        heads, ranks = scenario.model.num_kv_heads, row["tp"] * row["cp"]
        return (
            f"num_kv_heads {heads} % (tp * cp) {ranks} = {heads % ranks} and (tp * cp) {ranks} % num_kv_heads {heads} "
            f"= {ranks % heads}, one of them must be 0"
        )

    return Rule(
        name="a2a_kv_heads_match_cp",
        axes=("tp", "cp", "cp_comm_type"),
        holds=holds,
        reason=reason,
        source=source,
    )


def without_axes(name: str, *axes: str, what: str, source: str, **versions: Any) -> Rule:
    """Axes that a framework doesn't have must be 1."""

    def holds(_: Scenario, columns: PlanColumns) -> Bools:
        return np.asarray(np.logical_and.reduce([columns[axis] == 1 for axis in axes]))

    def reason(scenario: Scenario, row: Row) -> str:
        found = " and ".join(f"{axis} {row[axis]}" for axis in axes)
        return f"{found} must be 1: {scenario.framework.title} {scenario.framework.version} {what}"

    return Rule(name=name, axes=axes, holds=holds, reason=reason, source=source, **versions)


def without_part(name: str, *, feature: str, concerns: Callable[[Scenario], bool], what: str, source: str) -> Rule:
    """A version that can't build a part of the model has no plan for it."""

    def reason(scenario: Scenario, _: Row) -> str:
        framework = scenario.framework
        since = framework.features.get(feature)
        later = f", {since} is the first that has" if since else ""
        return f"{scenario.model.name} has {what}: {framework.title} {framework.version} has none{later}"

    return Rule(
        name=name,
        # No degree helps; a rule on columns needs one to know their shape.
        axes=("tp",),
        holds=lambda scenario, columns: np.full(np.shape(columns["tp"]), not concerns(scenario)),
        reason=reason,
        without_feature=feature,
        source=source,
    )


def no_hybrid_sharding(source: str, **versions: Any) -> Rule:
    """What is sharded is sharded over all replicas."""
    return Rule(
        name="no_hybrid_sharding",
        axes=("zero_stage", "dp_replicate"),
        holds=lambda _, columns: np.asarray((columns["zero_stage"] == 0) | (columns["dp_replicate"] == 1)),
        reason=lambda s, row: (
            f"dp_replicate {row['dp_replicate']} with zero_stage {row['zero_stage']}: {s.framework.title} "
            f"{s.framework.version} shards over all replicas, dp_replicate must be 1"
        ),
        source=source,
        **versions,
    )


def expert_mesh_divides_world(source: str) -> Rule:
    """Experts fold over all ranks of a stage; ep may exceed dp."""
    return divisible_rule(
        name="expert_mesh_divides_world",
        axes=("tp", "cp", "dp", "ep", "etp"),
        # The world is pp times the dividend, and the check is world % (etp * ep * pp).
        dividend=STAGE_RANKS,
        divisor=EP_ETP,
        source=source,
    )

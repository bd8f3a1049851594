"""Rules on context parallelism that hold under every framework: which ranks exchange heads, which pass on keys.

``hybrid_degrees`` is how many ranks exchange heads where a plan doesn't say.
"""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Bools, Ints, distinct
from costmodel.rules.rule import CATALOG, OWN, PlanColumns, Row, Rule, divisible_rule
from costmodel.scenario import Scenario
from costmodel.spec.plan import CP_COMM_TYPES

A2A, HYBRID = CP_COMM_TYPES.index("a2a"), CP_COMM_TYPES.index("a2a+p2p")
CAN_BE_UNBALANCED = "cp_unbalanced"
"""Feature of frameworks that can leave the sequence in contiguous pieces."""


def uses_hybrid(columns: PlanColumns) -> Bools:
    """Where heads are exchanged inside, keys and values passed on outside."""
    return np.asarray((columns["cp"] > 1) & (columns["cp_comm_type"] == HYBRID))


def hybrid_degrees(scenario: Scenario, tp: Ints, cp: Ints) -> Ints:
    """Ranks that exchange heads under ``a2a+p2p`` unless a plan says otherwise.

    The most that divide the heads and stay inside the scale-up domain; where nothing does, the fewest of those that
    divide cp, so that the rule can be named; 1 where cp has no divisor between that is at most the heads.
    """
    shape = np.broadcast_shapes(np.shape(tp), np.shape(cp))
    tps, cps = (np.broadcast_to(column, shape).reshape(-1) for column in (tp, cp))
    if not tps.size:
        return np.ones(shape, dtype=np.int64)
    first, inverse = distinct([tps, cps])
    found = [_hybrid_degree(scenario, int(tps[row]), int(cps[row])) for row in first.tolist()]
    return np.asarray(np.array(found, dtype=np.int64)[inverse].reshape(shape))


def _hybrid_degree(scenario: Scenario, tp: int, cp: int) -> int:
    model = scenario.model
    shared = [model.num_heads] + ([] if model.mla else [model.num_kv_heads])
    between = [degree for degree in range(2, min(cp, model.num_heads + 1)) if cp % degree == 0]
    cut = [degree for degree in between if all(heads % (tp * degree) == 0 for heads in shared)]
    near = [degree for degree in cut if tp * degree <= scenario.cluster.scale_up_devices]
    return max(near) if near else min(cut or between, default=1)


def _degree_fits(_: Scenario, columns: PlanColumns) -> Bools:
    cp, kind, degree = columns["cp"], columns["cp_comm_type"], columns["cp_a2a_degree"]
    between = (degree > 1) & (degree < cp) & (cp % np.maximum(degree, 1) == 0)
    plain = degree == np.where(kind == A2A, cp, 1)
    return np.asarray(np.where((kind == HYBRID) & (cp > 1), between, plain))


def _degree_reason(_: Scenario, row: Row) -> str:
    cp, kind, degree = row["cp"], CP_COMM_TYPES[row["cp_comm_type"]], row["cp_a2a_degree"]
    if row["cp_comm_type"] == HYBRID and cp > 1:
        wanted = f"must divide cp {cp} and lie between 1 and {cp}, so that the product of both degrees is cp"
    else:
        wanted = f"must be {cp if row['cp_comm_type'] == A2A else 1}"
    return f"cp_a2a_degree {degree} with cp {cp} by {kind} {wanted}"


CONTEXT_RULES: tuple[Rule, ...] = (
    Rule(
        name="cp_a2a_degree_fits_cp",
        axes=("cp", "cp_comm_type", "cp_a2a_degree"),
        holds=_degree_fits,
        reason=_degree_reason,
        source=OWN + "meaning of the axes",
    ),
    Rule(
        name="cp_balance_known",
        axes=("cp", "cp_balanced"),
        holds=lambda _, c: np.asarray((c["cp"] == 1) | (c["cp_balanced"] == 1)),
        reason=lambda s, row: (
            f"cp_balanced false with cp {row['cp']}: {s.framework.title} {s.framework.version} always gives every rank "
            "an early and a late piece of the sequence"
        ),
        without_feature=CAN_BE_UNBALANCED,
        source=CATALOG,
    ),
)


def hybrid_heads_divisible(source: str) -> Rule:
    """Each rank of the inner group trades its tokens for a share of the heads."""
    return divisible_rule(
        name="hybrid_cp_heads_divisible",
        axes=("tp", "cp", "cp_comm_type", "cp_a2a_degree"),
        dividend=("num_heads", lambda scenario, _: scenario.model.num_heads),
        divisor=("(tp * cp_a2a_degree)", lambda _, columns: columns["tp"] * columns["cp_a2a_degree"]),
        when=lambda _, columns: uses_hybrid(columns),
        source=source,
    )


def hybrid_kv_heads_divisible(source: str) -> Rule:
    """As for the query heads, where KV heads can't be repeated."""
    return divisible_rule(
        name="hybrid_cp_kv_heads_divisible",
        axes=("tp", "cp", "cp_comm_type", "cp_a2a_degree"),
        dividend=("num_kv_heads", lambda scenario, _: scenario.model.num_kv_heads),
        divisor=("(tp * cp_a2a_degree)", lambda _, columns: columns["tp"] * columns["cp_a2a_degree"]),
        when=lambda scenario, columns: uses_hybrid(columns) & (scenario.model.mla is None),
        source=source,
    )

"""Rules on how tokens reach their experts: the dispatcher, its overlap with compute, and the capacity of experts.

Overlap and capacity with what a framework asks of both; every framework follows the first part, Megatron-Core all.
"""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Bools
from costmodel.rules.rule import ARITHMETIC, CATALOG, PlanColumns, Row, Rule
from costmodel.scenario import Scenario
from costmodel.spec.options import BY_NAME, MOE_DISPATCHERS
from costmodel.spec.plan import RECOMPUTES

_DEDUPLICATED, _ALL_TO_ALL, _ALL_GATHER = (
    MOE_DISPATCHERS.index(word) for word in ("deduplicated", "all_to_all", "all_gather")
)
_FULL = RECOMPUTES.index("full")
_MEGATRON = "megatron-core 0.16.1 (PyPI) megatron/core/transformer/transformer_config.py:"
_HALF_BYTES = 2


def _dispatcher_known(scenario: Scenario, columns: PlanColumns) -> Bools:
    known = scenario.framework.known_moe_dispatchers()
    offered = range(len(MOE_DISPATCHERS)) if known is None else [MOE_DISPATCHERS.index(kind) for kind in known]
    return np.asarray((columns["ep"] == 1) | np.isin(columns["moe_dispatcher"], list(offered)))


def _dispatcher_known_reason(scenario: Scenario, row: Row) -> str:
    framework = scenario.framework
    offered = ", ".join(framework.known_moe_dispatchers() or ()) or "no other"
    kind = MOE_DISPATCHERS[row["moe_dispatcher"]]
    return f"moe_dispatcher {kind} with ep {row['ep']}: {framework.title} {framework.version} has {offered}"


def _overlap_known(scenario: Scenario, columns: PlanColumns) -> Bools:
    return np.asarray((columns["ep_overlap"] == 0) | scenario.framework.has("ep_overlap"))


def _capacity_known(scenario: Scenario, columns: PlanColumns) -> Bools:
    return np.asarray((columns["moe_capacity_factor"] == 0) | scenario.framework.has("moe_capacity"))


def _capacity_needs_moe(scenario: Scenario, columns: PlanColumns) -> Bools:
    return np.asarray((columns["moe_capacity_factor"] == 0) | (scenario.model.moe is not None))


def _capacity(row: Row) -> str:
    return f"moe_capacity_factor {BY_NAME['moe_capacity_factor'].decode(row['moe_capacity_factor']):g}"


def _version(scenario: Scenario) -> str:
    return f"{scenario.framework.title} {scenario.framework.version}"


DISPATCH_RULES: tuple[Rule, ...] = (
    Rule(
        name="moe_dispatcher_known",
        axes=("ep", "moe_dispatcher"),
        holds=_dispatcher_known,
        reason=_dispatcher_known_reason,
        source=CATALOG,
        asked_for="moe_dispatcher",
    ),
    Rule(
        name="ep_overlap_known",
        axes=("ep_overlap",),
        holds=_overlap_known,
        reason=lambda s, _: f"ep_overlap must be false: {_version(s)} has no overlap of dispatch and combine",
        source=CATALOG,
        asked_for="ep_overlap",
    ),
    Rule(
        name="capacity_known",
        axes=("moe_capacity_factor",),
        holds=_capacity_known,
        reason=lambda s, row: f"{_capacity(row)} must be none: {_version(s)} drops no tokens",
        source=CATALOG,
        asked_for="moe_capacity_factor",
    ),
    Rule(
        name="capacity_needs_moe",
        axes=("moe_capacity_factor",),
        holds=_capacity_needs_moe,
        reason=lambda s, row: f"{_capacity(row)} must be none: {s.model.name} has 0 experts",
        source=ARITHMETIC,
        asked_for="moe_capacity_factor",
    ),
)
"""Under every framework."""


def _overlap_has_ep(_: Scenario, columns: PlanColumns) -> Bools:
    return np.asarray((columns["ep_overlap"] == 0) | (columns["ep"] > 1))


def _overlap_dispatcher(_: Scenario, columns: PlanColumns) -> Bools:
    return np.asarray((columns["ep_overlap"] == 0) | (columns["moe_dispatcher"] != _ALL_GATHER))


def _overlap_chunks(_: Scenario, columns: PlanColumns) -> Bools:
    return np.asarray((columns["ep_overlap"] == 0) | (columns["pp"] == 1) | (columns["vpp"] > 1))


def _overlap_recompute(_: Scenario, columns: PlanColumns) -> Bools:
    return np.asarray((columns["ep_overlap"] == 0) | (columns["recompute"] != _FULL))


def _overlap_precision(scenario: Scenario, columns: PlanColumns) -> Bools:
    return np.asarray((columns["ep_overlap"] == 0) | (scenario.workload.precision.activation_bytes <= _HALF_BYTES))


def _overlap_mtp(scenario: Scenario, columns: PlanColumns) -> Bools:
    return np.asarray((columns["ep_overlap"] == 0) | (scenario.model.num_mtp_layers <= 1))


def _overlap_mtp_pipeline(scenario: Scenario, columns: PlanColumns) -> Bools:
    return np.asarray((columns["ep_overlap"] == 0) | (columns["pp"] > 1) | (scenario.model.num_mtp_layers != 1))


def _capacity_dispatchers(scenario: Scenario) -> list[int]:
    return [_ALL_TO_ALL, *([_DEDUPLICATED] if scenario.framework.has("hybrid_ep") else [])]


def _capacity_dispatcher(scenario: Scenario, columns: PlanColumns) -> Bools:
    fits = np.isin(columns["moe_dispatcher"], _capacity_dispatchers(scenario))
    return np.asarray((columns["moe_capacity_factor"] == 0) | (columns["ep"] == 1) | fits)


def _capacity_dispatcher_reason(scenario: Scenario, row: Row) -> str:
    offered = ", ".join(MOE_DISPATCHERS[code] for code in _capacity_dispatchers(scenario))
    kind = MOE_DISPATCHERS[row["moe_dispatcher"]]
    return f"{_capacity(row)} with moe_dispatcher {kind}: {_version(scenario)} pads experts to capacity under {offered}"


MEGATRON_EXPERT_RULES: tuple[Rule, ...] = (
    Rule(
        name="ep_overlap_needs_ep",
        axes=("ep", "ep_overlap"),
        holds=_overlap_has_ep,
        reason=lambda _, row: f"ep_overlap with ep {row['ep']}: nothing is sent, ep must be above 1",
        source=_MEGATRON + "1863",
        asked_for="ep_overlap",
    ),
    Rule(
        name="ep_overlap_dispatcher",
        axes=("moe_dispatcher", "ep_overlap"),
        holds=_overlap_dispatcher,
        reason=lambda _, row: (
            f"ep_overlap with moe_dispatcher {MOE_DISPATCHERS[row['moe_dispatcher']]}: all_to_all or deduplicated"
        ),
        source=_MEGATRON + "1866",
        asked_for="ep_overlap",
    ),
    Rule(
        name="ep_overlap_needs_virtual_stages",
        axes=("pp", "vpp", "ep_overlap"),
        holds=_overlap_chunks,
        reason=lambda _, row: f"ep_overlap with pp {row['pp']} and vpp {row['vpp']}: vpp must be at least 2",
        source=_MEGATRON + "1857",
        asked_for="ep_overlap",
    ),
    Rule(
        name="ep_overlap_without_full_recompute",
        axes=("recompute", "ep_overlap"),
        holds=_overlap_recompute,
        reason=lambda _, row: "ep_overlap with recompute full: must be none or selective",
        source=_MEGATRON + "1871",
        asked_for="ep_overlap",
    ),
    Rule(
        name="ep_overlap_precision",
        axes=("ep_overlap",),
        holds=_overlap_precision,
        reason=lambda s, _: (
            f"ep_overlap with precision {s.workload.precision.name}, whose activations have "
            f"{s.workload.precision.activation_bytes:g} bytes: at most {_HALF_BYTES}, bf16 or fp16"
        ),
        source=_MEGATRON + "1882",
        asked_for="ep_overlap",
    ),
    Rule(
        name="ep_overlap_mtp",
        axes=("ep_overlap",),
        holds=_overlap_mtp,
        reason=lambda s, _: f"ep_overlap with {s.model.num_mtp_layers} layers of multi-token prediction: at most 1",
        source=_MEGATRON + "1889",
        asked_for="ep_overlap",
    ),
    Rule(
        name="ep_overlap_mtp_in_pipeline",
        axes=("pp", "ep_overlap"),
        holds=_overlap_mtp_pipeline,
        reason=lambda _, row: f"ep_overlap with a layer of multi-token prediction and pp {row['pp']}: must be above 1",
        with_feature="ep_overlap_mtp_in_pipeline",
        source=_MEGATRON + "1892; 0.15.0 doesn't ask",
        asked_for="ep_overlap",
    ),
    Rule(
        name="capacity_dispatcher",
        axes=("ep", "moe_dispatcher", "moe_capacity_factor"),
        holds=_capacity_dispatcher,
        reason=_capacity_dispatcher_reason,
        source=_MEGATRON + "1075: not with DeepEP; moe/token_dispatcher.py:418,979: all-to-all and HybridEP pad; "
        "megatron-core 0.11.0 (PyPI) transformer_config.py:508",
        asked_for="moe_capacity_factor",
    ),
)
"""Of Megatron-Core and what runs it."""

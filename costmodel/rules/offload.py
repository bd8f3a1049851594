"""Rules on what lives in host memory: what is on offer, and what each framework asks of such plans."""

from __future__ import annotations

import numpy as np

from costmodel.arrays import Bools
from costmodel.rules.rule import CATALOG, OWN, PlanColumns, Row, Rule
from costmodel.scenario import Scenario
from costmodel.spec.options import OFFLOADS
from costmodel.spec.plan import RECOMPUTES, Offload

NONE, OPTIMIZER, ACTIVATIONS, PARAMETERS = (OFFLOADS.index(name) for name in OFFLOADS)
_NO_RECOMPUTE, _FULL = RECOMPUTES.index("none"), RECOMPUTES.index("full")


def _known(scenario: Scenario, columns: PlanColumns) -> Bools:
    offered = scenario.framework.known_offloads()
    codes = range(len(OFFLOADS)) if offered is None else [NONE, *map(OFFLOADS.index, offered)]
    return np.asarray(np.isin(columns["offload"], codes))


def _known_reason(scenario: Scenario, row: Row) -> str:
    framework = scenario.framework
    offered = ", ".join(framework.known_offloads() or ()) or "no offload"
    return f"offload {OFFLOADS[row['offload']]}: {framework.title} {framework.version} has {offered}"


def _has_host_link(scenario: Scenario, columns: PlanColumns) -> Bools:
    known = scenario.cluster.host_bandwidth_bytes_per_s is not None
    return np.asarray((columns["offload"] == NONE) | known)


OFFLOAD_RULES: tuple[Rule, ...] = (
    Rule(
        name="offload_known",
        axes=("offload",),
        holds=_known,
        reason=_known_reason,
        source=CATALOG,
        asked_for="offload",
    ),
    Rule(
        name="offload_needs_host_link",
        axes=("offload",),
        holds=_has_host_link,
        reason=lambda s, row: (
            f"offload {OFFLOADS[row['offload']]}: {s.cluster.name} gives no host_bandwidth_bytes_per_s to price it with"
        ),
        source=OWN + "transfers between device and host are priced by the cluster's own figure",
        policy=True,
        asked_for="offload",
    ),
)


def _asks(name: str, what: Offload, axis: str, codes: tuple[int, ...], expected: str, source: str) -> Rule:
    """A rule that an offload leaves an axis only some values; those of ``recompute`` have names."""
    code = OFFLOADS.index(what)

    def reason(_: Scenario, row: Row) -> str:
        found = RECOMPUTES[row[axis]] if axis == "recompute" else row[axis]
        return f"offload {what} with {axis} {found}, must be {expected}"

    return Rule(
        name=name,
        axes=("offload", axis),
        holds=lambda _, c: np.asarray((c["offload"] != code) | np.isin(c[axis], codes)),
        reason=reason,
        source=source,
        asked_for="offload",
    )


_MEGATRON = "megatron-core 0.16.1 (PyPI) megatron/core/transformer/transformer_config.py"
_DEEPSPEED = "deepspeed 0.19.8 (PyPI) deepspeed/runtime/"


def _precision_aware(scenario: Scenario, columns: PlanColumns) -> Bools:
    adam = scenario.workload.optimizer.name.startswith("adam")
    return np.asarray((columns["offload"] != OPTIMIZER) | ((columns["zero_stage"] > 0) & adam))


def _precision_aware_reason(scenario: Scenario, row: Row) -> str:
    needs = "offload optimizer needs --use-precision-aware-optimizer, which needs"
    if row["zero_stage"] == 0:
        return f"{needs} a sharded optimizer: zero_stage 0 must be 1 to 3"
    return f"{needs} adam, found {scenario.workload.optimizer.name}"


MEGATRON_OFFLOAD_RULES: tuple[Rule, ...] = (
    _asks("activation_offload_without_pipeline", "activations", "pp", (1,), "1", _MEGATRON + ":1144"),
    _asks(
        "activation_offload_without_recompute",
        "activations",
        "recompute",
        (_NO_RECOMPUTE,),
        "none",
        _MEGATRON + ":1149",
    ),
    Rule(
        name="optimizer_offload_is_precision_aware",
        axes=("offload", "zero_stage"),
        holds=_precision_aware,
        reason=_precision_aware_reason,
        source="NVIDIA/Megatron-LM d98e8a64ddf3 (2026-08-22) megatron/training/arguments.py, near 1870; "
        "megatron-core 0.12.0 (PyPI) optimizer/optimizer_config.py:165-172",
        asked_for="offload",
    ),
)
DEEPSPEED_OFFLOAD_RULES: tuple[Rule, ...] = (
    _asks(
        "optimizer_offload_is_sharded",
        "optimizer",
        "zero_stage",
        (1, 2, 3),
        "1 to 3",
        _DEEPSPEED + "zero/config.py:171",
    ),
    _asks(
        "parameter_offload_is_sharded",
        "parameters",
        "zero_stage",
        (3,),
        "3",
        _DEEPSPEED + "zero/offload_config.py:22",
    ),
    _asks(
        "activation_offload_of_checkpoints",
        "activations",
        "recompute",
        (_FULL,),
        "full",
        _DEEPSPEED + "activation_checkpointing/checkpointing.py:403",
    ),
)
ACCELERATE_OFFLOAD_RULES: tuple[Rule, ...] = (
    _asks(
        "parameter_offload_is_sharded",
        "parameters",
        "zero_stage",
        (2, 3),
        "2 or 3",
        "accelerate 1.15.0 (PyPI) accelerate/utils/dataclasses.py, FullyShardedDataParallelPlugin.cpu_offload",
    ),
)


def _fsdp(scenario: Scenario, columns: PlanColumns) -> Bools:
    ddp = (columns["zero_stage"] == 0) & (not scenario.framework.has("composable_replication"))
    return np.asarray((columns["offload"] != PARAMETERS) | ~ddp)


TORCHTITAN_OFFLOAD_RULES: tuple[Rule, ...] = (
    Rule(
        name="parameter_offload_is_sharded",
        axes=("offload", "zero_stage"),
        holds=_fsdp,
        reason=lambda _, row: f"offload parameters with zero_stage {row['zero_stage']}, must be 2 or 3",
        source="torchtitan 0.2.2 (PyPI) torchtitan/models/llama3/infra/parallelize.py:125-148",
        asked_for="offload",
    ),
)

"""Rules on what is recomputed: policies and modules that a framework has, and that there is something to recompute."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from costmodel.arrays import Bools, Ints
from costmodel.recompute_modules import modules_code, selective_modules
from costmodel.rules.rule import CATALOG, OWN, PlanColumns, Row, Rule
from costmodel.scenario import Scenario
from costmodel.spec.model import ModelSpec
from costmodel.spec.plan import RECOMPUTE_MODULES, RECOMPUTES

SELECTIVE, FULL = RECOMPUTES.index("selective"), RECOMPUTES.index("full")


def _recompute_known(scenario: Scenario, columns: PlanColumns) -> Bools:
    return np.asarray((columns["recompute"] != SELECTIVE) | bool(scenario.framework.selective_modules))


def _mask(modules: Iterable[str]) -> int:
    return sum(1 << RECOMPUTE_MODULES.index(module) for module in modules)


def _unknown(scenario: Scenario) -> int:
    """Bits of the modules that this version can't be told; none where it has no selective recompute to begin with."""
    framework = scenario.framework
    if not framework.selective_modules:
        return 0
    return _mask(set(RECOMPUTE_MODULES) - set(framework.known_recompute_modules()))


def _absent(scenario: Scenario) -> int:
    """Bits of the modules that the framework knows and the model lacks."""
    lacking = set(_lacking(scenario.model)) & set(scenario.framework.known_recompute_modules())
    return _mask(lacking) if scenario.framework.selective_modules else 0


def _lacking(model: ModelSpec) -> dict[str, str]:
    """Modules that a model lacks -> the part that it would have to have."""
    found: dict[str, str] = {}
    if model.mla is None:
        found["mla_up_proj"] = "latent attention"
    if model.moe is None:
        found |= dict.fromkeys(("moe", "moe_act"), "experts")
    if model.moe is None or not model.moe.shared_expert_ffn_hidden_size:
        found["shared_experts"] = "shared experts"
    if model.hybrid is None or model.hybrid.mixer.kind != "gated_delta_net":
        found["gdn_norm_out"] = "gated delta nets"
    return found


def _first(code: int) -> str:
    return next(module for place, module in enumerate(RECOMPUTE_MODULES) if code >> place & 1)


def _known_reason(scenario: Scenario, row: Row) -> str:
    module, framework = _first(row["recompute_modules"] & _unknown(scenario)), scenario.framework
    offered = ", ".join(framework.known_recompute_modules()) or "none"
    return f"recompute_modules {module}: {framework.title} {framework.version} has {offered}"


def _in_model_reason(scenario: Scenario, row: Row) -> str:
    module, model = _first(row["recompute_modules"] & _absent(scenario)), scenario.model
    return f"recompute_modules {module}: {model.name} has no {_lacking(model)[module]}"


def _interval_known(scenario: Scenario, columns: PlanColumns) -> Bools:
    framework = scenario.framework
    return np.asarray((columns["recompute_interval"] == 1) | framework.has("recompute_uniform") | (not framework.rules))


def _run_twice(scenario: Scenario) -> int:
    """Bits of the modules whose second forward pass this version refuses in the scenario's precision.

    Delayed scaling would see the maxima of the forward pass once more; the first version to look refused all scalings.
    """
    precision = scenario.workload.precision
    refused = precision.name == _DELAYED or not scenario.framework.has("fp8_recompute_of_norms")
    return _mask(_NORMS) if precision.compute == "fp8" and refused else 0


def _effective(scenario: Scenario, codes: Ints) -> Ints:
    """Codes with what the framework recomputes by itself said."""
    return np.where(codes == 0, modules_code(selective_modules(scenario)), codes)


def _norms_once(scenario: Scenario, columns: PlanColumns) -> Bools:
    again = _effective(scenario, columns["recompute_modules"]) & _run_twice(scenario)
    return np.asarray((columns["recompute"] != SELECTIVE) | (again == 0))


def _norms_once_reason(scenario: Scenario, row: Row) -> str:
    again = int(_effective(scenario, np.asarray(row["recompute_modules"]))) & _run_twice(scenario)
    framework = scenario.framework
    return (
        f"recompute_modules {_first(again)} in precision {scenario.workload.precision.name}: {framework.title} "
        f"{framework.version} refuses to run it twice"
    )


_DELAYED = "fp8"
_NORMS = ("layernorm", "moe_act")
_AXES = ("recompute", "recompute_modules")

MEGATRON_RECOMPUTE_RULES: tuple[Rule, ...] = (
    Rule(
        name="fp8_norms_run_once",
        axes=_AXES,
        holds=_norms_once,
        reason=_norms_once_reason,
        with_feature="fp8_recompute_checked",
        source=(
            "megatron-core (PyPI) megatron/core/transformer/transformer_config.py: 0.14.0:912-918 refuses delayed "
            "scaling, 0.13.0:846 every fp8 recipe"
        ),
    ),
)

RECOMPUTE_RULES: tuple[Rule, ...] = (
    Rule(
        name="recompute_known",
        axes=("recompute",),
        holds=_recompute_known,
        reason=lambda s, _: f"recompute selective: {s.framework.title} recomputes a layer whole or not at all",
        source=CATALOG,
    ),
    Rule(
        name="recompute_modules_known",
        axes=_AXES,
        holds=lambda s, c: np.asarray((c["recompute"] != SELECTIVE) | (c["recompute_modules"] & _unknown(s) == 0)),
        reason=_known_reason,
        source=CATALOG,
        asked_for="recompute_modules",
    ),
    Rule(
        name="recompute_modules_in_model",
        axes=_AXES,
        holds=lambda s, c: np.asarray((c["recompute"] != SELECTIVE) | (c["recompute_modules"] & _absent(s) == 0)),
        reason=_in_model_reason,
        source="megatron-core 0.16.1 (PyPI) megatron/core/transformer/transformer_config.py:1213-1222",
        asked_for="recompute_modules",
    ),
    Rule(
        name="recompute_interval_is_of_whole_layers",
        axes=("recompute", "recompute_interval"),
        holds=lambda _, c: np.asarray((c["recompute_interval"] == 1) | (c["recompute"] == FULL)),
        reason=lambda _, row: (
            f"recompute_interval {row['recompute_interval']} with recompute {RECOMPUTES[row['recompute']]}, "
            "must be full"
        ),
        source=OWN + "only whole layers share a checkpoint",
        asked_for="recompute_interval",
    ),
    Rule(
        name="recompute_interval_known",
        axes=("recompute_interval",),
        holds=_interval_known,
        reason=lambda s, row: (
            f"recompute_interval {row['recompute_interval']}: {s.framework.title} checkpoints every layer by itself"
        ),
        source=CATALOG,
        asked_for="recompute_interval",
    ),
)

"""Norms and activations under 8 bits run once, by the rule and by the checker, in every version that looks."""

from __future__ import annotations

import pytest

from costmodel.recompute_modules import modules_code, selective_modules
from costmodel.rules.selection import broken
from costmodel.spec.plan import RECOMPUTES
from tests.plans import finished, slugs
from tests.scenarios import plan_row, scenario_of

RULE = "fp8_norms_run_once"
SCALINGS = ("fp8", "fp8-current", "mxfp8")


@pytest.mark.parametrize(
    ("version", "refused"), [("0.12", ()), ("0.13", SCALINGS), ("0.14", ("fp8",)), ("0.17", ("fp8",))]
)
@pytest.mark.parametrize("precision", ["bf16", *SCALINGS])
@pytest.mark.parametrize("modules", [("layernorm",), ("core_attn",), ("core_attn", "layernorm"), ()])
def test_norms_under_8_bits(version: str, refused: tuple[str, ...], precision: str, modules: tuple[str, ...]) -> None:
    scenario = scenario_of(precision=precision, version=version)
    code = modules_code(modules) if modules else 0  # 0: what it recomputes by itself, norms
    row = plan_row(256, dp=scenario.devices, recompute=RECOMPUTES.index("selective"), recompute_modules=code)
    plan = finished(scenario, row, recompute_modules=modules or selective_modules(scenario))
    found = {rule.name for rule, _ in broken(scenario, row)}, slugs(plan, scenario)
    expected = precision in refused and modules != ("core_attn",)
    assert [RULE in names for names in found] == [expected, expected]

"""Modules that ``selective`` recompute can name: as the code of a table column, and what is priced of them.

Code 0 stands for what the framework recomputes by itself; else there is a bit for each of ``RECOMPUTE_MODULES``, and
one more for a plan that recomputes selectively but names nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from costmodel.arrays import Num
from costmodel.scenario import Scenario
from costmodel.spec.plan import RECOMPUTE_MODULES

NOT_PRICED: frozenset[str] = frozenset({"gdn_norm_out", "mhc"})
"""Modules whose tensors no term counts: plans that recompute them get bounds instead of a price."""


def modules_code(modules: Iterable[str]) -> int:
    """The code of modules of one's own choice; names that no framework has stand for nothing."""
    named = {RECOMPUTE_MODULES.index(module) for module in modules if module in RECOMPUTE_MODULES}
    return sum(1 << place for place in named) or 1 << len(RECOMPUTE_MODULES)


def modules_of(scenario: Scenario, code: int) -> tuple[str, ...]:
    """The modules that a code stands for."""
    named = tuple(module for place, module in enumerate(RECOMPUTE_MODULES) if code >> place & 1)
    return named if code else selective_modules(scenario)


def selective_modules(scenario: Scenario) -> tuple[str, ...]:
    """The framework's selective modules that this model has."""
    absent = set()
    if scenario.model.moe is None:
        absent.add("moe_act")
    if scenario.model.mla is None:
        absent.add("mla_up_proj")
    return tuple(module for module in scenario.framework.selective_modules if module not in absent)


def is_named(codes: Num, usual: Num, module: str) -> Num:
    """1 where a module is recomputed under ``selective``, 0 elsewhere.

    Args:
        usual: the code, never 0, of what code 0 stands for.
    """
    effective = np.where(codes == 0.0, usual, codes)
    return np.floor(effective / float(1 << RECOMPUTE_MODULES.index(module))) % 2.0

"""Options that follow from the framework: what its plans have where that is not the neutral value, and what to try.

The neutral value of an option is how most published runs were made; a framework that has something else first in its
file does that.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from costmodel.arrays import Ints
from costmodel.rules.context_parallel import hybrid_degrees, uses_hybrid
from costmodel.scenario import Scenario
from costmodel.spec.options import BY_NAME, OPTION_NAMES, usual_options


def usual_options_in(scenario: Scenario) -> Mapping[str, int]:
    """Codes of the options in which plans of this scenario differ from the neutral ones."""
    known = scenario.framework.known_moe_dispatchers()
    dispatcher = BY_NAME["moe_dispatcher"]
    if scenario.model.moe is None or not known or dispatcher.encode(known[0]) == dispatcher.usual:
        return {}
    return {"moe_dispatcher": dispatcher.encode(known[0])}


def usual_codes(
    scenario: Scenario, columns: Mapping[str, Ints], names: tuple[str, ...] = OPTION_NAMES
) -> dict[str, Ints]:
    """The codes that the named options have in plans of this scenario unless told otherwise.

    Args:
        columns: the axes that the named options follow from.
    """
    found = usual_options(columns, names)
    found |= {name: np.asarray(code) for name, code in usual_options_in(scenario).items() if name in names}
    if "cp_a2a_degree" in names and uses_hybrid(columns).any():
        degrees = hybrid_degrees(scenario, columns["tp"], columns["cp"])
        found["cp_a2a_degree"] = np.asarray(np.where(uses_hybrid(columns), degrees, found["cp_a2a_degree"]))
    return found


def tried_options_in(scenario: Scenario) -> Mapping[str, tuple[int, ...]]:
    """Codes that searches try beside the usual ones: what a framework has and what speeds up some plans."""
    overlaps = scenario.model.moe is not None and scenario.framework.has("ep_overlap")
    return {"ep_overlap": (1,)} if overlaps else {}

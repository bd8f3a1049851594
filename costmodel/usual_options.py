"""Options that follow from the framework: what its plans have where that is not the neutral value, and what to try.

The neutral value of an option is how most published runs were made; a framework that has something else first in its
file does that.
"""

from __future__ import annotations

from collections.abc import Mapping

from costmodel.scenario import Scenario
from costmodel.spec.options import BY_NAME


def usual_options_in(scenario: Scenario) -> Mapping[str, int]:
    """Codes of the options in which plans of this scenario differ from the neutral ones."""
    known = scenario.framework.known_moe_dispatchers()
    dispatcher = BY_NAME["moe_dispatcher"]
    if scenario.model.moe is None or not known or dispatcher.encode(known[0]) == dispatcher.usual:
        return {}
    return {"moe_dispatcher": dispatcher.encode(known[0])}


def tried_options_in(scenario: Scenario) -> Mapping[str, tuple[int, ...]]:
    """Codes that searches try beside the usual ones: what a framework has and what speeds up some plans."""
    overlaps = scenario.model.moe is not None and scenario.framework.has("ep_overlap")
    return {"ep_overlap": (1,)} if overlaps else {}

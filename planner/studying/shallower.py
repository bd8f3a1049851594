"""The same question about a model of fewer layers, for trials on machines that can't hold or wait for all of them."""

from __future__ import annotations

from dataclasses import replace

from costmodel.errors import InvalidInput
from planner.profiling.reduced import shallower
from planner.search.request import SearchRequest


def with_layers(request: SearchRequest, layers: int) -> SearchRequest:
    """The request about so many layers.

    Raises:
        InvalidInput: more than the model has, or fewer than 1.
    """
    model = request.scenario.model
    if not 1 <= layers <= model.num_layers:
        raise InvalidInput("layers", layers, f"1 to {model.num_layers} are expected, as {model.name} has")
    return replace(request, scenario=request.scenario.model_copy(update={"model": shallower(model, layers)}))

"""A scenario and its plan with fewer layers: what fits a trial's few minutes, cut over the devices in the same way.

What runs is a scenario of its own. Predict for the reduced one, and compare with that.
"""

from __future__ import annotations

from costmodel.errors import InvalidInput
from costmodel.plan_rows import Chunks, chunks_of_plan
from costmodel.scenario import Scenario
from costmodel.spec.layers import Moe
from costmodel.spec.model import ModelSpec
from costmodel.spec.plan import Plan


def reduced(scenario: Scenario, plan: Plan, layers: int | None = None) -> tuple[Scenario, Plan]:
    """The scenario and the plan with so many decoder layers, spread over chunks, kinds and recompute as before.

    Args:
        layers: as many as the model has at most; None for the fewest: one for each chunk that has some.

    Raises:
        InvalidInput: there are fewer layers than chunks that need one, more than the model has, or layers that can't be
            told apart by their place (hybrids).
    """
    chunks, whole = chunks_of_plan(plan), scenario.model.num_layers
    least = sum(1 for device in chunks for count in device if count)
    wanted = least if layers is None else layers
    if not least <= wanted <= whole:
        expected = f"{least} (one for each chunk of the plan that has layers) to {whole} (all of the model's)"
        raise InvalidInput("layers", wanted, f"{expected} are expected")
    if wanted == whole:
        return scenario, plan
    kept = _shares(chunks, wanted)
    model = shallower(scenario.model, wanted)
    of_stage = tuple(sum(device) for device in kept)
    again = tuple(
        _rounded_share(some, before, after)
        for some, before, after in zip(plan.recomputed_layers_per_stage, plan.layers_per_stage, of_stage, strict=True)
    )
    return scenario.model_copy(update={"model": model}), plan.model_copy(
        update={
            "layers_per_stage": of_stage,
            "layers_per_chunk": kept if plan.layers_per_chunk is not None else None,
            "recomputed_layers_per_stage": again,
        }
    )


def _shares(chunks: Chunks, wanted: int) -> Chunks:
    """Layers of every chunk in proportion, at least one where there was one; the largest remainders get the rest."""
    flat = [count for device in chunks for count in device]
    total, ones = sum(flat), sum(1 for count in flat if count)
    # What a chunk has beyond its first layer is what gives way.
    beyond = [max(count - 1, 0) for count in flat]
    exact = [(wanted - ones) * extra / max(total - ones, 1) for extra in beyond]
    kept = [int(share) for share in exact]
    by_remainder = sorted(range(len(flat)), key=lambda place: kept[place] - exact[place])
    for place in by_remainder[: wanted - ones - sum(kept)]:
        kept[place] += 1
    counts = iter(more + (1 if count else 0) for more, count in zip(kept, flat, strict=True))
    return tuple(tuple(next(counts) for _ in device) for device in chunks)


def _rounded_share(part: int, before: int, after: int) -> int:
    """As large a share of ``after`` as ``part`` is of ``before``; some stay some."""
    if part == 0 or after == 0:
        return 0
    return min(max(round(after * part / before), 1), after)


def shallower(model: ModelSpec, layers: int) -> ModelSpec:
    """The model with so many layers, the kinds of them in proportion.

    Raises:
        InvalidInput: it is a hybrid.
    """
    if model.hybrid is not None:
        raise InvalidInput(
            "layers", layers, f"{model.name} is a hybrid, whose layers differ: its depth can't be reduced"
        )
    changes = {
        "name": f"{model.name}-{layers}-layers",
        "num_layers": layers,
        "num_sliding_layers": _rounded_share(model.num_sliding_layers, model.num_layers, layers),
    }
    if not changes["num_sliding_layers"]:
        changes["sliding_window"] = None
    if model.moe is not None:
        changes["moe"] = _shallower_moe(model.moe, model.num_layers, layers)
    return ModelSpec.model_validate(dict(model) | changes)


def _shallower_moe(moe: Moe, before: int, after: int) -> Moe:
    """Dense layers in front in proportion, and at least one layer with experts."""
    dense = min(_rounded_share(moe.num_dense_layers, before, after), after - 1)
    return moe.model_copy(update={"num_dense_layers": dense, "layer_step": min(moe.layer_step, max(after - dense, 1))})

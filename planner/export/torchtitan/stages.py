"""Which modules a stage holds: a plan's layers by their names, and the other way round."""

from __future__ import annotations

from collections.abc import Mapping

from costmodel.plan_rows import chunks_of_plan
from costmodel.schedules import placement_of
from costmodel.spec.model import ModelSpec
from costmodel.spec.plan import Plan, Schedule
from costmodel.stages import way_of
from planner.export.notebook import Notebook

SCHEDULES: Mapping[Schedule, str] = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved_1f1b": "Interleaved1F1B",
    "zb_v": "ZBVZeroBubble",
    "dualpipe_v": "DualPipeV",
}
SCHEDULE = "parallelism.pipeline_parallel_schedule"
MODULES = "parallelism.module_fqns_per_model_part"
_EACH = "parallelism.pipeline_parallel_layers_per_stage"
_ENDS = (
    "parallelism.pipeline_parallel_first_stage_less_layers",
    "parallelism.pipeline_parallel_last_stage_less_layers",
)
_KINDS = {word.lower(): kind for kind, word in SCHEDULES.items()}
_ONE_CHUNK: tuple[Schedule, ...] = ("gpipe", "1f1b")


def modules_of(plan: Plan, head: str) -> list[list[str]]:
    """Names of the modules of every virtual stage, in the order in which a micro-batch meets them.

    Args:
        head: what the output projection is called.
    """
    chunks, layer = chunks_of_plan(plan), 0
    found: list[list[str]] = []
    for device, chunk in way_of(placement_of(plan.schedule), plan.pp, plan.vpp):
        count = chunks[device][chunk]
        found.append([f"layers.{index}" for index in range(layer, layer + count)])
        layer += count
    found[0].insert(0, "tok_embeddings")
    found[-1] += ["norm", head]
    return found


def read_stages(keys: Notebook, model: ModelSpec | None) -> None:
    """The schedule, and the layers of every stage and chunk."""
    schedule = keys.word(SCHEDULE) or "1F1B"
    modules, each = keys.pop(MODULES), keys.number(_EACH)
    ends = [keys.number(name) for name in _ENDS]
    pp = keys.plan.get("pp", 1)
    if pp == 1:
        return
    kind = _KINDS.get(schedule.lower())
    if kind is None:
        keys.unread(SCHEDULE, f"{schedule!r} is none of {', '.join(SCHEDULES.values())}")
        return
    keys.says("schedule", kind, f"{SCHEDULE} {schedule}")
    if isinstance(modules, list) and all(isinstance(part, list) for part in modules):
        layers, meaning = [sum(str(name).startswith("layers.") for name in part) for part in modules], MODULES
    elif model is None:
        keys.note("layers of each stage follow from the model, which the text doesn't name")
        return
    else:
        first, last = (1 if end is None else end for end in ends)
        layers, meaning = _generated(model.num_layers, pp, kind, each, (first, last)), "torchtitan's own split"
    if not layers:
        keys.unread(SCHEDULE, f"{pp} stages or more, or ends that count for so much, leave some without a layer")
        return
    vpp, left = divmod(len(layers), pp)
    # Stages of a V are two a device (distributed/pipeline_parallel.py).
    if left or not vpp or min(layers) < 0 or (kind in ("zb_v", "dualpipe_v") and vpp != 2):
        keys.unread(MODULES, f"{len(layers)} stages don't fit pp {pp} under {schedule}, or leave some empty")
        return
    chunks = [[0] * vpp for _ in range(pp)]
    for count, (device, chunk) in zip(layers, way_of(placement_of(kind), pp, vpp), strict=True):
        chunks[device][chunk] = count
    keys.says("vpp", vpp, meaning)
    keys.says("layers_per_stage", tuple(map(sum, chunks)), meaning)
    if vpp > 1:
        keys.says("layers_per_chunk", tuple(map(tuple, chunks)), meaning)


def _generated(layers: int, pp: int, schedule: Schedule, each: int | None, ends: tuple[int, int]) -> list[int]:
    """Layers of the virtual stages that torchtitan makes where none are named: the ends count as so many layers."""
    whole = layers + sum(ends)
    # One layer each is the most stages that a model has.
    stages = -(-whole // max(each, 1)) if each is not None else pp * (1 if schedule in _ONE_CHUNK else 2)
    if not 1 <= stages <= whole or min(ends) < 0:
        return []
    base, extra = divmod(whole, stages)
    found = [base + (stage < extra) for stage in range(stages)]
    found[0] -= ends[0]
    found[-1] -= ends[1]
    return found

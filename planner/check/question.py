"""What ``check`` is asked, in the words of its flags, and what the plan itself says about its scenario."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from costmodel.calibration.calibration import Calibration
from costmodel.catalog.framework_catalog import load_framework, load_optimizer, load_precision
from costmodel.errors import Missing, UnknownName
from costmodel.spec.cluster import ClusterSpec
from costmodel.spec.framework import FrameworkSpec
from costmodel.spec.model import ModelSpec
from costmodel.spec.plan_draft import PlanDraft
from costmodel.spec.workload import OptimizerRecipe, PrecisionRecipe
from planner.question import Question

_LOADERS: dict[str, Callable[[str], PrecisionRecipe | OptimizerRecipe | FrameworkSpec]] = {
    "precision": load_precision,
    "optimizer": load_optimizer,
    "framework": load_framework,
}
_RECIPES = tuple(_LOADERS)


@dataclass(frozen=True, kw_only=True)
class CheckQuestion:
    """A plan file and the scenario's flags; None is a flag that was not given.

    Attributes:
        plan: the path of a plan file; ``-`` is stdin.
        model, cluster, calibration: as in ``Question``.
        best: whether to search for the best plan too.
        nearest: whether to look for the nearest plan that would do where this one does not, and why there is none.
    """

    plan: str
    model: str | ModelSpec
    cluster: str | ClusterSpec
    devices: int | None = None
    global_batch_size: int | None = None
    seq_len: int | None = None
    precision: str | None = None
    optimizer: str | None = None
    gradient_dtype: str | None = None
    framework: str | None = None
    framework_version: str | None = None
    calibration: str | Calibration | None = None
    objective: str = Question.objective
    price_per_device_hour: float | None = None
    pins: Sequence[str] = ()
    forbids: Sequence[str] = ()
    min_free_gib: float | None = None
    min_used: float = Question.min_used
    max_seconds: float = Question.max_seconds
    seed: int = Question.seed
    best: bool = True
    nearest: bool = True


def with_catalog_names(draft: PlanDraft) -> PlanDraft:
    """The draft with its framework and recipes under the names of the catalog; unknown names stay as they are."""
    names = {field: getattr(draft, field) for field in _RECIPES}
    return draft.model_copy(update={field: _catalog_name(field, name) for field, name in names.items() if name})


def _catalog_name(field: str, name: str) -> str:
    try:
        return _LOADERS[field](name.strip()).name
    except UnknownName:
        return name


def scenario_question(asked: CheckQuestion, draft: PlanDraft) -> tuple[Question, dict[str, str]]:
    """The question to the search that has the same scenario: flags first, then what the plan says.

    Returns:
        The question, and of what neither flags nor plan say, where it comes from.

    Raises:
        Missing: neither says it.
    """
    origins: dict[str, str] = {}

    def settled(field: str, flag: Any, own: Any, default: tuple[Any, str] | None) -> Any:
        if flag is not None:
            return flag
        if own is not None or default is None:
            return own
        value, origins[field] = default
        return value

    batch = settled("global_batch_size", asked.global_batch_size, draft.global_batch_size, _batch_of(draft))
    seq_len = settled("seq_len", asked.seq_len, draft.seq_len, None)
    of_mesh = _devices_of(draft)
    own_devices = of_mesh if draft.devices_used is None else draft.devices_used
    devices = settled("devices", asked.devices, own_devices, None)
    _check_all_there({"devices": devices, "global_batch_size": batch, "seq_len": seq_len})
    recipes = {
        name: settled(name, getattr(asked, name), getattr(draft, name), (getattr(Question, name), "the default"))
        for name in _RECIPES
    }
    version = asked.framework_version
    if version is None and draft.framework in (None, _catalog_name("framework", recipes["framework"])):
        version = draft.framework_version
        if version is None:
            origins["framework_version"] = "the current one"
    usual = (None, "what the framework usually has")
    gradients = settled("gradient_dtype", asked.gradient_dtype, draft.gradient_dtype, usual)
    question = Question(
        model=asked.model,
        cluster=asked.cluster,
        devices=devices,
        global_batch_size=batch,
        seq_len=seq_len,
        **recipes,
        gradient_dtype=gradients,
        framework_version=version,
        calibration=asked.calibration,
        objective=asked.objective,
        price_per_device_hour=asked.price_per_device_hour,
        pins=asked.pins,
        forbids=asked.forbids,
        min_free_gib=asked.min_free_gib,
        min_used=asked.min_used,
        max_seconds=asked.max_seconds,
        seed=asked.seed,
    )
    return question, origins


def _check_all_there(facts: Mapping[str, int | None]) -> None:
    absent = [name.replace("_", "-") for name, value in facts.items() if value is None]
    if absent:
        first, *others = absent
        own = "devices_used or dp" if first == "devices" else first.replace("-", "_")
        also = f"; also needed: {', '.join(f'--{name}' for name in others)}" if others else ""
        raise Missing(first, f"give --{first}, or {own} in the plan{also}")


def _batch_of(draft: PlanDraft) -> tuple[int, str] | None:
    dp = _dp_of(draft)
    if dp is None or draft.micro_batch_size is None or draft.num_microbatches is None:
        return None
    return draft.micro_batch_size * draft.num_microbatches * dp, "micro_batch_size * num_microbatches * dp"


def _devices_of(draft: PlanDraft) -> int | None:
    dp = _dp_of(draft)
    return None if dp is None else dp * prod(getattr(draft, axis) or 1 for axis in ("tp", "cp", "pp"))


def _dp_of(draft: PlanDraft) -> int | None:
    if draft.dp is not None:
        return draft.dp
    if draft.dp_replicate is not None and draft.dp_shard is not None:
        return draft.dp_replicate * draft.dp_shard
    return None

"""Megatron-LM's arguments, alone or in a launch script, as fields of a plan."""

from __future__ import annotations

import re
from typing import Any

from costmodel.errors import InvalidInput
from costmodel.spec.model import ModelSpec
from costmodel.spec.native import arguments_of, native_model
from planner.export.megatron.reading import read_plan
from planner.export.megatron.settings import Settings
from planner.export.megatron_lm.flags import NAMES, SWITCHES
from planner.export.megatron_lm.write import OF_STAGES, words
from planner.export.numbers import plain_number, whole_number
from planner.export.reading import Read

_SETTINGS = {flag: name for name, flag in NAMES.items()}
_OF_SWITCHES = {flag: (name, when) for name, (flag, when) in SWITCHES.items()} | {
    "accumulate-allreduce-grads-in-fp32": ("grad_reduce_in_fp32", True),
    "grad-reduce-in-bf16": ("grad_reduce_in_fp32", False),
}
_LISTS = {"cp-comm-type", "hierarchical-context-parallel-sizes", "recompute-modules"}
_NODES, _PROCESSES = "nnodes", "nproc-per-node"
# What speaks of how a step is run; what of it no reader looks at is told.
_BEARING = re.compile(
    r"parallel|pipeline|fsdp|shard|recompute|checkpoint-activations|offload|overlap|dispatcher|capacity|cuda-graph"
    r"|^fp[48]|expert|tp-pp-dp|dtype|distribute-saved|rampup|moe-(extended|layer-recompute)|context"
)
# Of these words, those that change neither memory nor time that a plan has figures for.
_HARMLESS = re.compile(
    r"^(fp8-(amax|margin|interval)|ckpt|dist-ckpt|eval|moe-(router|aux|z-loss|permute|input|per-layer)|save|load"
    r"|overlap-(grad-reduce|param-gather)|params-dtype|attention-softmax|expert-bias)"
)


def read(text: str) -> Read:
    """What the arguments say of a plan.

    Raises:
        InvalidInput: there are no arguments in the text, or its quotes don't match.
    """
    try:
        found = arguments_of(text, "the text")
    except InvalidInput as error:
        raise InvalidInput("from", error.value, error.expected) from None
    arguments = {name.lstrip("-").replace("_", "-"): value for name, value in found.items()}
    settings = settings_of(arguments)
    layers = settings.number("num_layers")
    experts = settings.number("num_moe_experts", 0)
    read_plan(settings, layers=layers, has_experts=bool(experts))
    _read_devices(settings, arguments)
    _note_overlap(settings, arguments)
    model, why = _model(found, layers)
    ignored = _left_over(settings, arguments)
    notes = [*settings.notes, *([why] if why else [])]
    return Read(
        plan=settings.plan,
        meanings=settings.meanings,
        model=model,
        unread=settings.unread,
        ignored=ignored,
        notes=tuple(notes),
    )


def settings_of(arguments: dict[str, str | bool]) -> Settings:
    values: dict[str, Any] = {}
    shown: dict[str, str] = {}
    unread: dict[str, str] = {}
    for flag, value in arguments.items():
        said = f"--{flag}" if value is True else f"--{flag} {value}"
        if isinstance(value, str) and "$" in value and _bears(flag):
            unread[said] = "what the variable holds is not in the text"
            continue
        name, switch = _OF_SWITCHES.get(flag, (_SETTINGS.get(flag, flag.replace("-", "_")), True))
        values[name] = switch if value is True else _typed(flag, str(value))
        shown[name] = said
    return Settings(values=values, shown=shown, unread=unread)


def _typed(flag: str, value: str) -> Any:
    if flag == OF_STAGES:
        return [plain_number(entry) for entry in (value.split() or [""])[0].split(",")]
    if flag in _LISTS:
        return [plain_number(entry) for entry in value.split()]
    return plain_number(value.strip().strip("'\""))


def _read_devices(settings: Settings, arguments: dict[str, str | bool]) -> None:
    """Processes that torchrun starts; where that isn't said, the flags of the question say how many there are."""
    nodes, processes = (whole_number(arguments.get(name)) for name in (_NODES, _PROCESSES))
    if nodes and processes and min(nodes, processes) > 0:
        names = [name.replace("-", "_") for name in (_NODES, _PROCESSES)]
        settings.say("devices_used", nodes * processes, *names)


def _note_overlap(settings: Settings, arguments: dict[str, str | bool]) -> None:
    if "overlap-grad-reduce" not in arguments:
        settings.notes.append(
            "without --overlap-grad-reduce gradients are reduced after the backward pass; the step is priced as with it"
        )


def _model(found: dict[str, str | bool], layers: int | None) -> tuple[ModelSpec | None, str]:
    """The model's shape, or why there is none."""
    if layers is None:
        return None, ""
    try:
        return native_model(found, "arguments"), ""
    except InvalidInput as error:
        return None, f"the arguments are no whole model: {error}"


def _left_over(settings: Settings, arguments: dict[str, str | bool]) -> tuple[str, ...]:
    """Flags that say nothing of a plan; those that may are told as unread."""
    known = words().words
    ignored: list[str] = []
    for flag in arguments:
        name = _OF_SWITCHES.get(flag, (_SETTINGS.get(flag, flag.replace("-", "_")), True))[0]
        if name in settings.read or flag in known or flag in (_NODES, _PROCESSES):
            continue
        if _bears(flag) and name in settings.shown:
            settings.fail(name, "it may bear on the plan, which has no field for it")
        elif name in settings.shown:
            ignored.append(f"--{flag}")
    return tuple(ignored)


def _bears(flag: str) -> bool:
    return bool(_BEARING.search(flag)) and not _HARMLESS.search(flag)

"""Megatron-LM's arguments, alone or in a launch script, as fields of a plan."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from costmodel.errors import InvalidInput
from costmodel.spec.model import ModelSpec
from costmodel.spec.native import native_model, script_of
from costmodel.spec.native.megatron_shell import Script
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
_SIZES = ("micro-batch-size", "global-batch-size", "seq-length")
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
        script = script_of(text, "the text")
    except InvalidInput as error:
        raise InvalidInput("from", error.value, error.expected) from None
    found = script.arguments
    arguments = {name.lstrip("-").replace("_", "-"): value for name, value in found.items()}
    settings = settings_of(arguments)
    layers = settings.number("num_layers")
    experts = settings.number("num_moe_experts", 0)
    read_plan(settings, layers=layers, has_experts=bool(experts))
    _read_devices(settings, arguments)
    _note_overlap(settings, arguments)
    model, why = _model(found, layers)
    ignored = _left_over(settings, arguments)
    defaulted = _defaulted(script.defaults, settings.plan)
    notes = [*settings.notes, *_notes_on_defaults(script), *([why] if why else [])]
    return Read(
        plan=settings.plan,
        meanings=settings.meanings,
        model=model,
        unread=settings.unread,
        ignored=ignored,
        notes=tuple(notes),
        defaulted=defaulted,
    )


def _defaulted(defaults: Mapping[str, tuple[str, ...]], plan: Mapping[str, Any]) -> tuple[str, ...]:
    """Fields whose flags stand on a variable's default."""
    flags = {name.lstrip("-").replace("_", "-") for name in defaults}
    fields = {
        "devices_used": (_NODES, _PROCESSES),
        "global_batch_size": ("global-batch-size",),
        "seq_len": ("seq-length",),
    }
    return tuple(name for name, of in fields.items() if name in plan and flags & set(of))


def _notes_on_defaults(script: Script) -> list[str]:
    return [
        f"{flag} {script.arguments[flag]} is what the default of {', '.join(names)} makes of it"
        for flag, names in script.defaults.items()
        if _bears(plain := flag.lstrip("-").replace("_", "-")) or plain in (_NODES, _PROCESSES, *_SIZES)
    ]


def settings_of(arguments: dict[str, str | bool]) -> Settings:
    values: dict[str, Any] = {}
    shown: dict[str, str] = {}
    unread: dict[str, str] = {}
    unknown: set[str] = set()
    for flag, value in arguments.items():
        said = f"--{flag}" if value is True else f"--{flag} {value}"
        if isinstance(value, str) and "$" in value and _bears(flag):
            unread[said] = "what the variable holds is not in the text"
            unknown.add(_setting_of(flag)[0])
            continue
        name, switch = _setting_of(flag)
        values[name] = switch if value is True else _typed(flag, str(value))
        shown[name] = said
    return Settings(values=values, shown=shown, unread=unread, unknown=unknown)


def _setting_of(flag: str) -> tuple[str, bool]:
    """The setting of a flag without its dashes in front, and what the bare flag makes of it."""
    return _OF_SWITCHES.get(flag, (_SETTINGS.get(flag, flag.replace("-", "_")), True))


def _typed(flag: str, value: str) -> Any:
    if flag == OF_STAGES:
        return [plain_number(entry) for entry in (value.split() or [""])[0].split(",")]
    if flag in _LISTS:
        return [plain_number(entry) for entry in value.split()]
    return plain_number(value.strip().strip("'\""))


def _read_devices(settings: Settings, arguments: dict[str, str | bool]) -> None:
    """Processes that torchrun starts; where that isn't said, the flags of the question say how many there are."""
    # The launcher's last value has the program's name behind it.
    nodes, processes = (
        whole_number(next(iter(str(arguments.get(name, "")).split()), None)) for name in (_NODES, _PROCESSES)
    )
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
        name = _setting_of(flag)[0]
        if name in settings.read or flag in known or flag in (_NODES, _PROCESSES):
            continue
        if _bears(flag) and name in settings.shown:
            settings.fail(name, "it may bear on the plan, which has no field for it")
        elif name in settings.shown:
            ignored.append(f"--{flag}")
    return tuple(ignored)


def _bears(flag: str) -> bool:
    return bool(_BEARING.search(flag)) and not _HARMLESS.search(flag)

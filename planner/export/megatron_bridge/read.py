"""Overrides of a Megatron-Bridge recipe, or its YAML, as fields of a plan. What they don't say the recipe does."""

from __future__ import annotations

import re
from typing import Any

from costmodel.errors import InvalidInput
from planner.export.dotted import dotted, sections_of, value_of
from planner.export.megatron.numbers import PRECISIONS as MEGATRON_PRECISIONS
from planner.export.megatron.older import with_older_names
from planner.export.megatron.reading import read_plan
from planner.export.megatron.recipe_reading import left_over, model_under, said_by, shell_words
from planner.export.megatron.settings import Settings
from planner.export.megatron_bridge.keys import PRECISIONS
from planner.export.megatron_bridge.write import words
from planner.export.numbers import whole_number
from planner.export.reading import Read

_OVERRIDE = re.compile(r"\+{0,2}([a-z_]+(?:\.\w+)*)=(.*)", re.S)
_PARTS = (
    "model",
    "train",
    "ddp",
    "optimizer",
    "dataset",
    "comm_overlap",
    "mixed_precision",
    "dist",
    "checkpoint",
    "trainer",
)
_TORCHRUN = re.compile(r"--nnodes[ =](\d+).*?--nproc[-_]per[-_]node[ =](\d+)", re.S)
_PRECISION_OF = {said: ours for ours, said in PRECISIONS.items()}


def read(text: str) -> Read:
    """What the overrides, in a script or alone, or the YAML say of a plan.

    Raises:
        InvalidInput: there are none in the text.
    """
    found = _overrides(text)
    if not found:
        expected = "overrides such as model.tensor_model_parallel_size=8 or a YAML of model, train and ddp are expected"
        raise InvalidInput("from", text.strip()[:60], expected)
    found = with_older_names(found)
    settings = _settings(found)
    layers = settings.number("num_layers")
    read_plan(settings, layers=layers, has_experts=bool(settings.number("num_moe_experts", 0)) or _has(found, "expert"))
    _read_devices(settings, text)
    known = {*words().words, "mixed_precision", "comm_overlap"}
    return said_by(settings, model_under(found, "model."), left_over(settings, found, known.__contains__))


def _read_devices(settings: Settings, text: str) -> None:
    devices = _TORCHRUN.search(text)
    of_trainer = settings.number("num_nodes"), settings.number("devices")
    if of_trainer[0] and of_trainer[1]:
        settings.say("devices_used", of_trainer[0] * of_trainer[1], "num_nodes", "devices")
    nodes, processes = (whole_number(devices[group]) if devices else None for group in (1, 2))
    if devices and nodes and processes:
        settings.plan["devices_used"] = nodes * processes
        settings.meanings["devices_used"] = f"--nnodes {devices[1]} --nproc-per-node {devices[2]}"


def _overrides(text: str) -> dict[str, Any]:
    document = sections_of(text, _PARTS)
    if document is not None:
        return dotted(document)
    found: dict[str, Any] = {}
    for token in shell_words(text):
        match = _OVERRIDE.fullmatch(token)
        if match and match[1].split(".")[0] in _PARTS:
            found[match[1]] = value_of(match[2])
    return found


def _settings(found: dict[str, Any]) -> Settings:
    values: dict[str, Any] = {}
    shown: dict[str, str] = {}
    unread: dict[str, str] = {}
    unknown: set[str] = set()
    for key, value in found.items():
        said = f"{key}={value}"
        if isinstance(value, str) and "$" in value:
            unread[said] = "what the variable holds is not in the text"
            unknown.add(key.rpartition(".")[2].replace("sequence_length", "seq_length"))
        elif key == "mixed_precision":
            named = _PRECISION_OF.get(str(value).replace("-", "_"))
            if named is None:
                unread[said] = f"one of {', '.join(PRECISIONS.values())} is expected"
                continue
            more = dict(MEGATRON_PRECISIONS[named]) | {"grad_reduce_in_fp32": named != "fp16"}
            values |= more
            shown |= dict.fromkeys(more, said)
        elif "." in key:
            name = key.rpartition(".")[2].replace("sequence_length", "seq_length")
            values[name], shown[name] = value, said
    return Settings(values=values, shown=shown, unread=unread, unknown=unknown)


def _has(found: dict[str, Any], part: str) -> bool:
    return any(key.startswith("model.") and part in key for key in found)

"""Overrides of a NeMo recipe, or lines of Python that set them, as fields of a plan. Else the recipe speaks."""

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
from planner.export.nemo.keys import CALLBACKS, DDP, DTYPES, MODEL, PLUGIN, PRECISIONS
from planner.export.nemo.write import words
from planner.export.reading import Read

_PARTS = ("trainer", "model", "data", "optim")
_KEY = rf"(?:{'|'.join(_PARTS)})(?:\.\w+)+"
_OVERRIDE = re.compile(rf"({_KEY})=(.*)", re.S)
_PYTHON = re.compile(rf"^[ \t]*\w+\.({_KEY})[ \t]*=[ \t]*([^=\s#][^#\n]*)", re.M)
_RECIPE = re.compile(r"[(,]\s*(num_nodes|num_gpus_per_node)\s*=\s*(\d{1,9})\b")
_OVERLAP = re.compile(r"tp_comm_overlap\s*=\s*true\b", re.I)
_PRECISION_OF = {said: ours for ours, said in PRECISIONS.items()}
_DTYPE_OF = {said: ours for ours, said in DTYPES.items()}
_NODES, _DEVICES = "trainer.num_nodes", "trainer.devices"
# Said again by the precision's recipe, or of its layers in 16 bits, which plans have none of.
_SAID_TWICE = ("pipeline_dtype", "params_dtype", "main_params_dtype", "main_grads_dtype")


def read(text: str) -> Read:
    """What the overrides, in a script or alone, the Python or the YAML say of a plan.

    Raises:
        InvalidInput: there are none in the text.
    """
    found = _overrides(text)
    if not found:
        expected = (
            "overrides such as trainer.strategy.tensor_model_parallel_size=8 data.micro_batch_size=1 are expected"
        )
        raise InvalidInput("from", text.strip()[:60], expected)
    found = _of_recipe(text) | with_older_names(found)
    settings = _settings(found)
    has_experts = any("expert" in key and value not in (None, False) for key, value in found.items())
    read_plan(settings, layers=settings.number("num_layers"), has_experts=has_experts)
    _read_devices(settings, found)
    # NeMo 1.x has the sizes in model itself.
    under = f"{MODEL}." if any(key.startswith(f"{MODEL}.") for key in found) else "model."
    known = words().words

    def is_known(key: str) -> bool:
        said_twice = key.rpartition(".")[2] in _SAID_TWICE
        return key in known or said_twice or f"{key}={found[key]}" in settings.unread

    return said_by(settings, model_under(found, under), left_over(settings, found, is_known))


def _of_recipe(text: str) -> dict[str, Any]:
    """Nodes and devices that a recipe's function is told."""
    names = {"num_nodes": _NODES, "num_gpus_per_node": _DEVICES}
    return {names[match[1]]: value_of(match[2]) for match in _RECIPE.finditer(text)}


def _overrides(text: str) -> dict[str, Any]:
    document = sections_of(text, _PARTS)
    if document is not None:
        return dotted({part: document[part] for part in _PARTS if isinstance(document.get(part), dict)})
    python = {match[1]: _value(match[2].strip()) for match in _PYTHON.finditer(text)}
    if python:
        return python
    return {match[1]: _value(match[2]) for match in map(_OVERRIDE.fullmatch, shell_words(text)) if match}


def _value(text: str) -> Any:
    if text in ("None", "none"):
        return None
    return value_of(text)


def _settings(found: dict[str, Any]) -> Settings:
    values: dict[str, Any] = {}
    shown: dict[str, str] = {}
    unread: dict[str, str] = {}
    unknown: set[str] = set()
    # Callbacks are set up last, over what the configuration has.
    for key, value in sorted(found.items(), key=lambda item: item[0] == CALLBACKS):
        said, name, more = f"{key}={value}", key.rpartition(".")[2], {}
        if isinstance(value, str) and "$" in value:
            unread[said] = "what the variable holds is not in the text"
            unknown.add(name)
        elif key == PLUGIN:
            more = _of_precision(str(value))
            if not more:
                unread[said] = f"one of {', '.join(PRECISIONS.values())} is expected"
        elif key == CALLBACKS:
            more = {"tp_comm_overlap": True} if _OVERLAP.search(str(value)) else {}
            if value and not more:
                unread[said] = "what callbacks set can't be told"
        elif key == f"{DDP}.grad_reduce_in_fp32":
            unread[said] = f"{PLUGIN}.grad_reduce_in_fp32 replaces it"
        elif key == "trainer.strategy.fsdp":
            more = {"use_megatron_fsdp": value == "megatron"}
        elif key.startswith(f"{PLUGIN}.") and name == "precision":
            more = {"bf16": str(value) == "bf16-mixed", "fp16": str(value) == "16-mixed"}
        else:
            more = {name: _DTYPE_OF.get(str(value), value) if name.endswith("_dtype") else value}
        values |= more
        shown |= dict.fromkeys(more, said)
    if not {"bf16", "fp16"} & set(values):
        values["bf16"] = True  # as recipes are
    return Settings(values=values, shown=shown, unread=unread, unknown=unknown)


def _of_precision(named: str) -> dict[str, Any]:
    """Megatron-Core's settings of a recipe of NeMo's, with the type that it reduces gradients in."""
    ours = _PRECISION_OF.get(named.rpartition(".")[2].removesuffix("()"))
    if ours is None:
        return {}
    return dict(MEGATRON_PRECISIONS[ours]) | {"grad_reduce_in_fp32": ours != "fp16"}


def _read_devices(settings: Settings, found: dict[str, Any]) -> None:
    counts = settings.number("num_nodes"), settings.number("devices")
    if counts[0] and counts[1]:
        settings.plan["devices_used"] = counts[0] * counts[1]
        settings.meanings["devices_used"] = f"{_NODES}={found[_NODES]} {_DEVICES}={found[_DEVICES]}"

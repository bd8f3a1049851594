"""A Python recipe: a function that torchtitan 0.3 finds by ``--module`` and ``--config``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from planner.export.torchtitan.flavours import Flavour

_CHECKPOINTING = {"full": "FullAC", "selective": "SelectiveAC"}
_REGISTRY = "model_registry."
_GROUPS = "optimizer.param_groups."
_INDENT = "    "


def recipe_of(flavour: Flavour, settings: Mapping[str, Any], function: str, about: str) -> str:
    """The module's text.

    Args:
        function: its name.
        about: a comment of one line.
    """
    registry = {name.removeprefix(_REGISTRY): value for name, value in settings.items() if name.startswith(_REGISTRY)}
    checkpointing = _CHECKPOINTING.get(settings["activation_checkpoint"])
    converters = registry.get("converters", [])
    body = [f"config = {flavour.recipe}()", *_model(registry)]
    body += [f"config.{name} = {_value(value)}" for name, value in settings.items() if _is_plain(name)]
    body.append(f"config.activation_checkpoint = {f'{checkpointing}.Config()' if checkpointing else None}")
    for name, value in settings.items():
        if name.startswith(_GROUPS):
            body += ["for group in config.optimizer.param_groups:"]
            body += [f"{_INDENT}group.{name.removeprefix(_GROUPS)} = {_value(value)}"]
    body.append("return config")
    lines = [f"# {about}", *_imports(flavour, registry, checkpointing, [kind for kind, _ in converters])]
    return "\n".join([*lines, "", "", f"def {function}() -> Trainer.Config:", *(_INDENT + line for line in body), ""])


def _is_plain(name: str) -> bool:
    return not name.startswith((_REGISTRY, _GROUPS)) and name != "activation_checkpoint"


def _imports(
    flavour: Flavour, registry: Mapping[str, Any], checkpointing: str | None, converters: list[str]
) -> list[str]:
    models = f"torchtitan.models.{flavour.module}"
    found = []
    if converters:
        found.append(f"from torchtitan.components.quantization import {', '.join(converters)}")
    if checkpointing:
        found.append(f"from torchtitan.distributed.activation_checkpoint import {checkpointing}")
    if "num_mtp_layers" in registry:
        found.append("from torchtitan.models.common.config_utils import decoder_vocab_size")
    found += [f"from {models} import model_registry", f"from {models}.config_registry import {flavour.recipe}"]
    if "num_mtp_layers" in registry:
        found.append(f"from {models}.mtp import MTPLoss")
    return [*found, "from torchtitan.trainer import Trainer"]


def _model(registry: Mapping[str, Any]) -> list[str]:
    """Its specification, and the loss that predictions of further tokens need."""
    arguments = [_value(registry["flavor"])]
    for name, value in registry.items():
        if name == "converters":
            arguments.append(f"converters=[{', '.join(_converter(*entry) for entry in value)}]")
        elif name != "flavor":
            arguments.append(f"{name}={_value(value)}")
    lines = [f"config.model_spec = model_registry({', '.join(arguments)})"]
    if "num_mtp_layers" in registry:
        lines.append("config.loss = MTPLoss.Config(global_vocab_size=decoder_vocab_size(config.model_spec))")
    return lines


def _converter(kind: str, arguments: Mapping[str, Any]) -> str:
    return f"{kind}.Config({', '.join(f'{name}={_value(value)}' for name, value in arguments.items())})"


def _value(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value)
    if not isinstance(value, list):
        return repr(value)
    inner = [_value(entry) for entry in value]
    if any(isinstance(entry, list) for entry in value):
        return "[\n" + "".join(f"{_INDENT * 2}{entry},\n" for entry in inner) + _INDENT + "]"
    return f"[{', '.join(inner)}]"

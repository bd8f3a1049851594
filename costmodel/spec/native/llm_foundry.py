"""LLM Foundry's training YAML: the ``model`` block, with ``${variables.*}`` put in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from costmodel.errors import InvalidInput
from costmodel.spec.families.common import Fields
from costmodel.spec.native.reading import as_family

_VARIABLE = re.compile(r"^\$\{(?:variables\.)?(\w+)\}$")
# MPTConfig's own defaults, where they are not those of its Hugging Face namesake.
_DEFAULTS: dict[str, Any] = {"no_bias": False, "learned_pos_emb": True, "expansion_ratio": 4}


def recognises(data: Mapping[str, Any]) -> bool:
    model = data.get("model")
    return isinstance(model, Mapping) and str(model.get("name", "")).endswith("_causal_lm")


def fields_of(data: Mapping[str, Any]) -> Fields:
    model, variables = data["model"], data.get("variables")
    known = {**data, **(variables if isinstance(variables, Mapping) else {})}
    config = {key: _resolved(value, known) for key, value in model.items()}
    if config["name"] != "mpt_causal_lm":
        repository = config.get("pretrained_model_name_or_path")
        raise InvalidInput("model.name", config["name"], f"the model is that of {repository}: give its config.json")
    return as_family("mpt", _DEFAULTS | config, {f"model.{key}": key for key in config})


def _resolved(value: Any, known: Mapping[str, Any]) -> Any:
    found = _VARIABLE.match(value) if isinstance(value, str) else None
    return known.get(found.group(1), value) if found else value

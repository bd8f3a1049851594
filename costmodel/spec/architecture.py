"""Which architecture a config.json is of, by its model_type or its class, and which ones are no decoders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costmodel.errors import InvalidInput
from costmodel.spec.config_keys import is_placeholder
from costmodel.spec.families import FAMILIES
from costmodel.spec.key_words import words

_ENDINGS = ("forcausallm", "lmheadmodel", "forconditionalgeneration")
_DECODERS_ONLY = "only decoders that predict the next token can be planned"


def model_type_of(config: Mapping[str, Any]) -> str:
    """The family's name: ``model_type``, or what ``architectures`` says when there is none."""
    given = config.get("model_type")
    if given is None:
        given = _of_class(class_of(config))
    if is_placeholder(given):
        raise InvalidInput("model_type", given, "it is a placeholder; put the value in its place")
    if not isinstance(given, str) or not given:
        expected = f"a config.json names its architecture here, one of {len(FAMILIES)} known such as llama or qwen3_moe"
        raise InvalidInput("model_type", given, expected)
    for spelling in (given, f"{given}_text", f"{given}_text_model", given.removesuffix("_text")):
        if spelling in FAMILIES:
            return spelling
    return given


def class_of(config: Mapping[str, Any]) -> str | None:
    """The model's class, from ``architectures`` or TensorRT-LLM's ``architecture``."""
    classes = config.get("architectures")
    name = classes[0] if isinstance(classes, list) and classes else config.get("architecture")
    return name if isinstance(name, str) else None


def refuse_encoders(config: Mapping[str, Any]) -> None:
    """What doesn't predict the next token from those before it.

    Raises:
        InvalidInput: the model's type, its class or a flag says so.
    """
    for key, value in (("is_encoder_decoder", True), ("is_causal", False)):
        if config.get(key) is value:
            raise InvalidInput(key, value, f"{str(not value).lower()} is expected: {_DECODERS_ONLY}")
    encoders, name, given = words()["encoders"], class_of(config), config.get("model_type")
    if name is not None and name.endswith(tuple(encoders["classes"])):
        raise InvalidInput("architectures", name, f"it is trained on masked tokens: {_DECODERS_ONLY}")
    if not isinstance(given, str):
        return
    by_part = any(part in given for part in encoders["parts"]) and not any(part in given for part in encoders["but"])
    if by_part or given in encoders["model_types"]:
        raise InvalidInput("model_type", given, f"it is an encoder: {_DECODERS_ONLY}")


def notes_on_class(config: Mapping[str, Any], model_type: str) -> list[str]:
    """What the class says that isn't planned."""
    name = class_of(config)
    if name is None:
        return []
    notes = []
    if any(part in name for part in words()["other_heads"]):
        notes.append(f"architectures {name}: its own head isn't planned, a projection to the vocabulary is")
    said = _of_class(name)
    if said in FAMILIES and model_type in FAMILIES and FAMILIES[said] is not FAMILIES[model_type]:
        notes.append(f"architectures {name} contradicts model_type {model_type}: it is planned as {model_type}")
    return notes


def _of_class(name: str | None) -> str | None:
    """The family of a class such as LlamaForCausalLM; the class itself where it is none's."""
    if name is None:
        return None
    letters = _letters(name)
    for ending in _ENDINGS:
        letters = letters.removesuffix(ending)
    return next((family for family in FAMILIES if _letters(family) == letters), name)


def _letters(text: str) -> str:
    return "".join(character for character in text.lower() if character.isalnum())

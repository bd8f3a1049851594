"""A Hugging Face config.json as a ModelSpec, without transformers or torch.

What a model_type's keys mean is in ``families``. Here: which part of the file is the language model, which family it
is, and one error for everything that is wrong. Sizes that define a model (layers, widths, heads) have to be in the
file; only the nested text_config of a multimodal model leaves out what its class has as a default, and then the model
carries a note that says which.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costmodel.errors import InvalidInput, UnknownName
from costmodel.spec.architecture import model_type_of, notes_on_class, refuse_encoders
from costmodel.spec.class_defaults import class_defaults
from costmodel.spec.config_keys import ConfigKeys
from costmodel.spec.families import FAMILIES
from costmodel.spec.families.common import (
    EXPERTS,
    FFN,
    HEADS,
    HIDDEN,
    KV_HEADS,
    LAYERS,
    TOP_K,
    VOCAB,
    Fields,
    check_relations,
    name_unread,
)
from costmodel.spec.families.dense import llama
from costmodel.spec.key_words import holds_something, of_structure, of_widths
from costmodel.spec.model import ModelSpec
from costmodel.spec.validation import build, together

# ModelSpec's cross-field checks name its own fields; a user of a config.json knows them by these keys.
_KEY_OF_FIELD = {
    "num_kv_heads": "num_key_value_heads",
    "moe.top_k": "num_experts_per_tok",
    "moe.num_dense_layers": "first_k_dense_replace",
    "moe.num_groups": "n_group",
    "moe.max_groups_per_token": "topk_group",
}
_TEXT_PARTS = ("thinker_config", "text_config", "language_config", "llm_config")
_OTHER_PARTS = ("vision_config", "audio_config", "speech_config", "visual")
_NAMES_IT = ("model_type", "architectures", "architecture", "_name_or_path", "name")
_PLAIN_SIZES = (LAYERS, HIDDEN, HEADS, FFN, VOCAB)
_SIZES = (*_PLAIN_SIZES, KV_HEADS, ("head_dim",), EXPERTS, TOP_K)


def known_model_types() -> tuple[str, ...]:
    return tuple(sorted(FAMILIES))


def model_from_config(config: Mapping[str, Any], name: str) -> ModelSpec:
    """The model that a config.json describes; every problem is an InvalidInput that names the key."""
    if not isinstance(config, Mapping):
        raise InvalidInput("config.json", config, "an object of keys and values is expected")
    text, notes = _language_model(_from_tensorrt_llm(config))
    refuse_encoders(text)
    _refuse_what_differs_by_layer(text)
    model_type = model_type_of(text)
    notes += notes_on_class(text, model_type)
    if model_type in FAMILIES:
        keys = ConfigKeys(text, class_defaults(model_type) if _nested(config) else None)
        fields = FAMILIES[model_type](keys)
        check_relations(keys)
        name_unread(keys, fields, f"model_type {model_type} has no such key, and it speaks of another architecture")
        _refuse_problems(keys)
    else:
        keys, fields = _plain_shape(text, model_type)
    try:
        return build(ModelSpec, {"name": name, **fields, "notes": (*notes, *keys.notes)}, where="")
    except InvalidInput as error:
        key = _KEY_OF_FIELD.get(error.field, error.field)
        raise InvalidInput(key, error.value, error.expected) from None


def _language_model(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[str]]:
    """The part of the file that describes the language model, and notes about the rest."""
    others = [part for part in _OTHER_PARTS if isinstance(config.get(part), Mapping)]
    notes = [f"{', '.join(others)}: only the text model is planned, the rest isn't costed"] if others else []
    nested = _nested(config)
    if nested is None:
        return config, notes
    text = dict(config[nested])
    notes += _disagreements(config, text, nested)
    for key in ("tie_word_embeddings", "model_type"):
        if text.get(key) is None and config.get(key) is not None:
            text[key] = config[key]
    deeper, more = _language_model(text)  # an omni model's thinker has a text model of its own
    return deeper, [*notes, *more]


def _disagreements(outer: Mapping[str, Any], text: Mapping[str, Any], part: str) -> list[str]:
    """Sizes beside the nested config that say something else than it does."""
    notes = []
    for names in _SIZES:
        said = next(((name, outer[name]) for name in names if outer.get(name) is not None), None)
        inner = next((text[name] for name in names if text.get(name) is not None), None)
        if said is not None and said[1] != inner:
            name, value = said
            found = f"{inner} there" if inner is not None else "it is not there"
            notes.append(f"{name} {value} at the top of the file is not used, {part} is what is planned ({found})")
    return notes


def _nested(config: Mapping[str, Any]) -> str | None:
    return next((part for part in _TEXT_PARTS if isinstance(config.get(part), Mapping)), None)


def _from_tensorrt_llm(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """A TensorRT-LLM checkpoint's config under Hugging Face's keys; any other as it is."""
    if "architecture" not in config or "model_type" in config:
        return config
    renamed = {"share_embedding_table": "tie_word_embeddings", "parallel_attention": "parallel_attn"}
    return {renamed.get(key, key): value for key, value in config.items()}


def _refuse_what_differs_by_layer(config: Mapping[str, Any]) -> None:
    blocks = config.get("block_configs")
    if blocks:
        found = f"{len(blocks)} blocks" if isinstance(blocks, list) else blocks
        expected = "layers that differ one by one in width or lack attention can't be planned: stages cut them evenly"
        raise InvalidInput("block_configs", found, expected)


def _refuse_problems(keys: ConfigKeys) -> None:
    for name in keys.unread:
        if name != name.strip():
            keys.problem(name, keys.raw(name), "the key's name has blanks around it")
    problems = keys.problems
    if not problems:
        return
    error = together(problems)
    if len(keys.missing) > 1:
        unknown = ", ".join(name for name in keys.unread if name not in _NAMES_IT) or "none"
        schema = f"the file has another schema than this model_type's config.json; keys unknown there: {unknown}"
        raise InvalidInput(error.field, error.value, f"{error.expected}; {schema}")
    raise error


def _plain_shape(config: Mapping[str, Any], model_type: str) -> tuple[ConfigKeys, Fields]:
    """An unknown architecture as Llama, if its keys are Llama's and none speaks of anything else.

    Raises:
        UnknownName: sizes are missing, or keys say that it is something else.
    """
    keys = ConfigKeys(config)
    missing = [names[0] for names in _PLAIN_SIZES if all(config.get(name) is None for name in names)]
    said = [name for name in sorted(map(str, config)) if holds_something(config.get(name))]
    odd = [name for name in said if of_structure(name)]
    fields = {} if missing or odd else llama(keys)
    odd = odd or [name for name in said if fields and name in keys.unread and of_widths(name)]
    if missing or odd:
        hint = "; ".join(
            [
                "it is not a plain Llama shape either",
                *([f"missing keys: {', '.join(missing)}"] if missing else []),
                *([f"keys not understood: {', '.join(odd)}"] if odd else []),
                "a file of ModelSpec's own fields can describe other decoders",
            ]
        )
        raise UnknownName("model_type", model_type, FAMILIES, hint)
    check_relations(keys)
    _refuse_problems(keys)
    keys.note(
        f"model_type {model_type} is not known: its sizes are read as Llama's (gated MLP, two norms a layer, biases "
        "only where the file says so)"
    )
    return keys, fields

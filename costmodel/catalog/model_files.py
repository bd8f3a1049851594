"""A model out of a file's content, whichever schema it has, and what to say of files that are something else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from costmodel.catalog.documents import SUFFIXES, read_mapping, read_text
from costmodel.errors import InvalidInput
from costmodel.spec.huggingface import model_from_config
from costmodel.spec.model import ModelSpec
from costmodel.spec.native import arguments_of, native_model
from costmodel.spec.validation import build

FIELD = "model"

# Keys that tell files which lie beside a config.json and are given by mistake.
_OTHER_FILES = {
    "weight_map": "an index of weights",
    "peft_type": "an adapter's config",
    "tokenizer_class": "a tokenizer's config",
    "added_tokens": "a tokenizer",
    "do_sample": "a generation config",
    "quantization": "a description of a quantization (hf_quant_config.json)",
    "producer": "a description of a quantization (hf_quant_config.json)",
    "ffn_embed_dim": "a description in another tool's own keys",
}
_ENOUGH = 3  # of ModelSpec's fields tell that they are meant
_SHAPE = ("model_type", "architectures", "architecture", "num_hidden_layers", "text_config")


def read_model(file: Path, name: str) -> ModelSpec:
    """The model of a user's file: YAML, JSON, or else text with ``--arguments`` of Megatron.

    Raises:
        UnreadableFile: it can't be read or isn't in its format.
        InvalidInput: a key is missing or wrong, or the file describes something else.
    """
    if file.suffix.lower() in SUFFIXES:
        data: Mapping[str, Any] = read_mapping(file, FIELD)
    else:
        data = arguments_of(read_text(file, FIELD), str(file))
    model = model_of(data, name, str(file))
    return model.model_copy(update={"notes": (*model.notes, *_quantized(data, file))})


def model_of(data: Mapping[str, Any], name: str, source: str) -> ModelSpec:
    """The model that a mapping describes: a config.json, a framework's own keys, or ModelSpec's fields."""
    native = native_model(data, name)
    if native is not None:
        return native.model_copy(update={"source": source})
    own = ModelSpec.model_fields.keys() & data.keys()
    if "num_layers" in own and len(own) >= _ENOUGH and not any(key in data for key in _SHAPE):
        return build(ModelSpec, {"name": name, "source": source, **data}, where="")
    if not any(key in data for key in _SHAPE):
        what = next((what for key, what in _OTHER_FILES.items() if key in data), None)
        found = f"this is {what}, not of a model; " if what else ""
        expected = (
            "a Hugging Face config (model_type, ...), a framework's model file or ModelSpec's fields are expected"
        )
        raise InvalidInput(FIELD, source, found + expected)
    return model_from_config(data, name).model_copy(update={"source": source})


def _quantized(data: Mapping[str, Any], file: Path) -> list[str]:
    """A note where the checkpoint is quantised: by its own keys, or by the file that exporters put beside it."""
    blocks = [data, *(block for block in data.values() if isinstance(block, Mapping))]
    found = [block[key] for block in blocks for key in ("quantization_config", "quantization") if block.get(key)]
    beside = file.with_name("hf_quant_config.json")
    if not found and not (beside != file and beside.is_file()):
        return []
    method = next((_method(block) for block in found if isinstance(block, Mapping)), None)
    how = f" ({method})" if method else ""
    return [
        f"the checkpoint is quantised{how}: training is planned from unquantised weights in the precision asked for"
    ]


def _method(block: Mapping[str, Any]) -> str | None:
    named = block.get("quant_method") or block.get("quant_algo")
    return str(named).lower() if named else None

"""Model files of training frameworks as ModelSpecs: each dialect is told by its keys and read by its own rules.

A file of Megatron arguments, a GPT-NeoX, MaxText, LLM Foundry or nanotron YAML, a torchtitan flavour (which is also
the params.json of Meta's checkpoints).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costmodel.errors import InvalidInput
from costmodel.spec.model import ModelSpec
from costmodel.spec.native import gpt_neox, llm_foundry, maxtext, megatron, nanotron, torchtitan
from costmodel.spec.native.megatron_shell import arguments_of, script_of
from costmodel.spec.validation import build

_DIALECTS = (nanotron, llm_foundry, maxtext, gpt_neox, megatron, torchtitan)
_KEY_OF_FIELD = {"num_kv_heads": "KV heads", "moe.top_k": "experts per token", "moe.num_dense_layers": "dense layers"}

__all__ = ["arguments_of", "native_model", "script_of"]


def native_model(data: Mapping[str, Any], name: str) -> ModelSpec | None:
    """The model of a framework's own file; None if it is no dialect known here.

    Raises:
        InvalidInput: the dialect is known, and a key is missing, wrong, or means what ModelSpec can't express.
    """
    for dialect in _DIALECTS:
        if dialect.recognises(data):
            fields = dialect.fields_of(data)
            try:
                return build(ModelSpec, {"name": name, **fields}, where="")
            except InvalidInput as error:
                raise InvalidInput(_KEY_OF_FIELD.get(error.field, error.field), error.value, error.expected) from None
    return None
